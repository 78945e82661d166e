"""The forward passes that examples ask for, none of them twice: which order costs least, and what is read off what.

Two things are paid for once. The NLL of a document's beginning is the beginning of its NLL (`Prefixes`), so shorter
lengths of the same document cost nothing. And prompts that begin alike (needles at several depths of one haystack) are
run one after the other, each going on from the cache of the one before. Neither outlives the rotary table under which
it was computed, nor is used where the table depends on the length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

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

    def generate(
        self, ids: Sequence[int], max_new_tokens: int, stop: Sequence[str] = (), reuse: bool = True
    ) -> tuple[str, tuple[int, ...]]:
        """New text and its ids."""
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


def _alike(example: Example) -> bool:
    """Whether its windows begin alike, such as one question with several answers; those of a sliding pass do not."""
    starts = {window.ids[: max(1, len(window.ids) // 8)] for window in example.windows[:2]}
    return len(example.windows) > 1 and len({start[: min(map(len, starts))] for start in starts}) == 1


@dataclass
class Shared:
    """What one cell leaves to the next: a runner with what it holds. Made anew for another table."""

    make: MakeRunner
    runner: Runner | None = None
    under: str = ""

    def of(self, cell: Cell, loaded: Any, encoder: Encoder) -> Runner:
        """The runner for a cell; what was computed under another table is dropped first."""
        identity = cell.identity
        under = canonical([identity["model"], identity["method"], cell.bos, cell.chat])
        if self.runner is None or under != self.under:
            self.drop()
            self.runner, self.under = self.make(loaded.model, encoder), under
        return self.runner

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
        keep = bool(example.max_new_tokens) or _alike(example)
        nll = tuple(self._nll(window.ids, keep)[window.first_scored - 1 :] for window in example.windows)
        if not example.max_new_tokens:
            return Output(nll=nll)
        # The total length, answer budget included, is fixed before the pass.
        with self._of_length(len(example.ids) + example.max_new_tokens):
            text, ids = self.runner.generate(example.ids, example.max_new_tokens, example.stop, self._static)
        return Output(text, ids, nll)

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
