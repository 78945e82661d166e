"""Every sweep that ships can be planned as it stands, and so can the commands that its comments name."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest

from fakes import save_tiny
from ropebench.aliases import aliases
from ropebench.arguments import parser, sweep_of
from ropebench.cli import COMMANDS
from ropebench.lm_harness import foreign
from ropebench.plan import Plan, Sweep, make_plan
from ropebench.registry import Registry, sweeps

BUILT_IN = sweeps()
DATA = Path(__file__).with_name("data")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every alias, with its own trained length, pointed at one tiny folder."""
    folder = tmp_path_factory.mktemp("models")
    save_tiny(folder / "tiny")
    entries = [
        f'["{name}"]\nsource = "folder:tiny"\ntrained_length = {spec.trained_length}\n'
        for name, spec in aliases().items()
    ]
    (folder / "models.toml").write_text("\n".join(entries), encoding="utf-8")
    return folder / "models.toml"


@pytest.fixture(autouse=True)
def stand_ins(models: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Aliases as above; data sets of the hub are stood in for by fixtures of the same layout (not fetched live)."""
    monkeypatch.setenv("ROPEBENCH_MODELS", str(models))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(DATA))
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.DatasetDict(train=long_bench()))
    yield
    foreign.loaded.cache_clear()  # or other tests would find the stand-in


def long_bench() -> datasets.Dataset:
    """LongBench v2 in the layout that lm-eval reads."""
    row = {"context": "A text.", "question": "Which?", "choices": list("wxyz"), "answer": 1}
    return datasets.Dataset.from_list([row, row])


def planned(name: str, **changes: Any) -> Plan:
    return make_plan(dataclasses.replace(Sweep.from_toml(name), **changes), corpora=False)


def commands() -> list[Any]:
    """The `ropebench run` lines in the comments of sweep files."""
    return [
        pytest.param(found, id=f"{name}-{number}")
        for name, path in BUILT_IN.items()
        for number, found in enumerate(re.findall(r"^# +(ropebench run .*)$", path.read_text("utf-8"), re.MULTILINE))
    ]


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_sweep_can_be_planned(name: str) -> None:
    plan, asked = planned(name), Sweep.from_toml(name)
    registry = Registry.load()
    words = [word for task in asked.tasks for word in registry.expanded("task", task)]
    members = {registry.build("task", word)[1].name for word in words}
    assert {cell.task.name for cell in plan.cells} == members
    assert {cell.method.name for cell in plan.cells} == {"none", *asked.methods}
    about = BUILT_IN[name].read_text("utf-8").splitlines()[0]  # what `ropebench list sweeps` says of it: a sentence
    assert about.startswith("# ")
    assert about.endswith((".", "?"))


@pytest.mark.parametrize("line", commands())
def test_a_command_in_a_comment_can_be_planned(line: str) -> None:
    options = parser(COMMANDS).parse_args(shlex.split(line)[1:])
    assert make_plan(sweep_of(options), corpora=False).cells


def test_the_paper_s_factors_lengths_and_samples() -> None:
    def factors(plan: Plan) -> set[float | None]:
        return {cell.factor for cell in plan.cells if cell.method.scales}

    plan = planned("paper")
    assert factors(plan) == {16.0}
    assert factors(planned("paper", model="qwen2.5-3b")) == {4.0}
    assert factors(planned("paper", model="llama2-7b-chat", target=65536)) == {16.0}
    assert {cell.n for cell in plan.cells if cell.task.name == "proofpile"} == {10}
    assert {cell.length for cell in plan.cells if cell.task.name == "ruler/vt"} == {8192 << i for i in range(5)}
    filters = {cell.task.params["min_doc_tokens"] for cell in plan.cells if cell.task.name == "proofpile"}
    assert filters == {131072}  # the documents that the papers take


def test_the_smoke_sweep_has_every_family_that_needs_no_download_and_stays_small() -> None:
    plan = planned("smoke")
    tasks = [entry for entry in Registry.load().of("task") if "data" not in entry.cls.__dataclass_fields__]
    families = {entry.name.split("/")[0] for entry in tasks}
    assert {cell.task.name.split("/")[0] for cell in plan.cells} == families
    assert {cell.card.id for cell in plan.cells} == {"tiny"}
    assert sum(cell.n * cell.length for cell in plan.cells) < 1_100_000  # three minutes of the bundled model
