"""`ropebench reproduce`: the sweeps are the published ones, a run ends in the deviation, and what differs is said."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from fakes import save_tiny
from ropebench import cli
from ropebench.aliases import aliases
from ropebench.plan import Plan, Sweep, make_plan
from ropebench.published import Reproduction, reproductions
from ropebench.published.match import planned
from ropebench.report.published import departures, held_against

BUILT_IN = reproductions()
DATA = Path(__file__).with_name("data")
HUB = DATA / "hub" / "dwzhu" / "PoSE-Datasets" / "proof-pile" / "test.jsonl"
SHIPS_YARN = {"yarn-llama2-7b-128k": 32.0, "yarn-llama2-7b-64k": 16.0}


# The plans of the built-in ones, on stand-ins with each model's trained length


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The aliases that are reproduced, pointed at tiny folders; YaRN's own ship their scaling."""
    folder = tmp_path_factory.mktemp("models")
    text = ""
    for name in {one.model for one in BUILT_IN.values()}:
        shipped: dict[str, Any] = {}
        if name in SHIPS_YARN:
            own = {"rope_type": "yarn", "factor": SHIPS_YARN[name], "original_max_position_embeddings": 4096}
            shipped = {"rope_parameters": {**own, "rope_theta": 1e4}, "max_position_embeddings": 131072}
        save_tiny(folder / name, **shipped)
        text += f'["{name}"]\nsource = "folder:{name}"\ntrained_length = {aliases()[name].trained_length}\n'
    (folder / "models.toml").write_text(text, encoding="utf-8")
    return folder / "models.toml"


@pytest.fixture
def hub(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proof-pile's file, and RULER's and InfiniteBench's, stood in for by ones of the same layout."""
    monkeypatch.setenv("ROPEBENCH_MODELS", str(models))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(DATA))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: str(HUB))


def plan_of(rep: Reproduction, **changes: Any) -> Plan:
    return make_plan(dataclasses.replace(Sweep.from_toml(rep.sweep), **changes))


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", BUILT_IN)
def test_its_plan_is_what_was_published(name: str) -> None:
    rep = BUILT_IN[name]
    pairs = held_against(rep, planned(plan_of(rep).cells))
    loss = [one for one in pairs if one.row.task == "proofpile"]
    assert loss
    assert {one.row.length for one in loss} == {row.length for row in rep.rows if row.task == "proofpile"}
    assert all(one.ours for one in loss)  # every number is measured again: method, factor, length
    assert departures(loss) == {}  # documents, their number, the cut, BOS, number format
    rest = {text for one in pairs if one.row.task != "proofpile" for text in departures([one])}
    assert rest == set()
    assert all(one.apart for one in pairs if one.row.task != "proofpile")  # their settings are not published


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name, factor, methods, lengths", [
    ("mrrope-olmo-1b", 10.0, {"yarn", "mrrope_uni"}, {*range(4096, 40961, 2048)}),
    ("mrrope-llama2-7b", 10.0, {"yarn", "mrrope_uni"}, {*range(4096, 40961, 2048)}),
    ("mrrope-llama3-8b", 16.0, {"ntk", "yarn", "yarn_paper", "mrrope_uni", "mrrope_pro"},
     {8192 << i for i in range(5)}),
    ("yarn-llama2-7b", None, set(), {*(2048 << i for i in range(7)), 81920, 98304, 114688}),
])  # fmt: skip
def test_factors_methods_and_lengths(name: str, factor: float | None, methods: set[str], lengths: set[int]) -> None:
    cells = [cell for cell in plan_of(BUILT_IN[name]).cells if cell.task.name == "proofpile"]
    scaled = [cell for cell in cells if cell.method.scales]
    assert {cell.factor for cell in scaled} == ({factor} if factor else set())
    assert {cell.method.name for cell in scaled} == methods
    assert {cell.length for cell in cells} == lengths
    assert {cell.n for cell in cells} == {10}
    assert {cell.task.params["min_doc_tokens"] for cell in cells} == {131072}
    assert {cell.task.params["protocol"] for cell in cells} == {"truncated"}
    baseline = "native" if name.startswith("yarn") else "none"
    assert baseline in {cell.method.name for cell in cells}


@pytest.mark.usefixtures("hub")
def test_what_flags_change_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["reproduce", "mrrope-llama3-8b", "--plan", "--json", "--results", str(tmp_path / "r")]
    flags = ["--tasks", "proofpile", "--n", "4", "--lengths", "8k,16k", "--docs", "installed", "--dtype", "float32"]
    assert cli.main([*words, *flags, "--target", "64k"]) == 0
    out, err = capsys.readouterr()
    assert {row["length"] for row in json.loads(out)["cells"]} == {8192, 16384}
    assert "proofpile DIFFERS from the published protocol (2 lengths, 8192 to 16384 tokens)" in err
    assert "10 documents" in err
    assert "4 documents" in err
    assert "mrrope_pro×16" in err
    assert "mrrope_pro×8" in err
    assert "min_doc_tokens=16384" in err
    assert "published numbers that this does not measure again: 3 lengths, 32768 to 131072 tokens" in err
    assert "ruler is left out" in err


# A whole run on a tiny model, against a file of one's own


PUBLISHED = """
source = "A paper on tiny models"
tag = "P"
[protocols.cut]
task = "proofpile"
metric = "perplexity"
says = "3 documents, cut"
corpus = ["folder docs"]
params = {{ protocol = "truncated", min_doc_tokens = 128 }}
n = 3
bos = true
dtype = "float32"
[protocols.needle]
task = "niah"
metric = "recall"
says = "a needle in a figure"
unknown = ["needle", "haystack"]
[[series]]
where = "Table 1"
protocol = "cut"
model = "tiny-model"
methods = ["yarn"]
factor = 2
values = {{ 64 = {at_64}, 128 = {at_128} }}
[reproduce.tiny]
sweep = "tiny.toml"
model = "tiny-model"
protocols = ["cut", "needle"]
"""
SWEEP = """# tiny
model = "tiny-model"
methods = ["yarn"]
tasks = ["proofpile"]
lengths = ["64", "128"]
n = 3
dtype = "float32"
device = "cpu"
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command on a random model trained on 64 tokens, and five short documents, of which three are taken."""
    save_tiny(tmp_path / "weights")
    (tmp_path / "models.toml").write_text('[tiny-model]\nsource = "folder:weights"\n', encoding="utf-8")
    (tmp_path / "docs").mkdir()
    for i in range(5):
        (tmp_path / "docs" / f"{i}.txt").write_text(f"Page {i} of a book about numbers. " * (20 + i), encoding="utf-8")
    (tmp_path / "tiny.toml").write_text(SWEEP, encoding="utf-8")
    (tmp_path / "paper.toml").write_text(PUBLISHED.format(at_64=100.0, at_128=100.0), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return ["reproduce", "tiny", "--published", "paper.toml", "--models", "models.toml", "--docs", "docs"]


def test_a_run_ends_in_the_deviation_and_goes_on_where_it_stopped(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*tiny, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    value = {row["length"]: row["value"] for row in first}
    assert set(value) == {64, 128}
    assert all(row["matches"] and row["deviation"]["value"] == row["value"] - 100.0 for row in first)
    # Published numbers a known way off: 2 above ours at 64, 1 below ours at 128.
    off = PUBLISHED.format(at_64=value[64] + 2, at_128=value[128] - 1)
    (tmp_path / "paper.toml").write_text(off, encoding="utf-8")
    files = set((tmp_path / "results").iterdir())
    assert cli.main(tiny) == 0
    out, err = capsys.readouterr()
    assert "4 of 4 cells are already stored" in err
    assert set((tmp_path / "results").iterdir()) == files
    assert "published protocol: 3 documents, cut" in out
    assert "DIFFERS" not in out + err
    assert "niah is left out; A paper on tiny models published it too" in err
    lines = [line.split() for line in out.splitlines() if "yarn×2" in line and line.split()[0] == "proofpile"]
    assert {line[2]: line[line.index("[n") + 3] for line in lines} == {"64": "-2", "128": "+1"}
    assert sum(line.split()[:2] == ["proofpile", "none"] for line in out.splitlines()) == 2  # the baseline, beside it

    assert cli.main(["report", "--published", "paper.toml"]) == 0
    report = capsys.readouterr().out
    assert "Published beside measured" in report
    assert "A paper on tiny models: Table 1" in report
    assert cli.main(["report", "--published", "paper.toml", "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out) if row["source"] == "A paper on tiny models"]
    assert [row["deviation"]["value"] for row in rows] == pytest.approx([-2.0, 1.0])


def test_fewer_documents_are_said_to_differ_and_stand_beside_nothing(
    tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*tiny, "--n", "2", "--lengths", "128"]) == 0
    out, err = capsys.readouterr()
    assert "DIFFERS from what was published at 128: published: 3 documents; yours: 2 documents" in out
    assert "published: 3 documents; yours: 2 documents" in err
    assert "64" in next(line for line in err.splitlines() if "does not measure again" in line)
    assert cli.main(["report", "--published", "paper.toml"]) == 0
    report = capsys.readouterr().out
    assert "Published beside measured" not in report
    assert "published: 3 documents; yours: 2 documents" in report


def test_a_hub_that_does_not_answer_is_said_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--offline", "--results", str(tmp_path / "r")]
    assert cli.main(["reproduce", "mrrope-olmo-1b", *words]) == 2
    error = capsys.readouterr().err
    assert "allenai/OLMo-1B-0724-hf" in error
    assert "--model FOLDER" in error
    assert "--models" in error
    save_tiny(tmp_path / "tiny")
    monkeypatch.setattr("ropebench.model.load", lambda *_, **__: pytest.fail("weights were loaded"))
    assert cli.main(["reproduce", "mrrope-olmo-1b", "--model", str(tmp_path / "tiny"), *words]) == 2
    error = capsys.readouterr().err
    assert "--docs FOLDER" in error
    assert cli.main(["reproduce", "mrrope-olmo-1", *words]) == 2
    assert "did you mean 'mrrope-olmo-1b'?" in capsys.readouterr().err
