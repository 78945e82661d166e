"""A run over many workers: which unit goes where, what comes back, and what is done when one dies.

This process alone claims cells and writes into the results folder, so that to other runs on the folder it is a run like
any other; workers, wherever they are, hand their rows over batch by batch. A unit is claimed when a worker gets it. How
workers are started and asked is the crew's business (`ray_crew`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ropebench.cell import Cell
from ropebench.claims import Claims
from ropebench.errors import UsageError
from ropebench.outcome import record_of
from ropebench.progress import Pace, Progress
from ropebench.record import Json
from ropebench.schedule import RETRIES, Schedule, Unit, units
from ropebench.sharing import Numbered, Turn, Turns
from ropebench.store import Stored, Writer
from ropebench.worker import Event, Job, Ready, Step

_AHEAD = 2  # steps that a worker is asked for at a time, so that it does not wait for the answer to the last
_PATIENCE = 60.0  # seconds without any worker after which a person is told
_AGAIN = 2.0  # seconds between two looks at cells that other runs have


@dataclass(frozen=True)
class Died:
    """A worker's process is gone."""

    reason: str


class Crew(Protocol):
    """Workers by number. Answers of one worker come in the order in which it was asked; of a dead one the last answer
    is `Died`."""

    @property
    def size(self) -> int:
        """How many there may be."""
        ...

    def hire(self, identities: Mapping[str, Json]) -> int:
        """Start a worker and ask it to be `ready`."""
        ...

    def begin(self, worker: int, number: int, job: Job) -> None: ...

    def step(self, worker: int) -> None: ...

    def answers(self, seconds: float) -> list[tuple[int, Ready | Step | Died]]:
        """What has come in; waits so long at most. Raises what a worker raised."""
        ...

    def close(self) -> None: ...


@dataclass
class _Post:
    """A worker's place: what it has been given and what has come of it."""

    ready: bool = False
    number: int = 0  # of the job, so that answers to an earlier one are told apart
    turn: Turn | None = None
    asked: int = 0
    lost: set[str] = field(default_factory=set)  # cells that another run has taken meanwhile


@dataclass
class Foreman:
    """A run's cells, and the workers that measure them. `estimates` gives what each cell is expected to cost once the
    first worker has said what it runs on; `apart` says of a cell whether it shares no pass with other lengths."""

    cells: Sequence[Cell]
    crew: Crew
    stored: Stored
    writer: Writer
    argv: tuple[str, ...] = ()
    progress: Callable[[Progress], None] = lambda _: None
    estimates: Callable[[Ready], Mapping[str, Json | None]] = lambda _: {}
    apart: Callable[[Cell], bool] = lambda _: False
    say: Callable[[str], None] = lambda _: None
    pause: Callable[[], None] = lambda: None

    def run(self) -> list[Json]:
        """Measure all cells; returns their records (also written), and those that other runs wrote meanwhile.

        Raises NotStored when a result cannot be written, UsageError where no worker is left. KeyboardInterrupt passes
        through when the samples under way are stored.
        """
        self._numbered: dict[str, Numbered] = {cell.id: (at, cell) for at, cell in enumerate(self.cells, 1)}
        self._posts: dict[int, _Post] = {}
        self._records: list[Json] = []
        self._received: dict[str, dict[int, Json]] = {}
        self._left: list[Unit] = []  # what other runs have
        self._schedule: Schedule | None = None
        self._jobs, self._reason, self._device = 0, "", Ready("unknown")
        with Claims(self.writer.folder, self.writer.run_id) as claims:
            self._turns = Turns(claims, self.writer, self.stored, self.say, self.pause)
            self._turns.begin()
            try:
                self._work()
            finally:
                self.crew.close()
            settled, finished = self._turns.settled, self._turns.finished
            return self._records + [settled[c.id] for c in self.cells if c.id in settled.keys() - finished]

    def _work(self) -> None:
        groups = len(units(self.cells, {}, self.apart))
        for _ in range(min(self.crew.size, groups)):
            self._hire()
        began, told, again = time.monotonic(), False, 0.0
        while self._schedule is None or not self._schedule.over or self._left:
            try:
                self.pause()
            except KeyboardInterrupt:
                self._settle()
                raise
            if not self._posts:
                raise UsageError(f"no worker is left: {self._reason}; what was measured is stored")
            if not told and self._schedule is None and time.monotonic() - began > _PATIENCE:
                told = True
                self.say("still waiting for the first worker to have its model loaded")
            for worker, answer in self.crew.answers(0.2):
                self._heard(worker, answer)
            if self._schedule is None:
                continue
            if self._left and self._schedule.over and time.monotonic() > again:
                again = time.monotonic() + _AGAIN
                self._turns.say_what_is_waited_for(sum(len(unit.cells) for unit in self._left))
                self._schedule, self._left = Schedule(self._left), []
            for worker, post in self._posts.items():
                if post.ready and post.turn is None:
                    self._give(worker, post)

    def _hire(self) -> None:
        worker = self.crew.hire({own: cell.identity for own, (_, cell) in self._numbered.items()})
        self._posts[worker] = _Post()

    def _heard(self, worker: int, answer: Ready | Step | Died) -> None:
        post = self._posts.get(worker)
        if post is None:
            return
        if isinstance(answer, Died):
            self._bury(worker, self._posts.pop(worker), answer.reason)
        elif isinstance(answer, Ready):
            post.ready = True
            if self._schedule is None:
                self._device, self._expected = answer, self.estimates(answer)
                self._pace = replace(Pace.of(self.cells, self._expected, time.monotonic), workers=len(self._posts))
                self._schedule = Schedule(units(self.cells, self._pace.weights, self.apart))
        elif post.turn is not None and answer.job == post.number:
            post.asked -= 1
            self._take(post, answer)
            if answer.over:
                self._end(worker, post)
            else:
                self._ask(worker, post)

    def _give(self, worker: int, post: _Post) -> None:
        """The next unit of which there is anything to measure."""
        schedule = self._schedule
        assert schedule is not None
        while (unit := schedule.take(worker)) is not None:
            turn = self._turns.claim([self._numbered[own] for own in unit.cells])
            if turn.cells:
                self._jobs += 1
                post.number, post.turn, post.asked, post.lost = self._jobs, turn, 0, set()
                ids = tuple(cell.id for _, cell in turn.cells)
                stored = self._turns.stored
                rows = {own: {**stored.rows.get(own, {}), **self._received.get(own, {})} for own in ids}
                records = {own: stored.records[own] for own in ids if own in stored.records}
                expected = {own: self._expected.get(own) for own in ids}
                self.crew.begin(worker, post.number, Job(ids, rows, records, expected))
                self._ask(worker, post)
                return
            schedule.finished(worker)
            self._keep(unit, self._turns.give_back(turn))

    def _keep(self, unit: Unit, left: Sequence[Numbered]) -> None:
        """Cells of a unit that another run has come again when all others are done."""
        if left:
            self._left.append(replace(unit, cells=tuple(cell.id for _, cell in left)))

    def _ask(self, worker: int, post: _Post) -> None:
        while post.asked < _AHEAD:
            self.crew.step(worker)
            post.asked += 1

    def _take(self, post: _Post, step: Step) -> None:
        """Write what a step brought, of cells that still are this run's."""
        for row in step.rows:
            if self._held(post, row["cell_id"]):
                self.writer.sample(row)
                self._received.setdefault(row["cell_id"], {})[int(row["index"])] = row
                cost = row["cost"] or {}
                self._pace.fed += cost.get("tokens", 0)
        for event in step.events:
            if event.record is None:
                self._show(event)
            elif self._held(post, event.cell):
                self._record(event.record)
                self._show(event)

    def _held(self, post: _Post, own: str) -> bool:
        if own not in post.lost and not self._turns.claims.holds(own):
            post.lost.add(own)
        return own not in post.lost

    def _record(self, record: Json) -> None:
        self.writer.record(record)
        self._records.append(record)
        self._turns.finished.add(record["cell_id"])
        self._received.pop(record["cell_id"], None)

    def _end(self, worker: int, post: _Post) -> None:
        """A worker's job is over."""
        assert self._schedule is not None
        assert post.turn is not None
        unit, turn, post.turn = self._schedule.finished(worker), post.turn, None
        self._keep(unit, self._turns.give_back(turn))

    def _bury(self, worker: int, post: _Post, reason: str) -> None:
        """A worker is gone: what it had goes to another, or, where too many died over it, is a failure. One that died
        while it loaded its model is not replaced, since the next would die too."""
        self._reason = f"a worker died ({reason})"
        if post.turn is None:
            self.say(
                f"{self._reason} {'between two cells' if post.ready else 'while it loaded its model: not replaced'}"
            )
            if post.ready:
                self._hire()
            return
        assert self._schedule is not None
        open_cells = [cell.id for _, cell in post.turn.cells if cell.id not in self._turns.finished]
        given_up = self._schedule.died(worker, open_cells)
        for own in given_up:
            if self._held(post, own):
                self._record(self._dead(self._numbered[own][1], reason))
                self._show(Event("cell_end", own, 0, None, self._records[-1]))
        self._turns.give_back(post.turn)
        again = "given up" if given_up else "measured again by another"
        self.say(f"{self._reason}: its cells are {again}")
        if not self._schedule.over:
            self._hire()

    def _dead(self, cell: Cell, reason: str) -> Json:
        """The record of a cell over which workers died, as far as it came."""
        rows = {**self._turns.stored.rows.get(cell.id, {}), **self._received.get(cell.id, {})}
        own = [row["cost"] for row in rows.values() if row["run_id"] == self.writer.run_id and row["cost"]]
        cost: Json = {key: sum(one[key] for one in own) for key in ("seconds", "tokens")}
        cost |= {"peak_bytes": None, "estimate": self._expected.get(cell.id)}
        said = f"{RETRIES + 1} workers died over this cell; the last one: {reason}"
        return record_of(
            cell, [rows[index] for index in sorted(rows)], status="error",
            error={"type": "WorkerDied", "message": said}, live=None, first_id=None, bos_used=None, cost=cost,
            run_id=self.writer.run_id, series=self._turns.stored.series(cell, self.writer.run_id), argv=self.argv,
            device=self._device.device, hardware=self._device.hardware,
        )  # fmt: skip

    def _settle(self) -> None:
        """The end was asked for: wait for what each worker has under way, and store it."""
        waiting = {worker: post.number for worker, post in self._posts.items() if post.turn is not None}
        while waiting:
            for worker, answer in self.crew.answers(0.2):
                if isinstance(answer, Step) and answer.job == waiting.get(worker):
                    self._take(self._posts[worker], answer)
                if isinstance(answer, Died | Step):
                    waiting.pop(worker, None)

    def _show(self, event: Event) -> None:
        """An event of one cell, with the whole run around it: all workers' speed, cells done, time left."""
        number, cell = self._numbered[event.cell]
        self._pace.begin()
        self._pace.at(cell, 1.0 if event.name == "cell_end" else event.sample / max(cell.n, 1))
        busy = sum(post.turn is not None for post in self._posts.values())
        self.progress(
            Progress(
                event.name, cell, number, len(self.cells), event.sample, cell.n, self._pace.speed(),
                self._pace.seconds_left(), event.row, event.record, busy, len(self._turns.finished),
            )
        )  # fmt: skip


def generates(cells: Sequence[Cell], tokenizer: Any) -> Callable[[Cell], bool]:
    """Of each cell, whether its samples ask for text, as a first one shows; its lengths then share no pass."""
    from ropebench.run import encoder_of, examples_of

    found = {}
    for cell in cells:
        first = next(examples_of(cell, encoder_of(cell, tokenizer)), None)
        found[cell.id] = first is not None and bool(first.max_new_tokens)
    return lambda cell: found[cell.id]
