"""Records of one cell and the same samples that disagree are flagged."""

from __future__ import annotations

import copy

from report_records import cell, share
from ropebench.report.repeats import disagreements

RECALL = [{"name": "recall", "direction": "higher", "low": 0.0, "high": 1.0, "chance": 0.0, "derived": None}]


def twice(right, series="again"):
    first, _ = cell("kv", "none", 1024, {"recall": share(8, 10)}, metrics=RECALL)
    again = copy.deepcopy(first) | {"series": series}
    again["outcome"]["metrics"]["recall"]["value"] = right
    return [first | {"series": None}, again]


def test_another_score_on_the_same_samples_is_flagged():
    apart, alike = disagreements(twice(0.7))
    assert apart == [
        "DISAGREE: fixture-model · none · kv at 1024, measured 2 times on the same samples: recall 0.8 and 0.7"
    ]
    assert alike == []


def test_what_rounding_leaves_is_agreement():
    assert disagreements(twice(0.8 + 1e-9)) == (
        [],
        ["1 cell measured again on the same samples came out the same (within 1e-06)."],
    )


def test_a_run_that_goes_on_and_other_samples_are_no_repeats():
    assert disagreements(twice(0.7, series=None)) == ([], [])
    first, again = twice(0.7)
    again["task"]["samples_sha256"] = "others"
    assert disagreements([first, again]) == ([], [])
