"""Which cells go to which worker, and when: longest first, those that share passes together, a dead worker's again.

Nothing here measures or knows what a worker is, so that it can be tried out on recorded costs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from ropebench.cell import Cell
from ropebench.record import canonical

RETRIES = 2  # of a unit whose worker died


@dataclass(frozen=True)
class Unit:
    """Cells that one worker measures one after the other, longest length first, and what they are expected to cost (of
    any unit of measurement, the same for all). `deaths`: how many workers have died over it."""

    cells: tuple[str, ...]
    cost: float
    deaths: int = 0


def units(cells: Sequence[Cell], weights: Mapping[str, float], apart: Callable[[Cell], bool]) -> list[Unit]:
    """The cells in units: those that read the same documents under one static table, whose lengths one pass serves,
    stay together. `apart` says of a cell that it shares no pass with another, as where an answer is generated."""
    found: list[Unit] = []
    for _, group in groupby(enumerate(cells), lambda pair: samples_of(*pair)):
        together: list[Cell] = []
        for _, cell in group:
            if apart(cell):
                found.append(Unit((cell.id,), weights.get(cell.id, 0.0)))
            else:
                together.append(cell)
        if together:
            found.append(Unit(tuple(c.id for c in together), sum(weights.get(c.id, 0.0) for c in together)))
    return found


def samples_of(number: int, cell: Cell) -> str:
    """What cells have in common that read the same samples under the same static table, at several lengths."""
    if cell.length_dependent:
        return str(number)
    identity = cell.identity
    return canonical([identity["model"], identity["method"], identity["task"], cell.seed, cell.bos, cell.chat])


@dataclass
class Schedule:
    """The units that wait, longest first, and those under way by worker. A unit whose worker died comes again before
    all others, in one piece at first, then cell by cell, since one of its cells may be what kills workers; after
    `RETRIES` of them it is given up."""

    waiting: list[Unit]
    running: dict[Hashable, Unit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sort()

    def take(self, worker: Hashable) -> Unit | None:
        """The next unit, which is then under way on `worker`; None where none waits."""
        if not self.waiting:
            return None
        self.running[worker] = self.waiting.pop(0)
        return self.running[worker]

    def finished(self, worker: Hashable) -> Unit:
        """The worker has nothing more to do for its unit, which is returned."""
        return self.running.pop(worker)

    def died(self, worker: Hashable, open_cells: Sequence[str]) -> tuple[str, ...]:
        """A worker is gone; of its unit `open_cells` have no record. Returns those that are given up."""
        unit = self.running.pop(worker, None)
        if unit is None or not open_cells:
            return ()
        again = replace(unit, cells=tuple(open_cells), deaths=unit.deaths + 1)
        if again.deaths > RETRIES:
            return again.cells
        parts = [again] if again.deaths < RETRIES else [replace(again, cells=(one,)) for one in again.cells]
        self.waiting += parts
        self._sort()
        return ()

    @property
    def over(self) -> bool:
        return not self.waiting and not self.running

    def _sort(self) -> None:
        self.waiting.sort(key=lambda unit: (not unit.deaths, -unit.cost))


def makespan(costs: Sequence[float], workers: int, planned: Sequence[float] | None = None) -> float:
    """When the last of `workers` is ready that take units of these costs as `Schedule` gives them; `planned` are the
    costs that it knows, where they are others than the true ones.

    >>> makespan([3, 3, 2, 2, 2], 2)
    7
    """
    schedule = Schedule([Unit((str(at),), cost) for at, cost in enumerate(costs if planned is None else planned)])
    free: list[tuple[float, int]] = [(0, worker) for worker in range(workers)]
    last: float = 0
    while True:
        when, worker = heapq.heappop(free)
        unit = schedule.take(worker)
        if unit is None:
            return last
        schedule.finished(worker)
        until = when + costs[int(unit.cells[0])]
        last = max(last, until)
        heapq.heappush(free, (until, worker))


def lower_bound(costs: Sequence[float], workers: int) -> float:
    """No schedule of units that are not split ends before this: the longest of them, the sum shared evenly, and, where
    there are more units than workers, the two that must share a worker.

    >>> lower_bound([3, 3, 2, 2, 2], 2)
    6.0
    """
    ordered = sorted(costs, reverse=True)
    pair = ordered[workers - 1] + ordered[workers] if len(ordered) > workers else 0.0
    return max(max(ordered, default=0.0), math.fsum(ordered) / workers, pair)
