"""lm-eval's metrics in ropebench's terms: one number per sample, whose mean over samples is the metric.

That is what lm-eval's `mean` does, its Brier score, and any aggregation of a task's own that turns out to be a mean;
`perplexity` is exp of a mean. Metrics that look at all samples at once (F1, BLEU, weighted perplexity) have no value
for one sample and are left out; a task with nothing else is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from lm_eval.api import metrics as lm_eval_metrics
from lm_eval.api.registry import get_aggregation, get_metric_aggregation, is_higher_better

from ropebench.lm_harness.imported import SHARES
from ropebench.task import Metric

_CHANCE = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info")


@dataclass(frozen=True)
class Measure:
    """One of lm-eval's results, by `key` and `filter`, as a metric; `value` makes a sample's number of it."""

    key: str
    filter: str
    metric: Metric
    value: Callable[[Any], float]
    shown: Metric | None = None  # the derived metric that is shown in its place


def measures(
    aggregation: Mapping[str, Any], higher: Mapping[str, Any], filters: Sequence[str], chance: float | None, sized: bool
) -> tuple[list[Measure], list[str]]:
    """The measures of a task, and the names of the metrics that are left out.

    `chance`: what guessing scores, where every question has the same number of choices. `sized`: metrics named by a
    length (as in lm-eval's RULER) are one, `score`.
    """
    found, left = [], []
    by_length = sized and bool(aggregation) and all(str(name).isdigit() for name in aggregation)
    named = {"": next(iter(aggregation.values()))} if by_length else dict(aggregation)
    for key, how in named.items():
        up = True if by_length else higher.get(key)
        value = _per_sample(how)
        if value is None or up is None:
            left.append(str(key))
            continue
        for name in filters:
            label = ("score" if by_length else str(key)) + (f",{name}" if len(filters) > 1 else "")
            found.append(_measure(str(key), name, label, how, value, up, chance))
    return found, left


def _measure(
    key: str, filter_name: str, label: str, how: Any, value: Callable[[Any], float], up: bool, chance: float | None
) -> Measure:
    direction: Any = "higher" if up else "lower"
    if how is lm_eval_metrics.perplexity:
        nll = label.replace("perplexity", "nll") if "perplexity" in label else f"{label}_nll"
        shown = Metric(label, "lower", 1.0, None, None, "per answer", derived=("exp", nll))
        return Measure(key, filter_name, Metric(nll, "lower", 0.0, None, None, "nats per answer"), value, shown)
    share = key in SHARES or label.split(",")[0] == "score"
    low, high = (0.0, 1.0) if share else (None, None)
    return Measure(key, filter_name, Metric(label, direction, low, high, chance if key in _CHANCE else None), value)


def _per_sample(how: Any) -> Callable[[Any], float] | None:
    """What one sample contributes to a mean; None where the aggregation is none."""
    if how is lm_eval_metrics.perplexity:
        return lambda value: -float(value)
    if how is lm_eval_metrics.brier_score:
        return lambda value: float(how([value]))
    if how in (lm_eval_metrics.mean, lm_eval_metrics.nanmean) or _is_mean(how):
        return float
    return None


def _is_mean(how: Any) -> bool:
    """Whether a task's own aggregation is the mean, by what it does to numbers."""
    try:
        return all(
            math.isclose(float(how(list(values))), sum(values) / len(values), rel_tol=1e-9)
            for values in ((0.25, 1.0, 0.5), (1.0, 0.0), (0.75,), (3.0, 0.5, 2.0, 0.125), (0.0, 0.0, 1.0))
        )
    except Exception:  # made for something else than numbers
        return False


def declared(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Aggregation and direction by metric, out of a YAML task's metric_list."""
    aggregation, higher = {}, {}
    for entry in config.get("metric_list") or ():
        name = entry["metric"] if isinstance(entry["metric"], str) else entry["metric"].__name__
        how = entry.get("aggregation")
        aggregation[name] = get_aggregation(how) if isinstance(how, str) else how or get_metric_aggregation(name)
        higher[name] = entry["higher_is_better"] if "higher_is_better" in entry else is_higher_better(name)
    return aggregation, higher


def value_of(measure: Measure, results: Mapping[str, Any], size: Any) -> float | None:
    """A sample's number, or None where lm-eval gives none (a missing key, NaN under nanmean)."""
    found = results.get(measure.key or str(size))
    if found is None:
        return None
    value = measure.value(found)
    return None if np.isnan(value) else value
