"""Two workers of one thread each against one: a sweep of the bundled model over Ray on this machine."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from measuring.figure import AnswersDiffer, Figure
from measuring.sizes import Sizes
from measuring.subject import check
from measuring.sweeps import METHODS

TASKS = ("proofpile", "kv")  # likelihood, whose lengths share a pass, and text, whose lengths do not


@dataclass
class Together:
    """A crew that begins when all of its workers have their model loaded; `began` is when."""

    crew: Any
    began: float | None = None
    _ready: list[Any] = field(default_factory=list)

    @property
    def size(self) -> int:
        return int(self.crew.size)

    def hire(self, identities: Mapping[str, Any]) -> int:
        return int(self.crew.hire(identities))

    def begin(self, worker: int, number: int, job: Any) -> None:
        self.crew.begin(worker, number, job)

    def step(self, worker: int) -> None:
        self.crew.step(worker)

    def answers(self, seconds: float) -> list[tuple[int, Any]]:
        found: list[tuple[int, Any]] = self.crew.answers(seconds)
        if self.began is not None:
            return found
        self._ready += found
        if len(self._ready) < self.size:
            return []
        self.began = time.perf_counter()
        return self._ready

    def close(self) -> None:
        self.crew.close()


def workers(
    sizes: Sizes, word: str = "tiny", docs: str = "installed", crew_of: Callable[[int, Any], Any] | None = None
) -> list[Figure]:
    """`crew_of` (number of workers, sweep → crew) is for tests.

    Raises AnswersDiffer where two workers do not give the scores of one, RuntimeError where a cell fails or Ray is not
    installed.
    """
    from ropebench.model import load_tokenizer
    from ropebench.plan import Sweep, make_plan
    from ropebench.run import preflight

    sweep = Sweep(
        word, METHODS, TASKS, sizes.spread_lengths, n=sizes.spread_samples, device="cpu", dtype="float32", docs=docs
    )
    plan = make_plan(sweep)
    tokenizer = load_tokenizer(plan.cells[0].card)
    preflight(plan.cells, tokenizer)
    one, alone = spread(plan, (crew_of or local)(1, sweep), tokenizer)
    two, both = spread(plan, (crew_of or local)(2, sweep), tokenizer)
    if alone != both:
        raise AnswersDiffer("two workers do not give the scores of one")
    what = f"{len(METHODS) + 1} methods of {word} on {' and '.join(TASKS)}"
    return [
        Figure(
            "workers", f"{what}: seconds of one single-thread worker ÷ those of two, each with its model loaded",
            one / two, 1.8, "≥",
            row={
                "ratio": two / one, "ours_seconds": two, "plain_seconds": one, "cells": len(plan.cells),
                "cpus": os.cpu_count(),
            },
        )
    ]  # fmt: skip


def local(size: int, sweep: Any) -> Any:
    """Workers of one CPU and one thread each on a Ray of their own. Raises RuntimeError where that cannot be had."""
    from ropebench import ray_crew
    from ropebench.errors import UsageError

    try:
        crew = ray_crew.crew(ray_crew.Cluster("local", 0, size), "cpu")
    except UsageError as error:
        raise RuntimeError(str(error)) from None
    crew.cpus = 1
    ray_crew.order(crew, sweep, ("make", "bench"), "bench")
    return crew


def spread(plan: Any, crew: Any, tokenizer: Any) -> tuple[float, dict[Any, Any]]:
    """Run the plan on a crew: seconds from the moment at which all workers are ready, and the scores by sample."""
    from ropebench.cluster import Foreman, generates
    from ropebench.store import Stored, Writer, samples

    together = Together(crew)
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(folder)
        writer.run_id = "bench"
        apart = generates(plan.cells, tokenizer)
        records = Foreman(plan.cells, together, Stored.read(folder), writer, apart=apart).run()
        ended = time.perf_counter()
        check(records)
        scores = {(row["cell_id"], row["index"]): row["scores"] for row in samples(folder)}
    assert together.began is not None
    return ended - together.began, scores
