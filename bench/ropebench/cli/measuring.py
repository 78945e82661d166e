"""The commands that plan, measure and train."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from ropebench.amounts import duration, flop, size
from ropebench.arguments import sweep_of
from ropebench.cli.output import folder_named, quietly, say, stored_in
from ropebench.cli.stopping import stopping
from ropebench.errors import UsageError


def run(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.cli import spreading
    from ropebench.cli.live import Live, against
    from ropebench.plan import make_plan
    from ropebench.run import Stored
    from ropebench.store import Writer

    quietly()
    cluster = spreading.cluster_of(options)
    plan = make_plan(sweep_of(options))
    crew = spreading.crew_of(cluster, plan.sweep) if cluster else None
    if crew is not None:
        plan = spreading.planned(crew, plan)
    writer = Writer(options.results)
    stored = Stored.set_aside(options.results) if options.rerun else Stored.read(options.results)
    pending = [cell for cell in plan.cells if not stored.done(cell)]
    live = Live(options.quiet, options.log_json)
    for note in plan.notes:
        live.say(f"note: {note}")
        live.event("note", text=note)
    if len(pending) < len(plan.cells):
        live.say(f"{len(plan.cells) - len(pending)} of {len(plan.cells)} cells are already stored")
    records: list[Any] = []
    ended, theirs = "interrupted or failed", list[Any]()
    try:
        if pending:
            measured = partial(spreading.measured, crew) if crew is not None else _measured
            theirs = measured(plan, pending, stored, writer, live, ["ropebench", *words], records)
        ended = "finished"
    finally:
        if crew is not None:
            crew.close()
        failed = [record for record in records + theirs if record["outcome"]["status"] != "ok"]
        live.event("run_end", run_id=writer.run_id, how=ended, cells_run=len(records), cells_failed=len(failed))
        live.close()
    for record in failed if options.log_json != "-" else ():
        error = record["outcome"]["error"]
        where = f"{record['method']['label']} {record['task']['label']} at {record['condition']['length']}"
        what = f"{record['outcome']['status']} ({error['type']}: {error['message'][:300]})"
        say(f"failed: {where}: {what}\n")
    if options.json:
        print(json.dumps(records + theirs, ensure_ascii=False))
    else:
        _verdict(options.results, {cell.id for cell in plan.cells}, against(records))
    return 1 if failed else 0


def _measured(
    plan: Any, pending: list[Any], stored: Any, writer: Any, live: Any, argv: list[str], records: list[Any]
) -> list[Any]:
    """Load the model and run the cells, telling `live`; their records go into `records` as they are written. Returns
    the records of cells that other runs on the same folder measured meanwhile."""
    from ropebench.cost import total
    from ropebench.memory import resident_bytes
    from ropebench.model import load, load_tokenizer
    from ropebench.overview import estimates
    from ropebench.rates import rates_for
    from ropebench.run import preflight, run_cells
    from ropebench.tokens import feed_of

    first = pending[0]
    tokenizer = load_tokenizer(first.card, first.trust_remote_code)
    if first.served:
        return _served(plan, pending, stored, writer, live, argv, records, tokenizer)
    preflight(pending, tokenizer)
    try:
        feeds = feed_of(pending, stored, tokenizer)
    except UsageError:  # a later sample cannot be made: its cell will say so, and the others are measured
        feeds = {}
    loaded = load(first.card, first.device, first.dtype, first.attention, first.trust_remote_code, first.loading)
    rates = rates_for(first, stored, loaded.hardware)
    expected = estimates(plan, feeds, rates, resident_bytes(first.device))
    whole = total([expected.get(cell.id) for cell in pending])
    about = f", about {duration(whole['seconds'])}" if whole["seconds"] is not None else ""
    live.say(f"{first.card.id} on {first.device} in {first.dtype}, {len(pending)} cells{about}")
    live.event(
        "run_begin", run_id=writer.run_id, model=first.card.id, device=first.device, dtype=first.dtype,
        cells=len(pending), cells_stored=len(plan.cells) - len(pending), estimate=whole,
    )  # fmt: skip

    def watch(at: Any) -> None:
        if at.record is not None:
            records.append(at.record)
        live(at)

    with stopping() as stop:
        every = run_cells(
            pending, loaded, stored, writer, argv, watch, None, plan.sweep.batch_size, expected, live.say, stop.check
        )
    return [record for record in every if record["run_id"] != writer.run_id]


def _served(
    plan: Any,
    pending: list[Any],
    stored: Any,
    writer: Any,
    live: Any,
    argv: list[str],
    records: list[Any],
    tokenizer: Any,
) -> list[Any]:
    """As `_measured`, of a model that a server has."""
    from ropebench.run import preflight, run_cells
    from ropebench.served import connect, refuse_likelihood

    preflight(pending, tokenizer)
    refuse_likelihood(pending, tokenizer)
    loaded, runner = connect(plan.sweep, pending[0], tokenizer)
    label, name = pending[0].method_label, pending[0].card.id
    live.say(f"{name}: {len(pending)} cells, recorded as {label}, which is your word: what a server runs is not seen")
    live.event("run_begin", run_id=writer.run_id, model=name, device="served", cells=len(pending))

    def watch(at: Any) -> None:
        if at.record is not None:
            records.append(at.record)
        live(at)

    with stopping() as stop:
        every = run_cells(
            pending, loaded, stored, writer, argv, watch, runner, plan.sweep.batch_size, None, live.say, stop.check
        )
    return [record for record in every if record["run_id"] != writer.run_id]


def _verdict(results: str, cells: set[str], cost: str | None) -> None:
    """One line per task, what the run cost, and where the records are."""
    from ropebench.report import cells as flat
    from ropebench.report import summary
    from ropebench.report.paired import by_cell

    records, samples = stored_in(results, lambda record: record["cell_id"] in cells)
    for block in flat.blocks(flat.cell_rows(records, samples)):
        print("\n".join(summary.verdict(block, samples, by_cell(records))[:1]))
    if cost:
        print(cost)
    print(f"records: {results}   tables: ropebench report --results {results}")


def plan(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.device import hardware
    from ropebench.model import load_tokenizer
    from ropebench.overview import costs, totals
    from ropebench.plan import make_plan
    from ropebench.rates import rates_for
    from ropebench.report.tables import Table, as_text
    from ropebench.run import Stored

    quietly()
    plan = make_plan(sweep_of(options))
    first, stored = plan.cells[0], Stored.read(options.results)
    pending = not all(stored.done(cell) for cell in plan.cells)
    held = None
    if options.probe:
        rates, held = _probed(plan)
    else:
        rates = rates_for(first, stored, hardware(first.device))
    tokenizer = load_tokenizer(first.card, first.trust_remote_code) if pending else None
    rows, outdated = costs(plan, stored, tokenizer, rates, held)
    sums = totals(rows)
    if options.json:
        print(json.dumps({"cells": rows, "totals": sums, "notes": [*plan.notes, *outdated]}, ensure_ascii=False))
        return 0
    bound = "" if all(row["tokens_exact"] for row in rows) else "at most "
    title = f"{first.card.id} on {first.device} in {first.dtype}: {len(rows)} cells, {bound}"
    title += f"{sums['all']['tokens_left']:,} tokens to run"
    body = tuple(
        (*(str(row[key]) for key in ("cell_id", "method", "task", "length", "n", "stored")), f"{row['tokens_left']:,}",
         *_amounts(row["estimate"]), row["state"])
        for row in rows
    )  # fmt: skip
    columns = ("cell", "method", "task", "length", "n", "stored", "tokens left", *_AMOUNTS, "state")
    print(as_text(Table(title, columns, body, None, (*plan.notes, *outdated))))
    sub = [(f"{key} {label}", sums[f"by_{key}"][label]) for key in ("task", "method") for label in sums[f"by_{key}"]]
    parts = tuple((label, str(part["cells"]), *_amounts(part)) for label, part in [*sub, ("all", sums["all"])])
    basis = sums["all"]["basis"]
    time = f"time by {basis}" if basis else "time unknown: --probe measures how fast this machine is (loads the model)"
    if not any(row["tokens_left"] for row in rows):
        time = "nothing is left to run"
    print(as_text(Table("in total, as expected", ("", "cells", *_AMOUNTS), parts, None, (time,))), end="")
    return 0


_AMOUNTS = ("tokens expected", "FLOPs", "peak memory", "time")


def _amounts(estimate: Any) -> tuple[str, ...]:
    found = estimate or dict.fromkeys(("tokens", "flops", "peak_bytes", "seconds"))
    tokens = f"{found['tokens']:,}" if found["tokens"] is not None else "unknown"
    return tokens, flop(found["flops"]), size(found["peak_bytes"]), duration(found["seconds"])


def _probed(plan: Any) -> Any:
    """Rates measured now, with the model loaded as a run loads it, and the bytes that are held then."""
    from ropebench.engine import Engine
    from ropebench.memory import resident_bytes
    from ropebench.model import load
    from ropebench.rates import probe, remember
    from ropebench.run import encoder_of

    cell = plan.cells[0]
    loaded = load(cell.card, cell.device, cell.dtype, cell.attention, cell.trust_remote_code, cell.loading)
    held = resident_bytes(cell.device)
    engine = Engine(loaded.model, encoder_of(cell, loaded.tokenizer))
    rates = probe(cell, engine, max(one.length for one in plan.cells))
    remember(cell, loaded.hardware, rates)
    return rates, held


def inspect(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.overview import pair_rows, tables_of
    from ropebench.plan import make_plan
    from ropebench.report.tables import Table, as_text

    quietly()
    plan = make_plan(sweep_of(options), corpora=False)
    rows, geometry = tables_of(plan), plan.cells[0].geometry
    if options.json:
        print(json.dumps(rows, ensure_ascii=False))
    else:
        header, body = pair_rows(rows, geometry)
        model = plan.cells[0].card
        title = (
            f"{model.id}: {geometry.pairs} rotary pairs, theta {geometry.theta:g}, trained {geometry.trained_length}"
        )
        notes = [
            f"{row['label']}: attention factor {row['attention_factor']:.6g}; pairs that never turn fully within "
            f"{geometry.trained_length} tokens: {_span(row['never_turn_within_window'])}"
            for row in rows
        ]
        print(as_text(Table(title, tuple(header), tuple(map(tuple, body)), None, (*notes, *plan.notes))), end="")
    if options.out:
        from ropebench.report.plots import plot_frequencies

        folder = folder_named(options.out)
        (folder / "inspect.json").write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        plot_frequencies(rows, geometry.trained_length, folder / "inspect")
        sys.stderr.write(f"wrote {folder}/inspect.json, inspect.png and inspect.svg\n")
    return 0


def _span(pairs: Sequence[int]) -> str:
    return f"{pairs[0]}–{pairs[-1]} ({len(pairs)})" if pairs else "none"


def lm_eval(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench import lm_harness

    if options.path:
        print(lm_harness.task_folder(options.plugins))
        return 0
    if not options.rest:
        raise UsageError("lm-eval: nothing to do; see ropebench lm-eval --help, and ropebench lm-eval run --help")
    return lm_harness.main(options.rest, options.plugins)
