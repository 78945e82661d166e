"""The package's structure is what the design says it is.

Left of the results file nothing loads pandas or matplotlib, right of it nothing loads torch; only `apply` writes into a
model, only `cli` prints or exits, only `store` opens results (and `claims` a folder of its own there), only
`lm_harness` knows lm-eval. Half of these look at what a fresh interpreter has loaded, half read the source.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "bench" / "ropebench"
MODULES = sorted(PACKAGE.rglob("*.py"))
TASKS = sorted((ROOT / "tasks").glob("*.py"))
BENCH = sorted((ROOT / "bench").glob("measur*/*.py"))

DRAWING = {"pandas", "matplotlib"}
MODEL = {"torch", "transformers"}
HEAVY = DRAWING | MODEL | {"numpy", "scipy", "datasets", "safetensors", "lm_eval"}
MEASURING = ("plan", "store", "run", "record", "registry", "methods", "task")

MAX_LINES = 350


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def label(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.relative_to(ROOT).as_posix()


def dotted(path: Path) -> str:
    words = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def in_report(path: Path) -> bool:
    return path.parent == PACKAGE / "report"


def right_of_results(path: Path) -> bool:
    """Modules that may know DataFrames: the reports, and the statistics they use."""
    return in_report(path) or path == PACKAGE / "stats.py"


def is_cli(path: Path) -> bool:
    return path.parent == PACKAGE / "cli"


def loaded_after(code: str, watch: Iterable[str]) -> set[str]:
    """Which of the `watch` packages a fresh interpreter has loaded after running `code`."""
    look = f"import json, sys\n{code}\nprint(json.dumps([m for m in {sorted(watch)!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import in a file, those inside functions too, type-checking ones left out."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(inner for child in node.body for inner in ast.walk(child))
    for node in ast.walk(tree(path)):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{label(path)}:{node.lineno}: relative import; write it in full"
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def importers(paths: Iterable[Path], packages: Iterable[str]) -> list[str]:
    """Every 'file:line imports x' among `paths` for the given dotted packages."""
    banned = tuple(packages)
    return [
        f"{label(path)}:{line} imports {name}"
        for path in paths
        for line, name in imports(path)
        if any(name == package or name.startswith(f"{package}.") for package in banned)
    ]


# What a fresh interpreter loads


def test_the_package_itself_loads_nothing_heavy() -> None:
    assert loaded_after("import ropebench; ropebench.__version__; ropebench.Task", HEAVY) == set()


def test_the_command_loads_nothing_heavy() -> None:
    assert loaded_after("import ropebench.cli", HEAVY) == set()


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["report", "--help"], ["lm-eval", "--help"], ["--version"]]
)
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    code = f"""
import contextlib, io, ropebench.cli
sys.argv = ["ropebench", *{words!r}]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    ropebench.cli.main()
"""
    assert loaded_after(code, HEAVY) == set()


@pytest.mark.parametrize("module", MEASURING)
def test_measuring_modules_load_no_data_frames_or_plots(module: str) -> None:
    assert loaded_after(f"import ropebench.{module}", DRAWING) == set()


@pytest.mark.parametrize("path", [path for path in MODULES if in_report(path)], ids=label)
def test_report_modules_load_no_model_code(path: Path) -> None:
    assert loaded_after(f"import {dotted(path)}", MODEL) == set()


# What the source says


def test_nothing_left_of_the_results_imports_data_frames_or_plots() -> None:
    left = [path for path in MODULES if not right_of_results(path)]
    assert importers([*left, *TASKS], DRAWING) == []


def test_measuring_never_imports_reporting() -> None:
    left = [path for path in MODULES if not right_of_results(path) and not is_cli(path)]
    assert importers([*left, *TASKS], ["ropebench.report"]) == []


def test_reporting_never_imports_model_code() -> None:
    own = [f"ropebench.{name}" for name in ("apply", "corpus", "engine", "model", "run")]
    assert importers([path for path in MODULES if right_of_results(path)], [*MODEL, *own]) == []


def test_only_lm_harness_imports_lm_eval() -> None:
    others = [path for path in [*MODULES, *TASKS] if path.parent.name != "lm_harness"]
    assert importers(others, ["lm_eval"]) == []
    assert importers(MODULES, ["lm_eval"]) != []


def test_listing_tasks_and_naming_the_folder_for_lm_eval_load_no_lm_eval() -> None:
    code = """
import contextlib, io, ropebench.cli
with contextlib.redirect_stdout(io.StringIO()):
    ropebench.cli.main(["list", "tasks"])
    ropebench.cli.main(["lm-eval", "--path"])
"""
    assert loaded_after(code, ["lm_eval"]) == set()


def test_nothing_but_the_entry_point_imports_the_command() -> None:
    assert (
        importers(
            [path for path in [*MODULES, *TASKS] if not is_cli(path) and path.name != "__main__.py"], ["ropebench.cli"]
        )
        == []
    )


ROTARY = {"inv_freq", "original_inv_freq", "attention_scaling", "rope_type"}


def rotary_writes(path: Path) -> Iterator[str]:
    """Assignments to, setattr of, and in-place tensor calls on a rotary module's attributes."""
    for node in ast.walk(tree(path)):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = node.targets
        for target in targets:
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Attribute) and target.attr in ROTARY:
                yield f"{label(path)}:{node.lineno} writes {target.attr}"
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "setattr" and isinstance(node.args[1], ast.Constant):
            if node.args[1].value in ROTARY:
                yield f"{label(path)}:{node.lineno} sets {node.args[1].value}"
        elif isinstance(called, ast.Attribute) and called.attr.endswith("_") and not called.attr.endswith("__"):
            owner = called.value.value if isinstance(called.value, ast.Subscript) else called.value
            if isinstance(owner, ast.Attribute) and owner.attr in ROTARY:
                yield f"{label(path)}:{node.lineno} changes {owner.attr} in place"


def test_only_apply_writes_into_a_rotary_module() -> None:
    others = [path for path in [*MODULES, *TASKS] if path != PACKAGE / "apply.py"]
    assert [write for path in others for write in rotary_writes(path)] == []


def prints_or_exits(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            word = ast.unparse(node.func)
            if word in {"print", "exit", "quit", "sys.exit", "os._exit"}:
                yield f"{label(path)}:{node.lineno} calls {word}"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in {"sys.stdout", "sys.stderr"}:
            yield f"{label(path)}:{node.lineno} uses {ast.unparse(node)}"
        elif isinstance(node, ast.Raise) and node.exc and ast.unparse(node.exc).startswith("SystemExit"):
            yield f"{label(path)}:{node.lineno} raises SystemExit"


def test_only_the_command_prints_or_exits() -> None:
    others = [path for path in [*MODULES, *TASKS] if not is_cli(path) and path.name != "__main__.py"]
    assert [use for path in others for use in prints_or_exits(path)] == []


READING = {"glob", "iterdir", "open", "read_bytes", "read_text", "rglob"}
WRITING = {"mkdir", "rename", "replace", "touch", "unlink", "write_bytes", "write_text"}


def opens_results(path: Path) -> Iterator[str]:
    """File operations on something called results (a light heuristic, by the names in the source)."""
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "open" and node.args:
            subject: ast.expr = node.args[0]
        elif isinstance(node.func, ast.Attribute) and node.func.attr in READING | WRITING:
            subject = node.func.value
        else:
            continue
        words = {inner.id for inner in ast.walk(subject) if isinstance(inner, ast.Name)}
        words |= {inner.attr for inner in ast.walk(subject) if isinstance(inner, ast.Attribute)}
        words |= {
            inner.value.split("/")[0]
            for inner in ast.walk(subject)
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
        }
        if words & {"results", "results_dir", "results_folder", "results_path"}:
            yield f"{label(path)}:{node.lineno} {ast.unparse(node)[:60]}"


def test_only_the_store_opens_results() -> None:
    others = [path for path in [*MODULES, *TASKS] if path != PACKAGE / "store.py"]
    assert [use for path in others for use in opens_results(path)] == []


def class_names(path: Path) -> set[str]:
    """The `name` that each class of a file gives itself (`name = "x"`, or first of `name, version = "x", 1`)."""
    found = set()
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.ClassDef):
            continue
        for line in node.body:
            if not isinstance(line, ast.Assign):
                continue
            target, value = line.targets[0], line.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = dict(zip(map(ast.unparse, target.elts), value.elts, strict=True))
            else:
                pairs = {ast.unparse(target): value}
            given = pairs.get("name")
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                found.add(given.value)
    return found


def test_the_runner_knows_no_method_and_no_task_by_name() -> None:
    names = class_names(PACKAGE / "methods.py").union(*map(class_names, TASKS)) - {"none"}  # an ordinary word too
    assert {"yarn", "mrrope_pro", "proofpile", "niah"} <= names
    known = [
        f"{label(path)}:{node.lineno} says {node.value!r}"
        for path in (PACKAGE / f"{stem}.py" for stem in ("apply", "engine", "record", "run", "store"))
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert known == []


@pytest.mark.parametrize("path", [*MODULES, *TASKS, *BENCH], ids=label)
def test_files_stay_readable(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{lines} lines: split it"
    assert path.stem not in {"utils", "util", "common", "helpers", "manager", "base"}, "name it after what it does"


def test_classes_are_at_most_one_level_deep() -> None:
    bases = {
        node.name: {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
        for path in [*MODULES, *TASKS]
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
    }
    derived = {name for name, own in bases.items() if own & bases.keys()}
    assert {name: own for name, own in bases.items() if own & derived} == {}
