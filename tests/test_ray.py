"""`run --executor ray` on a real Ray cluster of this machine: the records of a local run, also when a worker is killed
in mid-cell; what cannot be is said before anything is started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ropebench import ray_crew
from ropebench.cli import main
from ropebench.errors import UsageError
from ropebench.store import read, samples

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra `ray`")
WORDS = [
    "--model", "tiny", "--method", "pi", "--target", "1k", "--tasks", "kv,proofpile", "--docs", "installed",
    "--lengths", "512,1k", "--n", "6", "--device", "cpu", "--dtype", "float32",
]  # fmt: skip


@needs_ray
@pytest.mark.parametrize(
    "flags, said",
    [
        (["--gpus-per-cell", "1"], "--gpus-per-cell is for --executor ray"),
        (["--executor", "ray", "--gpus-per-cell", "1.5"], "a whole number, or a part of one GPU"),
        (["--executor", "ray", "--gpus-per-cell", "2"], "--device-map auto, or give 1"),
        (["--executor", "ray", "--workers", "0"], "--workers 0: must be at least 1"),
    ],
)
def test_flags_that_contradict_are_refused(flags: list[str], said: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["run", *WORDS, *flags, "--results", str(tmp_path / "none")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_missing_ray_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("ropebench.ray_crew.find_spec", lambda _: None)
    assert main(["run", *WORDS, "--executor", "ray"]) == 2
    assert "pip install 'ropebench[ray]'" in capsys.readouterr().err


class Busy:
    """Stands for the module ray on a machine that is too busy for its first starts."""

    def __init__(self, late: int, why: str = "The current node timed out during startup.") -> None:
        self.late, self.why, self.starts = late, why, 0

    def init(self, **_: Any) -> None:
        self.starts += 1
        if self.starts <= self.late:
            raise Exception(self.why)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def shutdown(self) -> None:
        pass


@pytest.mark.parametrize(
    "address, ray, said",
    [
        ("local", Busy(2), None),
        ("local", Busy(3), "could not be started here (The current node timed out during startup.)"),
        ("auto", Busy(1, "Could not find any running Ray instance.\nMore"), "--address auto: no Ray cluster could be"),
    ],
)
def test_a_cluster_that_does_not_come_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, address: str, ray: Busy, said: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "ray", ray)
    cluster: Any = SimpleNamespace(address=address, gpus=None, workers=None)
    if said is None:
        assert ray_crew.crew(cluster, "cpu").size == 2
        return
    with pytest.raises(UsageError) as caught:
        ray_crew.crew(cluster, "cpu")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "More" not in str(caught.value)


def command(folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "ropebench.cli", "run", *WORDS, "--results", str(folder), *more]


SPREAD = ("--executor", "ray", "--address", "local", "--workers", "2")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run(command(folder), check=True, capture_output=True, timeout=600)
    return folder


def told(folder: Path) -> list[Any]:
    """Records without what each run has of its own: ids, time, cost, the words it was started with, and the commit."""
    own = {"cost", "record_id", "run_id", "series", "created", "provenance"}
    found = []
    for record in sorted(read(folder), key=lambda one: str(one["cell_id"])):
        where = {key: record["provenance"][key] for key in ("versions", "platform", "device", "hardware")}
        found.append({key: value for key, value in record.items() if key not in own} | where)
    return found


def same(folder: Path, alone: Path) -> bool:
    """Whether records and samples are the same, without pages of a difference."""
    differing = [one["cell_id"] for one, other in zip(told(folder), told(alone), strict=True) if one != other]
    return differing == [] and scored(folder) == scored(alone)


def scored(folder: Path) -> list[Any]:
    rows = [{k: v for k, v in row.items() if k not in ("cost", "run_id", "series")} for row in samples(folder)]
    return sorted(rows, key=lambda row: (row["cell_id"], row["index"]))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def measuring(driver: int) -> list[int]:
    """A driver's workers that measure now: Ray calls a process by what it does, below a raylet of the driver's."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"ray::Worker.step" in (entry / "cmdline").read_bytes():
                pid = int(entry.name)
                if parent(parent(pid)) == driver:
                    found.append(pid)
        except (OSError, ValueError):
            continue
    return found


@needs_ray
@pytest.mark.slow
def test_a_real_cluster_gives_the_records_of_a_local_run(alone: Path, tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path, *SPREAD), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert "on 2 × cpu, 8 cells" in done.stderr
    assert same(tmp_path, alone)
    again = subprocess.run(command(tmp_path, *SPREAD), capture_output=True, text=True, timeout=900)
    assert again.returncode == 0, again.stderr
    assert "8 of 8 cells are already stored" in again.stderr
    assert len(read(tmp_path)) == 8


@needs_ray
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="finds the workers in /proc")
def test_a_worker_that_is_killed_in_mid_cell_changes_no_record(alone: Path, tmp_path: Path) -> None:
    words = command(tmp_path, *SPREAD, "--json")
    driver = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until, victims = time.monotonic() + 600, list[int]()
    while driver.poll() is None and time.monotonic() < until and not victims:
        if len(samples(tmp_path)) > 1:
            victims = measuring(driver.pid)
        time.sleep(0.02)
    before = len(read(tmp_path, lambda _: None))
    assert before < 8
    (victim, *_) = victims
    os.kill(victim, signal.SIGKILL)
    shown, said = driver.communicate(timeout=600)
    assert driver.returncode == 0, said
    assert len(json.loads(shown)) == 8  # nothing of Ray's among it
    assert "a worker died (its process ended): its cells are measured again by another" in said
    assert same(tmp_path, alone)
