"""Intervals and paired tests say what small samples allow, and refuse what they don't."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from ropebench.errors import UsageError
from ropebench.stats import (
    cell_interval,
    cluster_means,
    exponential,
    interval,
    paired_difference,
    smallest_decisive_n,
)


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


def test_t_interval_of_five_numbers():
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.7764451 * math.sqrt(2.5 / 5)  # t(0.975, 4) × standard deviation ÷ √5
    assert (found.kind, found.n, found.clusters, found.value) == ("t", 5, 5, 3.0)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half), abs=1e-6)


@pytest.mark.parametrize(
    "values, low, high", [([1] * 5, 0.5655, 1.0), ([0] * 3, 0.0, 0.5615), ([1, 1, 1, 0, 0], 0.2307, 0.8824)]
)
def test_zero_one_scores_get_wilson(values, low, high):
    found = interval(values)
    assert found.kind == "wilson"
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


def test_samples_of_one_document_count_once():
    values, clusters = [1.0, 1.2, 2.0, 2.2, 3.0, 3.2], ["a", "a", "b", "b", "c", "c"]
    found = interval(values, clusters=clusters)
    alone = interval([1.1, 2.1, 3.1])
    assert (found.n, found.clusters) == (6, 3)
    assert (found.value, found.low, found.high) == pytest.approx((alone.value, alone.low, alone.high))
    assert found.high - found.low > 1.5 * (interval(values).high - interval(values).low)
    assert cluster_means(values, clusters) == pytest.approx([1.1, 2.1, 3.1])


@pytest.mark.parametrize(
    "values, clusters, kind",
    [([2.5], None, "n too small"), ([2.5, 2.6], ["a", "a"], "n too small"), ([0.5, 0.5, 0.5], None, "no spread")],
)
def test_no_interval_where_none_can_be_had(values, clusters, kind):
    found = interval(values, clusters=clusters)
    assert found.value == pytest.approx(sum(values) / len(values))
    assert (found.low, found.high, found.kind) == (None, None, kind)


def test_nothing_measured_has_no_value():
    assert interval([]).value is None


def test_wilson_is_refused_for_scores_in_between():
    with pytest.raises(UsageError, match="0/1"):
        interval([0.0, 0.5, 1.0], kind="wilson")


def test_perplexity_interval_is_exp_of_the_nll_interval():
    nll = interval([2.0, 2.2, 2.4, 2.6])
    found = exponential(nll)
    assert found.kind == "exp t"
    assert (found.value, found.low, found.high) == pytest.approx(tuple(map(math.exp, (2.3, nll.low, nll.high))))
    assert exponential(interval([2.0, 1600.0])).kind == "too wide"  # exp overflows; infinity is no JSON


def test_coverage_of_the_cluster_interval():
    """10 clusters of 3 correlated samples: the interval holds the true mean in about 95 % of draws."""
    draw = random.Random(1)
    held = 0
    for _ in range(400):
        centres = [draw.gauss(0, 1) for _ in range(10)]
        values = [centre + draw.gauss(0, 0.3) for centre in centres for _ in range(3)]
        found = interval(values, clusters=[k // 3 for k in range(30)])
        held += found.low <= 0 <= found.high
    assert 0.92 <= held / 400 <= 0.98


def test_cell_interval_uses_clusters_and_keeps_the_recorded_value():
    scores = [(0.2, "a"), (0.4, "a"), (0.9, "b"), (0.8, "c")]
    rows = [sample(i, value, cluster, metric="rouge") for i, (value, cluster) in enumerate(scores)]
    found = cell_interval(record("rouge", {"value": 0.575, "stderr": 0.16, "n": 4}), rows)
    assert (found.value, found.n, found.clusters, found.kind) == (0.575, 4, 3, "t")
    assert found.low == 0.0  # a score cannot be below 0; the plain t interval would be
    assert found.high == 1.0


def test_cell_interval_without_sample_rows_recognises_zero_one_scores():
    stderr = math.sqrt(0.6 * 0.4 / 4)  # of three ones and two zeros
    found = cell_interval(record("recall", {"value": 0.6, "stderr": stderr, "n": 5}), [])
    assert (found.kind, found.low) == ("wilson", pytest.approx(0.2307, abs=1e-4))
    assert cell_interval(record("recall", {"value": 0.6, "stderr": 0.1, "n": 5}), []).kind == "t"


def test_cell_interval_of_a_failed_cell_is_empty():
    failed = record("recall", {}) | {"outcome": {"primary": "recall", "metrics": {}}}
    assert cell_interval(failed, []).value is None


def test_paired_difference_removes_what_documents_share():
    a = [sample(i, v) for i, v in enumerate([2.01, 3.02, 4.01, 5.02])]
    b = [sample(i, v) for i, v in enumerate([2.0, 3.0, 4.0, 5.0])]
    found = paired_difference(a, b)
    half = 3.1824463 * 0.0057735 / 2  # t(0.975, 3) × standard deviation ÷ √4
    assert (found.value, found.low, found.high) == pytest.approx((0.015, 0.015 - half, 0.015 + half), abs=1e-5)
    assert found.decided
    assert paired_difference(b, a).value == pytest.approx(-0.015)


def test_paired_difference_is_undecided_when_the_interval_holds_zero():
    a, b = ([sample(i, v) for i, v in enumerate(vs)] for vs in ([2.1, 1.9, 2.2, 1.8], [2.0, 2.0, 2.0, 2.0]))
    found = paired_difference(a, b)
    assert found.low < 0 < found.high
    assert not found.decided


def test_paired_difference_refuses_other_samples():
    a = [sample(0, 2.0), sample(1, 2.1)]
    b = [sample(0, 2.0), sample(1, 2.1, prompt="another text")]
    with pytest.raises(UsageError, match="1 of 2 prompts differ"):
        paired_difference(a, b)
    with pytest.raises(UsageError, match="nothing to compare"):
        paired_difference(a, [sample(7, 2.0)])


def test_paired_difference_leaves_out_what_one_side_lacks():
    a = [sample(0, 2.0), sample(1, None), sample(2, 2.4), sample(3, 2.5)]
    b = [sample(0, 1.0), sample(1, 9.0), sample(2, 1.3)]
    found = paired_difference(a, b)
    assert (found.n, found.value) == (2, pytest.approx(1.05))


@pytest.mark.parametrize("n, p", [(3, 0.25), (5, 0.0625), (6, 0.03125)])
def test_zero_one_scores_get_the_exact_test(n, p):
    """All n pairs go one way: two-sided sign test, p = 2 · ½ⁿ. Five pairs can never decide."""
    a = [sample(i, 1.0, metric="recall") for i in range(n)]
    b = [sample(i, 0.0, metric="recall") for i in range(n)]
    found = paired_difference(a, b, "recall")
    assert (found.kind, found.value, found.low, found.p) == ("sign test", 1.0, None, pytest.approx(p))
    assert found.decided == (n >= smallest_decisive_n())


def test_needles_of_one_haystack_are_one_pair():
    a = [sample(i, 1.0, "the only haystack", metric="recall") for i in range(8)]
    b = [sample(i, 0.0, "the only haystack", metric="recall") for i in range(8)]
    assert paired_difference(a, b, "recall").p == 1.0


def test_equal_scores_decide_nothing():
    a = [sample(i, 2.0 + i) for i in range(4)]
    found = paired_difference(a, a)
    assert (found.value, found.kind, found.decided) == (0.0, "no spread", False)
