"""The three doors: built in, a plain file, an entry point; what is broken is listed, and loud when asked for."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes import FakeEngine, cell, loaded, writer
from ropebench.errors import UsageError
from ropebench.methods import Yarn
from ropebench.registry import Registry, sweeps, tasks_dir
from ropebench.run import Stored, run_cells
from ropebench.store import read

ROOT = Path(__file__).parents[1]

METHOD = '''"""Pair i is slowed by factor^((i/last)^power)."""

from dataclasses import dataclass

import numpy as np

from ropebench import Frequencies, Method


@dataclass(frozen=True)
class PowerRope(Method):
    name, version = "power_rope", 1
    summary = "pair i slowed by factor^((i/last)^power)"
    source = "nowhere"
    power: float = 2.0

    def frequencies(self, geometry, factor, length) -> Frequencies:
        exponent = (np.arange(geometry.pairs) / (geometry.pairs - 1)) ** self.power
        return geometry.scaled(factor**exponent)
'''

TASK = '''"""Whether the answer is a single zero."""

from dataclasses import dataclass
from itertools import count

from ropebench import Example, Metric, Task


@dataclass(frozen=True)
class Zeros(Task):
    name, version = "zeros", 1
    metrics = (Metric("zero", "higher", chance=0.5),)
    scorer = "equal"

    def examples(self, length, encoder, seed, corpus=None):
        for i in count():
            yield Example(ids=tuple(range(2, length + 1)), targets=("0",), max_new_tokens=1, meta={"cluster": i})

    def score(self, example, output):
        return {"zero": float(output.text == example.targets[0])}
'''


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str, name: str = "mine.py") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


def test_a_method_is_a_file_of_at_most_25_lines(plugin: Callable[[str], str]) -> None:
    assert len(METHOD.splitlines()) <= 25
    file = plugin(METHOD)
    method, entry = Registry.load([file]).build("method", "power_rope:power=3")
    assert (method.power, entry.origin) == (3.0, "plug-in mine.py")
    assert entry.code == hashlib.sha256(Path(file).read_bytes()).hexdigest()


def test_a_task_is_a_file_of_at_most_60_lines_and_runs(plugin: Callable[[str], str], tmp_path: Path) -> None:
    assert len(TASK.splitlines()) <= 60
    task, entry = Registry.load([plugin(TASK)]).build("task", "zeros")
    one = cell(task, task_code=entry.code, n=2)
    run_cells([one], loaded(), Stored(), writer(tmp_path / "results"), engine=FakeEngine())
    record = read(tmp_path / "results")[0]
    assert record["outcome"]["status"] == "ok"
    assert record["task"]["code"] == entry.code


def test_the_examples_of_the_guide_work(plugin: Callable[..., str]) -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in guide.split("```python\n")[1:]]
    files = [plugin(block, f"part{i}.py") for i, block in enumerate(blocks)]
    registry = Registry.load(files)
    assert {entry.name for entry in registry.entries.values() if entry.code} == {"power_rope", "doors"}
    task, _ = registry.build("task", "doors")
    example = next(task.examples(256, cell_encoder(), 0))
    assert 0.95 * 256 <= example.tokens <= 256


def cell_encoder() -> object:
    from fakes import tokenizer
    from ropebench.prompt import Encoder

    return Encoder(tokenizer("bpe"))


def test_the_code_of_a_plug_in_is_in_the_cell(plugin: Callable[[str], str]) -> None:
    ids = []
    for text in (METHOD, METHOD.replace("nowhere", "elsewhere"), METHOD):
        method, entry = Registry.load([plugin(text)]).build("method", "power_rope")
        ids.append(cell(method=method, method_code=entry.code, factor=2.0).id)
    assert ids[0] == ids[2] != ids[1]


def test_what_runs_is_what_was_hashed(plugin: Callable[[str], str]) -> None:
    # Same size, same second: a compiled file of the older text must not run under the newer hash.
    powers = []
    for power in ("2.0", "3.0"):
        method, _ = Registry.load([plugin(METHOD.replace("2.0", power))]).build("method", "power_rope")
        powers.append(method.power)
    assert powers == [2.0, 3.0]


def test_built_in_code_is_told_by_its_version() -> None:
    entries = Registry.load().entries.values()
    assert {entry.code for entry in entries if entry.origin.startswith(("built in", "tasks/"))} == {None}
    assert {entry.name for entry in Registry.load().of("task")} >= {"proofpile", "niah"}


def test_aliases_lead_to_methods() -> None:
    registry = Registry.load()
    assert registry.entry("method", "linear").name == "pi"
    assert registry.entry("method", "dynamic").name == "dynamic_ntk"
    assert registry.build("method", " yarn:beta_fast=16 ")[0] == Yarn(beta_fast=16.0)


@pytest.mark.parametrize("name, first", [
    ("yarn", "built in"), ("niah", r"tasks/niah\.py"), ("linear", "an alias of pi"),
])  # fmt: skip
def test_a_taken_name_is_refused_with_both_origins(plugin: Callable[[str], str], name: str, first: str) -> None:
    # FAULT 46: a custom task that reuses a built-in name is refused by name, never ignored.
    text = TASK.replace('"zeros"', f'"{name}"') if name == "niah" else METHOD.replace('"power_rope"', f'"{name}"')
    with pytest.raises(UsageError, match=rf"'{name}' is defined twice: {first}, and plug-in mine\.py; rename one"):
        Registry.load([plugin(text)])


def test_two_plug_ins_of_one_name_are_refused(plugin: Callable[..., str]) -> None:
    with pytest.raises(UsageError, match=r"plug-in one\.py, and plug-in two\.py"):
        Registry.load([plugin(METHOD, "one.py"), plugin(METHOD, "two.py")])


def test_a_plug_in_named_twice_is_one(plugin: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = plugin(METHOD)
    monkeypatch.chdir(Path(file).parent)
    assert Registry.load([file, "mine.py", "./mine.py"]).entry("method", "power_rope")


@pytest.mark.parametrize("text, words", [
    ("x = 1\n\ndef broken(:\n    pass\n", "SyntaxError at line 3"),
    ("\n\n\nx = 1 / 0\n", "ZeroDivisionError at line 4: division by zero"),
    ("import json\n\njson.loads('{')\n", "JSONDecodeError at line 3"),
    ("import no_such_package\n", "ModuleNotFoundError at line 1"),
    ("import sys\nsys.exit(3)\n", "SystemExit at line 2"),
    ("x = 1\n", "defines no Method and no Task with a name"),
    ("from ropebench.methods import Yarn\n", "defines no Method"),
    ("\0", "mine.py"),
    (METHOD.replace("@dataclass(frozen=True)\n", ""), r"class PowerRope has parameters; put @dataclass"),
])  # fmt: skip
def test_a_plug_in_that_cannot_be_run_names_file_and_line(plugin: Callable[[str], str], text: str, words: str) -> None:
    with pytest.raises(UsageError, match=r"mine\.py") as caught:
        Registry.load([plugin(text)])
    assert words in str(caught.value)


def test_a_plug_in_that_is_not_there(tmp_path: Path) -> None:
    for word in (str(tmp_path / "no.py"), str(tmp_path), "a\0b", "~nobody-of-that-name/x.py"):
        with pytest.raises(UsageError, match="no such file"):
            Registry.load([word])


def test_a_plug_in_with_a_bad_value_says_so(plugin: Callable[[str], str]) -> None:
    text = METHOD + (
        "\n    def __post_init__(self):\n        if self.power < 0:\n"
        "            raise ValueError('power must be at least 0')\n"
    )
    with pytest.raises(UsageError, match="method 'power_rope:power=-1': power must be at least 0"):
        Registry.load([plugin(text)]).build("method", "power_rope:power=-1")


# Entry points


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a package `stranger` with the given module text and entry points."""

    def write(text: str, points: str) -> None:
        site = tmp_path / "site"
        info = site / "stranger-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(points)
        (site / "stranger.py").write_text(text)
        monkeypatch.delitem(sys.modules, "stranger", raising=False)
        monkeypatch.syspath_prepend(str(site))

    return write


def test_an_installed_package_brings_methods_and_tasks(install: Callable[[str, str], None]) -> None:
    install(
        METHOD + TASK.split('"""', 2)[2],
        "[ropebench.methods]\npower_rope = stranger:PowerRope\n[ropebench.tasks]\nzeros = stranger:Zeros\n",
    )
    registry = Registry.load()
    assert registry.broken == {}
    assert registry.entry("method", "power_rope").origin == "package stranger 1.2"
    assert len(registry.entry("task", "zeros").code or "") == 64
    assert registry.build("method", "power_rope:power=3")[0].power == 3.0


@pytest.mark.parametrize("text, point, reason", [
    ("raise RuntimeError('half installed')\n", "stranger:X", "RuntimeError: half installed"),
    ("import sys; sys.exit(1)\n", "stranger:X", "SystemExit"),
    ("X = 3\n", "stranger:X", "TypeError: stranger:X is no Method"),
    ("from ropebench.methods import Yarn as X\n", "stranger:X", "is no Method with the name 'mine'"),
    ("", "stranger:X", "AttributeError"),
    ("", "no_such_package:X", "ModuleNotFoundError"),
    (METHOD.replace("@dataclass(frozen=True)\n", "").replace("power_rope", "mine"), "stranger:PowerRope", "@dataclass"),
])  # fmt: skip
def test_a_broken_entry_point_is_listed_and_loud_when_asked_for(
    install: Callable[[str, str], None], text: str, point: str, reason: str
) -> None:
    install(text, f"[ropebench.methods]\nmine = {point}\n")
    registry = Registry.load()
    assert reason in registry.broken["method", "mine"]
    assert registry.entry("method", "yarn")  # the others work
    with pytest.raises(UsageError, match=r"method 'mine' is installed but broken: package stranger 1\.2") as caught:
        registry.build("method", "mine")
    assert reason in str(caught.value)


def test_an_installed_package_cannot_take_a_built_in_name(install: Callable[[str, str], None]) -> None:
    install(METHOD.replace("power_rope", "yarn"), "[ropebench.methods]\nyarn = stranger:PowerRope\n")
    with pytest.raises(UsageError, match=r"'yarn' is defined twice: built in, and package stranger 1\.2"):
        Registry.load()


def test_built_in_files_are_found() -> None:
    assert (tasks_dir() / "niah.py").is_file()
    assert "first-evidence" in sweeps()


def test_a_folder_named_like_a_task_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # FAULT 46
    for name in ("niah", "tasks", "proofpile"):
        (tmp_path / name).mkdir()
    (tmp_path / "tasks" / "stray.py").write_text("raise RuntimeError('run by mistake')\n")
    monkeypatch.chdir(tmp_path)
    assert Registry.load().build("task", "niah")[0].name == "niah"
