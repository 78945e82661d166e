"""Intervals and paired tests on plain numbers: what a mean over few samples does and does not say.

Samples that share a cluster (a haystack, a document) are not independent, so spread is taken between clusters. Below
`MIN_CLUSTERS` of them there is neither an interval nor a test: the kind says "n too small". `ropebench.report.evidence`
reads the numbers out of records and sample rows.

Formulas are scipy's, imported inside the functions because a command that prints help must not wait for it. Ours are
the three that scipy lacks: Wilson's interval for counts that are not whole, Bonett and Price's for paired proportions,
and Holm's correction.

    interval(values)         t over cluster means, or Wilson's for 0/1 scores
    paired(a, b)             a − b on the same samples, with interval and test
    holm(p_values)           p-values of one table, corrected for their number
    above_chance(values)     whether a score is shown to be more than guessing
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

LEVEL = 0.95
MIN_CLUSTERS = 5  # below, an interval or a test would say more about its assumptions than about the data
TOO_SMALL = "n too small"
NO_SPREAD = "no spread"
WILSON, CLUSTERED_WILSON = "wilson", "clustered wilson"

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval. `kind` is t, wilson, clustered wilson, exp t, or why there is none (`low` and
    `high` are None then)."""

    value: float | None
    low: float | None
    high: float | None
    kind: str
    n: int
    clusters: int

    @property
    def known(self) -> bool:
        return self.low is not None and self.high is not None


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences with its 95 % interval.

    `p` is two-sided and uncorrected, `adjusted` the same after Holm's correction over the table it stands in (None
    where none was made). `kind` is t, sign test (exact; McNemar's where every sample is its own cluster), or why there
    is no test. `agreeing` counts the clusters whose own difference has the sign of the mean.
    """

    value: float
    low: float | None
    high: float | None
    p: float | None
    kind: str
    n: int
    clusters: int
    agreeing: int = 0
    adjusted: float | None = None

    @property
    def decided(self) -> bool:
        """Whether the difference is told from zero at the 5 % level, corrected where it stands among others."""
        p = self.p if self.adjusted is None else self.adjusted
        return p is not None and p < 1 - LEVEL

    @property
    def testable(self) -> bool:
        return self.p is not None


def binary(values: Sequence[float]) -> bool:
    """Whether every value is 0 or 1."""
    return all(value in (0, 1) for value in values)


def cluster_means(values: Sequence[float], clusters: Sequence[Any] | None = None) -> list[float]:
    """Mean per cluster, in order of first appearance; without clusters every value is its own."""
    if clusters is None:
        return list(values)
    members: dict[str, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        members.setdefault(repr(cluster), []).append(value)
    return [sum(group) / len(group) for group in members.values()]


def interval(values: Sequence[float], clusters: Sequence[Any] | None = None, level: float = LEVEL) -> Interval:
    """The mean of `values` with a confidence interval: Wilson's for 0/1 values, else t over cluster means.

    Where 0/1 values share clusters, Wilson's takes the effective number of samples: as many independent ones as would
    give the spread seen between clusters, at most n (Kish's design effect).
    """
    n, means = len(values), cluster_means(values, clusters)
    if n == 0:
        return Interval(None, None, None, TOO_SMALL, 0, 0)
    if not binary(values):
        return around(sum(means) / len(means), means, n, level)
    value = sum(values) / n
    if len(means) < MIN_CLUSTERS:
        return Interval(value, None, None, TOO_SMALL, n, len(means))
    if len(means) == n:
        return Interval(value, *wilson(value, n, level), WILSON, n, n)
    return Interval(value, *wilson(value, _effective(value, means, n), level), CLUSTERED_WILSON, n, len(means))


def _effective(value: float, means: Sequence[float], n: int) -> float:
    """Independent 0/1 samples with the variance of these cluster means. Clusters that do not differ at all count as one
    sample each, since nothing was seen of how they could."""
    from scipy.stats import sem

    variance = float(sem(means)) ** 2
    return float(len(means)) if variance < 1e-12 else min(value * (1 - value) / variance, float(n))


def wilson(value: float, n: float, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval of a share of 1 among `n` samples. scipy's wants whole counts; these agree on them."""
    from scipy.stats import norm

    z2 = float(norm.ppf((1 + level) / 2)) ** 2
    centre, half = value + z2 / (2 * n), math.sqrt(z2 * (value * (1 - value) / n + z2 / (4 * n * n)))
    # What rounding leaves at the ends would show as −0 %.
    return max(0.0, (centre - half) / (1 + z2 / n)), min(1.0, (centre + half) / (1 + z2 / n))


def around(value: float, means: Sequence[float], n: int, level: float = LEVEL) -> Interval:
    """t interval centred on `value` with the standard error of the cluster means."""
    if len(means) < MIN_CLUSTERS:
        return Interval(value, None, None, TOO_SMALL, n, len(means))
    from scipy.stats import sem

    return from_stderr(value, float(sem(means)), n, len(means), level)


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


def paired(
    a: Sequence[float], b: Sequence[float], clusters: Sequence[Any] | None = None, level: float = LEVEL
) -> Difference:
    """Mean of a − b over the same samples, by cluster.

    0/1 scores of independent samples: McNemar's exact test, with the interval of Bonett and Price for paired
    proportions. Anything else: t test and interval over cluster means; 0/1 scores whose clusters all differ alike get
    the exact sign test over clusters instead. Raises ValueError for no values.
    """
    if not a:
        raise ValueError("no paired values")
    n, raw = len(a), [x - y for x, y in zip(a, b, strict=True)]
    means = cluster_means(raw, clusters)
    yes_no = binary([*a, *b])
    value = sum(raw) / n if yes_no else sum(means) / len(means)
    agreeing = sum(mean * value > 0 for mean in means)
    found = around(value, means, n, level)
    if found.kind == TOO_SMALL:
        return Difference(value, None, None, None, TOO_SMALL, n, len(means), agreeing)
    if yes_no and (len(means) == n or found.kind == NO_SPREAD):
        low, high = paired_proportions(raw, level) if len(means) == n else (None, None)
        return Difference(value, low, high, sign_test(means), "sign test", n, len(means), agreeing)
    if not found.known:
        return Difference(value, None, None, None, found.kind, n, len(means), agreeing)
    from scipy.stats import ttest_1samp

    p = float(ttest_1samp(means, 0.0).pvalue)
    return Difference(value, found.low, found.high, p, "t", n, len(means), agreeing)


def sign_test(differences: Sequence[float]) -> float:
    """Exact two-sided p-value for as many positive as negative differences; those of 0 do not count."""
    from scipy.stats import binomtest

    above, below = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    return float(binomtest(above, above + below).pvalue) if above + below else 1.0


def paired_proportions(differences: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Interval for the difference of two proportions on the same samples, from the differences −1, 0 and 1 (Bonett and
    Price 2012, their adjusted Wald interval): not empty where no sample differs, and within −1 … 1."""
    from scipy.stats import norm

    n = len(differences) + 2
    up, down = (1 + sum(d == side for d in differences) for side in (1, -1))
    z, centre = float(norm.ppf((1 + level) / 2)), (up - down) / n
    half = z * math.sqrt(((up + down) / n - centre**2) / n)
    return max(-1.0, centre - half), min(1.0, centre + half)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) corrected p-values, in the order given: each below 5 % is decided, whatever the others are."""
    adjusted, most = [0.0] * len(p_values), 0.0
    for done, place in enumerate(sorted(range(len(p_values)), key=lambda k: p_values[k])):
        most = max(most, min(1.0, (len(p_values) - done) * p_values[place]))
        adjusted[place] = most
    return adjusted


def corrected(differences: Mapping[Key, Difference]) -> dict[Key, Difference]:
    """The differences of one table with Holm's correction over those that were tested."""
    tested = [key for key, found in differences.items() if found.p is not None]
    adjusted = dict(zip(tested, holm([differences[key].p or 0.0 for key in tested]), strict=True))
    return {key: replace(found, adjusted=adjusted.get(key)) for key, found in differences.items()}


def smallest_decisive_n(tests: int = 1, level: float = LEVEL) -> int:
    """Fewest 0/1 pairs with which the exact test could find any difference among `tests` of them (Holm's first step):
    all must go one way, and there must be enough of them to be tested at all."""
    n = MIN_CLUSTERS
    while sign_test([1.0] * n) >= (1 - level) / max(tests, 1):
        n += 1
    return n


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
