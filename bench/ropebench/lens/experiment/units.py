"""The trained models of an experiment, one record each, stored once it is measured; a rerun goes on after them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ropebench import store
from ropebench.record import SCHEMA, Json, digest, now, provenance

WHAT = "experiment"


@dataclass(frozen=True)
class Unit:
    """One model to train and measure. `setting` is all that its numbers depend on, as plain JSON."""

    experiment: str
    version: int
    setting: Json = field(hash=False)
    label: str = field(compare=False)

    @property
    def id(self) -> str:
        return digest({"lens": WHAT, "name": self.experiment, "version": self.version, "setting": self.setting})


def run(
    units: Sequence[Unit], measure: Callable[[Json], Json], folder: str | Path, say: Callable[[str], None],
    argv: Sequence[str],
) -> list[Json]:  # fmt: skip
    """Measure the units that are not stored yet, and return the records of all, in the order of `units`.

    Stops at the first failure: what came before is stored.
    """
    known = {record["cell_id"]: record for record in stored(store.read(folder))}
    waiting = [unit for unit in units if unit.id not in known]
    if len(waiting) < len(units):
        say(f"{len(units) - len(waiting)} of {len(units)} models are stored already")
    writer = store.Writer(folder) if waiting else None
    for place, unit in enumerate(waiting, 1):
        begun = time.monotonic()
        measured = measure(unit.setting)
        seconds = time.monotonic() - begun
        if writer is not None:
            known[unit.id] = _record(unit, measured, seconds, writer.run_id, argv)
            writer.record(known[unit.id])
        say(f"{place}/{len(waiting)} {unit.label}: {seconds:.0f} s")
    return [known[unit.id] for unit in units]


def stored(records: Iterable[Json], experiment: str | None = None) -> list[Json]:
    """The records of experiments (of one, by name) among those of a results folder, the newest of each model."""
    found = {
        record["cell_id"]: record
        for record in records
        if record.get("kind") == "lens" and record["lens"].get("what") == WHAT
        and experiment in (None, record["lens"]["name"])
    }  # fmt: skip
    return list(found.values())


def _record(unit: Unit, measured: Json, seconds: float, run_id: str, argv: Sequence[str]) -> Json:
    created = now()
    about = {"what": WHAT, "name": unit.experiment, "version": unit.version}
    return {
        "schema": SCHEMA,
        "kind": "lens",
        "record_id": digest([unit.id, run_id, created]),
        "cell_id": unit.id,
        "run_id": run_id,
        "created": created,
        "lens": {**about, "setting": unit.setting, "measured": measured},
        "outcome": {"status": "ok", "error": None},
        "cost": {"seconds": seconds},
        "provenance": provenance(tuple(argv), "cpu"),
    }
