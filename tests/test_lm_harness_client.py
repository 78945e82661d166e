"""lm-eval's stock command as a client of ropebench's tasks, and ropebench's command as lm-eval's; a process each, which
reads lm-eval's fifteen thousand task files first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lm_eval_runs import GENERATE, folder, measured, task_files
from ropebench import cli

pytestmark = pytest.mark.slow

METADATA = ["--metadata", '{"max_seq_lengths": [400], "n": 2, "docs": "noise"}']


def run(*words: str, where: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=where, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def results_in(where: Path) -> tuple[Any, list[Any]]:
    """lm-eval's results file and the sample rows beside it."""
    (results,) = where.rglob("results_*.json")
    rows = [json.loads(line) for file in where.rglob("samples_*.jsonl") for line in file.read_text().splitlines()]
    return json.loads(results.read_text()), sorted(rows, key=lambda row: row["doc_id"])


def test_the_stock_command_runs_our_tasks(tmp_path: Path) -> None:
    """The line of the README, on a tiny model; the samples and scores are those of `ropebench run`."""
    path = run("ropebench.cli", "lm-eval", "--path", where=tmp_path).strip()
    (tmp_path / "ropebench_niah").mkdir()  # FAULT 46: a folder here with a task's name
    run("lm_eval", "--model", "hf", "--model_args", f"pretrained={folder()},max_length=512", "--include_path", path,
        "--tasks", "ropebench_niah", *METADATA, "--device", "cpu", "--output_path", "out", "--log_samples",
        where=tmp_path)  # fmt: skip
    results, rows = results_in(tmp_path / "out")
    runs = tmp_path / "runs"
    runs.mkdir()
    records, mine = measured(runs, folder(), "niah", lengths=400, n=2, docs="noise")
    assert [row["doc"]["prompt_sha256"] for row in rows] == [row["prompt_sha256"] for row in mine]
    assert [row["recall"] for row in rows] == [row["scores"]["recall"] for row in mine]
    assert results["results"]["ropebench_niah"]["recall,none"] == records[0]["outcome"]["metrics"]["recall"]["value"]


def test_our_command_is_lm_evals_with_our_model_and_tasks(tmp_path: Path) -> None:
    """Beside a folder of the user's own; the results name method and factor."""
    own = task_files(tmp_path / "own", mine=GENERATE)
    arguments = f"pretrained={folder()},method=yarn:beta_fast=16,factor=2"
    words = ["--model", "ropebench", "--model_args", arguments, "--tasks", "ropebench_niah,mine", *METADATA]
    out = ["--output_path", "out", "--log_samples"]
    said = run("ropebench.cli", "lm-eval", *words, "--include_path", str(own), "--device", "cpu", *out, where=tmp_path)
    assert "ropebench_niah" in said
    results, _ = results_in(tmp_path / "out")
    assert set(results["results"]) == {"ropebench_niah", "mine"}
    assert (results["config"]["method"], results["config"]["factor"]) == ("yarn", 2.0)
    assert results["config"]["max_length"] == 1024


def test_lm_evals_own_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """longbench2 is there with its 20 tasks; a wrong name is told its neighbour; a wrong argument ends with code 2."""
    from ropebench.lm_harness import index

    index.built_in.cache_clear()
    named = [one.name for one in index.sources("longbench2")]
    assert len(named) == len(set(named)) == 20
    assert {"longbench2_code", "longbench2_agent_history"} <= set(named)
    assert [one.name for one in index.sources("ruler_fwe")] == ["ruler_fwe"]
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plan", "--model", folder(), "--tasks", "lm_eval:longbench2_cod"]) == 2
    assert "did you mean 'longbench2_code'" in capsys.readouterr().err
    assert cli.main(["plan", "--model", folder(), "--tasks", "lm_eval:longbench2_code", "--lengths", "256"]) == 2
    assert "recursal/longbench-v2" in capsys.readouterr().err
    words = [
        "lm-eval",
        "--model",
        "ropebench",
        "--model_args",
        f"pretrained={folder()},metod=yarn",
        "--tasks",
        "ropebench_niah",
    ]
    assert cli.main([*words, *METADATA]) == 2
    assert "did you mean 'method'" in capsys.readouterr().err


def test_lm_evals_own_ruler_task_is_a_cell(tmp_path: Path) -> None:
    """Its frequent-words task counts no answer, which ropebench does not let it cut: room= leaves some."""
    records, rows = measured(tmp_path, folder("word-bos", 2048), "lm_eval:ruler_fwe:room=128", lengths=2048, n=3)
    assert records[0]["task"]["scorer"] == "lm_eval"
    assert records[0]["outcome"]["status"] == "ok"
    assert list(records[0]["outcome"]["metrics"]) == ["score"]
    assert all(0.8 * 2048 < row["tokens"] <= 2048 for row in rows)
