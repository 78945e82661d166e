"""The bundled model: what is shipped, what it can do inside its window, and that it shows what the methods are for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ropebench import cli
from ropebench.aliases import find
from ropebench.model import ModelCard, card
from ropebench.store import read

FOLDER = Path(__file__).parents[1] / "bench" / "ropebench" / "_models" / "tiny"


@pytest.fixture(scope="module")
def tiny() -> ModelCard:
    return card(find("tiny"))


def recall(results: Path) -> dict[tuple[str, int], float]:
    """The primary score by method and length."""
    records = read(results)
    assert {record["outcome"]["status"] for record in records} == {"ok"}
    return {
        (record["method"]["name"], record["condition"]["length"]): record["outcome"]["metrics"]["recall"]["value"]
        for record in records
    }


def test_what_is_shipped_is_small_readable_and_licensed() -> None:
    files = {path.name: path for path in FOLDER.iterdir()}
    assert set(files) == {
        "README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json",
    }  # fmt: skip
    assert sum(path.stat().st_size for path in files.values()) <= 12e6
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in files.values())
    text = files["README.md"].read_text(encoding="utf-8")
    assert text.startswith("---\nlicense: apache-2.0\n")
    assert "held out by its seed only" in text


def test_its_shape_puts_the_band_of_the_formulas_in_the_middle(tiny: ModelCard) -> None:
    geometry = tiny.geometry
    assert (geometry.rotary_dim, geometry.theta, geometry.trained_length) == (64, 10_000.0, 512)
    config = json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))
    assert config["head_dim"] == 64
    from safetensors import safe_open

    with safe_open(str(FOLDER / "model.safetensors"), "pt") as weights:
        shapes = [weights.get_slice(key).get_shape() for key in weights.keys()]  # noqa: SIM118
    parameters = sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in shapes)
    assert 2e6 <= parameters <= 6e6


def test_a_method_carries_it_where_unmodified_it_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--model", "tiny", "--method", "mrrope_pro", "--tasks", "niah:depths=2", "--lengths", "512,2k"]
    assert cli.main([*words, "--n", "4", "--seed", "77", "--results", str(tmp_path)]) == 0
    found = recall(tmp_path)
    assert found["none", 512] == 1.0
    assert found["none", 2048] == 0.0
    assert found["mrrope_pro", 2048] >= 0.75
    assert "recall is highest with mrrope_pro×4" in capsys.readouterr().out
    assert {record["model"]["source"] for record in read(tmp_path)} == {"bundled"}


def test_its_tasks_read_installed_text_where_no_docs_are_given(tmp_path: Path) -> None:
    from ropebench.plan import make_plan
    from ropebench.sweep import Sweep

    def corpora(**more: Any) -> set[str]:
        plan = make_plan(Sweep(model="tiny", tasks=("proofpile", "niah"), methods=("yarn",), **more))
        return {cell.corpus.label.split("-")[0] for cell in plan.cells if cell.corpus}

    assert corpora() == {"python"}
    (tmp_path / "a.txt").write_text("Some words of a text, and then more. " * 4000, encoding="utf-8")
    assert corpora(docs=str(tmp_path)) == {tmp_path.name.split("-")[0]}


@pytest.mark.slow
def test_the_smoke_sweep_runs_whole(tmp_path: Path) -> None:
    assert cli.main(["run", "--sweep", "smoke", "--results", str(tmp_path)]) == 0
    records = read(tmp_path)
    assert len(records) == 11 * (6 * 5 + 2)
    assert {record["outcome"]["status"] for record in records} == {"ok"}


@pytest.mark.slow
def test_skills_on_seeds_that_the_card_does_not_use(tmp_path: Path) -> None:
    tasks = "niah,kv,infinitebench_generated/passkey,vt,arithmetic/addition:digits=1:operation=add"
    words = ["run", "--model", "tiny", "--method", "none", "--tasks", tasks, "--lengths", "512", "--n", "66"]
    assert cli.main([*words, "--seed", "12345", "--batch-size", "8", "--results", str(tmp_path)]) == 0
    reached = {
        record["task"]["name"]: record["outcome"]["metrics"][record["outcome"]["primary"]]["value"]
        for record in read(tmp_path)
    }
    least = {"niah": 0.95, "kv": 0.9, "infinitebench_generated/passkey": 0.95, "vt": 0.8, "arithmetic/addition": 0.9}
    assert {name: value for name, value in reached.items() if value < least[name]} == {}
