"""How many tokens `run` will feed for the cells of a plan: likelihood is counted sample by sample in the order in which
`run` measures it, generation at its answer budget. Reads documents and a tokenizer, no weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ropebench.cell import Cell
from ropebench.errors import UsageError
from ropebench.passes import Passes, by_beginning
from ropebench.prefixes import Prefixes
from ropebench.record import canonical
from ropebench.run import encoder_of, examples_of, prompt_sha256
from ropebench.store import Stored
from ropebench.task import Example
from ropebench.work import DryRunner, Work, one_pass

# How many prompts, and ids of them, are looked at to see how much of them begins alike.
_LOOK, _LOOK_IDS = 64, 2**17


@dataclass(frozen=True)
class Feed:
    """What a cell feeds: at most so many `tokens` (or just so many, where that is `exact`), and the work to expect."""

    tokens: int = 0
    exact: bool = True
    work: Work = field(default_factory=Work)


def feed_of(cells: Sequence[Cell], stored: Stored, tokenizer: Any) -> dict[str, Feed]:
    """Ids that go through the model per cell (by its id), with the work that they are; stored samples are not run
    again.

    The number is exact for tasks that score documents. Where text is generated it is a bound: every prompt with its
    answer, and every window beside them, at the cell's length; the work to expect is less by what prompts have in
    common, as the samples of the shortest length show. Raises UsageError for a sample that cannot be made.
    """
    feeds = {cell.id: Feed() for cell in cells}
    alike: dict[str, list[Cell]] = {}
    for cell in cells:
        if not stored.done(cell):
            samples = canonical([cell.identity["task"], cell.seed, cell.bos, cell.chat])
            alike.setdefault(samples, []).append(cell)
    for same in alike.values():
        example = _typical(same, tokenizer)
        if example is not None and not example.max_new_tokens:
            for cell, work in _documents(same, stored, tokenizer):
                sum_ = feeds[cell.id].work + work
                feeds[cell.id] = Feed(sum_.tokens, True, sum_)
        else:
            passes = 1 + len(example.windows if example else ())
            expected = _answers(same, tokenizer)
            for cell in same:
                left = _left(cell, stored)
                feeds[cell.id] = Feed(left * cell.length * passes, False, expected(cell).scaled(left))
    return feeds


def _answers(cells: Sequence[Cell], tokenizer: Any) -> Any:
    """The work of one sample of a cell: as the samples of the shortest length show it, scaled to the cell's length."""
    shortest = min(cells, key=lambda cell: cell.length)
    examples: list[Example] = []
    for example in islice(_stream(shortest, tokenizer), min(_LOOK, max(cell.n for cell in cells))):
        if example.skip is None:
            examples.append(example)
        if sum(len(one.ids) for one in examples) >= _LOOK_IDS:
            break
    seen: dict[tuple[bool, bool], Work] = {}

    def of(cell: Cell) -> Work:
        static, holds = not cell.length_dependent, _holds(cell)
        if not examples:
            return one_pass(cell.length)
        if (static, holds) not in seen:
            runner = DryRunner(holds)
            ordered = by_beginning(enumerate(examples)) if static else enumerate(examples)
            for _, example in ordered:
                _dry(cell, runner, Prefixes()).output(example)
            seen[static, holds] = runner.work.scaled(1 / len(examples))
        own = seen[static, holds]
        filled = sum(example.tokens for example in examples) / (len(examples) * shortest.length)
        # What fills the length grows with it; data of a size of their own do not.
        return own.scaled(1, cell.length / shortest.length if filled > 0.9 else 1.0)

    return of


def _holds(cell: Cell) -> bool:
    """Whether passes can go on from a cache, as far as a config tells."""
    return cell.attention == "sdpa" and not cell.card.sliding_window


def _dry(cell: Cell, runner: DryRunner, memo: Prefixes) -> Passes:
    return Passes(cell, runner, memo, lambda _: nullcontext())


def _typical(cells: Sequence[Cell], tokenizer: Any) -> Example | None:
    """A sample of the shortest length that has one which fits (a long prompt takes seconds to make), or None."""
    for cell in {cell.length: cell for cell in sorted(cells, key=lambda cell: cell.length)}.values():
        for example in islice(_stream(cell, tokenizer), 3):
            if example.skip is None:
                return example
    return None


def _left(cell: Cell, stored: Stored) -> int:
    return cell.n - sum(index < cell.n for index in stored.rows.get(cell.id, {}))


def _documents(cells: Sequence[Cell], stored: Stored, tokenizer: Any) -> list[tuple[Cell, Work]]:
    """Exactly what cells feed that score the same documents, document by document: one pass under a static table serves
    every length for which it is not stored."""
    streams = {cell.length: _stream(cell, tokenizer) for cell in cells}
    tables: dict[str, list[Cell]] = {}
    for cell in cells:
        own = cell.id if cell.length_dependent else canonical([cell.identity["model"], cell.identity["method"]])
        tables.setdefault(own, []).append(cell)
    counted: list[tuple[Cell, Work]] = []
    for index in range(max(cell.n for cell in cells)):
        examples = {length: next(stream, None) for length, stream in streams.items()}
        if not any(examples.values()):
            break
        hashes = {length: prompt_sha256(example) for length, example in examples.items() if example is not None}
        known: dict[tuple[Any, ...], list[Work]] = {}  # most tables want the same of a document
        for same in tables.values():
            wanted = [cell for cell in same if index < cell.n and not _is_stored(cell, index, hashes, stored)]
            asked = (same[0].length_dependent, *(cell.length for cell in wanted))
            if asked not in known:
                known[asked] = _passes([(cell, examples[cell.length]) for cell in wanted])
            counted += zip(wanted, known[asked], strict=True)
    return counted


def _is_stored(cell: Cell, index: int, hashes: dict[int, str], stored: Stored) -> bool:
    row = stored.rows.get(cell.id, {}).get(index)
    return cell.length not in hashes or (row is not None and row["prompt_sha256"] == hashes[cell.length])


def _passes(examples: Sequence[tuple[Cell, Example | None]]) -> list[Work]:
    """The work of each of the examples of one document, one after the other."""
    memo, done = Prefixes(), []
    for cell, example in examples:
        runner = DryRunner(_holds(cell))
        if example is not None and example.skip is None:
            _dry(cell, runner, memo).output(example)
        done.append(runner.work)
    return done


def _stream(cell: Cell, tokenizer: Any) -> Iterator[Example]:
    """The cell's samples. Raises UsageError for one that cannot be made."""
    try:
        yield from islice(examples_of(cell, encoder_of(cell, tokenizer)), cell.n)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"task {cell.task_label}: a sample at length {cell.length} cannot be made ({type(error).__name__}: {error})"
        ) from error
