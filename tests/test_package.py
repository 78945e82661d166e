"""The built wheel works away from the clone: everything a user needs is inside, and nothing else.

Builds with the installed hatchling, installs into a folder of its own, and runs from another one; no network.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import ropebench

ROOT = Path(__file__).parents[1]

HALF_ROPE = '''
"""Every frequency halved, whatever the factor."""

from dataclasses import dataclass

from ropebench import Frequencies, Method


@dataclass(frozen=True)
class Half(Method):
    name, version, summary = "half_rope", 1, "every frequency halved"

    def frequencies(self, geometry, factor, length) -> Frequencies:
        return geometry.scaled([2.0] * (geometry.rotary_dim // 2))
'''

Command = Callable[..., subprocess.CompletedProcess[str]]


def build(target: str, folder: Path) -> Path:
    """The one file that hatchling builds for `target` (wheel or sdist)."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's contents, as pip lays them."""
    folder = tmp_path_factory.mktemp("installed")
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    done = subprocess.run([*words, "--target", str(folder), str(wheel)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def command(installed: Path, tmp_path: Path) -> Command:
    """Runs Python on the installed copy, from an empty folder."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(installed)}
        return subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
        )

    return run


def listed(command: Command, what: str, *flags: str) -> set[str]:
    """Names from `ropebench list WHAT --json`."""
    done = command("-m", "ropebench.cli", "list", what, "--json", *flags)
    assert done.returncode == 0, done.stderr
    return {row["name"] for row in json.loads(done.stdout)}


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    suffixes = {".py", ".toml", ".typed"}
    parts = {
        "ropebench": ROOT / "bench" / "ropebench",
        "ropebench/_sweeps": ROOT / "bench" / "sweeps",
        "ropebench/_tasks": ROOT / "tasks",
    }
    wanted = {
        f"{inside}/{path.relative_to(folder).as_posix()}"
        for inside, folder in parts.items()
        for path in folder.rglob("*")
        if path.suffix in suffixes
    }
    assert wanted <= names
    assert {"ropebench/models.toml", "ropebench/py.typed", "ropebench/_tasks/niah.py"} <= names
    model = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"}
    assert {f"ropebench/_models/tiny/{name}" for name in model} <= names
    assert wheel.stat().st_size < 12e6
    assert any(re.fullmatch(r"ropebench/_sweeps/\w+\.toml", name) for name in names)
    assert [name for name in names - wanted if Path(name).suffix in {".py", ".pyc", ".toml"}] == []
    assert {name.split("/")[0] for name in names} == {"ropebench"}


def test_sdist_holds_tests_and_tasks(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "bench/ropebench/cli/__init__.py",
        "tasks/niah.py",
        "tests/test_package.py",
        "constraints.txt",
        "LICENSE",
    } <= names
    assert not [name for name in names if name.startswith((".venv/", "demo/")) or "__pycache__" in name]


def test_installed_copy_is_the_one_that_runs(command: Command, installed: Path) -> None:
    done = command("-c", "import ropebench; print(ropebench.__file__)")
    assert Path(done.stdout.strip()).is_relative_to(installed)


def test_installed_copy_tells_its_version(command: Command) -> None:
    done = command("-m", "ropebench.cli", "--version")
    assert done.returncode == 0, done.stderr
    assert ropebench.__version__ in done.stdout


def test_installed_copy_finds_built_in_tasks(command: Command) -> None:
    assert {"proofpile", "niah"} <= listed(command, "tasks")


def test_installed_copy_finds_the_bundled_model(command: Command, tmp_path: Path) -> None:
    words = ["run", "--model", "tiny", "--method", "yarn", "--tasks", "kv", "--lengths", "512,1k", "--n", "1"]
    done = command("-m", "ropebench.cli", *words, "--results", str(tmp_path / "results"))
    assert done.returncode == 0, done.stderr


def test_installed_copy_takes_a_plug_in_file(command: Command, tmp_path: Path) -> None:
    plugin = tmp_path / "my_rope.py"
    plugin.write_text(HALF_ROPE, encoding="utf-8")
    assert len(HALF_ROPE.strip().splitlines()) <= 25
    assert "half_rope" not in listed(command, "methods")
    assert {"half_rope", "yarn", "mrrope_pro"} <= listed(command, "methods", "--plugin", str(plugin))


def contributing_examples() -> list[str]:
    """The Python files that CONTRIBUTING.md shows in full (those that begin with a docstring)."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.findall(r'^```python\n(""".*?)^```$', text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "what, name, lines", [("methods", "power_rope", 25), ("tasks", "doors", 60)], ids=["method", "task"]
)
def test_examples_in_contributing_work(command: Command, tmp_path: Path, what: str, name: str, lines: int) -> None:
    (source,) = [text for text in contributing_examples() if f'"{name}"' in text]
    assert len(source.splitlines()) <= lines
    plugin = tmp_path / f"{name}.py"
    plugin.write_text(source, encoding="utf-8")
    assert name in listed(command, what, "--plugin", str(plugin))


def test_pins_lie_within_the_ranges() -> None:
    """constraints.txt pins every direct dependency, within its range, without a local build tag."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    asked = [Requirement(text) for group in (project["dependencies"], *extras) for text in group]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    assert [str(r) for r in asked if pins.get(canonicalize_name(r.name)) not in r.specifier] == []
    assert not [version for version in pins.values() if "+" in version]


def test_one_version_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE).group(1) == ropebench.__version__
