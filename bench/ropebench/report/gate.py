"""Whether a task tells anything about a model: a gated task does only where the unmodified model is above chance.

A model that cannot add inside its own window shows nothing about adding beyond it, whatever the method; its scores are
noise around chance that look like numbers. The evidence is the baseline's cells at or below the trained window. Several
lengths are several chances of being lucky, so the level of each interval is corrected for their number (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ropebench.report.evidence import shown_above_chance
from ropebench.report.style import baseline_of
from ropebench.stats import LEVEL

Record = Mapping[str, Any]
UNINFORMATIVE = "uninformative"


def informative(members: Sequence[tuple[Record, Sequence[Mapping[str, Any]]]]) -> bool | None:
    """The gate of one model, task and condition, from its (record, sample rows).

    True where the task is not gated, or the baseline's primary score at any length up to the trained one is shown to be
    above chance; None where no such cell was measured; else False, also where its samples are too few for an interval.
    Only the baseline counts: a method at factor 1 has a table of its own, or it would not have been run.
    """
    if not any(record["task"].get("gated") for record, _ in members):
        return True
    baseline = baseline_of(record["method"]["name"] for record, _ in members)
    inside = [
        (record, rows)
        for record, rows in members
        if record["method"]["name"] == baseline
        and record["outcome"]["status"] == "ok"
        and record["condition"]["length"] <= record["model"]["trained_length"]
    ]
    if not inside:
        return None
    level = 1 - (1 - LEVEL) / len(inside)
    return any(shown_above_chance(record, rows, level) for record, rows in inside)
