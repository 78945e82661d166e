"""What is seen while a run is under way: one line on a terminal, nothing elsewhere, JSON lines for machines."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes import Coins, FakeEngine, Pages, cell, loaded, writer
from ropebench.cli.live import Live, against, line
from ropebench.errors import UsageError
from ropebench.progress import Pace, Progress
from ropebench.run import run_cells
from ropebench.store import Stored, read


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(folder: Path, live: Any, cells: Any = None, engine: Any = None) -> list[Any]:
    try:
        return run_cells(
            cells or [cell(n=2), cell(length=16, n=1)], loaded(), Stored(), writer(folder), (), live,
            engine or FakeEngine(),
        )  # fmt: skip
    finally:
        live.close()


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_one_line_on_a_terminal_and_none_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, quiet: bool
) -> None:
    talks = kind is Terminal and not quiet
    monkeypatch.setattr(sys, "stderr", kind())
    run(tmp_path, Live(quiet))
    said = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert bool(said) == talks
    assert "\n" not in said  # rewritten, and gone at the end
    if talks:
        assert said.endswith("\r\033[K")
        assert "cell 2/2" in said


def test_notes_are_said_without_a_terminal_but_not_when_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    Live().say("note: one")
    Live(quiet=True).say("note: two")
    Live(log="-").say("note: three")  # a machine reads that stream
    assert sys.stderr.getvalue() == "note: one\n"  # type: ignore[attr-defined]


def test_the_line_tells_the_time_left_of_the_whole_run() -> None:
    at = Progress("sample", cell(), 3, 8, 4, 10, 1234.5, 7620.0)
    assert line(at) == "cell 3/8  none  coins  32 tokens  sample 5/10  1,234 tokens/s  2 h 07 min left"


def test_every_event_is_a_json_line(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"event": "of an earlier run"}\n')
    records = run(tmp_path / "results", Live(quiet=True, log=str(log)))
    events = [json.loads(text) for text in log.read_text().splitlines()][1:]
    assert [e["event"] for e in events] == [
        "cell_begin",
        "sample",
        "sample",
        "cell_end",
        "cell_begin",
        "sample",
        "cell_end",
    ]
    assert all(e["time"].endswith("Z") and e["cells"] == 2 for e in events)
    ends = [e for e in events if e["event"] == "cell_end"]
    assert [(e["status"], e["record_id"], e["tokens"]) for e in ends] == [
        ("ok", r["record_id"], r["cost"]["tokens"]) for r in records
    ]
    assert [e["samples_done"] for e in events if e["event"] == "sample"] == [1, 2, 1]
    assert sorted(e["index"] for e in events if e["event"] == "sample") == [0, 0, 1]
    assert events[-1]["seconds_left"] == 0


def test_a_failing_cell_ends_too(tmp_path: Path) -> None:
    def fail(call: int) -> None:
        raise ValueError("broken")

    log = tmp_path / "log.jsonl"
    run(tmp_path / "results", Live(log=str(log)), [cell(n=2)], FakeEngine(fail))
    last = json.loads(log.read_text().splitlines()[-1])
    assert (last["event"], last["status"], last["error"]["type"]) == ("cell_end", "error", "ValueError")


def test_a_log_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--log-json .* cannot be written: Is a directory"):
        Live(log=str(tmp_path))


def test_the_time_left_is_weighed_by_what_cells_cost() -> None:
    now = [0.0]
    long, short = cell(length=48), cell(length=16)
    estimates = {long.id: {"seconds": None, "flops": 900}, short.id: {"seconds": None, "flops": 100}}
    pace = Pace.of([long, short], estimates, lambda: now[0])
    pace.begin()
    assert pace.seconds_left() is None  # FLOPs are no seconds
    now[0] = 45.0
    pace.at(long, 0.5)
    assert pace.seconds_left() == pytest.approx(55.0)
    pace.at(long, 1.0)
    pace.at(short, 1.0)
    assert pace.seconds_left() == 0


def test_with_an_estimate_in_seconds_the_first_line_knows() -> None:
    long, short = cell(length=48), cell(length=16)
    estimates = {long.id: {"seconds": 90.0, "flops": 1}, short.id: {"seconds": 10.0, "flops": 1}}
    assert Pace.of([long, short], estimates, lambda: 0.0).seconds_left() == 100.0
    only = Pace.of([long, short], {long.id: estimates[long.id]}, lambda: 0.0)  # one is not known: by tokens
    assert only.seconds_left() is None


def test_estimate_and_truth_stand_together(tmp_path: Path) -> None:
    one = cell(Pages(), n=2)
    expected = {"tokens": 60, "flops": 10**9, "peak_bytes": 2_000_000, "seconds": 75.0, "basis": "a probe"}
    run_cells([one], loaded(), Stored(), writer(tmp_path), engine=FakeEngine(), estimates={one.id: expected})
    record = read(tmp_path)[0]
    record["cost"] |= {"seconds": 80.0, "peak_bytes": 2_100_000}
    assert against([record]) == (
        "cost: 64 tokens (expected 60), 1 min 20 s (expected 1 min 15 s), peak 2.1 MB (expected 2 MB); time by a probe"
    )
    record["cost"]["estimate"] = None
    assert against([record]) == "cost: 64 tokens (no estimate), 1 min 20 s (no estimate), peak 2.1 MB (no estimate)"
    assert against([]) is None


def test_progress_that_cannot_be_shown_is_no_failure_of_a_cell(tmp_path: Path) -> None:
    def gone(_: Progress) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_cells([cell(Coins())], loaded(), Stored(), writer(tmp_path), (), gone, FakeEngine())
