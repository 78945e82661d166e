"""How many tokens `run` will feed for the cells of a plan: likelihood is counted sample by sample in the order in which
`run` measures it, generation at its answer budget. Reads documents and a tokenizer, no weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from ropebench.cell import Cell
from ropebench.errors import UsageError
from ropebench.prefixes import Prefixes
from ropebench.record import canonical
from ropebench.run import encoder_of, examples_of, prompt_sha256
from ropebench.store import Stored
from ropebench.task import Example


def tokens_to_feed(cells: Sequence[Cell], stored: Stored, tokenizer: Any) -> dict[str, tuple[int, bool]]:
    """Ids that go through the model per cell (by its id), and whether the number is exact; stored samples are not run
    again.

    It is exact for tasks that score documents. Where text is generated it is a bound: every prompt with its answer, and
    every window beside them, at the cell's length. Raises UsageError for a sample that cannot be made.
    """
    tokens = {cell.id: 0 for cell in cells}
    exact = set(tokens)
    alike: dict[str, list[Cell]] = {}
    for cell in cells:
        if not stored.done(cell):
            samples = canonical([cell.identity["task"], cell.seed, cell.bos, cell.chat])
            alike.setdefault(samples, []).append(cell)
    for same in alike.values():
        example = _typical(same, tokenizer)
        if example is not None and not example.max_new_tokens:
            counted = _documents(same, stored, tokenizer)
        else:
            passes = 1 + len(example.windows if example else ())
            counted = [(cell, _left(cell, stored) * cell.length * passes) for cell in same]
            exact -= {cell.id for cell in same}
        for cell, number in counted:
            tokens[cell.id] += number
    return {own: (number, own in exact) for own, number in tokens.items()}


def _typical(cells: Sequence[Cell], tokenizer: Any) -> Example | None:
    """A sample of the shortest length that has one which fits (a long prompt takes seconds to make), or None."""
    for cell in {cell.length: cell for cell in sorted(cells, key=lambda cell: cell.length)}.values():
        for example in islice(_stream(cell, tokenizer), 3):
            if example.skip is None:
                return example
    return None


def _left(cell: Cell, stored: Stored) -> int:
    return cell.n - sum(index < cell.n for index in stored.rows.get(cell.id, {}))


def _documents(cells: Sequence[Cell], stored: Stored, tokenizer: Any) -> list[tuple[Cell, int]]:
    """Exactly what cells feed that score the same documents, document by document: one pass under a static table serves
    every length for which it is not stored."""
    streams = {cell.length: _stream(cell, tokenizer) for cell in cells}
    tables: dict[str, list[Cell]] = {}
    for cell in cells:
        own = cell.id if cell.length_dependent else canonical([cell.identity["model"], cell.identity["method"]])
        tables.setdefault(own, []).append(cell)
    counted: list[tuple[Cell, int]] = []
    for index in range(max(cell.n for cell in cells)):
        examples = {length: next(stream, None) for length, stream in streams.items()}
        if not any(examples.values()):
            break
        hashes = {length: prompt_sha256(example) for length, example in examples.items() if example is not None}
        known: dict[tuple[Any, ...], list[int]] = {}  # most tables want the same of a document
        for same in tables.values():
            wanted = [cell for cell in same if index < cell.n and not _is_stored(cell, index, hashes, stored)]
            asked = (same[0].length_dependent, *(cell.length for cell in wanted))
            if asked not in known:
                known[asked] = _passes([examples[cell.length] for cell in wanted], reusable=not asked[0])
            counted += zip(wanted, known[asked], strict=True)
    return counted


def _is_stored(cell: Cell, index: int, hashes: dict[int, str], stored: Stored) -> bool:
    row = stored.rows.get(cell.id, {}).get(index)
    return cell.length not in hashes or (row is not None and row["prompt_sha256"] == hashes[cell.length])


def _passes(examples: Sequence[Example | None], reusable: bool) -> list[int]:
    """Ids fed for each of the examples of one document, one after the other."""
    memo, fed = Prefixes(), []
    for example in examples:
        fed.append(0)
        for window in example.windows if example is not None and example.skip is None else ():
            if not reusable or memo.find(window.ids) is None:
                fed[-1] += len(window.ids)
                memo.add(window.ids, window.ids)
    return fed


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
