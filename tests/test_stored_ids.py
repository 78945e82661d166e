"""What is in results/ stays what it is: today's code gives each stored record's cell the id it was stored under."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ropebench.aliases import ModelSpec
from ropebench.cell import Cell
from ropebench.corpus import Corpus
from ropebench.geometry import RopeGeometry
from ropebench.model import ModelCard
from ropebench.registry import Registry
from ropebench.store import read

RESULTS = Path(__file__).parents[1] / "results"
REGISTRY = Registry.load()


def cell_of(record: dict[str, Any]) -> Cell | None:
    """The cell of a record by today's classes; None where a method or task has another version or is gone by now."""
    model, condition, built = record["model"], record["condition"], []
    for kind in ("method", "task"):
        stored = record[kind]
        entry = REGISTRY.entries.get((kind, stored["name"]))
        if entry is None or stored["code"] is not None or entry.cls.version != stored["version"]:
            return None
        params = {k: tuple(v) if isinstance(v, list) else v for k, v in stored["params"].items()}
        built.append(entry.cls(**params))
    geometry = RopeGeometry(model["rotary_dim"], model["theta"], model["trained_length"])
    about = record["task"]["corpus"]
    corpus = about and Corpus(about["label"], about["source"], lambda: iter([]), identity=about["identity"])
    return Cell(
        ModelCard(ModelSpec(model["id"], model["source"]), "", model["revision"], None, geometry, None), geometry,
        model["base"], "cpu", model["dtype"], model["attention"], built[0], None, record["method"]["factor"],
        record["method"]["factor_rule"], built[1], None, corpus, condition["length"], condition["seed"],
        condition["bos"], condition["chat_template"] == "on", condition["n_requested"],
    )  # fmt: skip


def test_todays_code_finds_the_stored_cells() -> None:
    records = [record for record in read(RESULTS) if record["kind"] == "run" and record["model"]["base"] == "unscaled"]
    cells = [(record, cell_of(record)) for record in records]
    kept = [(record, one) for record, one in cells if one is not None]
    if not kept:
        pytest.skip("no stored record is of today's versions")
    assert [record["cell_id"] for record, one in kept if one.id != record["cell_id"]] == []
