"""Intervals and paired tests say what small samples allow, and refuse what they don't."""

from __future__ import annotations

import math
import random

import pytest
from scipy.stats import binomtest, ttest_1samp

from ropebench.comparison import corrected, holm, paired, paired_proportions, smallest_decisive_n
from ropebench.stats import (
    MIN_CLUSTERS,
    above_chance,
    exponential,
    interval,
    wilson,
)


def test_t_interval_of_five_numbers():
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.7764451 * math.sqrt(2.5 / 5)  # t(0.975, 4) × standard deviation ÷ √5
    assert (found.kind, found.n, found.clusters, found.value) == ("t", 5, 5, 3.0)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half), abs=1e-6)


@pytest.mark.parametrize(
    "values, low, high", [([1] * 5, 0.5655, 1.0), ([0] * 5, 0.0, 0.4345), ([1, 1, 1, 0, 0], 0.2307, 0.8824)]
)
def test_zero_one_scores_get_wilson(values, low, high):
    found = interval(values)
    assert found.kind == "wilson"
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize("right, n", [(0, 5), (1, 7), (30, 50), (50, 50)])
def test_wilson_is_scipys_on_whole_counts(right, n):
    known = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson(right / n, n) == pytest.approx((known.low, known.high), abs=1e-12)


def test_samples_of_one_document_count_once():
    values = [1.0, 1.2, 2.0, 2.2, 3.0, 3.2, 4.0, 4.2, 5.0, 5.2]
    clusters = [name for name in "abcde" for _ in range(2)]
    found = interval(values, clusters)
    alone = interval([1.1, 2.1, 3.1, 4.1, 5.1])
    assert (found.n, found.clusters) == (10, 5)
    assert (found.value, found.low, found.high) == pytest.approx((alone.value, alone.low, alone.high))
    assert found.high - found.low > 1.5 * (interval(values).high - interval(values).low)


@pytest.mark.parametrize("values", [[1, 1, 0, 0, 1], [0.5, 0.4, 0.3, 0.6, 0.7]])
def test_below_five_clusters_there_is_no_interval(values):
    """However many samples they hold."""
    few = [name for name in "abcd" for _ in values]
    found = interval(values * 4, few)
    assert (found.low, found.high, found.kind, found.n, found.clusters) == (None, None, "n too small", 20, 4)
    assert interval(values * 5, [name for name in "abcde" for _ in values]).clusters == MIN_CLUSTERS
    assert interval(values).known
    assert interval(values[:4]).kind == "n too small"


def test_needles_that_share_haystacks_widen_wilson_by_what_haystacks_differ():
    clusters = [name for name in "abcdef" for _ in range(5)]
    alike = [1, 1, 1, 0, 0] * 6  # every haystack 3 of 5: nothing was seen of how they could differ
    apart = [1] * 15 + [0] * 15  # three haystacks all right, three all wrong
    found, plain = interval(apart, clusters), interval(apart)
    assert (found.kind, plain.kind) == ("clustered wilson", "wilson")
    assert (found.low, found.high) == pytest.approx(wilson(0.5, 5, freedom=5), abs=1e-9)  # p(1−p) ÷ (0.3 ÷ 6) = 5 of 30
    assert found.high - found.low > 1.8 * (plain.high - plain.low)
    assert interval(alike, clusters).low == pytest.approx(wilson(0.6, 6, freedom=5)[0])
    assert interval([1] * 30, clusters).low == pytest.approx(wilson(1.0, 6, freedom=5)[0])


def test_identical_values_have_no_interval():
    found = interval([0.5] * 6)
    assert (found.value, found.low, found.kind) == (0.5, None, "no spread")


def test_nothing_measured_has_no_value():
    assert interval([]).value is None


def test_perplexity_interval_is_exp_of_the_nll_interval():
    nll = interval([2.0, 2.2, 2.4, 2.6, 2.8])
    found = exponential(nll)
    assert found.kind == "exp t"
    assert (found.value, found.low, found.high) == pytest.approx(tuple(map(math.exp, (2.4, nll.low, nll.high))))
    assert exponential(interval([2.0, 1600.0] * 3)).kind == "too wide"  # exp overflows; infinity is no JSON


def clustered(draw: random.Random, kind: str, clusters: int, each: int) -> tuple[list[float], list[int], float]:
    """Values, clusters and the true mean of made-up data whose samples resemble each other within a cluster."""
    values: list[float] = []
    for _ in range(clusters):
        if kind == "normal":
            centre = draw.gauss(0, 1)
            values += [centre + draw.gauss(0, 1) for _ in range(each)]
        elif kind == "skewed":
            centre = draw.expovariate(1.0)
            values += [centre * draw.expovariate(1.0) for _ in range(each)]
        else:
            share = draw.betavariate(0.8 * 2, 0.2 * 2)  # within a haystack samples correlate by 1/3
            values += [float(draw.random() < share) for _ in range(each)]
    return values, [k // each for k in range(clusters * each)], {"normal": 0.0, "skewed": 1.0, "0/1": 0.8}[kind]


@pytest.mark.parametrize("kind, clusters", [("normal", 10), ("0/1", 10), ("0/1", 50), ("skewed", 50)])
def test_intervals_hold_the_truth_as_often_as_they_say(kind, clusters):
    """At least 90 % with 10 clusters of 3, and with 50; 400 draws each, so ±2.5 points of noise at 95 %."""
    draw, held = random.Random(1), 0
    for _ in range(400):
        values, names, truth = clustered(draw, kind, clusters, 3)
        found = interval(values, names)
        held += found.low <= truth <= found.high
    assert 0.90 <= held / 400 <= 0.985


def test_paired_difference_removes_what_documents_share():
    a, b = [2.01, 3.02, 4.01, 5.02, 6.015], [2.0, 3.0, 4.0, 5.0, 6.0]
    found = paired(a, b)
    half = 2.7764451 * 0.005 / math.sqrt(5)  # t(0.975, 4) × standard deviation ÷ √5
    assert (found.value, found.low, found.high) == pytest.approx((0.015, 0.015 - half, 0.015 + half), abs=1e-5)
    assert found.decided
    assert found.agreeing == 5
    assert paired(b, a).value == pytest.approx(-0.015)


def test_paired_difference_is_undecided_when_the_interval_holds_zero():
    found = paired([2.1, 1.9, 2.2, 1.8, 2.05], [2.0] * 5)
    assert found.low < 0 < found.high
    assert not found.decided
    assert found.agreeing == 3


def test_four_documents_are_too_few_for_a_test_and_say_how_many_agree():
    found = paired([2.1, 2.1, 2.3, 1.9], [2.0] * 4)
    assert (found.low, found.p, found.kind, found.clusters, found.agreeing) == (None, None, "n too small", 4, 3)
    assert not found.decided
    assert not found.testable


@pytest.mark.parametrize("n, p", [(5, 0.0625), (6, 0.03125), (8, 0.0078125)])
def test_zero_one_scores_get_the_exact_test(n, p):
    """All n pairs go one way: two-sided sign test, p = 2 · ½ⁿ. Five pairs can never decide."""
    found = paired([1.0] * n, [0.0] * n)
    assert (found.kind, found.value, found.p) == ("mcnemar", 1.0, pytest.approx(p))
    assert found.decided == (n >= smallest_decisive_n())


def test_the_exact_test_is_mcnemars():
    """40 samples of which 9 differ, 8 one way: p = 2 · (1 + 9) ÷ 2⁹."""
    found = paired([1.0] * 8 + [0.0] + [1.0] * 31, [0.0] * 8 + [1.0] * 32)
    assert found.p == pytest.approx(20 / 512)
    assert found.value == pytest.approx(7 / 40)


def test_interval_of_paired_proportions():
    """Bonett and Price by hand, 8 up and 1 down of 40: (9 − 2)/42 ± 1.96 · √((11/42 − (7/42)²)/42)."""
    half = 1.959964 * math.sqrt((11 / 42 - (7 / 42) ** 2) / 42)
    low, high, _ = paired_proportions([1] * 8 + [-1] + [0] * 31)
    assert (low, high) == pytest.approx((7 / 42 - half, 7 / 42 + half), abs=1e-6)
    none = paired_proportions([0] * 40)
    assert none[0] == -none[1] < 0  # no sample differs, and a gain of some points is still open
    assert paired_proportions([1] * 6)[1] == 1.0


def test_needles_of_one_haystack_are_one_pair():
    one = paired([1.0] * 8, [0.0] * 8, ["the only haystack"] * 8)
    assert (one.p, one.kind, one.clusters) == (None, "n too small", 1)
    six = paired([1.0] * 12, [0.0] * 12, [k // 2 for k in range(12)])
    assert (six.p, six.n, six.clusters) == (pytest.approx(0.03125), 12, 6)  # all alike: the sign of six


def test_five_haystacks_of_eleven_depths_can_decide():
    """The usual needle sweep: a sign test over 5 haystacks never could (p ≥ 6 %), t over their means can."""
    right = [9, 8, 10, 9, 11]
    ours = [float(depth < count) for count in right for depth in range(11)]
    found = paired(ours, [0.0] * 55, [k // 11 for k in range(55)])
    assert (found.kind, found.n, found.clusters) == ("t", 55, 5)
    assert found.value == pytest.approx(47 / 55)
    assert found.p == pytest.approx(ttest_1samp([count / 11 for count in right], 0.0).pvalue)
    assert found.decided


def test_equal_scores_decide_nothing():
    found = paired([2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 3.0, 4.0, 5.0, 6.0])
    assert (found.value, found.kind, found.decided) == (0.0, "no spread", False)


def test_holm_multiplies_by_what_is_left_and_never_falls():
    """By hand: 0.01 · 4, 0.02 · 3, 0.03 · 2, 0.6 · 1; the third would be 0.06 again."""
    assert holm([0.03, 0.01, 0.6, 0.02]) == pytest.approx([0.06, 0.04, 0.6, 0.06])
    assert holm([0.4, 0.9]) == pytest.approx([0.8, 0.9])
    assert holm([0.03, 0.04]) == pytest.approx([0.06, 0.06])  # where 0.04 alone would have been decided
    assert holm([]) == []


def test_correction_decides_less_and_leaves_out_what_was_not_tested():
    clear, doubtful = paired([1.0] * 10, [0.0] * 10), paired([1.0] * 6, [0.0] * 6)
    small = paired([1.0] * 4, [0.0] * 4)
    found = corrected({"clear": clear, "doubtful": doubtful, "again": doubtful, "small": small})
    assert doubtful.decided
    assert found["clear"].decided
    assert not found["doubtful"].decided
    assert found["doubtful"].adjusted == pytest.approx(2 * 0.03125)  # the second of three, not of four
    assert found["small"].adjusted is None


@pytest.mark.parametrize("tests, n", [(1, 6), (3, 7), (21, 10)])
def test_more_comparisons_need_more_samples(tests, n):
    """2 · ½ⁿ below 5 % ÷ tests."""
    assert smallest_decisive_n(tests) == n


def test_above_chance_by_the_exact_interval():
    """2 of 50 is not above 1 % (exact lower end 0.5 %), though Wilson's, 1.1 %, says so; 5 of 50 is (3.3 %)."""
    two, five = [1.0] * 2 + [0.0] * 48, [1.0] * 5 + [0.0] * 45
    assert interval(two).low > 0.01
    assert not above_chance(two, 0.01)
    assert above_chance(five, 0.01)
    assert not above_chance(five, 0.01, level=1 - 1e-4)
    assert not above_chance([1.0] * 4, 0.01)  # too few to say
    assert not above_chance([1.0] * 40, 0.01, ["one text"] * 40)
