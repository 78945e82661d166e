"""Whose turn it is: of the cells of a run, those that no other run on the same results folder is measuring.

A run goes through its cells once, taking what is free, then comes back for what others were measuring: by then it is
stored, or its run was killed and it is free to be gone on with. Cells that share one pass are taken together, the
longest first, so that two runs do not split them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ropebench.cell import Cell
from ropebench.claims import Claims
from ropebench.errors import UsageError
from ropebench.record import Json
from ropebench.store import Stored, Writer, fingerprint, ids_of, newest_ok, read

Numbered = tuple[int, Cell]

_LONGEST = 10.0  # seconds between two looks at what other runs have; it begins with a fraction of one


@dataclass(frozen=True)
class Turn:
    """Of a group of cells those that this run has claimed, and of these the ones that have no record yet."""

    group: list[Numbered]
    mine: list[Numbered]
    cells: list[Numbered]


@dataclass
class Turns:
    """Groups of cells in the order in which this run may measure them. `stored` is what the folder holds, as read after
    the newest claim; `settled` has the records of other runs since this one began, by cell. `say` tells a person what
    is waited for; `pause` is called while waiting, and ends it by raising."""

    claims: Claims
    writer: Writer
    stored: Stored
    say: Callable[[str], None] = lambda _: None
    pause: Callable[[], None] = lambda: None
    settled: dict[str, Json] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)  # cells whose record this run has written
    _known: frozenset[str] = frozenset()  # records from before this run
    _state: object = None
    _shares: bool = False  # that another run is here was said
    _waits: bool = False

    def of(self, groups: Sequence[Sequence[Numbered]]) -> Iterator[list[Numbered]]:
        """Groups to measure now, claimed until the next is asked for. What others have, and what they took from this
        run while it was stopped, comes again until it is stored."""
        self.begin()
        waiting, rounds = [[*group] for group in groups], 0
        while waiting:
            left: list[list[Numbered]] = []
            for group in waiting:
                turn = self.claim(group)
                if turn.cells:
                    yield turn.cells
                if rest := self.give_back(turn):
                    left.append(rest)
            waiting = left
            if waiting:
                self.say_what_is_waited_for(sum(map(len, waiting)))
                self._wait(rounds)
            rounds += 1

    def begin(self) -> None:
        """Before the first claim. What was written while the model was loaded counts as another run's, too."""
        before = self.stored.known
        self._known = ids_of(read(self.writer.folder, _unsaid)) if before is None else before

    def claim(self, group: Sequence[Numbered]) -> Turn:
        """Claim what may be measured of a group now."""
        mine = self._taken(group)
        if len(mine) < len(group) and not self._shares:
            self._shares = True
            self.say("another run works on this results folder: cells that it has come last")
        return Turn([*group], mine, self._open(mine))

    def give_back(self, turn: Turn) -> list[Numbered]:
        """Drop the claims of a turn; returns those of its group's cells that still are to be measured."""
        if any(cell.id not in self.finished for _, cell in turn.cells):
            self._state = None  # lost on the way: what this run has written of them counts as well
        self.claims.give_back([cell.id for _, cell in turn.mine])
        return self._open([pair for pair in turn.group if pair not in turn.mine or pair in turn.cells])

    def say_what_is_waited_for(self, cells: int) -> None:
        """Once: that only such cells are left as other runs have."""
        if not self._waits:
            self._waits = True
            self.say(f"waiting for {cells} cell{'s' * (cells > 1)} that other runs are measuring")

    def _taken(self, group: Sequence[Numbered]) -> list[Numbered]:
        """The beginning of a group, up to the first cell that another run has."""
        mine: list[Numbered] = []
        for pair in group:
            if not self.claims.take(pair[1].id):
                break
            mine.append(pair)
        return mine

    def _open(self, group: Sequence[Numbered]) -> list[Numbered]:
        """Those of some cells that have no record yet, of this run or of another since it began. A failure settles a
        cell too: eight runs would only repeat it eight times."""
        self._look()
        new = Stored(self.settled)
        return [
            (number, cell)
            for number, cell in group
            if cell.id not in self.finished and not new.done(cell) and not _failed(self.settled.get(cell.id))
        ]

    def _look(self) -> None:
        """Read the folder again where other runs have written."""
        folder, own = self.writer.folder, self.writer.run_id
        self.writer.probe()  # a change of our own makes a network file system look at the folder anew
        state = fingerprint(folder, own)
        if state == self._state:
            return
        try:
            new = [one for one in read(folder, _unsaid) if str(one.get("record_id")) not in self._known]
            self.stored = self.stored.again()
        except UsageError:  # half of what another machine is writing just now; looked at again next time
            return
        self.settled = {one["cell_id"]: one for one in newest_ok(one for one in new if one.get("run_id") != own)}
        self._state = state

    def _wait(self, rounds: int) -> None:
        until = time.monotonic() + min(_LONGEST, 0.1 * 1.5**rounds) * random.SystemRandom().uniform(0.5, 1.0)
        while (left := until - time.monotonic()) > 0:
            self.pause()
            time.sleep(min(left, 0.2))


def _failed(record: Json | None) -> bool:
    return record is not None and record["outcome"]["status"] != "ok"


def _unsaid(_: str) -> None:
    """Torn lines were reported when the run began, and others are being written."""
