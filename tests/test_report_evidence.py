"""From records and sample rows to intervals and paired differences."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ropebench.errors import UsageError
from ropebench.report.evidence import cell_interval, paired_difference
from ropebench.stats import wilson


def sample(index: int, value: float | None, cluster: str | None = None, prompt: str | None = None, metric: str = "nll"):
    """A sample row with a made-up value."""
    return {
        "index": index,
        "prompt_sha256": prompt or f"prompt {index}",
        "skip": None if value is not None else "does not fit",
        "scores": {} if value is None else {metric: value},
        "meta": {} if cluster is None else {"cluster": cluster},
    }


def record(metric: str, summary: dict[str, Any], high: float | None = 1.0, **more: Any) -> dict[str, Any]:
    """As much of a record as an interval needs."""
    specs = [{"name": metric, "direction": "higher", "low": 0.0, "high": high, "chance": 0.0}]
    return {"task": {"metrics": specs}, "outcome": {"primary": metric, "metrics": {metric: summary} | more}}


def test_cell_interval_uses_clusters_and_keeps_the_recorded_value():
    scores = [(0.2, "a"), (0.4, "a"), (0.9, "b"), (0.8, "c"), (0.1, "d"), (0.9, "e")]
    rows = [sample(i, value, cluster, metric="rouge") for i, (value, cluster) in enumerate(scores)]
    found = cell_interval(record("rouge", {"value": 0.55, "stderr": 0.14, "n": 6}), rows)
    assert (found.value, found.n, found.clusters, found.kind) == (0.55, 6, 5, "clustered wilson")
    # Sums less 0.55 a sample: −0.5 0.35 0.25 −0.45 0.35; squares 0.76; variance of the mean 0.76 · 5/4 ÷ 36.
    effective = 0.55 * 0.45 / (0.76 * 5 / 4 / 36)
    assert (found.low, found.high) == pytest.approx(wilson(0.55, effective, freedom=4))
    assert found.high < 1.0  # where the plain t interval would end beyond it


def test_cell_interval_without_sample_rows_recognises_zero_one_scores():
    stderr = math.sqrt(0.6 * 0.4 / 4)  # of three ones and two zeros
    found = cell_interval(record("recall", {"value": 0.6, "stderr": stderr, "n": 5}), [])
    assert (found.kind, found.low) == ("wilson", pytest.approx(0.2307, abs=1e-4))
    assert cell_interval(record("recall", {"value": 0.6, "stderr": 0.1, "n": 5}), []).kind == "t"
    assert cell_interval(record("recall", {"value": 1.0, "stderr": 0.0, "n": 5}), []).kind == "wilson"
    assert cell_interval(record("recall", {"value": 1.0, "stderr": 0.0, "n": 4}), []).kind == "n too small"


def test_cell_interval_of_a_failed_cell_is_empty():
    failed = record("recall", {}) | {"outcome": {"primary": "recall", "metrics": {}}}
    assert cell_interval(failed, []).value is None


def test_a_likelihood_that_happens_to_be_0_or_1_is_no_proportion():
    rows = [sample(i, value) for i, value in enumerate([0.0, 1.0, 1.0, 0.0, 1.0])]
    assert cell_interval(record("nll", {"value": 0.6, "stderr": 0.2, "n": 5}, high=None), rows).kind == "t"


def test_paired_difference_refuses_other_samples():
    a = [sample(0, 2.0), sample(1, 2.1)]
    b = [sample(0, 2.0), sample(1, 2.1, prompt="another text")]
    assert paired_difference(a, b).n == 1
    with pytest.raises(UsageError, match="not identical: none of 2 and 1 prompts is the same"):
        paired_difference(a, b[1:])
    with pytest.raises(UsageError, match="nothing to compare"):
        paired_difference(a, [sample(0, None), sample(1, None)])


def test_paired_difference_leaves_out_what_one_side_lacks():
    a = [sample(0, 2.0), sample(1, None), sample(2, 2.4), sample(3, 2.5)]
    b = [sample(0, 1.0), sample(1, 9.0), sample(2, 1.3)]
    found = paired_difference(a, b)
    assert (found.n, found.value) == (2, pytest.approx(1.05))
