"""One of several processes that measure for one run: it holds a loaded model, is given units of cells, and hands over
sample rows and records batch by batch. It writes nothing: whoever asked does.

It makes its cells from the same sweep, on its own machine, and refuses to measure where they come out different: other
weights, other texts or another plug-in of the same name there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ropebench.cell import Cell
from ropebench.errors import UsageError
from ropebench.passes import MakeRunner, Shared
from ropebench.plan import Sweep, make_plan
from ropebench.progress import Pace, Progress, Reporter
from ropebench.record import Json, provenance
from ropebench.store import Stored


@dataclass(frozen=True)
class Order:
    """What every worker of a run is told. `folder` is where relative paths of the sweep are meant from, `environment`
    holds variables that are to hold there too, `threads` is for torch on a CPU (None: as torch has it)."""

    sweep: Sweep
    argv: tuple[str, ...]
    run_id: str
    folder: str
    environment: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None


@dataclass(frozen=True)
class Ready:
    """A worker with its model loaded: the device, as records tell it, and the bytes held there."""

    device: str
    hardware: Json | None = None
    held: int | None = None


@dataclass(frozen=True)
class Job:
    """A unit of cells by their ids, with what is stored of them and what each is expected to cost."""

    cells: tuple[str, ...]
    rows: Mapping[str, dict[int, Json]] = field(default_factory=dict)
    records: Mapping[str, Json] = field(default_factory=dict)
    expected: Mapping[str, Json | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """A `Progress` of a cell by its id, without what only the whole run knows."""

    name: str
    cell: str
    sample: int
    row: Json | None
    record: Json | None


@dataclass(frozen=True)
class Step:
    """What a batch brought: rows that are new, events in their order (the last of a cell with its record), and whether
    that was the job's last. `job` is the number that it was given."""

    job: int
    rows: tuple[Json, ...] = ()
    events: tuple[Event, ...] = ()
    over: bool = False


class Worker:
    """A process's model and the job it has. `ready` comes first, then jobs, each with `begin` and many a `step`."""

    def __init__(self, order: Order, load: Any = None, engine: MakeRunner | None = None) -> None:
        """`load` (cell → loaded model) and `engine` are for tests."""
        os.environ.update(order.environment)
        with suppress(OSError):  # on a machine without that folder only whole paths can be found
            os.chdir(order.folder)
        self.order, self.run_id = order, order.run_id
        self._load, self._engine = load or _loaded, engine
        self._rows: list[Json] = []
        self._events: list[Event] = []
        self._steps: Iterator[Json | None] = iter(())
        self._job, self._over = 0, True

    def ready(self, identities: Mapping[str, Json]) -> Ready:
        """Make the cells, compare them with `identities` (by id), and load the model.

        Raises UsageError where this machine would measure something else, or cannot load the model.
        """
        self._cells = {cell.id: cell for cell in make_plan(self.order.sweep).cells}
        for own, identity in identities.items():
            if own not in self._cells:
                raise UsageError(_different(identity, [*self._cells.values()]))
        import torch

        from ropebench.memory import resident_bytes

        if self.order.threads is not None:
            torch.set_num_threads(self.order.threads)
        self._loaded = self._load(next(iter(self._cells.values())))
        if self._engine is None:
            from ropebench.engine import Engine

            self._engine = Engine
        size = self.order.sweep.batch_size
        self._shared = Shared(self._engine, int(size) if size != "auto" else size)
        device = str(self._loaded.device)
        provenance(self.order.argv, device)  # read now, and kept: the commit that runs, not one made meanwhile
        return Ready(device, getattr(self._loaded, "hardware", None), resident_bytes(device))

    def begin(self, number: int, job: Job) -> None:
        """Take a job on; whatever was under way is dropped."""
        from ropebench.run import steps

        self._job, self._over, self._rows, self._events = number, False, [], []
        cells = [self._cells[own] for own in job.cells]
        pace = Pace({}, False)
        reports = [Reporter(cell, place, len(cells), self._tell, pace) for place, cell in enumerate(cells, 1)]
        stored = Stored(dict(job.records), dict(job.rows))
        self._steps = steps(reports, self._loaded, stored, self, self.order.argv, self._shared, job.expected)

    def step(self) -> Step:
        """Measure the next batch."""
        if not self._over:
            self._over = next(self._steps, self) is self
        rows, events, self._rows, self._events = self._rows, self._events, [], []
        return Step(self._job, tuple(rows), tuple(events), self._over)

    def sample(self, row: Json) -> None:
        """A new sample row, to be handed over with the step."""
        self._rows.append(row)

    def record(self, record: Json) -> None:
        """A cell's record: it is handed over with the event that ends the cell."""

    def _tell(self, at: Progress) -> None:
        self._events.append(Event(at.event, at.cell.id, at.sample, at.row, at.record))


def _loaded(cell: Cell) -> Any:
    from ropebench.model import load

    return load(cell.card, cell.device, cell.dtype, cell.attention, cell.trust_remote_code, cell.loading)


def _different(wanted: Json, here: Sequence[Cell]) -> str:
    """Why a cell is not the same on this machine: the first part of its identity that differs from its nearest one."""

    def differing(identity: Json) -> list[str]:
        found = []
        for key, value in wanted.items():
            other = identity.get(key)
            if isinstance(value, dict) and isinstance(other, dict):
                found += [f"{key}.{part}" for part in value.keys() | other if value.get(part) != other.get(part)]
            elif value != other:
                found.append(key)
        return sorted(found)

    parts = min((differing(cell.identity) for cell in here), key=len)
    task, model = wanted["task"]["name"], wanted["model"]["id"]
    return (
        f"a worker would measure something else for {task} on {model}: {', '.join(parts)} differ on its machine; model "
        "files, texts, plug-ins and ropebench itself must be the same on all"
    )
