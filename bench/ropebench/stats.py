"""Intervals on plain numbers: what a mean over few samples does and does not say.

Samples that share a cluster (a haystack, a document) are not independent, so spread is taken between clusters. Below
`MIN_CLUSTERS` of them there is no interval: the kind says "n too small". `ropebench.comparison` has differences and
tests, `ropebench.report.evidence` reads the numbers out of records and sample rows.

Which interval, by simulated coverage (tests/test_coverage.py; 95 % wanted), not by taste:

    scores within 0-1     Wilson's; over clusters with the effective number of samples and t in place of z
    anything else         bootstrap-t over clusters from 10 clusters on, no end of it inside the t interval; t below

On lognormal data (sigma 1) with 10 and 50 clusters t holds the truth 84 and 91 times of 100, the BCa bootstrap 83 and
91, bootstrap-t 91 and 93, and as wide as either of bootstrap-t and t on both sides, 91 and 94.5. With 5 to 9 clusters
bootstrap-t may be a hundred times too wide, and t is taken: it holds 92 % on mildly skewed data (sigma 0.5) and 82 % on
strongly skewed ones.

Formulas are scipy's where it has them, imported inside the functions because a command that prints help must not wait.
Ours are Wilson's interval for counts that are not whole, and the resampling in `ropebench.resampling`.

    interval(values)         of a mean, as above
    above_chance(values)     whether a score is shown to be more than guessing
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

LEVEL = 0.95
MIN_CLUSTERS = 5  # below, an interval or a test would say more about its assumptions than about the data
TOO_SMALL = "n too small"
NO_SPREAD = "no spread"
WILSON, CLUSTERED_WILSON, BOOTSTRAP = "wilson", "clustered wilson", "bootstrap-t"
FEW = 10  # clusters: below, a bootstrap-t interval says little


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval. `kind` is bootstrap-t, t, wilson, clustered wilson, exp of one, or why there is
    none (`low` and `high` are None then)."""

    value: float | None
    low: float | None
    high: float | None
    kind: str
    n: int
    clusters: int

    @property
    def known(self) -> bool:
        return self.low is not None and self.high is not None


def binary(values: Sequence[float]) -> bool:
    """Whether every value is 0 or 1."""
    return all(value in (0, 1) for value in values)


def grouped(values: Sequence[float], clusters: Sequence[Any] | None) -> tuple[list[float], list[int]]:
    """Sum and number of values per cluster, in order of first appearance; without clusters every value is its own."""
    if clusters is None:
        return list(values), [1] * len(values)
    members: dict[str, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        members.setdefault(repr(cluster), []).append(value)
    return [math.fsum(group) for group in members.values()], [len(group) for group in members.values()]


def stderr_of(sums: Sequence[float], counts: Sequence[int]) -> float:
    """Standard error over clusters of the mean over samples, sums ÷ counts (linearised; for clusters of one size that
    of their means)."""
    k, n = len(sums), sum(counts)
    value = math.fsum(sums) / n
    return math.sqrt(math.fsum((s - c * value) ** 2 for s, c in zip(sums, counts, strict=True)) * k / (k - 1)) / n


def interval(
    values: Sequence[float],
    clusters: Sequence[Any] | None = None,
    level: float = LEVEL,
    share: bool | None = None,
) -> Interval:
    """The mean of `values` with a confidence interval. `share`: they lie within 0–1 (None: where all are 0 or 1).

    Shares get Wilson's; where they share clusters, or are fractions, with the effective number of samples: as many
    independent 0/1 ones as would give the spread seen between clusters (Kish's design effect; Korn and Graubard's t).
    """
    n = len(values)
    if n == 0:
        return Interval(None, None, None, TOO_SMALL, 0, 0)
    sums, counts = grouped(values, clusters)
    value, k, yes_no = math.fsum(values) / n, len(sums), share is not False and binary(values)
    if k < MIN_CLUSTERS:
        return Interval(value, None, None, TOO_SMALL, n, k)
    if yes_no and k == n:
        return Interval(value, *wilson(value, n, level), WILSON, n, n)
    stderr = stderr_of(sums, counts)
    flat = stderr <= 1e-12 * max(1.0, abs(value))
    if yes_no or (share and not flat):
        # Clusters that do not differ at all count as one sample each: nothing was seen of how they could. 0/1 samples
        # cannot differ less than independent ones, fractions can.
        effective = float(k) if flat else value * (1 - value) / stderr**2
        ends = wilson(value, min(effective, float(n)) if yes_no else effective, level, k - 1)
        return Interval(value, *ends, CLUSTERED_WILSON, n, k)
    if k >= FEW and not flat:
        from ropebench.resampling import bootstrap_t

        known = from_stderr(value, stderr, n, k, level)
        return widened(known, bootstrap_t(sums, counts, level))
    return from_stderr(value, stderr, n, k, level)


def widened(found: Interval, ends: tuple[float, float] | None) -> Interval:
    """A t interval made as wide as the bootstrap-t one on either side; as it is where that one has no end."""
    if ends is None or found.low is None or found.high is None:
        return found
    return replace(found, low=min(found.low, ends[0]), high=max(found.high, ends[1]), kind=BOOTSTRAP)


def wilson(value: float, n: float, level: float = LEVEL, freedom: int | None = None) -> tuple[float, float]:
    """Wilson's score interval of a share of 1 among `n` samples; `freedom`: with t's quantile in place of the normal's,
    where n was itself estimated. scipy's wants whole counts; these agree on them."""
    from scipy.stats import norm, t

    tail = (1 + level) / 2
    z2 = float(norm.ppf(tail) if freedom is None else t.ppf(tail, freedom)) ** 2
    centre, half = value + z2 / (2 * n), math.sqrt(z2 * (value * (1 - value) / n + z2 / (4 * n * n)))
    # What rounding leaves at the ends would show as −0 %.
    return max(0.0, (centre - half) / (1 + z2 / n)), min(1.0, (centre + half) / (1 + z2 / n))


def from_stderr(value: float, stderr: float | None, n: int, clusters: int, level: float = LEVEL) -> Interval:
    """t interval from a mean and its standard error over `clusters` independent values."""
    if stderr is None or clusters < MIN_CLUSTERS:
        return Interval(value, None, None, TOO_SMALL, n, clusters)
    # Identical values say nothing about the next one; rounding in the mean of equal floats leaves about 1e-16.
    if stderr <= 1e-12 * max(1.0, abs(value)):
        return Interval(value, None, None, NO_SPREAD, n, clusters)
    from scipy.stats import t

    low, high = t.interval(level, clusters - 1, loc=value, scale=stderr)
    return Interval(value, float(low), float(high), "t", n, clusters)


def exponential(found: Interval) -> Interval:
    """exp of an interval of mean NLL (nats per token): the interval of a perplexity."""
    try:
        value, low, high = (None if end is None else math.exp(end) for end in (found.value, found.low, found.high))
    except OverflowError:  # infinity cannot be written to JSON, and says nothing more
        return replace(found, value=None, low=None, high=None, kind="too wide")
    kind = f"exp {found.kind}" if found.known else found.kind
    return Interval(value, low, high, kind, found.n, found.clusters)


def above_chance(
    values: Sequence[float], chance: float, clusters: Sequence[Any] | None = None, level: float = LEVEL
) -> bool:
    """Whether the lower end of the mean's interval lies above `chance`.

    For independent 0/1 values the exact (Clopper-Pearson) interval is taken: Wilson's is too short near 0, where the
    chance levels are. Without an interval nothing is shown.
    """
    found = interval(values, clusters, level)
    if found.kind != WILSON:
        return found.low is not None and found.low > chance
    from scipy.stats import binomtest

    exact = binomtest(round(sum(values)), found.n).proportion_ci(confidence_level=level, method="exact")
    return float(exact.low) > chance
