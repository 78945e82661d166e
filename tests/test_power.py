"""What a comparison could have shown, and how many samples it needs: against simulation and by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import permutation_test

from ropebench.comparison import Difference, paired
from ropebench.power import detectable, needed
from ropebench.resampling import bootstrap_t, flip_signs


def measured(n=20, stderr=0.1, clusters=None):
    return Difference(0.0, -0.2, 0.2, 1.0, "t", n, clusters or n, stderr=stderr)


def test_the_textbook_number_of_pairs():
    """Cohen 1988: half a standard deviation, two-sided 5 %, power 80 %: 34 pairs. With the normal alone it were 32."""
    assert needed(measured(20, 1 / 20**0.5), 0.5) == 34


@pytest.mark.parametrize("n", [8, 20])
def test_the_smallest_difference_is_shown_four_times_in_five(n):
    rng, shown = np.random.default_rng(0), 0
    smallest = detectable(measured(n, n**-0.5))
    for _ in range(600):
        shown += paired(list(rng.normal(smallest, 1, n)), [0.0] * n).decided
    assert 0.74 <= shown / 600 <= 0.86


def test_needed_and_detectable_are_one_statement():
    found = measured(20)
    smallest = detectable(found)
    assert needed(found, smallest * 1.0001) == 20
    assert needed(found, smallest / 2) > 4 * 20 * 0.9
    assert detectable(found, tests=10) > smallest
    assert needed(found, smallest, tests=10) > 20


def test_samples_come_in_clusters():
    """The same spread over 20 haystacks of 5: 34 haystacks are 170 samples."""
    assert needed(measured(100, 1 / 20**0.5, clusters=20), 0.5) == 170


def test_what_was_not_tested_could_show_nothing():
    small = paired([1.0] * 4, [0.0] * 4)
    assert (detectable(small), needed(small, 0.1)) == (None, None)
    with pytest.raises(ValueError, match="difference of 0"):
        needed(measured(), 0.0)
    assert needed(replace(measured(), stderr=1e6), 1e-6) is None


@pytest.mark.parametrize("n", [5, 9, 12])
def test_flipped_signs_are_scipys_permutation_test(n):
    values = np.random.default_rng(n).normal(0.4, 1, n)
    known = permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert flip_signs(list(values)) == pytest.approx(known)
    assert flip_signs([*values, 0.0, 0.0]) == pytest.approx(known)  # a cluster that does not differ has no sign


def test_flipped_signs_at_random_are_near_the_exact_ones():
    values = list(np.random.default_rng(3).normal(0.5, 1, 16))
    exact = permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert flip_signs(values) == pytest.approx(exact, abs=0.01)
    assert flip_signs([0.0] * 20) == 1.0


def test_bootstrap_t_leans_to_where_the_tail_is_and_repeats_itself():
    values = list(np.random.default_rng(1).lognormal(0, 1, 30))
    low, high = bootstrap_t(values, [1] * 30, 0.95)
    mean = sum(values) / 30
    assert high - mean > 1.2 * (mean - low)
    assert bootstrap_t(values, [1] * 30, 0.95) == (low, high)
    mirrored = bootstrap_t([-value for value in values], [1] * 30, 0.95)
    assert mirrored == pytest.approx((-high, -low), rel=0.05)


def test_bootstrap_t_of_values_nearly_all_alike_has_no_end():
    assert bootstrap_t([1.0] * 9 + [2.0], [1] * 10, 0.95) is None


def test_a_large_cluster_weighs_by_its_samples():
    sums, counts = [float(k % 5) for k in range(30)], [1] * 29 + [3]
    low, high = bootstrap_t(sums, counts, 0.95)
    assert low < sum(sums) / sum(counts) < high
