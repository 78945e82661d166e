"""The forward passes that examples ask for, none of them twice: which order costs least, and what is read off what.

Two things are paid for once. The NLL of a document's beginning is the beginning of its NLL (`Prefixes`), so shorter
lengths of the same document cost nothing. And prompts that begin alike (needles at several depths of one haystack) are
run one after the other, each going on from the cache of the one before. Neither outlives the rotary table under which
it was computed, nor is used where the table depends on the length.

In a batch, texts of equal length share a pass and answers are decoded side by side. Where the table depends on the
length samples run one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Protocol

from ropebench.answers import Answer, Asked
from ropebench.cell import Cell
from ropebench.prefixes import Prefixes
from ropebench.prompt import Encoder
from ropebench.record import canonical
from ropebench.task import Example, Output

# Prompts are put in order among so many ids at a time (about 150 MB of them), so that memory stays bounded.
_AT_ONCE = 2**22

MakeRunner = Callable[[Any, Encoder], "Runner"]


class Runner(Protocol):
    """What measures: `Engine`, or a fake of it in tests. `tokens_fed` counts the ids that went through the model."""

    tokens_fed: int

    def nll(self, ids: Sequence[int], keep: bool = False, reuse: bool = True) -> Any:
        """−ln p of ids[1:], one value each; `keep` holds the pass for a next one that begins alike."""
        ...

    def generate(self, ids: Sequence[int], max_new_tokens: int, stop: Sequence[str] = (), reuse: bool = True) -> Answer:
        """New text and its ids."""
        ...

    def nll_of_each(self, texts: Sequence[Sequence[int]]) -> Sequence[Any]:
        """`nll` of texts of one length, in one pass."""
        ...

    def begin(self, asked: Asked) -> Any:
        """A prompt put through the model, to be answered by `finish`."""
        ...

    def finish(self, begun: Sequence[Any]) -> list[Answer]:
        """The answers to prompts that were begun, decoded side by side."""
        ...

    def batch(self, length: int) -> int:
        """How many prompts of that length may be answered side by side."""
        ...

    def halve(self) -> bool:
        """Use less memory from now on; False where that is not possible."""
        ...

    @property
    def sizes(self) -> dict[str, int]:
        """What goes through at once, by name."""
        ...


def by_beginning(pairs: Iterable[tuple[int, Example]], at_once: int = _AT_ONCE) -> Iterator[tuple[int, Example]]:
    """The (index, example) pairs with prompts that begin alike next to each other; the others stay in their order.

    Sorted prompts are a walk through the tree of their beginnings: each edge is computed once, which is the least.
    """
    group: list[tuple[int, Example]] = []
    held = 0
    try:
        for pair in pairs:
            prompt = len(pair[1].ids)
            if group and (not prompt or held + prompt > at_once):
                yield from sorted(group, key=_ids)
                group, held = [], 0
            if prompt:
                group.append(pair)
                held += prompt
            else:
                yield pair
    except Exception:
        yield from sorted(group, key=_ids)  # what came before an example that cannot be made is still measured
        raise
    yield from sorted(group, key=_ids)


def _ids(pair: tuple[int, Example]) -> tuple[int, ...]:
    return pair[1].ids


def batches(stream: Iterator[tuple[int, Example]], size: Callable[[], int]) -> Iterator[list[tuple[int, Example]]]:
    """The pairs, `size()` at a time. What came before an example that cannot be made is still given."""
    failed: Exception | None = None
    while failed is None:
        batch: list[tuple[int, Example]] = []
        try:
            for pair in islice(stream, size()):
                batch.append(pair)
        except Exception as caught:
            failed = caught
        if not batch:
            break
        yield batch
    if failed is not None:
        raise failed


def _alike(example: Example) -> bool:
    """Whether its windows begin alike, such as one question with several answers; those of a sliding pass do not."""
    starts = {window.ids[: max(1, len(window.ids) // 8)] for window in example.windows[:2]}
    return len(example.windows) > 1 and len({start[: min(map(len, starts))] for start in starts}) == 1


@dataclass
class Shared:
    """What one cell leaves to the next: a runner with what it holds, made anew for another table, and how often memory
    ran out. `batch` is the batch size asked for, or auto."""

    make: MakeRunner
    batch: int | str = 1
    runner: Runner | None = None
    under: str = ""
    halvings: int = 0

    def of(self, cell: Cell, loaded: Any, encoder: Encoder) -> Runner:
        """The runner for a cell; what was computed under another table is dropped first."""
        identity = cell.identity
        under = canonical([identity["model"], identity["method"], cell.bos, cell.chat])
        if self.runner is None or under != self.under:
            self.drop()
            self.runner, self.under = self.make(loaded.model, encoder), under
            for _ in range(self.halvings):
                self.runner.halve()
        return self.runner

    def rows(self, cell: Cell) -> int:
        """The batch size of a cell. 1 where its table depends on the length, and where the runner says so."""
        if self.batch == 1 or cell.length_dependent or self.runner is None:
            return 1
        most = self.runner.batch(cell.length)
        asked = most if self.batch == "auto" or most == 1 else int(self.batch)
        return max(1, asked >> self.halvings)

    def halve(self, cell: Cell) -> bool:
        """Halve the batch and what goes through at once, as memory ran out; False where neither can be smaller."""
        before = self.rows(cell)
        smaller = self.runner is not None and self.runner.halve()
        if smaller or before > 1:
            self.halvings += 1
        return smaller or before > 1

    def drop(self) -> None:
        """Hold nothing, such as after memory ran out."""
        self.runner, self.under = None, ""


@dataclass
class Passes:
    """The passes of one sample, each under the table that belongs to its length. `table(length)` is the context in
    which that table is live; `memo` holds passes made for other lengths of the same document."""

    cell: Cell
    runner: Runner
    memo: Prefixes
    table: Callable[[int], Any]

    def output(self, example: Example) -> Output:
        """NLL of the example's windows, then its text."""
        nll = self._windows(example)
        if not example.max_new_tokens:
            return Output(nll=nll)
        # The total length, answer budget included, is fixed before the pass.
        with self._of_length(len(example.ids) + example.max_new_tokens):
            text, ids = self.runner.generate(example.ids, example.max_new_tokens, example.stop, self._static)
        return Output(text, ids, nll)

    def outputs(self, examples: Sequence[Example]) -> list[Output]:
        """`output` of each, in one batch; its table must not depend on the length."""
        if len(examples) == 1:
            return [self.output(examples[0])]
        self._learn([e.windows[0].ids for e in examples if len(e.windows) == 1 and not e.max_new_tokens])
        nll, begun = [], []
        for example in examples:
            nll.append(self._windows(example))
            if example.max_new_tokens:  # at once, while the windows' pass, which may begin alike, is held
                begun.append(self.runner.begin(Asked(example.ids, example.max_new_tokens, example.stop)))
        answers = iter(self.runner.finish(begun) if begun else ())
        return [
            Output(*next(answers), own) if example.max_new_tokens else Output(nll=own)
            for example, own in zip(examples, nll, strict=True)
        ]

    def _learn(self, texts: Sequence[tuple[int, ...]]) -> None:
        """Put the NLL of texts into the memo, those of equal length in one pass."""
        new = sorted((ids for ids in dict.fromkeys(texts) if self.memo.find(ids) is None), key=len)
        for _, alike in groupby(new, key=len):
            group = list(alike)
            for ids, nll in zip(group, self.runner.nll_of_each(group), strict=True):
                self.memo.add(ids, nll)

    def _windows(self, example: Example) -> tuple[Any, ...]:
        keep = bool(example.max_new_tokens) or _alike(example)
        return tuple(self._nll(window.ids, keep)[window.first_scored - 1 :] for window in example.windows)

    @property
    def _static(self) -> bool:
        return not self.cell.length_dependent

    def _nll(self, ids: tuple[int, ...], keep: bool) -> Any:
        known = self.memo.find(ids) if self._static else None
        if known is None:
            with self._of_length(len(ids)):
                known = self.runner.nll(ids, keep, self._static)
            if self._static:
                self.memo.add(ids, known)
        return known

    def _of_length(self, length: int) -> Any:
        """The table is set anew for each pass where it depends on the length; else the cell's own is live already."""
        return nullcontext() if self._static else self.table(length)
