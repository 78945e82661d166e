"""A whole run with a fake engine, and no torch: what tests start in processes of their own, kill and start again.

    python stub_run.py RESULTS SECONDS_PER_PASS

writes `ready` when it begins to measure. `finish` is the same in the test's own process.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fakes import Coins, FakeEngine, Pages, cell, loaded, writer
from ropebench.methods import PositionInterpolation, Yarn
from ropebench.run import Stored, run_cells
from ropebench.store import newest_ok, read, samples


def plan() -> list[Any]:
    """Two methods and the unmodified model, text and likelihood, two lengths that share a pass and two that do not."""
    plain = [cell(task, length=length, n=3) for task in (Coins(), Pages()) for length in (64, 32)]
    methods = (PositionInterpolation(), Yarn())
    return plain + [dataclasses.replace(one, method=method, factor=4.0) for method in methods for one in plain]


def finish(folder: Path, seconds: float = 0.0, ready: Any = lambda: None) -> FakeEngine:
    """One `ropebench run`: what is not done yet is measured."""
    stored = Stored.read(folder)
    pending = [one for one in plan() if not stored.done(one)]
    engine = FakeEngine(lambda _: time.sleep(seconds))
    ready()
    run_cells(pending, loaded(), stored, writer(folder), engine=engine)
    return engine


def start(folder: Path, seconds: float, *more: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    return subprocess.Popen(
        [sys.executable, __file__, str(folder), str(seconds), *more],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip


def started(folder: Path, seconds: float) -> subprocess.Popen[str]:
    """A process that has begun to measure."""
    process = start(folder, seconds)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def pages(folder: Path) -> str:
    """The leaderboard and the tables of a results folder as text, without the line that tells time and memory."""
    from ropebench.report import leaderboard
    from ropebench.report.cells import blocks, cell_rows, samples_by_cell
    from ropebench.report.paired import by_cell
    from ropebench.report.sections import tables_of
    from ropebench.report.tables import as_text

    records = newest_ok(read(folder))
    rows = samples_by_cell(records, samples(folder))
    text = leaderboard._pages(records, rows, read(folder))[0][leaderboard.README]
    kept = [line for line in text.splitlines() if not line.startswith("- cost: ")]
    tables = [
        as_text(one) for block in blocks(cell_rows(records, rows)) for one in tables_of(block, rows, by_cell(records))
    ]
    return "\n".join([*kept, *tables])


def lines(folder: Path) -> tuple[list[str], list[tuple[str, int]]]:
    """What all files hold, nothing chosen: the cell of every record, and (cell, index) of every sample row."""
    import json

    rows = []
    for file in sorted(folder.glob("*.samples.jsonl")):
        for line in file.read_text().split("\n")[:-1]:
            row = json.loads(line)
            rows.append((row["cell_id"], row["index"]))
    return [record["cell_id"] for record in read(folder)], rows


def _ready() -> None:
    print("ready", flush=True)
    if "wait" in sys.argv:
        sys.stdin.readline()


if __name__ == "__main__":
    finish(Path(sys.argv[1]), float(sys.argv[2]), _ready)
