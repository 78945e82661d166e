"""Killed at any moment, a run loses nothing that it finished and repeats nothing; several runs share one folder."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import stub_run
from ropebench import claims
from ropebench.claims import Claims
from ropebench.store import NotStored, Stored, Writer, read
from stub_run import finish, lines, pages, plan, start, started

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    finish(folder)
    return folder


def check(folder: Path, whole: Path) -> None:
    """Every cell and every sample once in all files together, and the same pages."""
    cells, rows = lines(folder)
    assert sorted(cells) == sorted(one.id for one in plan())
    assert sorted(rows) == sorted((one.id, index) for one in plan() for index in range(one.n))
    assert pages(folder) == pages(whole)
    assert not (folder / claims.FOLDER).exists()


def killed(folder: Path, seconds: float, after: float) -> None:
    process = started(folder, seconds)
    time.sleep(after)
    process.kill()
    process.wait(timeout=60)


def kill_again_and_again(folder: Path, whole: Path, moments: int, seed: int) -> None:
    rng, seconds = random.Random(seed), 0.004  # 27 passes, of which a restart has fewer and fewer
    for _ in range(moments):
        before = [set(kind) for kind in lines(folder)]
        killed(folder, seconds, rng.uniform(0.0, 0.03))
        cells, rows = lines(folder)
        assert before[0] <= set(cells)
        assert before[1] <= set(rows)
    finish(folder)
    check(folder, whole)


def test_killed_at_five_random_moments(tmp_path: Path, whole: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # pytest shows it where this fails
    kill_again_and_again(tmp_path, whole, 5, seed)


@pytest.mark.slow
def test_killed_at_sixty_random_moments(tmp_path: Path, whole: Path) -> None:
    for seed in range(12):
        kill_again_and_again(tmp_path / str(seed), whole, 5, seed)


def cut_files(folder: Path, whole: Path, name: str, size: int) -> Path:
    """A copy of the finished folder in which a file ends after `size` bytes, as power loss between writes leaves it:
    a record is never on the disk before its samples."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    file = next(f for f in folder.glob("*.jsonl") if f.name.endswith(".samples.jsonl") == (name == "samples"))
    with file.open("r+b") as handle:
        handle.truncate(size)
    if name == "samples":  # then the records of their cells, which share a pass, were not written yet
        records = next(f for f in folder.glob("*.jsonl") if f != file)
        records.write_bytes(b"".join(records.read_bytes().splitlines(keepends=True)[:-2]))
    return folder


@pytest.mark.parametrize("name", ["records", "samples"])
@pytest.mark.parametrize("step", [211, pytest.param(17, marks=pytest.mark.slow)])
def test_power_loss_at_any_byte_of_the_last_two_lines(
    tmp_path: Path, whole: Path, name: str, step: int, caplog: pytest.LogCaptureFixture
) -> None:
    file = next(f for f in whole.glob("*.jsonl") if f.name.endswith(".samples.jsonl") == (name == "samples"))
    raw = file.read_bytes()
    first = len(raw) - sum(map(len, raw.splitlines(keepends=True)[-2:]))
    middle = len(raw) - len(raw.splitlines(keepends=True)[-1])
    sizes = {*range(first, len(raw), step), first + 1, middle - 1, middle, middle + 1, len(raw) - 1}
    for size in sorted(sizes):
        folder = cut_files(tmp_path / "cut", whole, name, size)
        finish(folder)
        cells = [record["cell_id"] for record in read(folder)]
        assert sorted(cells) == sorted(one.id for one in plan()), size
        assert pages(folder) == pages(whole), size


@pytest.mark.slow
def test_every_prefix_of_the_last_two_lines_is_read(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(whole, folder)
    full = Stored.read(whole)
    for name, least in ((".samples.jsonl", 34), (".jsonl", 10)):
        file = min((f for f in folder.glob(f"*{name}")), key=lambda f: abs(len(f.name) - len(name)))
        raw = file.read_bytes()
        for size in range(len(raw), len(raw) - sum(map(len, raw.splitlines(keepends=True)[-2:])) - 1, -1):
            os.truncate(file, size)
            now = Stored.read(folder, lambda _: None)
            found = sum(map(len, now.rows.values())) if name == ".samples.jsonl" else len(now.records)
            assert least <= found <= least + 2, size
            assert now.records.items() <= full.records.items()
            assert all(full.rows[cell][index] == row for cell, rows in now.rows.items() for index, row in rows.items())
        assert found == least
        file.write_bytes(raw)


def test_eight_processes_measure_each_cell_once(tmp_path: Path, whole: Path) -> None:
    processes = [start(tmp_path, 0.01, "wait") for _ in range(8)]
    assert [process.stdout.readline() for process in processes if process.stdout] == ["ready\n"] * 8
    for process in processes:  # all have planned: none is through before the last has begun
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.wait(timeout=120) for process in processes] == [0] * 8
    check(tmp_path, whole)
    assert len([*tmp_path.glob("*Z-??????.jsonl")]) > 1  # more than one had something to do


def test_a_killed_runs_cells_are_taken_over(tmp_path: Path, whole: Path) -> None:
    first = started(tmp_path, 0.2)
    time.sleep(0.5)
    other = started(tmp_path, 0.01)  # takes what the first has not, then waits for it
    deadline = time.monotonic() + 60
    while len(read(tmp_path, lambda _: None)) < len(plan()) - 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert other.poll() is None
    first.kill()
    first.wait(timeout=60)
    assert other.wait(timeout=60) == 0
    check(tmp_path, whole)


def claim(folder: Path, run: str, **more: Any) -> Claims:
    return Claims(folder, run, **more)


def as_if_elsewhere(folder: Path, **change: Any) -> None:
    """Rewrite the claims as if another machine's, or another process's."""
    for file in (folder / claims.FOLDER).iterdir():
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))


def test_a_claim_is_one_runs_alone_until_it_is_given_back(tmp_path: Path) -> None:
    with claim(tmp_path, "a") as one, claim(tmp_path, "b") as other:
        assert one.take("cell")
        assert one.holds("cell")
        assert not other.take("cell")
        assert other.take("another")
        one.give_back(["cell"])
        assert other.take("cell")
        assert not one.holds("cell")
    assert not (tmp_path / claims.FOLDER).exists()


def test_a_claim_names_no_machine(tmp_path: Path) -> None:
    with claim(tmp_path, "a") as one:
        one.take("cell")
        (file,) = (tmp_path / claims.FOLDER).iterdir()
        text = file.read_text()
    assert os.uname().nodename not in text
    assert set(json.loads(text)) == {"run_id", "machine", "pid", "started"}


def test_the_claim_of_a_process_that_is_gone_is_stale_at_once(tmp_path: Path) -> None:
    one, other = claim(tmp_path, "a"), claim(tmp_path, "b")
    assert one.take("cell")
    as_if_elsewhere(tmp_path, started="1")  # the process id is in use again, by us
    assert other.take("cell")
    assert not one.holds("cell")  # what it was taken from writes no more
    other.close()
    assert not (tmp_path / claims.FOLDER).exists()


def test_a_claim_of_another_machine_is_stale_when_its_lease_has_run_out(tmp_path: Path) -> None:
    one, other = claim(tmp_path, "a", renewal=0.02), claim(tmp_path, "b", lease=0.3)
    assert one.take("cell")
    as_if_elsewhere(tmp_path, machine="f" * 16, pid=1)
    until = time.monotonic() + 0.6
    while time.monotonic() < until:
        assert not other.take("cell")  # renewed all the time
        time.sleep(0.02)
    one._closed.set()
    assert one._thread is not None
    one._thread.join()
    deadline = time.monotonic() + 10
    while not (taken := other.take("cell")) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert taken
    other.close()


def test_of_two_that_find_a_stale_claim_at_most_one_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(tmp_path, "dead").take("cell")
    as_if_elsewhere(tmp_path, started="1")
    slow, quick = claim(tmp_path, "slow"), claim(tmp_path, "quick")
    plain = Claims._stale

    def meanwhile(self: Claims, name: str, seen: Any) -> bool:
        found = plain(self, name, seen)
        if self is slow and not quick.held:  # between its look and its claim another comes, measures and goes
            assert quick.take("cell")
            quick.give_back(["cell"])
            assert quick.take("cell")
        return found

    monkeypatch.setattr(Claims, "_stale", meanwhile)
    assert not slow.take("cell")
    assert quick.holds("cell")
    quick.close()


def test_a_run_whose_claim_was_taken_writes_nothing_more_of_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Path
) -> None:
    calls = [0]
    plain = Claims.holds

    def lost(self: Claims, cell_id: str) -> bool:
        calls[0] += 1
        return calls[0] != 2 and plain(self, cell_id)  # as after a long sleep, at the second sample

    monkeypatch.setattr(Claims, "holds", lost)
    finish(tmp_path)
    check(tmp_path, whole)  # the cell came again, and went on with its first sample


def test_a_claims_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / claims.FOLDER).write_text("")
    with pytest.raises(NotStored, match="cannot be used"):
        claim(tmp_path, "a").take("cell")


def test_a_disk_that_fills_up_ends_the_run_and_the_next_goes_on(tmp_path: Path, whole: Path) -> None:
    import resource
    import subprocess

    limit = 6000  # bytes of a file
    process = subprocess.run(
        [sys.executable, stub_run.__file__, str(tmp_path), "0"], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=lambda: (
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        ),
    )  # fmt: skip
    assert process.returncode == 1
    assert "NotStored" in process.stderr
    kept = len(lines(tmp_path)[1])
    assert kept > 0
    finish(tmp_path)
    check(tmp_path, whole)


def test_results_that_cannot_be_written_are_said_before_anything_is_measured(tmp_path: Path) -> None:
    from ropebench.errors import UsageError

    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        Writer(tmp_path / "file" / "results")
