"""Cells to records: what is already stored is not run again, and what fails becomes a record.

Each sample row is written as soon as it is measured, so a run that is cut off goes on inside the cell where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ropebench.cell import Cell
from ropebench.errors import UsageError
from ropebench.memory import PeakMemory, release
from ropebench.outcome import failure, prompt_sha256, record_of, sample_row
from ropebench.passes import MakeRunner, Passes, Runner, Shared, by_beginning
from ropebench.prompt import Encoder
from ropebench.record import Json, canonical, provenance
from ropebench.sample_cache import kept_examples
from ropebench.store import NotStored, Stored, Writer
from ropebench.task import Example

__all__ = ["Progress", "Runner", "Stored", "encoder_of", "preflight", "prompt_sha256", "run_cells"]


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


def examples_of(cell: Cell, encoder: Encoder) -> Iterator[Example]:
    """The cell's samples without end; those that the cache folder holds are not made again."""
    return kept_examples(cell.task, cell.length, encoder, cell.seed, cell.corpus, cell.task_code)


def preflight(cells: Sequence[Cell], tokenizer: Any) -> None:
    """Make the first example of every (task, length), so that what cannot be made is said before weights are loaded."""
    tried = set()
    for cell in cells:
        key = canonical([cell.identity["task"], cell.length, cell.seed, cell.bos, cell.chat])
        if key in tried:
            continue
        tried.add(key)
        try:
            next(examples_of(cell, encoder_of(cell, tokenizer)), None)
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
    engine: MakeRunner | None = None,
) -> list[Json]:
    """Run cells on one loaded model, in order; returns their records (also written). A cell that fails is a record and
    the next one runs. `engine` builds the runner from (model, encoder); tests give a fake one.

    Raises NotStored when a result cannot be written. KeyboardInterrupt passes through: every sample measured before it
    is stored, and the next run goes on from there.
    """
    if engine is None:
        from ropebench.engine import Engine

        engine = Engine
    shared = Shared(engine)
    records = []
    provenance(tuple(argv), loaded.device)  # read now, and kept: the commit that runs, not one made meanwhile
    for number, cell in enumerate(cells, 1):
        report = _Reporter(cell, number, len(cells), progress)
        records.append(_run_cell(cell, loaded, stored, writer, tuple(argv), report, shared))
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
    measured: int = 0
    _runner: Runner | None = None
    _before: int = 0

    def counts(self, runner: Runner) -> None:
        """What `runner` is fed from now on is this cell's cost."""
        self._runner, self._before = runner, runner.tokens_fed

    @property
    def fed(self) -> int:
        """Tokens that went through the model: nothing stored, nothing read off another pass."""
        return self._runner.tokens_fed - self._before if self._runner else 0

    def at(self, done: int) -> None:
        spent = time.monotonic() - self.began
        left = spent / self.measured * (self.cell.n - done) if self.measured else None
        self.show(Progress(self.cell, self.number, self.cells, done, self.cell.n, self._rate(spent), left))

    def _rate(self, seconds: float) -> float | None:
        return self.fed / seconds if self.fed and seconds else None

    def cost(self, peak_bytes: int | None) -> Json:
        seconds = time.monotonic() - self.began
        rate = self._rate(seconds)
        return {"seconds": seconds, "tokens": self.fed, "tokens_per_second": rate, "peak_bytes": peak_bytes}


def _run_cell(
    cell: Cell, loaded: Any, stored: Stored, writer: Writer, argv: tuple[str, ...], report: _Reporter, shared: Shared
) -> Json:  # fmt: skip
    rows: list[Json] = []
    status, error, live, bos_used = "ok", None, None, None
    device = str(loaded.device)
    peak = PeakMemory(device)
    try:
        encoder = encoder_of(cell, loaded.tokenizer)
        bos_used = encoder.adds_bos
        runner = shared.of(cell, loaded, encoder)
        report.counts(runner)
        passes = Passes(cell, runner, shared.memo, lambda length: _table(cell, loaded, length))
        with _table(cell, loaded, cell.length) as live:
            for row in _rows(cell, encoder, stored.rows.get(cell.id, {}), passes, writer, report):
                rows.append(row)
    except NotStored:
        raise
    except Exception as caught:  # any failure of a task, a model or a device is this cell's outcome
        status, error = failure(caught)
    rows.sort(key=lambda row: int(row["index"]))
    if status != "ok":
        shared.drop()
        release(device)
    return record_of(
        cell, rows, status=status, error=error, live=live, bos_used=bos_used, cost=report.cost(peak.bytes()),
        run_id=writer.run_id, argv=argv, device=device,
    )  # fmt: skip


def _rows(
    cell: Cell, encoder: Encoder, old: dict[int, Json], passes: Passes, writer: Writer, report: _Reporter
) -> Iterator[Json]:
    """The cell's sample rows: the stored one where its prompt is still the same, else measured and written."""
    stream: Iterable[tuple[int, Example]] = enumerate(islice(examples_of(cell, encoder), cell.n))
    for done, (index, example) in enumerate(stream if cell.length_dependent else by_beginning(stream)):
        report.at(done)
        row = old.get(index)
        if row is None or row["prompt_sha256"] != prompt_sha256(example):
            output = passes.output(example) if example.skip is None else None
            row = sample_row(cell, writer.run_id, index, example, output)
            writer.sample(row)
            report.measured += 1
        yield row


def _table(cell: Cell, loaded: Any, length: int) -> Any:
    """The context in which the cell's table for `length` is live; yields it, read back from the model. A checkpoint as
    shipped with no scaling, and a fake without a rotary module, go through the same door."""
    table = cell.method.frequencies(cell.geometry, cell.factor or 1.0, length)
    if loaded.model is None:
        return nullcontext(table)
    from ropebench.apply import applied

    return applied(loaded.model, table)
