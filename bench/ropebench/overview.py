"""What methods do to a model's rotary pairs (`inspect`), what a run would cost (`plan`).

Plain rows for the command line to print or to dump as JSON; no weights are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ropebench.geometry import RopeGeometry
from ropebench.method import radix
from ropebench.plan import Plan
from ropebench.record import Json
from ropebench.run import Stored


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


def costs(plan: Plan, stored: Stored) -> tuple[list[Json], list[str]]:
    """One row per cell: what is stored and what is left, in samples and tokens; and notes on stored cells that no
    longer apply because the factor has changed.

    A static method's likelihood at a shorter length is read off the longest pass, so it adds no tokens.
    """
    rows, passes = [], set()
    for cell in plan.cells:
        done = stored.done(cell)
        have = 0 if done else len([i for i in stored.rows.get(cell.id, {}) if i < cell.n])
        left = 0 if done else cell.n - have
        # A task without generation scores documents; its shorter lengths ride on the longest one of this plan.
        rides = not cell.length_dependent and not cell.task.chat
        key = (cell.method_label, cell.task_label)
        free = rides and key in passes
        if left and rides:
            passes.add(key)
        rows.append(
            {
                "cell_id": cell.id,
                "method": cell.method_label,
                "task": cell.task_label,
                "length": cell.length,
                "n": cell.n,
                "stored": cell.n - left,
                "tokens_left": 0 if free else left * cell.length,
                "state": "stored" if done else "to run" if not have else f"to go on after {have}",
            }
        )
    return rows, _outdated(plan, stored)


def _outdated(plan: Plan, stored: Stored) -> list[str]:
    """Stored cells of the same model, method and task whose factor is not the plan's."""
    here = {cell.id for cell in plan.cells}
    planned = {(cell.card.id, cell.method.name, cell.task_label): cell.factor for cell in plan.cells}
    notes: dict[str, list[int]] = {}
    for record in stored.records.values():
        key = (record["model"]["id"], record["method"]["name"], record["task"]["label"])
        factor = record["method"]["factor"]
        if record["cell_id"] not in here and key in planned and factor not in (None, planned[key]):
            label = f"{record['method']['label']} {record['task']['label']}"
            notes.setdefault(label, []).append(record["condition"]["length"])
    return [
        f"stored {label} at {', '.join(map(str, sorted(lengths)))}: another factor than this plan's; they are kept, "
        "and are not part of this comparison"
        for label, lengths in sorted(notes.items())
    ]
