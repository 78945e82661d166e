"""Text fitted better, answers not better: the dissociation, on numbers whose answer is known."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest

from report_records import cell, share, stored
from ropebench.comparison import Difference, paired
from ropebench.report.cells import blocks, cell_rows
from ropebench.report.dissociation import dissociation_table, dissociations, verdict, with_dissociation
from ropebench.report.paired import by_cell
from ropebench.report.tables import as_csv

N = 40
CONTEXT = [2.0 + k / 20 for k in range(N)]  # nats per token of each sample's text under the baseline
LOWER = [value - 0.3 - 0.01 * (k % 3) for k, value in enumerate(CONTEXT)]
SAME = [value + (0.05 if k % 2 else -0.05) for k, value in enumerate(CONTEXT)]
HIGHER = [value + 0.3 + 0.01 * (k % 3) for k, value in enumerate(CONTEXT)]


def measured(context: list[float], right: int, n: int = N, base: int = 20, inside: int = 20) -> Any:
    """An addition probe beyond the window of 2048: none right `base` times of n, yarn `right` times."""

    def one(method: str, length: int, score: int, nll: list[float]) -> Any:
        values = {"exact_match": share(score, n), "context_nll": nll[:n]}
        return cell("arithmetic/addition", method, length, values, gated=True)

    return stored(
        one("none", 1024, inside, CONTEXT), one("none", 4096, base, CONTEXT), one("yarn", 4096, right, context)
    )


def found(records: Any, samples: Any) -> Any:
    (block,) = blocks(cell_rows(records, samples))
    return dissociations(block, samples, by_cell(records))


@pytest.mark.parametrize(
    "context, right, expected",
    [
        (LOWER, 20, "yes"),  # text better, answers the same
        (LOWER, 10, "yes"),  # text better, answers worse
        (LOWER, 40, "no"),  # both better: nothing is dissociated
        (SAME, 20, "undecided"),  # the text is not told apart
        (SAME, 40, "no"),  # answers better, whatever the text
        (HIGHER, 10, "no"),  # both worse
        (HIGHER, 40, "no"),
    ],
)
def test_what_follows_from_the_two_differences(context, right, expected):
    one = found(*measured(context, right))["yarn×2", 4096]
    assert one.found == expected
    assert one.score.value == pytest.approx((right - 20) / N)
    assert one.score.low < one.score.value < one.score.high
    assert one.likelihood.value == pytest.approx(sum(a - b for a, b in zip(context, CONTEXT, strict=True)) / N)


def test_a_model_at_chance_has_none():
    assert found(*measured(LOWER, 20, inside=0))["yarn×2", 4096].found == "uninformative"


def test_unknown_in_the_window_is_undecided():
    records, samples = measured(LOWER, 20)
    assert found(records[1:], samples)["yarn×2", 4096].found == "undecided"


@pytest.mark.parametrize("n", [4, 5])
def test_samples_that_could_not_show_a_gain_do_not_show_that_there_is_none(n):
    """With 5 samples, all of them better, the exact test gives 6 %: "not higher" would be a matter of course."""
    records, samples = measured(LOWER, 0, n=n, base=0, inside=n)
    assert found(records, samples)["yarn×2", 4096].found in ("undecided", "uninformative")
    one = paired([2.0 - 0.1 * k for k in range(n)], [3.0] * n)
    assert verdict(one, paired([0.0] * n, [0.0] * n), True) == "undecided"


def test_correction_for_the_table_makes_no_dissociation():
    """A score that is higher by itself (p = 3 %), and not after the correction, leaves it undecided."""
    lower = Difference(-0.3, -0.4, -0.2, 1e-6, "t", 40, 40, adjusted=1e-5)
    score = Difference(0.15, 0.0, 0.3, 0.03125, "mcnemar", 40, 40, adjusted=0.125)
    assert verdict(lower, score, True) == "undecided"
    assert verdict(lower, replace(score, adjusted=0.04), True) == "no"
    assert verdict(lower, replace(score, p=0.3, adjusted=1.0), True) == "yes"
    assert verdict(lower, replace(score, value=-0.15), True) == "yes"
    assert verdict(replace(lower, adjusted=0.06), replace(score, p=1.0, adjusted=1.0), True) == "undecided"


def test_other_samples_are_left_out():
    records, samples = measured(LOWER, 20)
    samples[records[2]["cell_id"]][7]["prompt_sha256"] = "another text"
    assert {one.score.n for one in found(records, samples).values()} == {len(LOWER) - 1}
    for row in samples[records[2]["cell_id"]]:
        row["prompt_sha256"] = "another text"
    assert found(records, samples) == {}


def test_it_is_the_metrics_that_decide_and_not_the_name():
    records, samples = measured(LOWER, 20)
    for record in records:
        record["task"] |= {"name": "my_probe", "label": "my_probe"}
    assert found(records, samples)["yarn×2", 4096].found == "yes"
    for record in records:
        record["task"]["metrics"] = [spec for spec in record["task"]["metrics"] if spec["name"] != "context_nll"]
    assert found(records, samples) == {}


def test_its_table_and_its_column():
    records, samples = measured(LOWER, 20)
    rows = with_dissociation(cell_rows(records, samples), samples, by_cell(records))
    assert [(row["method_label"], row["dissociation"]) for row in rows] == [
        ("none", None),
        ("none", None),
        ("yarn×2", "yes"),
    ]
    assert [row["dissociation"] for row in csv.DictReader(io.StringIO(as_csv(rows)))] == ["", "", "yes"]
    (block,) = blocks(rows)
    shown = dissociation_table(block, samples, by_cell(records))
    assert shown.columns == (
        "method", "length", "context_nll, no BOS (nats per token)", "exact_match (points)", "dissociation",
    )  # fmt: skip
    assert shown.rows == (("yarn×2", "4096 (2×)", "−0.310 [−0.312, −0.307]*", "+0 [−7, +7; p = 1]", "yes"),)
    assert any("how large a gain these samples leave open" in note for note in shown.notes)


def test_tasks_without_both_metrics_have_no_table(records, samples):
    for block in blocks(cell_rows(records, samples)):
        assert dissociation_table(block, samples, by_cell(records)) is None
