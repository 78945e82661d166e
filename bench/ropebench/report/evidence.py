"""Stored rows as statistics: the interval of a cell, and the paired difference of two cells.

Only sample rows that were scored count, and two cells are compared only over samples whose prompt hashes agree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ropebench.comparison import Difference, paired
from ropebench.errors import UsageError
from ropebench.stats import (
    LEVEL,
    TOO_SMALL,
    WILSON,
    Interval,
    above_chance,
    exponential,
    from_stderr,
    interval,
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


# `sample-3`, `draw-0` and bare numbers count within a seed; anything else names a text.
_NUMBERED = re.compile(r"(?:[a-z]+-)?\d+")


def cluster_of(row: Row) -> Any:
    """What a sample shares with others: its document or haystack, else itself. A numbered haystack is another one under
    another seed (`seed` is there in pooled rows); a document is the same."""
    meta = row.get("meta") or {}
    named = meta.get("cluster")
    if named is None:
        return ("sample", row.get("seed"), row["index"])
    counted = "document" not in meta and _NUMBERED.fullmatch(str(named))
    return (row.get("seed"), named) if counted and row.get("seed") is not None else named


def keyed(rows: Iterable[Row]) -> dict[tuple[str, int], Row]:
    """Rows by what was fed to the model: (prompt hash, how many with that hash came before)."""
    found: dict[tuple[str, int], Row] = {}
    seen: dict[str, int] = {}
    for row in rows:
        prompt = row["prompt_sha256"]
        found[prompt, seen.get(prompt, 0)] = row
        seen[prompt] = seen.get(prompt, 0) + 1
    return found


def in_common(cells: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """The rows of each cell on samples that all of them have, in one order."""
    known = [keyed(rows) for rows in cells]
    shared = [key for key in known[0] if all(key in other for other in known[1:])] if known else []
    return [[rows[key] for key in shared] for rows in known]


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
        found = replace(interval(values, clusters, level, bounded), value=value)
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


def paired_difference(
    a: Sequence[Row], b: Sequence[Row], metric: str = "nll", level: float = LEVEL, share: bool | None = None
) -> Difference:
    """Mean of a − b over the samples both have, by cluster (`comparison.paired`); its `n` says how many they are.

    `a`, `b` are sample rows of two cells. Samples pair by the hash of what was fed to the model; others are left out.
    Raises UsageError when none is scored in both.
    """
    one, two = scored(a, metric), scored(b, metric)
    ours, theirs = in_common([one, two])
    if not ours:
        if one and two:
            raise UsageError(
                f"the samples are not identical: none of {len(one)} and {len(two)} prompts is the same; compare cells "
                "of the same task, corpus, seed, length and tokenizer"
            )
        raise UsageError(f"nothing to compare: no sample has {metric!r} in both cells; run both on the same samples")
    left, right = ([float(row["scores"][metric]) for row in side] for side in (ours, theirs))
    return paired(left, right, [cluster_of(row) for row in ours], level, share)
