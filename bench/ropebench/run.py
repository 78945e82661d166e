"""Cells to records: what is already stored is not run again, and what fails becomes a record.

Each sample row is written as soon as it is measured, so a run that is cut off goes on inside the cell where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from ropebench.cell import Cell
from ropebench.errors import UsageError
from ropebench.memory import PeakMemory, release
from ropebench.outcome import failure, prompt_sha256, record_of, sample_row
from ropebench.prefixes import Prefixes
from ropebench.prompt import Encoder
from ropebench.record import Json, canonical, provenance
from ropebench.store import NotStored, Stored, Writer
from ropebench.task import Example, Output

__all__ = ["Progress", "Runner", "Stored", "encoder_of", "preflight", "prompt_sha256", "run_cells"]


class Runner(Protocol):
    """What measures: `Engine`, or a fake of it in tests."""

    def nll(self, ids: Sequence[int]) -> Any:
        """−ln p of ids[1:], one value each."""
        ...

    def generate(
        self, ids: Sequence[int], max_new_tokens: int, stop: Sequence[str] = ()
    ) -> tuple[str, tuple[int, ...]]:
        """New text and its ids."""
        ...


@dataclass(frozen=True)
class Progress:
    """Where a run is, for whoever shows it: cell k of n, samples, tokens per second, seconds left (None: unknown)."""

    cell: Cell
    number: int
    cells: int
    sample: int
    samples: int
    tokens_per_second: float | None
    seconds_left: float | None


def encoder_of(cell: Cell, tokenizer: Any) -> Encoder:
    """The encoder of a cell: its tokenizer, BOS rule and chat template."""
    return Encoder(tokenizer, cell.bos, cell.chat)


def preflight(cells: Sequence[Cell], tokenizer: Any) -> None:
    """Make the first example of every (task, length), so that what cannot be made is said before weights are loaded."""
    tried = set()
    for cell in cells:
        key = canonical([cell.identity["task"], cell.length, cell.seed, cell.bos, cell.chat])
        if key in tried:
            continue
        tried.add(key)
        try:
            next(iter(cell.task.examples(cell.length, encoder_of(cell, tokenizer), cell.seed, cell.corpus)), None)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(
                f"task {cell.task_label}: its first sample at length {cell.length} cannot be made "
                f"({type(error).__name__}: {error})"
            ) from error


def run_cells(
    cells: Sequence[Cell],
    loaded: Any,
    stored: Stored,
    writer: Writer,
    argv: Sequence[str] = (),
    progress: Callable[[Progress], None] = lambda _: None,
    engine: Callable[[Any, Encoder], Runner] | None = None,
) -> list[Json]:
    """Run cells on one loaded model, in order; returns their records (also written). A cell that fails is a record and
    the next one runs. `engine` builds the runner from (model, encoder); tests give a fake one.

    Raises NotStored when a result cannot be written. KeyboardInterrupt passes through: every sample measured before it
    is stored, and the next run goes on from there.
    """
    if engine is None:
        from ropebench.engine import Engine

        engine = Engine
    memo, held = Prefixes(), ""
    records = []
    provenance(tuple(argv), loaded.device)  # read now, and kept: the commit that runs, not one made meanwhile
    for number, cell in enumerate(cells, 1):
        under = canonical([cell.card.id, cell.card.revision, cell.identity["method"]])
        if under != held:  # nothing computed under one table is ever used under another
            memo, held = Prefixes(), under
        report = _Reporter(cell, number, len(cells), progress)
        records.append(_run_cell(cell, loaded, stored, writer, tuple(argv), report, engine, memo))
        writer.record(records[-1])
    return records


@dataclass
class _Reporter:
    """Counts what a cell has cost so far, and says where it is."""

    cell: Cell
    number: int
    cells: int
    show: Callable[[Progress], None]
    began: float = field(default_factory=time.monotonic)
    fed: int = 0  # tokens that went through the model: nothing stored, nothing read off a longer pass
    measured: int = 0

    def at(self, index: int) -> None:
        spent = time.monotonic() - self.began
        left = spent / self.measured * (self.cell.n - index) if self.measured else None
        self.show(Progress(self.cell, self.number, self.cells, index, self.cell.n, self._rate(spent), left))

    def _rate(self, seconds: float) -> float | None:
        return self.fed / seconds if self.fed and seconds else None

    def cost(self, peak_bytes: int | None) -> Json:
        seconds = time.monotonic() - self.began
        rate = self._rate(seconds)
        return {"seconds": seconds, "tokens": self.fed, "tokens_per_second": rate, "peak_bytes": peak_bytes}


def _run_cell(
    cell: Cell, loaded: Any, stored: Stored, writer: Writer, argv: tuple[str, ...], report: _Reporter,
    engine: Callable[[Any, Encoder], Runner], memo: Prefixes,
) -> Json:  # fmt: skip
    rows: list[Json] = []
    status, error, live, bos_used = "ok", None, None, None
    device = str(loaded.device)
    peak = PeakMemory(device)
    try:
        encoder = encoder_of(cell, loaded.tokenizer)
        bos_used = encoder.adds_bos
        passes = _Passes(cell, loaded, engine(loaded.model, encoder), memo, report)
        with _table(cell, loaded, cell.length) as live:
            for row in _rows(cell, encoder, stored.rows.get(cell.id, {}), passes, writer):
                rows.append(row)
    except NotStored:
        raise
    except Exception as caught:  # any failure of a task, a model or a device is this cell's outcome
        status, error = failure(caught)
    if status != "ok":
        release(device)
    return record_of(
        cell, rows, status=status, error=error, live=live, bos_used=bos_used, cost=report.cost(peak.bytes()),
        run_id=writer.run_id, argv=argv, device=device,
    )  # fmt: skip


def _rows(cell: Cell, encoder: Encoder, old: dict[int, Json], passes: _Passes, writer: Writer) -> Iterator[Json]:
    """The cell's sample rows in order: the stored one where its prompt is still the same, else measured and written."""
    stream = cell.task.examples(cell.length, encoder, cell.seed, cell.corpus)
    for index, example in enumerate(islice(stream, cell.n)):
        passes.report.at(index)
        row = old.get(index)
        if row is None or row["prompt_sha256"] != prompt_sha256(example):
            output = passes.output(example) if example.skip is None else None
            row = sample_row(cell, writer.run_id, index, example, output)
            writer.sample(row)
            passes.report.measured += 1
        yield row


def _table(cell: Cell, loaded: Any, length: int) -> Any:
    """The context in which the cell's table for `length` is live; yields it, read back from the model. A checkpoint as
    shipped with no scaling, and a fake without a rotary module, go through the same door."""
    table = cell.method.frequencies(cell.geometry, cell.factor or 1.0, length)
    if loaded.model is None:
        return nullcontext(table)
    from ropebench.apply import applied

    return applied(loaded.model, table)


@dataclass
class _Passes:
    """The forward passes that an example asks for, each under the table that belongs to its length."""

    cell: Cell
    loaded: Any
    runner: Runner
    memo: Prefixes
    report: _Reporter

    def output(self, example: Example) -> Output:
        """NLL of the example's windows, then its text."""
        nll = tuple(self._nll(window.ids)[window.first_scored - 1 :] for window in example.windows)
        if not example.max_new_tokens:
            return Output(nll=nll)
        # The total length, answer budget included, is fixed before the pass.
        with self._of_length(len(example.ids) + example.max_new_tokens):
            text, ids = self.runner.generate(example.ids, example.max_new_tokens, example.stop)
        self.report.fed += len(example.ids) + len(ids)
        return Output(text, ids, nll)

    def _nll(self, ids: tuple[int, ...]) -> Any:
        reusable = not self.cell.length_dependent
        known = self.memo.find(ids) if reusable else None
        if known is None:
            with self._of_length(len(ids)):
                known = self.runner.nll(ids)
            self.report.fed += len(ids)
            if reusable:
                self.memo.add(ids, known)
        return known

    def _of_length(self, length: int) -> Any:
        """The table is set anew for each pass where it depends on the length; else the cell's own is live already."""
        return _table(self.cell, self.loaded, length) if self.cell.length_dependent else nullcontext()
