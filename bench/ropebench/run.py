"""Cells to records: what is already stored is not run again, and what fails becomes a record.

Each sample row is written as soon as it is measured, so a run that is cut off goes on inside the cell where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice
from typing import Any, Protocol

from ropebench.cell import Cell
from ropebench.claims import Claims
from ropebench.errors import UsageError
from ropebench.memory import PeakMemory, is_out_of_memory, release
from ropebench.outcome import failure, prompt_sha256, record_of, sample_row
from ropebench.passes import MakeRunner, Passes, Runner, Shared, batches, by_beginning
from ropebench.prefixes import Prefixes
from ropebench.progress import Pace, Progress, Reporter
from ropebench.prompt import Encoder
from ropebench.record import Json, canonical, provenance
from ropebench.sample_cache import kept_examples
from ropebench.schedule import samples_of
from ropebench.sharing import Turns
from ropebench.store import NotStored, Stored, Writer
from ropebench.task import Example, Output

__all__ = ["Progress", "Runner", "Stored", "encoder_of", "preflight", "prompt_sha256", "run_cells"]


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
    batch_size: int | str = 1,
    estimates: Mapping[str, Json | None] | None = None,
    say: Callable[[str], None] = lambda _: None,
    pause: Callable[[], None] = lambda: None,
) -> list[Json]:
    """Run cells on one loaded model, in order; returns their records (also written), and those that other runs on the
    same folder wrote meanwhile. A cell that fails is a record and the next one runs. `engine` builds the runner from
    (model, encoder); tests give a fake one. `batch_size` samples run at once (auto: as many as memory allows).
    `estimates` say by cell id what was expected, for the records and for the time that is left. `say` tells a person
    what is waited for. `pause` is called between batches and while waiting; what it raises ends the run.

    Raises NotStored when a result cannot be written. KeyboardInterrupt passes through: every sample measured before it
    is stored, and the next run goes on from there.
    """
    if engine is None:
        from ropebench.engine import Engine

        engine = Engine
    shared = Shared(engine, int(batch_size) if batch_size != "auto" else batch_size)
    records: list[Json] = []
    provenance(tuple(argv), loaded.device)  # read now, and kept: the commit that runs, not one made meanwhile
    expected = estimates or {}
    pace = Pace.of(cells, expected, time.monotonic)
    groups = [[*group] for _, group in groupby(enumerate(cells, 1), lambda pair: samples_of(*pair))]
    with Claims(writer.folder, writer.run_id) as claims:
        turns = Turns(claims, writer, stored, say, pause)
        for group in turns.of(groups):
            reports = [Reporter(cell, number, len(cells), progress, pace) for number, cell in group]
            for record in steps(reports, loaded, turns.stored, writer, argv, shared, expected, claims.holds, pause):
                if record is not None:
                    records.append(record)
                    turns.finished.add(record["cell_id"])
        others = [turns.settled[cell.id] for cell in cells if cell.id in turns.settled.keys() - turns.finished]
    return records + others


class Sink(Protocol):
    """Where results go: a results folder, or whoever writes into it."""

    run_id: str

    def sample(self, row: Json) -> None: ...

    def record(self, record: Json) -> None: ...


def steps(
    reports: Sequence[Reporter],
    loaded: Any,
    stored: Stored,
    sink: Sink,
    argv: Sequence[str],
    shared: Shared,
    expected: Mapping[str, Json | None],
    held: Callable[[str], bool] = lambda _: True,
    pause: Callable[[], None] = lambda: None,
) -> Iterator[Json | None]:
    """Measure the cells of `reports`, which are of one group (`samples_of`), a batch at a time: yields None after each
    batch, whose rows are in the sink by then, and each cell's record, which is there as well. `held` says of a cell's
    id whether it is still this run's to measure."""
    same = [
        _Running(
            one.cell, loaded, stored, sink, tuple(argv), one, shared, expected.get(one.cell.id),
            partial(held, one.cell.id), pause,
        )
        for one in reports
    ]  # fmt: skip
    for one in same:
        one.begin()
    for part in [same] if all(one.only_scores for one in same) else [[one] for one in same]:
        yield from _measure(part, loaded)
        for one in part:
            if not one.lost and one.held():  # else another run goes on with what is stored of it
                record = one.record()
                sink.record(record)
                one.report.over(record)
                yield record


def _measure(cells: Sequence[_Running], loaded: Any) -> Iterator[None]:
    """Measure cells of one table, batch by batch: all lengths of its documents before the next ones, so that one pass
    serves them all and no more than one batch's passes are held. Yields after each batch."""
    first = cells[0].cell
    try:
        with _table(first, loaded, first.length) as live:
            while going := [one for one in cells if not one.over]:
                memo = Prefixes()
                for one in going:
                    one.live = live
                    one.step(memo)
                    yield
    except NotStored:
        raise
    except Exception as caught:  # the table could not be put in or taken out
        for one in cells:
            one.fail(caught)


@dataclass
class _Running:
    """A cell under way: its rows so far, and how it ended. Whatever fails in it is its own outcome."""

    cell: Cell
    loaded: Any
    stored: Stored
    sink: Sink
    argv: tuple[str, ...]
    report: Reporter
    shared: Shared
    expected: Json | None
    held: Callable[[], bool]  # whether the cell is still this run's to measure
    pause: Callable[[], None]
    rows: list[Json] = field(default_factory=list)
    over: bool = False
    lost: bool = False  # to another run, which goes on with what is stored
    status: str = "ok"
    error: Json | None = None
    live: Any = None  # the table read back from the model
    only_scores: bool = True  # its samples ask for likelihood only, as a first one shows
    encoder: Encoder | None = None
    first_id: int | None = None
    peak_bytes: int | None = None
    batch: int = 1  # the batch size in use
    _runner: Runner | None = None

    def begin(self) -> None:
        """Make ready to measure, and look at a first sample."""
        cell = self.cell
        # What this run itself has measured of the cell before, when another took it or its worker died.
        told = [row["cost"] for row in self.stored.rows.get(cell.id, {}).values() if row["run_id"] == self.sink.run_id]
        self.report.seconds += sum(cost["seconds"] for cost in told if cost)
        self.report.fed += sum(cost["tokens"] for cost in told if cost)
        with self._own():
            self.encoder = encoder_of(cell, self.loaded.tokenizer)
            self._runner = self.shared.of(cell, self.loaded, self.encoder)
            stream = islice(examples_of(cell, self.encoder), cell.n)
            first = next(stream, None)
            self.only_scores = first is None or not first.max_new_tokens
            self._next = self._measured(stream if first is None else chain([first], stream))

    def step(self, memo: Prefixes) -> None:
        """Measure the next batch of samples; `memo` holds passes that other lengths of the same document have made."""
        self.report.at(0)
        rows: list[Json] | None = None
        with self._own():
            assert self.encoder is not None
            self._runner = self.shared.of(self.cell, self.loaded, self.encoder)
            self._memo = memo
            rows = next(self._next, None)
            if rows is None:
                self.over = True
            else:
                self.rows += rows
        for place, row in enumerate(rows or (), 1 + len(self.rows) - len(rows or ())):
            self.report.at(place, row)

    @contextmanager
    def _own(self) -> Iterator[None]:
        """Time and memory of this cell alone; an exception ends the cell, not the run."""
        device = str(self.loaded.device)
        began, peak = time.monotonic(), PeakMemory(device)
        try:
            yield
        except NotStored:
            raise
        except Exception as caught:  # any failure of a task, a model or a device
            self.fail(caught)
        finally:
            self.report.seconds += time.monotonic() - began
            self.peak_bytes = max(filter(None, (self.peak_bytes, peak.bytes())), default=None)
        if self.status != "ok":
            self.shared.drop()
            release(device)

    def fail(self, caught: Exception) -> None:
        self.over = True
        self.status, self.error = failure(caught)

    def _measured(self, examples: Iterable[Example]) -> Iterator[list[Json]]:
        """The cell's sample rows, a batch at a time: the stored one where its prompt is still the same, else measured
        and written."""
        cell = self.cell
        old, series = self.stored.rows.get(cell.id, {}), self.stored.series(cell, self.sink.run_id)
        pairs = enumerate(examples)
        stream = iter(pairs if cell.length_dependent else by_beginning(pairs))
        for batch in batches(stream, lambda: self.shared.rows(cell)):
            self.pause()
            if self.first_id is None:
                self.first_id = next((i for _, example in batch if (i := _first_id(example)) is not None), None)
            rows = {index: row for index, example in batch if (row := _same(old.get(index), example)) is not None}
            new = [(index, example) for index, example in batch if index not in rows]
            for (index, example), (output, cost) in zip(new, self._outputs(new), strict=True):
                row = rows[index] = sample_row(cell, self.sink.run_id, index, example, output, series, cost)
                if not self.held():
                    self.lost = True
                    return
                self.sink.sample(row)
            yield [rows[index] for index, _ in batch]

    def _outputs(self, pairs: Sequence[tuple[int, Example]]) -> Iterator[tuple[Output | None, Json]]:
        """What the model makes of examples, and what each cost. Where memory runs out, what goes through at once is
        halved, and it goes on with the examples that failed; raised where it cannot be smaller."""
        left = list(pairs)
        while left:
            self.batch = self.shared.rows(self.cell)
            part = left[: self.batch]
            yield from self._batch(part)
            left = left[len(part) :]

    def _batch(self, pairs: list[tuple[int, Example]]) -> Iterator[tuple[Output | None, Json]]:
        runner, part = self._runner, [example for _, example in pairs]
        assert runner is not None
        fed = [example for example in part if example.skip is None]
        began, before = time.monotonic(), runner.tokens_fed
        passes = Passes(self.cell, runner, self._memo, lambda n: _table(self.cell, self.loaded, n))
        outputs: list[Output] | None = None
        try:
            outputs = passes.outputs(fed) if fed else []
        except ArithmeticError as error:
            raise ArithmeticError(f"sample {', '.join(str(index) for index, _ in pairs)}: {error}") from error
        except Exception as caught:
            if not (is_out_of_memory(caught) and self.shared.halve(self.cell)):
                raise
        finally:
            tokens = runner.tokens_fed - before
            self.report.fed += tokens
        if outputs is None:  # the exception, which held the tensors, is gone
            release(str(self.loaded.device))
            yield from self._outputs(pairs)
            return
        seconds = time.monotonic() - began
        answers = iter(outputs)
        for place, example in enumerate(part):
            share = tokens // len(part) + (place < tokens % len(part))
            output = next(answers) if example.skip is None else None
            new = len(output.ids) if output else 0
            yield output, {"seconds": seconds / len(part), "tokens": share, "new_tokens": new}

    def record(self) -> Json:
        """The record of the cell as it stands."""
        bos = None
        if self.encoder is not None and self.first_id is not None:
            bos = self.first_id == self.encoder.bos_id
        cost: Json = {"seconds": self.report.seconds, "tokens": self.report.fed, "peak_bytes": self.peak_bytes}
        cost["estimate"] = self.expected
        cost["sizes"] = {"batch": self.batch, **(self._runner.sizes if self._runner else {})}
        return record_of(
            self.cell, sorted(self.rows, key=lambda row: int(row["index"])), status=self.status, error=self.error,
            live=self.live, first_id=self.first_id, bos_used=bos, cost=cost, run_id=self.sink.run_id,
            series=self.stored.series(self.cell, self.sink.run_id), argv=self.argv, device=str(self.loaded.device),
            hardware=getattr(self.loaded, "hardware", None),
        )  # fmt: skip


def _same(row: Json | None, example: Example) -> Json | None:
    """A stored row, if it is of this very prompt."""
    return row if row is not None and row["prompt_sha256"] == prompt_sha256(example) else None


def _first_id(example: Example) -> int | None:
    """The id that an example's input really begins with, whoever put it there."""
    ids = example.ids or (example.windows[0].ids if example.windows else ())
    return ids[0] if ids and example.skip is None else None


def _table(cell: Cell, loaded: Any, length: int) -> Any:
    """The context in which the cell's table for `length` is live; yields it, read back from the model. A checkpoint as
    shipped with no scaling, and a fake without a rotary module, go through the same door."""
    table = cell.method.frequencies(cell.geometry, cell.factor or 1.0, length)
    if loaded.model is None:
        return nullcontext(None if cell.served else table)  # a server's table is not seen from here
    from ropebench.apply import applied

    return applied(loaded.model, table)
