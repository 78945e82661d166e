"""A gated task says nothing where the unmodified model is at chance inside its window, and then shows no number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from report_records import cell, share, stored
from ropebench.report import figures, summary, tables
from ropebench.report.advice import in_short
from ropebench.report.cells import blocks, cell_rows
from ropebench.report.frames import records_frame
from ropebench.report.limits import limits
from ropebench.report.paired import by_cell, ranking
from ropebench.report.sections import tables_of

INSIDE, BEYOND = 1024, 4096  # the model of these cells was trained on 2048 tokens
ALIKE = [2.0, 2.1, 2.2, 2.3, 2.4] * 10


def probes(right_inside: int | None, n: int = 50, gated: bool = True, **more: Any) -> Any:
    """Records and samples of an addition probe of chance 1 %: the baseline right `right_inside` times of n inside the
    window (None: not measured there), none and yarn beyond it."""

    def one(method: str, length: int, right: int) -> Any:
        values = {"exact_match": share(right, n), "context_nll": ALIKE[:n]}
        return cell("arithmetic/addition", method, length, values, gated=gated, **more)

    inside = [] if right_inside is None else [one("none", INSIDE, right_inside)]
    return stored(*inside, one("none", BEYOND, 0), one("yarn", INSIDE, n // 2), one("yarn", BEYOND, n // 2))


def only_block(records: Any, samples: Any, metric: str | None = None) -> Any:
    (found,) = blocks(cell_rows(records, samples, metric))
    return found


@pytest.mark.parametrize("right, informative", [(0, False), (2, False), (5, True), (50, True), (None, None)])
def test_the_baseline_inside_its_window_decides(right, informative):
    """2 of 50 is not above 1 % by the exact interval, 5 of 50 is."""
    records, samples = probes(right)
    assert [row["informative"] for row in cell_rows(records, samples)] == [informative] * len(records)


def test_a_task_that_is_not_gated_is_always_shown():
    assert {row["informative"] for row in cell_rows(*probes(0, gated=False))} == {True}
    records, samples = probes(0)
    for record in records:
        del record["task"]["gated"]  # as in records made before the key
    assert {row["informative"] for row in cell_rows(records, samples)} == {True}


def test_four_samples_show_nothing():
    """All of them right, and yet without an interval."""
    assert {row["informative"] for row in cell_rows(*probes(4, n=4))} == {False}


def test_several_lengths_are_corrected_for():
    """3 of 50 is above 1 % at one length (exact lower end 1.3 %), not where it is the best of five (at 99 %: 0.7 %)."""
    values = {"exact_match": share(3, 50), "context_nll": ALIKE}
    nothing = {"exact_match": share(0, 50), "context_nll": ALIKE}
    lucky = cell("arithmetic/addition", "none", 1024, values, gated=True)
    others = [cell("arithmetic/addition", "none", length, nothing, gated=True) for length in (256, 512, 768, 2048)]
    assert {row["informative"] for row in cell_rows(*stored(lucky))} == {True}
    assert {row["informative"] for row in cell_rows(*stored(lucky, *others))} == {False}


def test_only_the_baselines_good_cells_inside_the_window_count():
    records, samples = probes(0)
    assert records[2]["method"]["name"] == "yarn"  # right half of the time inside the window, and no evidence
    records[2]["method"]["factor"] = 1.0  # nor at factor 1
    assert {row["informative"] for row in cell_rows(records, samples)} == {False}
    records, samples = probes(50)
    records[0]["outcome"] = {"status": "error", "error": None, "metrics": {}, "primary": "exact_match"}
    assert {row["informative"] for row in cell_rows(records, samples)} == {None}


def test_needles_at_depths_of_few_texts_are_few_samples():
    values = {"exact_match": share(25, 50), "context_nll": ALIKE}
    texts = [f"text {k % 4}" for k in range(50)]
    found = cell_rows(*stored(cell("arithmetic/addition", "none", 1024, values, gated=True, clusters=texts)))
    assert [(row["clusters"], row["informative"]) for row in found] == [(4, False)]


def test_other_conditions_and_tasks_are_judged_by_their_own_baseline():
    records, samples = probes(0)
    other, more = probes(50, label="arithmetic/copy")
    again, rest = probes(50)
    for record in again:
        record["condition"]["bos"] = "always"
        record["cell_id"] += " bos"
    samples |= more | {f"{cell_id} bos": rows for cell_id, rows in rest.items()}
    rows = cell_rows([*records, *other, *again], samples)
    found = {(row["task_label"], row["condition_bos"], row["informative"]) for row in rows}
    assert found == {
        ("arithmetic/addition", "auto", False),
        ("arithmetic/copy", "auto", True),
        ("arithmetic/addition", "always", True),
    }


def test_an_uninformative_cell_shows_no_number_and_loses_none():
    records, samples = probes(0)
    block = only_block(records, samples)
    shown = tables.table(block, mean=True)
    assert shown.rows == (
        ("none", "uninformative", "uninformative", ""),
        ("yarn×2", "uninformative", "uninformative", ""),
    )
    assert any(
        "not shown to be above chance (1 %) at or below its window of 2048 tokens" in line for line in shown.notes
    )
    dumped = json.loads(tables.as_json(block.rows))
    assert [(row["value"], row["low"], row["interval"]) for row in dumped] == [(None, None, "uninformative")] * 4
    assert sorted(row["measured"] for row in dumped) == [0, 0, 0.5, 0.5]
    frame = records_frame(records, samples)
    assert frame["value"].isna().all()
    assert sorted(frame["measured"]) == [0, 0, 0.5, 0.5]
    assert set(frame["informative"]) == {False}


def test_an_uninformative_task_ranks_nothing_and_has_no_plot():
    records, samples = probes(0)
    block, cells = only_block(records, samples), by_cell(records)
    assert ranking(block, samples, "exact_match", BEYOND) is None
    assert [one.kind for one in figures.plan([block], samples, cells)] == ["frequencies"]  # no score
    assert summary.glance([block], samples, cells) is None
    assert "uninformative" in summary.verdict(block, samples, cells)[0]
    assert in_short([block], samples, cells).rows[0][2] == "nothing can be said"
    assert "uninformative" in limits([block], samples, cells)[0]
    assert [one.title for one in tables_of(block, samples, cells)][1:] == [
        "fixture-model · arithmetic/addition · dissociation: text fitted better than by none, answers not better"
    ]


def test_a_likelihood_has_no_chance_level_and_is_shown():
    block = only_block(*probes(0), metric="context_nll")
    assert [row["value"] for row in block.rows] == pytest.approx([2.2] * 4)
    assert not block.uninformative


def test_unknown_is_shown_and_said():
    shown = tables.table(only_block(*probes(None)))
    assert shown.rows[1][1].startswith("50 [")
    assert any("the unmodified model was not measured at or below its window of 2048" in line for line in shown.notes)


def test_a_checkpoint_with_a_scaling_of_its_own_is_its_own_baseline():
    """`none` takes the scaling away, and its failure says nothing about the model."""
    records, samples = probes(50)
    native = cell("arithmetic/addition", "native", INSIDE, {"exact_match": share(40, 50)}, gated=True)
    records[0]["outcome"]["metrics"]["exact_match"]["value"] = 0.0
    samples[records[0]["cell_id"]] = [row | {"scores": {"exact_match": 0.0}} for row in samples[records[0]["cell_id"]]]
    assert {row["informative"] for row in cell_rows(records, samples)} == {False}
    samples[native[0]["cell_id"]] = native[1]
    assert {row["informative"] for row in cell_rows([*records, native[0]], samples)} == {True}


def test_the_arithmetic_tasks_are_gated_and_say_so_in_their_records():
    from ropebench.registry import Registry

    gated = {entry.name for entry in Registry.load(()).of("task") if entry.cls.gated}
    assert gated == {"arithmetic/addition", "arithmetic/copy", "arithmetic/digit_index", "arithmetic/igsm"}


def test_a_run_writes_whether_its_task_is_gated(tmp_path):
    from fakes import Coins, FakeEngine, loaded, writer
    from fakes import cell as planned
    from ropebench.run import Stored, run_cells

    class Guarded(Coins):
        gated = True

    made = [
        run_cells([planned(task, n=2)], loaded(), Stored(), writer(tmp_path), engine=FakeEngine())[0]
        for task in (Guarded(), Coins())
    ]
    assert [record["task"]["gated"] for record in made] == [True, False]
    assert made[0]["cell_id"] == made[1]["cell_id"]  # no part of what a number depends on
