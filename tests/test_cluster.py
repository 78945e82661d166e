"""A run over many workers: the records of a local run, whatever dies on the way; one process writes; no ray, no model.

The crew is a fake one: real workers in this process, with the fake engine, that die where a test says so.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crews import Crew, worker
from fakes import Coins, FakeEngine, cell, loaded, writer
from ropebench import worker as worker_module
from ropebench.claims import Claims
from ropebench.cli.live import line
from ropebench.cluster import Foreman
from ropebench.errors import UsageError
from ropebench.progress import Progress
from ropebench.ray_crew import _reason, _sized
from ropebench.run import run_cells
from ropebench.store import Stored, read, samples
from ropebench.sweep import Sweep
from stub_run import finish, lines, pages, plan


@pytest.fixture(autouse=True)
def same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker makes of the sweep: the plan of the stub run."""
    monkeypatch.setattr(worker_module, "make_plan", lambda _: SimpleNamespace(cells=plan()))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run in one process."""
    folder = tmp_path_factory.mktemp("alone")
    run_cells(plan(), loaded(), Stored.read(folder), writer(folder, "run"), engine=FakeEngine())
    return folder


def spread(folder: Path, crew: Crew, run: str = "run", **more: Any) -> list[Any]:
    """One `run --executor ray`: what is not done yet is measured."""
    stored = Stored.read(folder)
    pending = [one for one in plan() if not stored.done(one)]
    given = {"apart": lambda one: isinstance(one.task, Coins), **more}
    return Foreman(pending, crew, stored, writer(folder, run), **given).run()


def told(folder: Path) -> list[Any]:
    """The records but for time, cost and ids, in the order of the plan."""
    order = {one.id: at for at, one in enumerate(plan())}
    found = sorted(read(folder), key=lambda record: order[record["cell_id"]])
    return [{k: v for k, v in one.items() if k not in ("cost", "record_id", "created")} for one in found]


def scored(folder: Path) -> list[Any]:
    rows = [{k: v for k, v in row.items() if k != "cost"} for row in samples(folder)]
    return sorted(rows, key=lambda row: (row["cell_id"], row["index"]))


def check(folder: Path, alone: Path) -> None:
    """Every cell and every sample once, all as in a run in one process."""
    cells, rows = lines(folder)
    assert sorted(cells) == sorted(one.id for one in plan())
    assert sorted(rows) == sorted((one.id, index) for one in plan() for index in range(one.n))
    assert told(folder) == told(alone)
    assert scored(folder) == scored(alone)
    assert pages(folder) == pages(alone)


@pytest.mark.parametrize("size", [1, 3, 50])
def test_the_same_records_as_a_local_run(tmp_path: Path, alone: Path, size: int) -> None:
    crew = Crew(size)
    records = spread(tmp_path, crew)
    assert len(records) == len(plan())
    check(tmp_path, alone)
    assert crew.closed
    assert crew.hired == min(size, 9)  # never more than there are units
    assert sum(engine.tokens_fed for engine in crew.engines.values()) == sum(
        r["cost"]["tokens"] for r in read(tmp_path)
    )
    assert len([*tmp_path.glob("*.jsonl")]) == 2  # one writer


def test_the_longest_goes_first_and_lengths_that_share_a_pass_go_to_one_worker(tmp_path: Path) -> None:
    cells = plan()
    seconds = {one.id: {"seconds": float(at), "flops": 1} for at, one in enumerate(cells)}
    crew = Crew(2)
    spread(tmp_path, crew, estimates=lambda _: seconds)
    assert [set(ids) for _, ids in crew.jobs[:2]] == [{cells[10].id, cells[11].id}, {cells[6].id, cells[7].id}]
    assert crew.jobs[2][1] == (cells[9].id,)
    assert sorted(len(ids) for _, ids in crew.jobs) == [1] * 6 + [2] * 3


def test_a_worker_that_dies_in_mid_cell_loses_no_sample_and_repeats_none(tmp_path: Path, alone: Path) -> None:
    deaths: list[int] = []
    said: list[str] = []

    def dies(worker: int, cells: tuple[str, ...], step: int) -> bool:
        if len(deaths) < 2 and step == 2:
            deaths.append(worker)
            return True
        return False

    crew = Crew(2, dies)
    spread(tmp_path, crew, say=said.append)
    check(tmp_path, alone)
    assert len(set(deaths)) == 2
    assert crew.hired == 4
    assert any("measured again by another" in text for text in said)
    calls = sum(engine.calls for engine in crew.engines.values())
    quiet = Crew(2)
    spread(tmp_path / "quiet", quiet)
    # Only what a worker had measured and not yet handed over is measured again: one sample for each death.
    assert calls - sum(engine.calls for engine in quiet.engines.values()) <= 2


def test_a_cell_over_which_workers_die_is_tried_three_times_then_a_failure_and_the_others_are_measured(
    tmp_path: Path, alone: Path
) -> None:
    fatal = next(one.id for one in plan() if isinstance(one.task, Coins))
    crew = Crew(2, lambda _, cells, step: fatal in cells and step == 2)
    records = spread(tmp_path, crew)
    bad = [record for record in records if record["outcome"]["status"] != "ok"]
    assert [record["cell_id"] for record in bad] == [fatal]
    assert bad[0]["outcome"]["status"] == "error"
    assert bad[0]["outcome"]["error"]["type"] == "WorkerDied"
    assert "3 workers died over this cell" in bad[0]["outcome"]["error"]["message"]
    assert sum(fatal in cells for _, cells in crew.jobs) == 3
    assert bad[0]["condition"]["n_scored"] == 1  # what was handed over before; the step that killed is lost each time
    assert [one for one in told(tmp_path) if one["cell_id"] != fatal] == [
        one for one in told(alone) if one["cell_id"] != fatal
    ]
    finish(tmp_path)  # a failed cell is measured by the next run, which goes on inside it
    assert pages(tmp_path) == pages(alone)


def test_of_a_unit_that_kills_only_the_cell_that_does_it_is_given_up(tmp_path: Path) -> None:
    """Two lengths of one pass: the third try takes them apart."""
    both = [one.id for one in plan() if not isinstance(one.task, Coins)][:2]
    crew = Crew(1, lambda _, cells, step: both[1] in cells)
    records = spread(tmp_path, crew)
    assert {r["cell_id"] for r in records if r["outcome"]["status"] != "ok"} == {both[1]}
    assert len(records) == len(plan())


def test_workers_that_die_while_they_load_are_not_replaced_for_ever(tmp_path: Path, alone: Path) -> None:
    def loads(worker: int) -> None:
        if worker != 2:
            raise SystemError("killed for lack of memory")

    crew, said = Crew(3, loads=loads), list[str]()
    spread(tmp_path, crew, say=said.append)
    check(tmp_path, alone)
    assert crew.hired == 3
    assert said == ["a worker died (killed for lack of memory) while it loaded its model: not replaced"] * 2

    def never(worker: int) -> None:
        raise SystemError("killed for lack of memory")

    with pytest.raises(UsageError, match="no worker is left: a worker died \\(killed for lack of memory\\)"):
        spread(tmp_path / "none", Crew(2, loads=never))


def test_what_a_worker_itself_raises_ends_the_run(tmp_path: Path) -> None:
    def loads(worker: int) -> None:
        raise UsageError("no such file on this machine")

    crew = Crew(1, loads=loads)
    with pytest.raises(UsageError, match="no such file on this machine"):
        spread(tmp_path, crew)
    assert crew.closed


def test_an_end_that_is_asked_for_stores_what_is_under_way_and_the_next_run_goes_on(
    tmp_path: Path, alone: Path
) -> None:
    asked = iter(range(1000))

    def pause() -> None:
        if next(asked) == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spread(tmp_path, Crew(2), pause=pause)
    cells, rows = lines(tmp_path)
    assert 0 < len(rows) < 36
    before = len(rows)
    crew = Crew(2)
    spread(tmp_path, crew, run="next")
    cells, rows = lines(tmp_path)
    assert (len(set(rows)), len(rows), len(set(cells)), len(cells)) == (36, 36, 12, 12)
    assert sum(engine.calls for engine in crew.engines.values()) <= 36 - before
    assert pages(tmp_path) == pages(alone)


def test_cells_that_another_run_has_come_last(tmp_path: Path, alone: Path) -> None:
    theirs, said = plan()[2].id, list[str]()
    with Claims(tmp_path, "other") as other:
        assert other.take(theirs)
        rounds = iter(range(10**6))

        def pause() -> None:
            if next(rounds) == 400:
                other.give_back([theirs])
            time.sleep(0.001)  # claims are looked at again by the clock

        spread(tmp_path, Crew(2), pause=pause, say=said.append)
    check(tmp_path, alone)
    assert lines(tmp_path)[0][-1] in {theirs, plan()[3].id}
    assert said[0] == "another run works on this results folder: cells that it has come last"


def test_a_worker_that_would_measure_something_else_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cell(seed=1)
    monkeypatch.setattr(worker_module, "make_plan", lambda _: SimpleNamespace(cells=[here]))
    one = worker(Sweep(), lambda _: loaded(), FakeEngine())
    assert one.ready({here.id: here.identity}).device == "cpu"
    there = cell(seed=1, dtype="bfloat16")
    with pytest.raises(UsageError, match=r"something else for coins on .*: model\.dtype differ on its machine"):
        one.ready({there.id: there.identity})


def test_one_line_tells_of_all_workers(tmp_path: Path) -> None:
    seen: list[Progress] = []
    spread(tmp_path, Crew(3), progress=seen.append)
    assert seen[-1].done == seen[-1].cells == 12
    assert max(at.workers or 0 for at in seen) == 3
    assert [at.done for at in seen] == sorted(at.done for at in seen)
    middle = line(next(at for at in seen if at.done == 5 and at.workers == 3))
    assert middle.startswith("5/12 cells done  3 workers  ")
    assert "\n" not in middle


@pytest.mark.parametrize(
    "there, asked, found",
    [  # (GPUs, CPUs), (GPUs per worker, workers, device) → (workers, GPUs, CPUs each)
        ((0, 8), (None, None, "auto"), (8, 0, 1)),
        ((0, 8), (None, 3, "auto"), (3, 0, 2)),
        ((4, 16), (None, None, "auto"), (4, 1, 1)),
        ((4, 16), (2, None, "auto"), (2, 2, 1)),
        ((4, 16), (0.5, None, "auto"), (8, 0.5, 1)),
        ((4, 16), (None, None, "cpu"), (16, 0, 1)),
        ((8, 4), (None, None, "auto"), (4, 1, 1)),
    ],
)
def test_as_many_workers_as_a_cluster_has_room_for(there: Any, asked: Any, found: Any) -> None:
    wanted = SimpleNamespace(gpus=asked[0], workers=asked[1])
    crew = _sized(wanted, asked[2], {"GPU": there[0], "CPU": there[1]})
    assert (crew.size, crew.gpus, crew.cpus) == found


@pytest.mark.parametrize(
    "asked, said",
    [
        ((1, None, "auto"), "the Ray cluster has 0 GPUs"),
        ((None, 9, "auto"), "8 CPUs and 0 GPUs, enough for 8"),
    ],
)
def test_more_than_a_cluster_has_is_refused(asked: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        _sized(SimpleNamespace(gpus=asked[0], workers=asked[1]), asked[2], {"CPU": 8})


def test_why_a_worker_died_is_said_without_addresses() -> None:
    text = (
        "The actor died: its node 10.1.2.3 has died; Worker exit: task was killed due to memory pressure (OutOfMemory)"
    )
    assert _reason(RuntimeError(text)) == "killed for lack of memory"
    assert _reason(RuntimeError("The worker process has died. pid 12, ip 10.1.2.3")) == "its process ended"
    assert _reason(RuntimeError("something at 10.1.2.3")) == "RuntimeError"
