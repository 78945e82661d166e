"""What is measured: a loaded model, and ropebench's own way through a sweep with it, records and all."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time of a call, and what it gives."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


@dataclass(frozen=True)
class Run:
    """A sweep that was run: seconds from the first cell to the last record written, the records in the order of the
    cells, all sample rows, and the cells."""

    seconds: float
    records: list[Any]
    rows: list[Any]
    cells: tuple[Any, ...]


@dataclass(frozen=True)
class Subject:
    """A model on the CPU in float32, in which equal answers are equal to the last digits. `word` is its name, `docs`
    where the text comes from."""

    word: str
    loaded: Any
    docs: str = "installed"

    @property
    def model(self) -> Any:
        return self.loaded.model

    def plan(self, **sweep: Any) -> Any:
        """The cells of a sweep over this model and text."""
        from ropebench.plan import Sweep, make_plan

        fixed = {"model": self.word, "device": "cpu", "dtype": "float32", "docs": self.docs}
        return make_plan(Sweep(**{**fixed, **sweep}))

    def run(self, **sweep: Any) -> Run:
        """Run a sweep as `ropebench run` does, into a folder of its own. Its samples are made before the clock starts.

        Raises RuntimeError where a cell fails.
        """
        from ropebench.run import Stored, preflight, run_cells
        from ropebench.store import Writer, samples

        plan = self.plan(**sweep)
        preflight(plan.cells, self.loaded.tokenizer)
        with tempfile.TemporaryDirectory() as folder:
            writer = Writer(folder)
            spent, records = seconds(lambda: run_cells(plan.cells, self.loaded, Stored(), writer))
            rows = samples(folder)
        check(records)
        return Run(spent, records, rows, plan.cells)

    def examples(self, cell: Any) -> list[Any]:
        """The samples of a cell."""
        from itertools import islice

        from ropebench.run import encoder_of, examples_of

        return list(islice(examples_of(cell, encoder_of(cell, self.loaded.tokenizer)), cell.n))


def subject(word: str, docs: str = "installed") -> Subject:
    """Load a model by name or folder. `docs`: as for `ropebench run`."""
    from ropebench.model import card, find, load

    return Subject(word, load(card(find(word)), "cpu", "float32"), docs)


def check(records: list[Any]) -> None:
    """Raise RuntimeError with the first failure among records."""
    for record in records:
        if record["outcome"]["status"] != "ok":
            error = record["outcome"]["error"]
            raise RuntimeError(f"{record['method']['label']} {record['task']['label']}: {error['message']}")
