"""95 % intervals hold the truth as often as they say: by simulation, with and without clusters.

The slow test asserts what is promised: 93–97 % with 50 and 500 clusters, at least 90 % with 10, on normal, lognormal
and 0/1 data. The fast ones see a wrong rule with fewer draws. Wilson's coverage of independent 0/1 data needs no draws.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from ropebench.comparison import paired
from ropebench.stats import interval, wilson

EACH = 4  # samples per cluster, where there are clusters


def drawn(rng, kind, clusters, each):
    """(values, clusters, true mean). Half of the variance (0/1: a third) lies between clusters where there are any."""
    between, within = rng.normal(size=(clusters, 1)), rng.normal(size=(clusters, each))
    mixed = between if each == 1 else (between + within) / np.sqrt(2)
    if kind == "normal":
        values, truth = mixed, 0.0
    elif kind.startswith("lognormal"):
        sigma = float(kind.split()[1])
        values, truth = np.exp(sigma * mixed), float(np.exp(sigma**2 / 2))
    else:
        truth = float(kind)
        chance = rng.beta(2 * truth, 2 * (1 - truth), size=(clusters, 1)) if each > 1 else truth
        values = (rng.random((clusters, each)) < chance).astype(float)
    return values.ravel().tolist(), np.repeat(np.arange(clusters), each).tolist(), truth


def coverage(kind, clusters, each, draws, seed=1):
    rng, held = np.random.default_rng(seed), 0
    for _ in range(draws):
        values, names, truth = drawn(rng, kind, clusters, each)
        found = interval(values, names)
        held += found.low - 1e-12 <= truth <= found.high + 1e-12
    return held / draws


CONTINUOUS = ("normal", "lognormal 0.5", "lognormal 1")


@pytest.mark.slow
@pytest.mark.parametrize("clusters, least, most", [(10, 0.90, 0.99), (50, 0.93, 0.97), (500, 0.93, 0.97)])
@pytest.mark.parametrize("kind, each", [(kind, each) for kind in CONTINUOUS for each in (1, EACH)]
                         + [(share, EACH) for share in ("0.5", "0.8")])  # fmt: skip
def test_coverage(kind, each, clusters, least, most):
    """4000 draws: ±0.7 points of noise at 95 %."""
    assert least <= coverage(kind, clusters, each, 4000) <= most


@pytest.mark.parametrize("kind, each, clusters, least", [
    ("normal", 1, 10, 0.92), ("lognormal 1", 1, 10, 0.88), ("lognormal 1", EACH, 50, 0.91), ("0.8", EACH, 10, 0.92),
])  # fmt: skip
def test_coverage_with_few_draws(kind, each, clusters, least):
    """t holds 84 % of the second, and a z in place of t 91 % of the last; 600 draws, ±1 point."""
    assert least <= coverage(kind, clusters, each, 600) <= 0.985


@pytest.mark.parametrize("n, least, most", [(10, 0.90, 0.985), (50, 0.93, 0.971), (500, 0.93, 0.97)])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.7, 0.8, 0.9, 0.95])
def test_coverage_of_wilson_exactly(share, n, least, most):
    ends = [wilson(right / n, n) for right in range(n + 1)]
    held = sum(binom.pmf(right, n, share) for right, (low, high) in enumerate(ends) if low <= share <= high)
    assert least <= held <= most


def falsely_decided(kind, clusters, draws):
    """How often two methods that differ by chance alone are told apart."""
    rng, wrong = np.random.default_rng(2), 0
    for _ in range(draws):
        a, names, _ = drawn(rng, kind, clusters, EACH)
        b = [value if keep else other for value, other, keep in
             zip(a, rng.permutation(a), rng.random(len(a)) < 0.5, strict=True)]  # fmt: skip
        wrong += paired(a, b, names).decided
    return wrong / draws


@pytest.mark.parametrize("kind", ["normal", "lognormal 1", "0.8"])
@pytest.mark.parametrize("clusters", [8, 20])
def test_a_difference_by_chance_is_decided_one_time_in_twenty(kind, clusters):
    assert falsely_decided(kind, clusters, 400) <= 0.075
