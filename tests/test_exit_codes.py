"""`ropebench run` says by its exit code how it went: 0 all ok, 1 some cells failed, 2 a mistake, 130 interrupted; and
an interruption loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fakes import save_tiny
from ropebench import cli
from ropebench.engine import Engine
from ropebench.store import read, samples

TASK = """
import time
from dataclasses import dataclass
from ropebench import Example, Metric, Task

@dataclass(frozen=True)
class Digits(Task):
    name, scorer = "digits", "equal"
    metrics = (Metric("right", "higher"),)
    seconds: float = 0.0  # to score a sample
    fails_at: int = -1

    def examples(self, length, encoder, seed, corpus=None):
        for i in range(1000):
            yield Example(tuple(10 + (i + j) % 50 for j in range(length - 1)), ("1",), 1, meta={"number": i})

    def score(self, example, output):
        time.sleep(self.seconds)
        if example.meta["number"] == self.fails_at:
            raise RuntimeError("no score for this one")
        return {"right": float(output.text == "1")}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_tiny(tmp_path_factory.mktemp("models") / "tiny-llama")
    (folder.parent / "digits.py").write_text(TASK, encoding="utf-8")
    return folder


def words(model: Path, results: Path, task: str = "digits", n: int = 5, **more: str) -> list[str]:
    fixed = {
        "--model": str(model), "--method": "yarn", "--tasks": task, "--lengths": "32,64", "--target": "128",
        "--device": "cpu", "--dtype": "float32", "--plugin": str(model.parent / "digits.py"), "--n": str(n),
        "--results": str(results), **more,
    }  # fmt: skip
    return ["run", *(word for pair in fixed.items() for word in pair)]


def test_0_when_all_is_well(model: Path, tmp_path: Path) -> None:
    assert cli.main(words(model, tmp_path)) == 0
    assert cli.main(words(model, tmp_path)) == 0  # nothing is left
    assert [record["outcome"]["status"] for record in read(tmp_path)] == ["ok"] * 4


def test_1_when_some_cells_fail(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = words(model, tmp_path, "digits,digits:fails_at=3")
    assert cli.main(both) == 1
    said = capsys.readouterr()
    assert said.err.count("failed: ") == 4
    assert "error (RuntimeError: no score for this one)" in said.err
    assert "records: " in said.out  # what went well is shown all the same
    status = sorted(record["outcome"]["status"] for record in read(tmp_path))
    assert status == ["error"] * 4 + ["ok"] * 4


def test_2_for_a_mistake(model: Path, tmp_path: Path) -> None:
    assert cli.main(words(model, tmp_path, "digit")) == 2
    assert cli.main(words(model, tmp_path, **{"--batch-size": "0"})) == 2
    assert list(tmp_path.iterdir()) == []


def test_another_batch_size_is_no_other_cell(model: Path, tmp_path: Path) -> None:
    assert cli.main(words(model, tmp_path, **{"--batch-size": "1"})) == 0
    assert cli.main(words(model, tmp_path, **{"--batch-size": "auto"})) == 0
    assert len(read(tmp_path)) == 4  # the same cells: the second command had nothing to do


@pytest.mark.parametrize("rerun", [False, True])
def test_130_when_interrupted(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rerun: bool
) -> None:
    calls, plain = [0], Engine.generate

    def interrupted(self: Engine, *rest: Any, **how: Any) -> Any:
        calls[0] += 1
        if calls[0] == 8:  # the third sample of the second cell
            raise KeyboardInterrupt
        return plain(self, *rest, **how)

    if rerun:
        assert cli.main(words(model, tmp_path)) == 0
    before = len(read(tmp_path))
    monkeypatch.setattr(Engine, "generate", interrupted)
    assert cli.main([*words(model, tmp_path), *["--rerun"] * rerun]) == 130
    said = capsys.readouterr().err
    assert ("counts as before" if rerun else "run the same command to go on") in said
    rows = [line for file in tmp_path.glob("*.samples.jsonl") for line in file.read_text().splitlines()]
    assert len(rows) == 7 + 20 * rerun
    assert len(read(tmp_path)) == before + 1
    calls[0] = 100
    assert cli.main(words(model, tmp_path)) == 0
    assert calls[0] == 100 + (0 if rerun else 20 - 7)  # nothing that is stored is measured again
    assert {record["outcome"]["status"] for record in read(tmp_path)} == {"ok"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
@pytest.mark.parametrize("signals, kept", [
    ([signal.SIGINT], 8), ([signal.SIGTERM], 8), ([signal.SIGTERM, signal.SIGTERM], 8),
    ([signal.SIGINT, signal.SIGINT], 7), ([signal.SIGTERM, signal.SIGINT], 7),
])  # fmt: skip
def test_once_finishes_the_sample_and_ctrl_c_again_stops_now(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    signals: list[signal.Signals], kept: int,
) -> None:  # fmt: skip
    calls, plain = [0], Engine.generate
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]

    def signalled(self: Engine, *rest: Any, **how: Any) -> Any:
        calls[0] += 1
        if calls[0] == 8:  # the third sample of the second cell
            for one in signals:
                os.kill(os.getpid(), one)
        return plain(self, *rest, **how)

    monkeypatch.setattr(Engine, "generate", signalled)
    assert cli.main(words(model, tmp_path)) == 130
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before
    assert "the sample under way is finished and stored" in capfd.readouterr().err
    rows = [line for file in tmp_path.glob("*.samples.jsonl") for line in file.read_text().splitlines()]
    assert (calls[0], len(rows)) == (8, kept)
    assert len(read(tmp_path)) == 1
    assert not (tmp_path / ".claims").exists()
    calls[0] = 100
    assert cli.main(words(model, tmp_path)) == 0
    assert calls[0] == 100 + 20 - kept


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_ctrl_c_in_a_terminal(model: Path, tmp_path: Path) -> None:
    command = words(model, tmp_path, "digits:seconds=0.1", n=300)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "ropebench.cli", *command], stderr=subprocess.PIPE, text=True, env=env
    )
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None and not samples(tmp_path):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "Traceback" not in said
    assert said.strip().endswith("what was measured is stored: run the same command to go on")
    assert samples(tmp_path)
