"""From an older layout of the records to the newest, one function per step; files stay as they were written."""

from __future__ import annotations

from collections.abc import Callable

from ropebench.record import Json


def _to_2(line: Json) -> Json:
    """Schema 1 says neither which set of samples a line belongs to, nor what a sample cost, nor which id came first."""
    line = {**line, "schema": 2, "series": None}
    if line.get("kind") == "sample":
        return {**line, "cost": None}
    if line.get("kind") == "run":
        unknown: dict[str, Json] = {"condition": {"first_id": None}, "cost": {"runs": None, "partial": None}}
        for group, keys in unknown.items():
            if isinstance(line.get(group), dict):
                line[group] = {**line[group], **keys}
    return line


# One function per step, from a schema to the next; each has a golden file in tests/data.
UPGRADES: dict[int, Callable[[Json], Json]] = {1: _to_2}
