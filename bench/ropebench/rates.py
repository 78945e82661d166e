"""How fast a model runs on the machine in use: measured by a short probe, or read off stored samples.

Seconds = a × FLOPs of matrices + b × FLOPs of attention + c × decoded tokens. A probe times two lengths, which tells a
from b, and a few decoded tokens. Stored samples tell the same, where the same model ran in the same way on the same
hardware (`provenance.hardware`); a device's word alone (`cpu`) says nothing about its speed.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ropebench.cache import cache_dir
from ropebench.cell import Cell
from ropebench.cost import Rates, Shape, attention_flops, linear_flops, shape_of
from ropebench.record import Json, digest
from ropebench.store import Stored
from ropebench.work import Work, one_pass

_ENOUGH = 6  # stored samples that rates are read off
_LONGEST, _SECONDS, _STEPS = 8192, 6.0, 8  # of the probe: tokens, of its longer pass, new tokens

Row = tuple[Work, float]  # what was done, and the seconds it took


def rates_for(cell: Cell, stored: Stored, hardware: Json) -> Rates | None:
    """The rates known of a cell's model on this hardware, without measuring: by stored samples, else by an earlier
    probe; None where there are neither."""
    shape = shape_of(cell.card.config, cell.trust_remote_code)
    if shape is None:
        return None
    probed = _remembered(_file(cell, hardware))
    rows = [*_stored_rows(cell, stored, hardware)]
    found = fitted(shape, rows, f"{len(rows)} stored samples") if len(rows) >= _ENOUGH else None
    if found and found.step is None and probed:
        found = Rates(found.linear, found.attention, probed.step, f"{found.basis}; decoding: {probed.basis}")
    return found or probed


def _stored_rows(cell: Cell, stored: Stored, hardware: Json) -> Iterable[Row]:
    """Passes of stored samples of the same model, number format, attention and loading on the same hardware."""
    here = (cell.card.id, cell.dtype, cell.attention, cell.loading.compiled, cell.loading.quantize)
    for own, record in stored.records.items():
        model = record["model"]
        quantized = model["quantization"] if cell.loading.quantize else None
        there = (model["id"], model["dtype"], model["attention"], model.get("compiled", False), quantized)
        if there != here or record["provenance"].get("hardware") != hardware:
            continue
        for row in stored.rows.get(own, {}).values():
            cost = row["cost"]
            new = cost and cost.get("new_tokens")
            if cost and cost["tokens"] and cost["seconds"] and new is not None:
                steps = max(new - 1, 0)
                fed = cost["tokens"] - steps
                if fed > row["tokens"]:  # several passes, whose lengths a row does not tell
                    continue
                done = one_pass(fed, max(0, row["tokens"] - fed)) if new else one_pass(fed)
                rows = new or fed - 1
                yield Work(fed, steps, done.pairs + steps * row["tokens"], rows), cost["seconds"]


def fitted(shape: Shape, rows: Iterable[Row], basis: str) -> Rates | None:
    """Least squares on relative errors with rates that are not negative; None where the rows cannot tell."""
    table, seconds = [], []
    for work, spent in rows:
        matrices = linear_flops(shape, work.prefill, max(0, work.rows - work.steps))
        table.append([matrices, attention_flops(shape, work), work.steps])
        seconds.append(spent)
    if not table:
        return None
    values = np.array(table, dtype=float) / np.array(seconds)[:, None]
    used = [column for column in range(3) if values[:, column].any()]
    best: tuple[float, Any] | None = None
    for count in range(1, len(used) + 1):  # three columns: every choice is tried, which is exact
        for chosen in combinations(used, count):
            scale = values[:, chosen].max(axis=0)
            found, *_ = np.linalg.lstsq(values[:, chosen] / scale, np.ones(len(values)), rcond=None)
            found = found / scale
            error = float(((values[:, chosen] @ found - 1) ** 2).sum())
            if (found >= 0).all() and (best is None or error < best[0] - 1e-12):
                best = error, dict(zip(chosen, found, strict=True))
    if best is None:
        return None
    linear, attention = float(best[1].get(0, 0.0)), float(best[1].get(1, 0.0))
    step = float(best[1].get(2, 0.0)) if 2 in used else None
    return Rates(linear, attention, step, basis)


def probe(cell: Cell, engine: Any, longest: int, clock: Any = time.perf_counter) -> Rates:
    """Rates measured with an `Engine`: a pass of some length up to `longest` that takes a few seconds, one of a quarter
    of it (each the faster of two), and a few new tokens. Remembered for later plans.

    Raises UsageError for a model whose sizes cannot be told.
    """
    from ropebench.errors import UsageError

    shape = shape_of(cell.card.config, cell.trust_remote_code)
    if shape is None:
        raise UsageError(f"model {cell.card.id!r}: its sizes cannot be told from its config, so its cost is not known")
    ids = [2 + 7 * i % (shape.vocabulary - 2) for i in range(_LONGEST)]

    def timed(length: int, times: int = 2) -> Row:
        spent = []
        for _ in range(times):
            began = clock()
            engine.nll(ids[:length], False, False)
            spent.append(clock() - began)
        done = one_pass(length)
        return Work(length, 0, done.pairs, length - 1), min(spent)

    most = max(64, min(longest, _LONGEST))
    length, seconds = min(128, most), 0.0
    engine.nll(ids[:length], False, False)  # the first pass of a process is slower
    seconds = timed(length)[1]
    while length * 2 <= most and seconds * 2 <= _SECONDS:
        length, seconds = length * 2, seconds * 2.2
    rows = [timed(max(32, length // 4)), timed(length)]
    found = fitted(shape, rows, "a probe")
    assert found is not None
    spent = []
    for _ in range(_STEPS):
        began = clock()
        answered = engine.generate(ids[:64], _STEPS, (), False)[1]
        whole = clock() - began
        began = clock()
        engine.generate(ids[:64], 1, (), False)
        if len(answered) > 1:
            spent.append((whole - (clock() - began)) / (len(answered) - 1))
        if sum(spent) * _STEPS > _SECONDS:
            break
    step = max(0.0, statistics.median(spent)) if spent else None
    return Rates(found.linear, found.attention, step, "a probe")


def remember(cell: Cell, hardware: Json, rates: Rates) -> None:
    """Keep a probe's rates in the cache folder. A cache that cannot be written only costs the time to probe again."""
    file = _file(cell, hardware)
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps([rates.linear, rates.attention, rates.step]), encoding="utf-8")
        unfinished.replace(file)
    except OSError:
        return


def _remembered(file: Path) -> Rates | None:
    try:
        linear, attention, step = json.loads(file.read_text(encoding="utf-8"))
        return Rates(float(linear), float(attention), None if step is None else float(step), "an earlier probe")
    except (OSError, ValueError, TypeError):
        return None


def _file(cell: Cell, hardware: Json) -> Path:
    loading = [cell.loading.compiled, cell.loading.device_map, cell.loading.quantize]
    about = [cell.card.id, cell.card.revision, cell.dtype, cell.attention, cell.device, loading, hardware]
    return cache_dir() / "rates" / f"{digest(about, 32)}.json"
