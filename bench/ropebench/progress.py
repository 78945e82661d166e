"""Where a run is, as events for whoever shows them: cells that begin and end, samples, and the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ropebench.cell import Cell
from ropebench.record import Json


@dataclass(frozen=True)
class Progress:
    """Cell k of n and how many of its samples are done. `event` is cell_begin, sample or cell_end (then with its
    `record`); tokens per second of the cell, and seconds left of the whole run (None: unknown)."""

    event: str
    cell: Cell
    number: int
    cells: int
    sample: int
    samples: int
    tokens_per_second: float | None
    seconds_left: float | None
    row: Json | None = None
    record: Json | None = None
    workers: int | None = None  # that measure side by side (None: one process), and how many cells they have done
    done: int = 0


@dataclass
class Pace:
    """How much of a run is done. Each cell weighs what it is estimated to take: seconds, else FLOPs, else its tokens;
    what was done so far, and in which time, says how long the rest takes. Before anything was done the estimate is all
    there is."""

    weights: Mapping[str, float]
    in_seconds: bool
    clock: Callable[[], float] = time.monotonic
    done: dict[str, float] = field(default_factory=dict)  # share of each cell
    began: float | None = None
    workers: int = 1  # that share the work
    fed: int = 0  # tokens that went through all of them

    @classmethod
    def of(cls, cells: Sequence[Cell], estimates: Mapping[str, Json | None], clock: Callable[[], float]) -> Pace:
        """For the cells of a run."""
        for key in ("seconds", "flops"):
            found = {cell.id: estimate[key] for cell in cells if (estimate := estimates.get(cell.id))}
            if len(found) == len({cell.id for cell in cells}) and None not in found.values():
                return cls(found, key == "seconds", clock)
        return cls({cell.id: float(cell.length * cell.n) for cell in cells}, False, clock)

    def begin(self) -> None:
        """The first cell begins."""
        self.began = self.clock() if self.began is None else self.began

    def at(self, cell: Cell, share: float) -> None:
        """So much of a cell is done."""
        self.done[cell.id] = min(1.0, share)

    def seconds_left(self) -> float | None:
        """Of the whole run; None while nothing is known."""
        whole = sum(self.weights.values())
        ready = sum(self.weights.get(own, 0.0) * share for own, share in self.done.items())
        if not whole:
            return 0.0
        if self.began is not None and ready > 0:
            return (self.clock() - self.began) * (whole - ready) / ready
        return whole / self.workers if self.in_seconds else None

    def speed(self) -> float | None:
        """Tokens per second over all workers; None before the first."""
        spent = self.clock() - self.began if self.began is not None else 0.0
        return self.fed / spent if self.fed and spent else None


@dataclass
class Reporter:
    """Counts what a cell has cost so far, and says where it is."""

    cell: Cell
    number: int
    cells: int
    show: Callable[[Progress], None]
    pace: Pace
    seconds: float = 0.0  # of the cell's own steps, not of those between them
    fed: int = 0  # tokens that went through the model: nothing stored, nothing read off another pass
    begun: bool = False

    def at(self, done: int, row: Json | None = None) -> None:
        """So many samples are done; `row` is the last of them, None before the first."""
        if row is None and self.begun:
            return
        self.begun = True
        self.pace.begin()
        self.pace.at(self.cell, done / max(self.cell.n, 1))
        self._say("cell_begin" if row is None else "sample", done, row=row)

    def over(self, record: Json) -> None:
        """The cell's record is stored."""
        self.pace.at(self.cell, 1.0)
        done = record["condition"]["n_scored"] + record["condition"]["n_skipped"]
        self._say("cell_end", done, record=record)

    def _say(self, event: str, done: int, row: Json | None = None, record: Json | None = None) -> None:
        rate = self.fed / self.seconds if self.fed and self.seconds else None
        left = self.pace.seconds_left()
        self.show(Progress(event, self.cell, self.number, self.cells, done, self.cell.n, rate, left, row, record))
