"""Several seeds of one cell are one row with all their samples, and what failed under one of them is said."""

from __future__ import annotations

import copy
import math

import pytest

from report_records import cell, share, stored
from ropebench.report import tables
from ropebench.report.cells import blocks, cell_rows
from ropebench.report.paired import by_cell, ranking
from ropebench.report.pooling import pooled
from ropebench.stats import wilson

METRICS = [{"name": "recall", "direction": "higher", "low": 0.0, "high": 1.0, "chance": 0.0, "derived": None}]


def seeded(seed, method="none", right=8, of=10, **more):
    """A cell of `of` samples under a seed; its prompts and haystacks are the seed's own."""
    record, rows = cell("kv", method, 1024, {"recall": share(right, of)}, metrics=METRICS, **more)
    record["cell_id"] += f"-{seed}"
    record["condition"]["seed"] = seed
    record["task"]["samples_sha256"] += f" {seed}"
    record["outcome"]["metrics"]["recall"]["stderr"] = math.sqrt(right / of * (1 - right / of) / (of - 1))
    for row in rows:
        row["cell_id"], row["prompt_sha256"] = record["cell_id"], f"{row['prompt_sha256']} {seed}"
    return record, rows


def test_two_seeds_are_one_row_of_all_samples():
    records, samples = pooled(*stored(seeded(0, right=8), seeded(1, right=4)))
    [row] = cell_rows(records, samples)
    assert (row["n"], row["clusters"], row["condition_seed"], row["cell_id"]) == (
        20,
        20,
        "0+1",
        "kv--none-1024-0+kv--none-1024-1",
    )
    assert row["value"] == pytest.approx(0.6)
    assert (row["low"], row["high"]) == pytest.approx(wilson(0.6, 20))
    assert row["stderr"] == pytest.approx(math.sqrt(0.6 * 0.4 / 19))
    assert "seeds 0, 1 pooled" in tables.table(blocks([row])[0]).notes[0]


def test_haystacks_of_another_seed_are_others_and_documents_are_the_same():
    names = [f"sample-{k // 2}" for k in range(10)]
    records, samples = pooled(*stored(seeded(0, clusters=names), seeded(1, clusters=names)))
    assert cell_rows(records, samples)[0]["clusters"] == 10
    texts = [f"Chapter {k // 2}" for k in range(10)]
    records, samples = pooled(*stored(seeded(0, clusters=texts), seeded(1, clusters=texts)))
    assert cell_rows(records, samples)[0]["clusters"] == 5


def test_a_method_with_more_seeds_is_compared_on_the_seed_in_common():
    cells = [seeded(0, right=10, of=20), seeded(1, right=10, of=20), seeded(0, "yarn", right=20, of=20)]
    records, samples = pooled(*stored(*cells))
    [block] = blocks(cell_rows(records, samples))
    found = ranking(block, samples, "recall", 1024)
    assert (found.labels, found.against["none"].n) == (("yarn×2", "none"), 20)
    assert block.common(1024) == 20


def test_a_seed_that_failed_is_said_and_not_averaged_away():
    bad, _ = seeded(2)
    bad["outcome"] = {"status": "out_of_memory", "error": None, "metrics": {}, "primary": "recall"}
    records, samples = stored(seeded(0), seeded(1))
    records, samples = pooled([*records, bad], samples)
    [block] = blocks(cell_rows(records, samples))
    assert block.cell("none", 1024)["n"] == 20
    assert any("seed 2: out_of_memory" in note for note in tables.table(block).notes)


def test_one_seed_stays_as_it_is():
    records, samples = stored(seeded(0), seeded(0, "yarn"))
    before = copy.deepcopy(records)
    assert pooled(records, samples)[0] == before
    assert set(by_cell(records)) == set(samples)
