"""Stored rows as statistics: the interval of a cell, and the paired difference of two cells.

Only sample rows that were scored count, and two cells are compared only over samples whose prompt hashes agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ropebench.errors import UsageError
from ropebench.stats import (
    LEVEL,
    TOO_SMALL,
    WILSON,
    Difference,
    Interval,
    above_chance,
    around,
    binary,
    cluster_means,
    exponential,
    from_stderr,
    interval,
    paired,
    wilson,
)

Row = Mapping[str, Any]


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


def cell_interval(record: Row, rows: Sequence[Row], metric: str | None = None, level: float = LEVEL) -> Interval:
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
    bounded, chosen = (low, high) == (0, 1), scored(rows, source)
    if chosen:
        values, clusters = [float(row["scores"][source]) for row in chosen], [cluster_of(row) for row in chosen]
        if bounded and binary(values):
            found = replace(interval(values, clusters, level), value=value)
        else:
            found = around(value, cluster_means(values, clusters), len(values), level)
    else:
        found = _from_summary(value, recorded.get("stderr"), int(recorded["n"]), bounded, level)
    if found.known and not exponentiated:
        found = replace(found, low=_clip(found.low, low, high), high=_clip(found.high, low, high))
    return exponential(found) if exponentiated else found


def _from_summary(value: float, stderr: float | None, n: int, bounded: bool, level: float) -> Interval:
    """An interval when only mean, standard error and n are known.

    Values within 0–1 are all 0 or 1 exactly when their variance is p(1−p)·n/(n−1), so 0/1 scores are recognised.
    """
    plain = from_stderr(value, stderr, n, n, level)
    if plain.kind == TOO_SMALL or not bounded:
        return plain
    wanted = value * (1 - value) / (n - 1)
    if abs((stderr or 0.0) ** 2 - wanted) < 1e-9 and abs(value * n - round(value * n)) < 1e-6:
        return Interval(value, *wilson(value, n, level), WILSON, n, n)
    return plain


def _clip(value: float | None, low: float | None, high: float | None) -> float:
    assert value is not None  # callers clip known intervals only
    value = value if low is None else max(value, low)
    return value if high is None else min(value, high)


def shown_above_chance(record: Row, rows: Sequence[Row], level: float = LEVEL) -> bool:
    """Whether a cell's primary score is above what guessing gives, by its interval; False where there is none."""
    name = record["outcome"]["primary"]
    chance = metric_spec(record, name).get("chance") or 0.0
    chosen = scored(rows, name)
    if chosen:
        values, clusters = [float(row["scores"][name]) for row in chosen], [cluster_of(row) for row in chosen]
        return above_chance(values, chance, clusters, level)
    found = cell_interval(record, (), name, level)
    if found.kind == WILSON and found.value is not None:
        ones = round(found.value * found.n)
        return above_chance([1.0] * ones + [0.0] * (found.n - ones), chance, None, level)
    return found.low is not None and found.low > chance


def paired_difference(a: Sequence[Row], b: Sequence[Row], metric: str = "nll", level: float = LEVEL) -> Difference:
    """Mean of a − b over the samples both have, by cluster (`stats.paired`).

    `a`, `b` are sample rows of two cells that differ in the method (or the model). Samples pair by index and must
    have the same prompt hash. Raises UsageError when no sample is scored in both, or when a pair's prompts differ.
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
    ours, theirs = ([float(row["scores"][metric]) for row in side] for side in zip(*pairs, strict=True))
    return paired(ours, theirs, [cluster_of(one) for one, _ in pairs], level)
