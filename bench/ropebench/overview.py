"""What methods do to a model's rotary pairs (`inspect`), what a run would cost (`plan`).

Plain rows for the command line to print or to dump as JSON; no weights are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ropebench.cell import Cell
from ropebench.cost import BYTES, Rates, estimate, key_value_bytes, shape_of, total, weight_bytes
from ropebench.geometry import RopeGeometry
from ropebench.memory import resident_bytes
from ropebench.method import radix
from ropebench.plan import Plan
from ropebench.record import Json
from ropebench.run import Stored
from ropebench.tokens import Feed, feed_of


def tables_of(plan: Plan) -> list[Json]:
    """One row per method of a plan at its longest length: per pair its wavelength (tokens per turn), slowdown and radix
    λ; the attention factor; the pairs that never turn fully within the trained window, before and after; and how far
    Σ cos(mθ) stays positive."""
    rows = {}
    for cell in sorted(plan.cells, key=lambda cell: -cell.length):
        if cell.method_label in rows:
            continue
        table = cell.method.frequencies(cell.geometry, cell.factor or 1.0, cell.length)
        trained = cell.geometry.trained_length
        with np.errstate(divide="ignore"):
            wavelength = 2 * np.pi / table.inv_freq
        rows[cell.method_label] = {
            "label": cell.method_label,
            "name": cell.method.name,
            "factor": cell.factor,
            "length": cell.length,
            "trained_length": trained,
            "attention_factor": table.attention_factor,
            "wavelength": [float(v) for v in wavelength],
            "slowdown": [float(v) for v in cell.geometry.inv_freq() / table.inv_freq],
            "lambda": [float(v) for v in radix(cell.geometry, table)],
            "never_turn_within_window": [int(i) for i in np.flatnonzero(wavelength > trained)],
        }
    return [rows[label] for label in dict.fromkeys(cell.method_label for cell in plan.cells)]


def pair_rows(rows: Sequence[Mapping[str, Any]], geometry: RopeGeometry) -> tuple[list[str], list[list[str]]]:
    """`tables_of` as a table by pair: trained wavelength, turns within the window, and per method slowdown and λ."""
    header = ["pair", "wavelength", "turns"]
    header += [f"{row['label']} {part}" for row in rows if row["name"] != "none" for part in ("slowdown", "λ")]
    body = []
    wavelength, turns = 2 * np.pi / geometry.inv_freq(), geometry.rotations()
    for pair in range(geometry.pairs):
        line = [str(pair), f"{wavelength[pair]:,.1f}", f"{turns[pair]:.3g}{'' if turns[pair] >= 1 else ' <1'}"]
        for row in rows:
            if row["name"] != "none":
                line += [f"{row['slowdown'][pair]:.4g}", f"{row['lambda'][pair]:.4g}"]
        body.append(line)
    return header, body


def costs(
    plan: Plan, stored: Stored, tokenizer: Any, rates: Rates | None = None, held: int | None = None
) -> tuple[list[Json], list[str]]:
    """One row per cell: what is stored and what is left, in samples and tokens (`feed_of` says how they are counted),
    and what that is expected to cost; and notes on stored cells that no longer apply because the factor or the model's
    revision has changed."""
    feeds = feed_of(plan.cells, stored, tokenizer)
    expected = estimates(plan, feeds, rates, held)
    rows = []
    for cell in plan.cells:
        done = stored.done(cell)
        have = cell.n if done else len([i for i in stored.rows.get(cell.id, {}) if i < cell.n])
        rows.append(
            {
                "cell_id": cell.id,
                "method": cell.method_label,
                "task": cell.task_label,
                "length": cell.length,
                "n": cell.n,
                "stored": have,
                "tokens_left": feeds[cell.id].tokens,
                "tokens_exact": feeds[cell.id].exact,
                "estimate": expected[cell.id],
                "state": "stored" if done else "to run" if not have else f"to go on after {have}",
            }
        )
    return rows, _outdated(plan, stored)


def estimates(
    plan: Plan, feeds: Mapping[str, Feed], rates: Rates | None, held: int | None = None
) -> dict[str, Json | None]:
    """What each cell is expected to cost, by its id. `held`: bytes that are held with the weights loaded; without it
    they are taken to be the weights and, on a CPU, this process as it is."""
    found: dict[str, Json | None] = {}
    for cell in plan.cells:
        if cell.id not in feeds:
            continue
        shape = shape_of(cell.card.config, cell.trust_remote_code)
        if shape is not None and held is None:
            own = (resident_bytes(cell.device) or 0) if cell.device.startswith("cpu") else 0
            held = weight_bytes(shape, cell) + own
        found[cell.id] = estimate(cell, feeds[cell.id].work, rates, held or 0, _rows(plan, cell))
    return found


def _rows(plan: Plan, cell: Cell) -> int:
    """Samples of a cell that run at once."""
    asked = plan.sweep.batch_size
    shape = shape_of(cell.card.config, cell.trust_remote_code)
    if asked == 1 or cell.length_dependent or cell.attention != "sdpa" or shape is None:
        return 1
    from ropebench.engine import batch_of

    return batch_of(key_value_bytes(shape, BYTES[cell.dtype]) * cell.length) if asked == "auto" else int(asked)


def totals(rows: Sequence[Mapping[str, Any]]) -> Json:
    """Sums over rows of `costs`: of all, per task and per method."""

    def of(chosen: Sequence[Mapping[str, Any]]) -> Json:
        sums = total([row["estimate"] for row in chosen])
        return {"cells": len(chosen), "tokens_left": sum(row["tokens_left"] for row in chosen), **sums}

    found = {"all": of(rows)}
    for key in ("task", "method"):
        in_order = dict.fromkeys(row[key] for row in rows)
        found[f"by_{key}"] = {label: of([row for row in rows if row[key] == label]) for label in in_order}
    return found


def _outdated(plan: Plan, stored: Stored) -> list[str]:
    """Stored cells of the same model, method and task whose factor or revision is not the plan's."""
    here = {cell.id for cell in plan.cells}
    revision = "" if plan.cells[0].served else plan.cells[0].card.revision
    planned = {(cell.card.id, cell.method.name, cell.task_label): cell.factor for cell in plan.cells}
    notes: dict[tuple[str, str], set[int]] = {}
    for record in stored.records.values():
        key = (record["model"]["id"], record["method"]["name"], record["task"]["label"])
        if record["cell_id"] in here or key not in planned:
            continue
        factor, other = record["method"]["factor"], record["model"]["revision"] or ""
        label = f"{record['method']['label']} {record['task']['label']}"
        if factor not in (None, planned[key]):
            notes.setdefault((label, "factor"), set()).add(record["condition"]["length"])
        elif other != revision:
            why = f"revision of the model ({other[:12]}, now {revision[:12]})"
            notes.setdefault((label, why), set()).add(record["condition"]["length"])
    return [
        f"stored {label} at {', '.join(map(str, sorted(lengths)))}: another {why} than this plan's; they are kept, and "
        "are not part of this comparison"
        for (label, why), lengths in sorted(notes.items())
    ]
