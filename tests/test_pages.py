"""`ropebench list`: what it says of tasks and methods is what their instances say, in tables, JSON and Markdown."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ropebench import cli
from ropebench.listing import listing
from ropebench.registry import Registry
from ropebench.report import pages
from ropebench.report.tables import escape
from ropebench.task import Metric, with_params

TASKS = {entry.name: entry.cls for entry in Registry.load().of("task")}
METHODS = {entry.name: entry.cls for entry in Registry.load().of("method")}

MINE = '''
"""Marks are counted by this file's own protocol."""

from dataclasses import dataclass
from typing import Literal

from ropebench import Example, Metric, Task


@dataclass(frozen=True)
class Marks(Task):
    """Marks | counted."""

    name, scorer, default_docs, summary, source = "marks", "strict", "installed", "counts <marks>", "test"
    metrics = (Metric("right", "higher"), Metric("loss", "lower", None, None, None))
    needs_corpus = True
    size: int  # how many
    rule: Literal["all", "any"] = "all"
    bounds: tuple[float, ...] = (0.5, 2.0)
    data: str | None = None

    def scorer_name(self):
        return "strict" if self.rule == "all" else "lenient"


@dataclass(frozen=True)
class Plain(Task):
    name, summary, source, scorer, minimum_length = "plain", "nothing special", "test", "equal", 8
'''


@pytest.fixture
def rows() -> dict[str, Any]:
    return {row["name"]: row for row in listing("tasks")}


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    file = tmp_path / "mine.py"
    file.write_text(MINE, encoding="utf-8")
    return str(file)


def page_of(document: str, name: str) -> str:
    """The part of a document under the heading of one task."""
    found = re.search(rf"^(#+) {re.escape(name)}$(.*?)(?=^#|\Z)", document, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[2]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["list", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", TASKS)
def test_a_row_says_what_an_instance_says(rows: dict[str, Any], name: str) -> None:
    task, row = TASKS[name](), rows[name]
    assert [Metric(**metric) for metric in row["metrics"]] == list(task.metrics)
    assert row["scorer"] == task.scorer_name()
    assert row["metric"] == task.primary.name
    assert (row["minimum_length"], row["default_n"]) == (task.minimum_length, task.default_n)
    assert json.loads(json.dumps(row)).keys() == row.keys()


def test_metrics_that_depend_on_parameters_are_no_placeholders(rows: dict[str, Any]) -> None:
    chance = {name: row["metrics"][0]["chance"] for name, row in rows.items()}
    assert chance["arithmetic/addition"] == pytest.approx((1 / 90 + 2 * 89 / 90**2) / 2)  # 10 … 99, sum or difference
    assert chance["arithmetic/digit_index"] == 0.1
    assert chance["arithmetic/igsm"] == pytest.approx(1 / 23)


@pytest.mark.parametrize("what, classes", [("task", TASKS), ("method", METHODS)], ids=["tasks", "methods"])
def test_defaults_are_words_that_the_command_line_takes(what: str, classes: dict[str, Any]) -> None:
    for row in listing(f"{what}s"):
        words = {one["name"]: one["default"] for one in row["parameters"] if one["default"] != ""}
        assert with_params(what, classes[row["name"]], words) == classes[row["name"]]()


def test_a_page_for_every_task_has_what_it_must_have(capsys: pytest.CaptureFixture[str], rows: dict[str, Any]) -> None:
    document = printed(capsys, "tasks", "--markdown")
    assert document.startswith("# Tasks\n")
    for name, cls in TASKS.items():
        page, task = page_of(document, name), cls()
        for must in (escape(cls.source), f"scorer: {task.scorer_name()}", f"version: {cls.version}"):
            assert must in page
        assert f"defined in: {rows[name]['origin']}\n" in page
        assert f"minimum length: {cls.minimum_length} tokens" in page
        assert f"samples per cell: {cls.default_n} by default" in page
        for metric in task.metrics:
            chance = "" if metric.chance is None else f"{metric.chance:.3g}"
            assert re.search(rf"^\| {metric.name} \| {metric.direction} \| .* \| {chance} \| ", page, re.MULTILINE)
        for parameter in task.params:
            assert f"\n| {parameter} | " in page


def test_pages_say_what_a_task_needs(capsys: pytest.CaptureFixture[str]) -> None:
    document = printed(capsys, "tasks", "--markdown")
    assert "needs: nothing\n" in page_of(document, "ruler/vt")
    assert "needs: long text: installed, or another by --docs\n" in page_of(document, "niah")
    qa = page_of(document, "ruler/qa_1")
    assert "needs: data: rajpurkar/squad_v2 from the hub, or ruler/qa_1:data=FOLDER\n" in qa
    assert "scorer: substring; rouge1_recall by variant=sentence\n" in page_of(document, "niah")


def test_families_stand_together_and_say_their_protocol_once(capsys: pytest.CaptureFixture[str]) -> None:
    document = printed(capsys, "tasks", "--markdown")
    assert document.count("RULER's eight needle tasks") == 1
    headings = re.findall(r"^#+ (.*)$", document, re.MULTILINE)
    ruler = [place for place, heading in enumerate(headings) if heading.startswith("ruler")]
    assert ruler == list(range(ruler[0], ruler[0] + 14))
    protocol, member = document.index("RULER's two question tasks"), document.index("### ruler/qa_1")
    assert document.rindex("\n### ", 0, member) < protocol < member


def test_written_pages_are_complete_and_linked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("mine")
    said = printed(capsys, "tasks", "--markdown", "--out", str(tmp_path))
    printed(capsys, "methods", "--markdown", "--out", str(tmp_path))
    assert said == f"wrote {tmp_path / 'tasks.md'} and {len(TASKS)} files beside it\n"
    for index, names in (("tasks.md", TASKS), ("methods.md", METHODS)):
        links = re.findall(r"^\| \[(.*?)\]\((.*?)\) ", (tmp_path / index).read_text("utf-8"), re.MULTILINE)
        assert [name for name, _ in links] == list(names)
        for name, file in links:
            assert (tmp_path / file).read_text("utf-8").startswith(f"# {name}\n")
    for member in ("niah_single_1", "niah_multiquery"):
        assert "RULER's eight needle tasks" in (tmp_path / f"ruler-{member}.md").read_text("utf-8")
    assert (tmp_path / "README.md").read_text() == "mine"


def test_a_method_s_page_has_its_formula_and_no_doctest(capsys: pytest.CaptureFixture[str]) -> None:
    document = printed(capsys, "methods", "--markdown")
    assert "cum = s^(q(q+1)/(n(n+1)))" in page_of(document, "mrrope_pro")
    assert "also called: linear\n" in page_of(document, "pi")
    assert "table: depends on the length of each sequence" in page_of(document, "dynamic_yarn")
    assert "depends on the length" not in page_of(document, "yarn")
    assert ">>>" not in document
    assert "PositionInterpolation(" not in document


def test_a_plug_in_s_page(plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = printed(capsys, "tasks", "--markdown", "--plugin", plugin)
    page = page_of(document, "marks")
    assert "counts &lt;marks&gt;" in page
    assert "Marks are counted by this file's own protocol.\n\nMarks | counted.\n" in page
    assert "needs: long text: installed, or another by --docs; data: marks:data=FOLDER\n" in page
    assert "| size | required | a whole number | how many |\n" in page
    assert "| rule | all | all, any |  |\n" in page
    assert "| bounds | 0.5/2.0 | numbers with / between them |  |\n" in page
    assert "| data | none | a word or none |  |\n" in page
    assert "| loss | lower | open |  |  |\n" in page
    assert "defined in: plug-in mine.py\n" in page
    bare = page_of(document, "plain")
    assert "Metrics" not in bare
    assert "Plain()" not in bare
    assert "marks" in printed(capsys, "tasks", "--plugin", plugin)


def test_a_broken_entry_point_has_a_page_that_says_so() -> None:
    broken = {
        "name": "gone",
        "version": None,
        "summary": "broken: package x 1: ImportError: y",
        "origin": "entry point",
    }
    rows = [*listing("tasks"), broken]
    assert "broken: package x 1" in page_of(pages.document("tasks", rows), "gone")
    assert any(line[0] == "gone" for line in pages.table("tasks", rows).rows)


@pytest.mark.parametrize("what", ["models", "sweeps"])
def test_models_and_sweeps_are_one_table(what: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    names = {row["name"] for row in listing(what)}
    document = printed(capsys, what, "--markdown")
    assert names == set(re.findall(r"^\| ([^ |]+) \|", document, re.MULTILINE)) - {"name"}
    printed(capsys, what, "--markdown", "--out", str(tmp_path))
    assert (tmp_path / f"{what}.md").read_text("utf-8") == document


@pytest.mark.parametrize("words, said", [
    (["--out", "there"], "--out there: goes with --markdown"),
    (["--json", "--markdown"], "--json and --markdown contradict each other"),
])  # fmt: skip
def test_options_that_do_not_go_together(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "tasks", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_package_runs_as_the_command() -> None:
    words = [sys.executable, "-m", "ropebench", "list", "methods", "--bogus"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "ropebench: error: unrecognized arguments: --bogus" in done.stderr
