"""The commands that plan, measure and train."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from ropebench.arguments import sweep_of
from ropebench.cli.output import folder_named, quietly, say, stored_in
from ropebench.cli.stopping import stopping
from ropebench.errors import UsageError


def run(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.model import load, load_tokenizer
    from ropebench.plan import make_plan
    from ropebench.run import Stored, preflight, run_cells
    from ropebench.store import Writer

    quietly()
    plan = make_plan(sweep_of(options))
    writer = Writer(options.results)
    stored = Stored.set_aside(options.results) if options.rerun else Stored.read(options.results)
    pending = [cell for cell in plan.cells if not stored.done(cell)]
    for note in plan.notes:
        sys.stderr.write(f"note: {note}\n")
    if len(pending) < len(plan.cells):
        sys.stderr.write(f"{len(plan.cells) - len(pending)} of {len(plan.cells)} cells are already stored\n")
    records: list[Any] = []
    if pending:
        first = pending[0]
        preflight(pending, load_tokenizer(first.card, first.trust_remote_code))
        sys.stderr.write(f"{first.card.id} on {first.device} in {first.dtype}, {len(pending)} cells\n")
        loaded = load(first.card, first.device, first.dtype, first.attention, first.trust_remote_code)
        with stopping() as stop:
            records = run_cells(
                pending, loaded, stored, writer, ["ropebench", *words], _progress, say=_note, pause=stop.check
            )
        sys.stderr.write("\r\033[K" if sys.stderr.isatty() else "")
    failed = [record for record in records if record["outcome"]["status"] != "ok"]
    for record in failed:
        error = record["outcome"]["error"]
        where = f"{record['method']['label']} {record['task']['label']} at {record['condition']['length']}"
        what = f"{record['outcome']['status']} ({error['type']}: {error['message'][:300]})"
        sys.stderr.write(f"failed: {where}: {what}\n")
    if options.json:
        print(json.dumps(records, ensure_ascii=False))
    else:
        _verdict(options.results, {cell.id for cell in plan.cells})
    return 1 if failed else 0


def _note(text: str) -> None:
    sys.stderr.write(("\r\033[K" if sys.stderr.isatty() else "") + f"note: {text}\n")


def _verdict(results: str, cells: set[str]) -> None:
    """One line per task, and where the records are."""
    from ropebench.report import cells as flat
    from ropebench.report import summary
    from ropebench.report.paired import by_cell

    records, samples = stored_in(results, lambda record: record["cell_id"] in cells)
    for block in flat.blocks(flat.cell_rows(records, samples)):
        print("\n".join(summary.verdict(block, samples, by_cell(records))[:1]))
    print(f"records: {results}   tables: ropebench report --results {results}")


def plan(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.model import load_tokenizer
    from ropebench.overview import costs
    from ropebench.plan import make_plan
    from ropebench.report.tables import Table, as_text
    from ropebench.run import Stored

    quietly()
    plan = make_plan(sweep_of(options))
    first, stored = plan.cells[0], Stored.read(options.results)
    pending = not all(stored.done(cell) for cell in plan.cells)
    rows, outdated = costs(plan, stored, load_tokenizer(first.card, first.trust_remote_code) if pending else None)
    if options.json:
        print(json.dumps(rows, ensure_ascii=False))
        return 0
    total = f"{sum(row['tokens_left'] for row in rows):,}"
    bound = "" if all(row["tokens_exact"] for row in rows) else "at most "
    title = f"{first.card.id} on {first.device} in {first.dtype}: {len(rows)} cells, {bound}{total} tokens to run"
    columns = ("cell", "method", "task", "length", "n", "stored", "tokens left", "state")
    body = tuple((*(str(v) for v in list(row.values())[:6]), f"{row['tokens_left']:,}", row["state"]) for row in rows)
    print(as_text(Table(title, columns, body, None, (*plan.notes, *outdated))), end="")
    return 0


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


def lens(options: argparse.Namespace, words: list[str]) -> int:
    from dataclasses import replace

    from ropebench.lens.tiny.prose import installed
    from ropebench.lens.tiny.recipe import RECIPE
    from ropebench.lens.tiny.train import train

    quietly()
    steps = RECIPE.steps if options.steps is None else options.steps
    recipe, folder = replace(RECIPE, steps=steps, seed=options.seed), folder_named(options.out)
    train(recipe, installed, folder, options.resume, lambda line: say(f"{line}\n"), threads=options.threads)
    print(f"model: {folder / 'model'}   its early curve: {folder / 'log.jsonl'}")
    return 0


def lm_eval(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench import lm_harness

    if options.path:
        print(lm_harness.task_folder(options.plugins))
        return 0
    if not options.rest:
        raise UsageError("lm-eval: nothing to do; see ropebench lm-eval --help, and ropebench lm-eval run --help")
    return lm_harness.main(options.rest, options.plugins)


def _progress(at: Any) -> None:
    """One line that is rewritten on a terminal; elsewhere one line at the start of each cell."""
    cell = at.cell
    parts = [
        f"cell {at.number}/{at.cells}  {cell.method_label}  {cell.task_label}  {cell.length} tokens",
        f"sample {at.sample + 1}/{at.samples}",
        f"{at.tokens_per_second:,.0f} tokens/s" if at.tokens_per_second else "",
        f"{at.seconds_left:,.0f} s left in this cell" if at.seconds_left else "",
    ]
    text = "  ".join(part for part in parts if part)
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text[:200]}")
    elif at.sample == 0:
        sys.stderr.write(text + "\n")
    sys.stderr.flush()
