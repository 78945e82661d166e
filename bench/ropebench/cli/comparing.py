"""The command that sets two methods, models or runs against each other."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from ropebench.errors import UsageError

_RUN_ID = 8  # characters of a run id that are enough to name it: the day


def compare(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.report import compare as sides
    from ropebench.report.tables import as_text
    from ropebench.sweep import length_of

    length = None if options.length is None else length_of(options.length)
    if options.detect is not None and not options.detect > 0:
        raise UsageError(f"--detect {options.detect:g}: a difference above 0, in points for scores")
    every = _measured(options.results)
    a, b = (_side(word, every) for word in (options.a, options.b))
    lines = sides.compare(
        a, b, task=options.task, length=length, model=options.model, metric=options.metric, detect=options.detect,
        repeats=sides.noise(every, options.metric),
    )  # fmt: skip
    if options.json:
        print(json.dumps(sides.as_objects(a, b, lines), ensure_ascii=False))
    else:
        print(as_text(sides.compare_table(a, b, lines, options.detect)), end="")
    return 0


def _measured(folder: str) -> list[Any]:
    """Every record of a results folder, oldest first, each with its own samples; empty where there is none."""
    from ropebench import store

    sets = store.sample_sets(folder)
    found = []
    for record in store.read(folder):
        if record.get("kind") == "run":
            rows = sets.get(record["cell_id"], {}).get(record.get("series"), {})
            wanted = record["condition"]["n_requested"]
            found.append((record, [rows[index] for index in sorted(rows) if index < wanted]))
    return found


def _side(word: str, every: list[Any]) -> Any:
    """A results folder or a run by its id; else a method or model among the records that count."""
    from ropebench.report.compare import Side, side

    if os.path.isdir(word) and not any(record["method"]["label"] == word for record, _ in every):
        inside = _measured(word)
        if not inside:
            raise UsageError(f"no records in folder {word!r}; give a results folder, a run id, a method or model=NAME")
        return Side(Path(word).name or word, "run", _counting(inside))
    ids = {record["run_id"] for record, _ in every if record["run_id"].startswith(word) and len(word) >= _RUN_ID}
    if len(ids) > 1 and word not in ids:
        raise UsageError(f"run {word!r} may be any of {', '.join(sorted(ids))}; give more of the id")
    if ids:
        run = word if word in ids else ids.pop()
        return Side(run, "run", _counting([one for one in every if one[0]["run_id"] == run]))
    return side(word, _counting(every))


def _counting(measured: list[Any]) -> tuple[Any, ...]:
    """One record per cell, as everywhere: the newest that is ok, with the most samples."""
    from ropebench.store import newest_ok

    kept = {id(record) for record in newest_ok([record for record, _ in measured])}
    return tuple(one for one in measured if id(one[0]) in kept)
