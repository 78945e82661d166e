"""Intervals and paired tests: what a mean over few samples does and does not say.

Samples that share a cluster (a haystack, a document) are not independent, so means are taken over clusters first.
Formulas are scipy's; scipy is imported inside the functions because a command that prints help must not wait for it.

    interval(values)              t interval over cluster means, or Wilson's for 0/1 scores
    cell_interval(record, rows)   the interval of a stored cell, centred on its recorded value
    paired_difference(a, b, m)    a − b on identical samples, with interval or exact test
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ropebench.errors import UsageError

LEVEL = 0.95
TOO_SMALL = "n too small"
NO_SPREAD = "no spread"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval. `kind` is t, wilson, exp t, or why there is none (`low` = `high` = None)."""

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
    """Mean of paired differences. `p` is two-sided, uncorrected; `kind` is t, sign test, or why there is no test.

    The sign test (over clusters; exact McNemar where every sample is its own cluster) has no interval: `low` and
    `high` are None.
    """

    value: float
    low: float | None
    high: float | None
    p: float | None
    kind: str
    n: int
    clusters: int

    @property
    def decided(self) -> bool:
        """Whether the difference is told from zero at the 5 % level (for t: the interval excludes 0)."""
        return self.p is not None and self.p < 1 - LEVEL


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


def interval(
    values: Sequence[float],
    kind: Literal["auto", "t", "wilson"] = "auto",
    clusters: Sequence[Any] | None = None,
    level: float = LEVEL,
) -> Interval:
    """The mean of `values` with a confidence interval.

    `kind`: "wilson" for 0/1 values (treats samples as independent), "t" over cluster means for anything else, "auto"
    picks by the values. No interval (kind "n too small") below two clusters for t and below one sample for Wilson.
    Raises UsageError when "wilson" is asked for values that are not 0/1.
    """
    n = len(values)
    means = cluster_means(values, clusters)
    if n == 0:
        return Interval(None, None, None, TOO_SMALL, 0, 0)
    if kind == "wilson" and not binary(values):
        raise UsageError("a Wilson interval is for 0/1 values; use kind='t' for scores in between")
    if kind == "wilson" or (kind == "auto" and binary(values)):
        value = sum(values) / n
        return Interval(value, *wilson(round(sum(values)), n, level), "wilson", n, len(means))
    value = sum(means) / len(means)
    return around(value, means, n, level)


def wilson(successes: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval of `successes` out of `n`."""
    from scipy.stats import binomtest

    found = binomtest(successes, n).proportion_ci(confidence_level=level, method="wilson")
    return float(found.low), float(found.high)


def around(value: float, means: Sequence[float], n: int, level: float = LEVEL) -> Interval:
    """t interval centred on `value` with the standard error of the cluster means."""
    if len(means) < 2:
        return Interval(value, None, None, TOO_SMALL, n, len(means))
    from scipy.stats import sem

    return from_stderr(value, float(sem(means)), n, len(means), level)


def from_stderr(value: float, stderr: float | None, n: int, clusters: int, level: float = LEVEL) -> Interval:
    """t interval from a mean and its standard error over `clusters` independent values."""
    if stderr is None or clusters < 2:
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


def sample_metric(record: Row, metric: str) -> tuple[str, bool]:
    """The metric that sample rows carry for a record's metric, and whether the record's is exp of its mean."""
    spec = metric_spec(record, metric)
    derived = spec.get("derived") or (("exp", "nll") if metric == "perplexity" else None)
    if derived and derived[0] == "exp":
        return str(derived[1]), True
    return metric, False


def metric_spec(record: Row, metric: str) -> Row:
    """The task's statement about one metric: {name, direction, low, high, chance}; empty when it has none."""
    for spec in record["task"]["metrics"]:
        if spec["name"] == metric:
            return dict(spec)
    return {}


def scored(rows: Sequence[Row], metric: str) -> list[Row]:
    """Sample rows that carry a value of the metric (skipped samples do not)."""
    return [row for row in rows if not row.get("skip") and row["scores"].get(metric) is not None]


def cluster_of(row: Row) -> Any:
    """What a sample shares with others: its document or haystack, else itself."""
    named = row.get("meta", {}).get("cluster")
    return ("sample", row["index"]) if named is None else named


def cell_interval(record: Row, rows: Sequence[Row], metric: str | None = None) -> Interval:
    """The interval of one stored cell, centred on the value in its record.

    With sample rows: over clusters. Without: from the record's standard error, every sample counted as independent.
    A metric that is exp of a mean gets exp of that mean's interval. Bounded metrics are clipped to their range.
    """
    name = metric or record["outcome"]["primary"]
    metrics = record["outcome"]["metrics"] or {}
    source, exponentiated = sample_metric(record, name)
    recorded = metrics.get(source) or metrics.get(name) or {}
    value = recorded.get("value")
    if exponentiated and source not in metrics and value is not None:
        value = math.log(value)
    if value is None:
        return Interval(None, None, None, TOO_SMALL, int(recorded.get("n") or 0), 0)
    spec = metric_spec(record, source)
    low, high = spec.get("low"), spec.get("high")
    bounded = (low, high) == (0, 1)
    chosen = scored(rows, source)
    if chosen:
        values = [float(row["scores"][source]) for row in chosen]
        means = cluster_means(values, [cluster_of(row) for row in chosen])
        if bounded and binary(values):
            found = Interval(value, *wilson(round(sum(values)), len(values)), "wilson", len(values), len(means))
        else:
            found = around(value, means, len(values))
    else:
        found = _from_summary(value, recorded.get("stderr"), int(recorded["n"]), bounded)
    if found.known and not exponentiated:
        found = replace(found, low=_clip(found.low, low, high), high=_clip(found.high, low, high))
    return exponential(found) if exponentiated else found


def _from_summary(value: float, stderr: float | None, n: int, bounded: bool) -> Interval:
    """An interval when only mean, standard error and n are known.

    Values within 0–1 are all 0 or 1 exactly when their variance is p(1−p)·n/(n−1), so 0/1 scores are recognised.
    """
    if bounded and n > 0:
        wanted = value * (1 - value) / (n - 1) if n > 1 else 0.0
        if abs((stderr or 0.0) ** 2 - wanted) < 1e-9 and abs(value * n - round(value * n)) < 1e-6:
            return Interval(value, *wilson(round(value * n), n), "wilson", n, n)
    return from_stderr(value, stderr, n, n)


def _clip(value: float | None, low: float | None, high: float | None) -> float:
    assert value is not None  # callers clip known intervals only
    value = value if low is None else max(value, low)
    return value if high is None else min(value, high)


def paired_difference(a: Sequence[Row], b: Sequence[Row], metric: str = "nll", level: float = LEVEL) -> Difference:
    """Mean of a − b over the samples both have, by cluster.

    `a`, `b` are sample rows of two cells that differ in the method (or the model). Samples pair by index and must
    have the same prompt hash. 0/1 scores get an exact sign test over clusters, anything else a t interval.

    Raises UsageError when no sample is scored in both, or when a pair's prompts differ.
    """
    others = {row["index"]: row for row in scored(b, metric)}
    pairs = [(row, others[row["index"]]) for row in scored(a, metric) if row["index"] in others]
    if not pairs:
        raise UsageError(f"nothing to compare: no sample has {metric!r} in both cells; run both on the same samples")
    different = [one["index"] for one, other in pairs if one["prompt_sha256"] != other["prompt_sha256"]]
    if different:
        raise UsageError(
            f"the samples are not identical: {len(different)} of {len(pairs)} prompts differ (first: sample "
            f"{different[0]}); compare cells of the same task, corpus, seed and length"
        )
    raw = [(float(one["scores"][metric]), float(other["scores"][metric])) for one, other in pairs]
    means = cluster_means([x - y for x, y in raw], [cluster_of(one) for one, _ in pairs])
    if binary([score for pair in raw for score in pair]):
        return _sign_test(means, len(pairs), sum(x - y for x, y in raw) / len(pairs))
    found = around(sum(means) / len(means), means, len(pairs), level)
    if not found.known:
        return Difference(found.value or 0.0, None, None, None, found.kind, found.n, found.clusters)
    from scipy.stats import ttest_1samp

    p = float(ttest_1samp(means, 0.0).pvalue)
    return Difference(found.value or 0.0, found.low, found.high, p, "t", found.n, found.clusters)


def _sign_test(differences: Sequence[float], n: int, value: float) -> Difference:
    from scipy.stats import binomtest

    above = sum(d > 0 for d in differences)
    below = sum(d < 0 for d in differences)
    p = float(binomtest(above, above + below).pvalue) if above + below else 1.0
    return Difference(value, None, None, p, "sign test", n, len(differences))


def smallest_decisive_n(level: float = LEVEL) -> int:
    """Fewest 0/1 pairs with which the exact test could find any difference: all of them must go one way."""
    from scipy.stats import binomtest

    n = 1
    while binomtest(n, n).pvalue >= 1 - level:
        n += 1
    return n
