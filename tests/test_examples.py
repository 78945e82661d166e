"""What lies in examples/ works as its README says: the package is installed and run, the Slurm file starts Ray on every
node and the run on one."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import ropebench
from ropebench.geometry import RopeGeometry
from ropebench.registry import Registry
from ropebench.store import read

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


@pytest.mark.slow
def test_the_package_is_installed_and_run_as_its_readme_says(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "package", tmp_path / "examples" / "package")
    text = (EXAMPLES / "package" / "README.md").read_text(encoding="utf-8")
    install, show, run = [shlex.split(line) for line in re.findall(r"^    (.+)$", text, re.MULTILINE)]
    assert install[:2] == ["pip", "install"]
    offline = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", "site"]
    words = [sys.executable, "-m", *install, *offline]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    bench = str(Path(ropebench.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), bench])}

    def command(words: list[str]) -> str:
        assert words[0] == "ropebench"
        words = [sys.executable, "-m", "ropebench.cli", *words[1:]]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "step_rope" in command(show)
    command([*run, "--device", "cpu"])
    records = read(tmp_path / "mine")
    assert {record["method"]["label"] for record in records} == {"none", "ntk×2", "step_rope×2"}
    assert {record["task"]["name"] for record in records} == {"guests"}
    assert {record["condition"]["n_scored"] for record in records} == {3}
    assert all(record["task"]["code"] for record in records)
    assert {bool(r["method"]["code"]) for r in records if r["method"]["name"] == "step_rope"} == {True}


def test_the_method_and_the_task_are_what_the_package_names_and_as_short_as_is_promised() -> None:
    project = tomllib.loads((EXAMPLES / "package" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for kind, most in (("method", 25), ("task", 60)):
        file = EXAMPLES / "package" / "ropebench_example" / f"{kind}.py"
        assert len(file.read_text(encoding="utf-8").splitlines()) <= most
        ((name, point),) = project["entry-points"][f"ropebench.{kind}s"].items()
        entry = Registry.load([str(file)]).entry(kind, name)
        assert point == f"ropebench_example.{kind}:{entry.cls.__name__}"


def test_the_method_steps_from_the_trained_frequencies_to_interpolated_ones() -> None:
    file = EXAMPLES / "package" / "ropebench_example" / "method.py"
    method, _ = Registry.load([str(file)]).build("method", "step_rope:turns=8")
    geometry = RopeGeometry(64, 10000.0, 2048)
    slowed = geometry.inv_freq() / method.frequencies(geometry, 4.0, 8192).inv_freq
    turns = 2048 * geometry.inv_freq() / (2 * np.pi)
    assert slowed == pytest.approx(np.where(turns < 8, 4.0, 1.0))
    assert set(np.round(slowed, 3)) == {1.0, 4.0}


@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
def test_the_slurm_file_starts_ray_on_every_node_and_the_run_on_the_first(tmp_path: Path) -> None:
    """With stand-ins for Slurm's commands and Ray's that write down what they are asked for."""
    for name in ("srun", "ray", "scontrol"):
        says = "printf 'node1\\nnode2\\n'" if name == "scontrol" else ":"
        file = tmp_path / name
        file.write_text(f'#!/usr/bin/env bash\necho "{name} $*" >>{tmp_path}/asked\n{says}\n')
        file.chmod(0o755)
    env = {
        "PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_ID": "123456", "SLURM_CPUS_PER_TASK": "32", "SLURM_SUBMIT_DIR": str(tmp_path),
    }  # fmt: skip
    words = ["bash", str(EXAMPLES / "slurm" / "ray.sbatch"), "--model", "llama3-8b", "--target", "128k"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "asked").read_text().splitlines() == [
        "ray get-auth-token --generate",
        "scontrol show hostnames node[1-2]",
        "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 ray symmetric-run --address node1:23456 --min-nodes 2 "
        "--num-cpus 32 -- ropebench run --executor ray --address auto --model llama3-8b --target 128k",
    ]
