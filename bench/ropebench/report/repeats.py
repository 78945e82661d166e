"""Cells that were measured more than once on the same samples: do the records agree?

Runs that go on with a set of samples share a `series`; a rerun begins another. What two series of one cell differ by on
the same samples is the noise of the machine, or a fault, and is said either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ALIKE = 1e-6  # a difference of a score or of nats per token that rounding leaves


def disagreements(records: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """(what disagrees, one line per cell; what agrees, one line in all), over every stored record, not only those that
    count. Records of other samples, or of one series, are no repeats."""
    groups: dict[tuple[str, str], dict[Any, Mapping[str, Any]]] = {}
    for record in records:
        if record.get("kind", "run") == "run" and record["outcome"]["status"] == "ok":
            same = (record["cell_id"], record["task"]["samples_sha256"])
            groups.setdefault(same, {})[record.get("series")] = record
    apart, alike = [], 0
    for series in groups.values():
        first, *others = series.values()
        names = [name for name, found in first["outcome"]["metrics"].items() if found["value"] is not None]
        gaps = {name: max((_gap(first, other, name) for other in others), default=0.0) for name in names}
        name = max(gaps, key=lambda one: gaps[one], default=None)
        if not others or name is None:
            continue
        if gaps[name] <= ALIKE:
            alike += 1
            continue
        values = " and ".join(f"{one['outcome']['metrics'][name]['value']:.6g}" for one in (first, *others)
                              if name in one["outcome"]["metrics"])  # fmt: skip
        about = f"{first['model']['id']} · {first['method']['label']} · {first['task']['label']}"
        apart.append(f"DISAGREE: {about} at {first['condition']['length']}, measured {len(series)} times on the same "
                     f"samples: {name} {values}")  # fmt: skip
    cells = f"{alike} cell{'s'[: alike != 1]} measured again on the same samples came out the same (within {ALIKE:g})."
    return sorted(apart), [cells] if alike else []


def _gap(one: Mapping[str, Any], other: Mapping[str, Any], name: str) -> float:
    a, b = ((record["outcome"]["metrics"].get(name) or {}).get("value") for record in (one, other))
    return 0.0 if a is None or b is None else float(abs(a - b))
