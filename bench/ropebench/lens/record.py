"""Lens records: what a look at a model or a corpus found, one line of JSON in results, of kind `lens`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ropebench.record import SCHEMA, Json, digest, now, provenance
from ropebench.stats import Interval


def lens_record(
    what: str, identity: Json, found: Json, run_id: str, argv: Sequence[str], device: str, model: Json | None = None
) -> Json:
    """A line for `store.Writer.record`. `what`: spectrum, dependence …; `identity`: what the numbers depend on, which
    makes the cell_id; `found`: the numbers; `model`: the group `model` of a run's record, as far as it applies."""
    cell_id, created = digest({"lens": what, **identity}), now()
    return {
        "schema": SCHEMA,
        "kind": "lens",
        "record_id": digest([cell_id, run_id, created]),
        "cell_id": cell_id,
        "run_id": run_id,
        "created": created,
        "model": model,
        "lens": {"what": what, "identity": identity, **found},
        "provenance": provenance(tuple(argv), device),
    }


def newest(records: Iterable[Json], what: str | None = None) -> list[Json]:
    """Of lens records in the order of `store.read` the last one of each cell, in order of first appearance."""
    chosen: dict[str, Json] = {}
    for record in records:
        if record.get("kind") == "lens" and what in (None, record["lens"]["what"]):
            chosen[record["cell_id"]] = record
    return list(chosen.values())


def model_of(loaded: Any) -> Json:
    """The group `model` of a lens record about a loaded model."""
    card = loaded.card
    about = {"id": card.id, "revision": card.revision, "dtype": loaded.dtype, "attention": loaded.attention}
    geometry = card.geometry
    return about | {
        "rotary_dim": geometry.rotary_dim,
        "theta": geometry.theta,
        "trained_length": geometry.trained_length,
        "sliding_window": card.sliding_window,
    }


def ends(found: Interval) -> Json:
    """An interval as plain JSON."""
    return asdict(found)
