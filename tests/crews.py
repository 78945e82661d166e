"""A crew whose workers are in this process, for what is tested of a run over many workers without Ray."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from fakes import FakeEngine, loaded
from ropebench.cluster import Died
from ropebench.sweep import Sweep
from ropebench.worker import Job, Order, Ready, Step, Worker


def worker(sweep: Sweep, load: Any = None, engine: Any = None) -> Worker:
    """One worker; with `load` and `engine` None a real one."""
    return Worker(Order(sweep, (), "run", os.getcwd()), load, engine)


Dies = Callable[[int, tuple[str, ...], int], bool]  # (worker, cells of its job, how many steps it has made)


class Crew:
    """Workers in this process, asked in turn. A worker that is to die does so in the middle of a step: it has measured,
    and what it measured is lost."""

    def __init__(
        self,
        size: int,
        dies: Dies = lambda *_: False,
        loads: Callable[[int], None] = lambda _: None,
        make: Callable[[FakeEngine], Worker] = lambda engine: worker(Sweep(), lambda _: loaded(), engine),
    ) -> None:
        self.size, self.dies, self.loads, self.make = size, dies, loads, make
        self.hired, self.closed = 0, False
        self.engines: dict[int, FakeEngine] = {}
        self.jobs: list[tuple[int, tuple[str, ...]]] = []
        self._asked: dict[int, deque[Callable[[], Any]]] = {}
        self._workers: dict[int, Worker] = {}
        self._cells: dict[int, tuple[str, ...]] = {}
        self._steps: dict[int, int] = {}

    def hire(self, identities: Mapping[str, Any]) -> int:
        self.hired += 1
        number = self.hired
        engine = self.engines[number] = FakeEngine()
        one = self._workers[number] = self.make(engine)

        def ready() -> Any:
            self.loads(number)
            return one.ready(identities)

        self._asked[number] = deque([ready])
        return number

    def begin(self, worker: int, number: int, job: Job) -> None:
        self.jobs.append((worker, job.cells))

        def begin() -> None:
            self._cells[worker], self._steps[worker] = job.cells, 0
            self._workers[worker].begin(number, job)

        self._asked[worker].append(begin)

    def step(self, worker: int) -> None:
        def step() -> Any:
            found = self._workers[worker].step()
            self._steps[worker] += 1
            if self.dies(worker, self._cells[worker], self._steps[worker]):
                raise SystemError("its process ended")
            return found

        self._asked[worker].append(step)

    def answers(self, seconds: float) -> list[tuple[int, Ready | Step | Died]]:
        assert not self.closed
        found: list[tuple[int, Ready | Step | Died]] = []
        for worker, asked in [*self._asked.items()]:
            answer = None
            while asked and answer is None:
                try:
                    answer = asked.popleft()()
                except SystemError as error:
                    answer = Died(str(error))
                    del self._asked[worker]
                    asked.clear()
            if answer is not None:
                found.append((worker, answer))
        return found

    def close(self) -> None:
        self.closed = True
