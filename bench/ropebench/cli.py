"""The command line: the only code that prints or exits.

Nothing heavy is imported until a command needs it, so that help answers at once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropebench.arguments import parser, sweep_of
from ropebench.errors import UsageError, unknown


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Exit codes: 0 all ok, 1 some cells failed, 2 a mistake in what was given, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    top = parser(COMMANDS)
    options = top.parse_args(words)
    if not options.command:
        top.print_help()
        return 2
    try:
        return int(options.go(options, words))
    except UsageError as error:
        sys.stderr.write(f"ropebench: error: {error}\n")
        return 2
    except KeyboardInterrupt:
        how = "what is measured already counts as before" if "--rerun" in words else "run the same command to go on"
        sys.stderr.write(f"\nropebench: interrupted; what was measured is stored: {how}\n")
        return 130
    except BrokenPipeError:  # the reader of a pipe went away
        sys.stderr.close()
        return 0


def _run(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.model import load, load_tokenizer
    from ropebench.plan import make_plan
    from ropebench.run import Stored, preflight, run_cells
    from ropebench.store import Writer

    _quiet()
    plan = make_plan(sweep_of(options))
    writer = Writer(options.results)
    stored = Stored() if options.rerun else Stored.read(options.results)
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
        records = run_cells(pending, loaded, stored, writer, ["ropebench", *words], _progress)
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


def _verdict(results: str, cells: set[str]) -> None:
    """One line per task, and where the records are."""
    from ropebench.report import cells as flat
    from ropebench.report import summary
    from ropebench.report.paired import by_cell

    records, samples = _stored(results, lambda record: record["cell_id"] in cells)
    for block in flat.blocks(flat.cell_rows(records, samples)):
        print("\n".join(summary.verdict(block, samples, by_cell(records))[:1]))
    print(f"records: {results}   tables: ropebench report --results {results}")


def _stored(results: str, keep: Any = lambda _: True) -> tuple[list[Any], Any]:
    """Counting records and their sample rows. Raises UsageError when there are none."""
    from ropebench import store
    from ropebench.report.cells import samples_by_cell

    records = [record for record in store.newest_ok(store.read(results)) if keep(record)]
    if not records:
        raise UsageError(f"no records in {results!r}; measure something first: ropebench run --help")
    return records, samples_by_cell(records, store.samples(results))


def _report(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.report import cells, figures, tables
    from ropebench.report.paired import by_cell, compared_metric, difference_table

    records, samples = _stored(options.results)
    models = {record["model"]["id"] for record in records}
    if options.model is not None:
        if options.model not in models:
            raise unknown(f"model in {options.results}:", options.model, models)
        records = [record for record in records if record["model"]["id"] == options.model]
    rows = cells.cell_rows(records, samples, metric=options.metric)
    blocks, known = cells.blocks(rows), by_cell(records)
    found = []
    for block in blocks:
        found += [tables.table(block), difference_table(block, samples, compared_metric(block, known))]
    shown = [table for table in found if table is not None]
    if options.json:
        print(tables.as_json(rows), end="")
    else:
        print("\n".join(tables.as_text(table) for table in shown), end="")
    if options.out:
        folder = _folder(options.out)
        planned = figures.plan(blocks, samples, known)
        drawn = [path for one in planned for path in figures.draw(one, samples, folder)]
        pictures = [f"![{one.title}]({one.stem}.png)\n" for one in planned]
        (folder / "report.md").write_text(
            "\n".join(["# Report\n", *map(tables.as_markdown, shown), *pictures]), encoding="utf-8"
        )
        (folder / "report.csv").write_text(tables.as_csv(rows), encoding="utf-8", newline="\n")
        sys.stderr.write(f"wrote {folder}/report.md, report.csv and {len(drawn)} plot files\n")
    return 0


def _leaderboard(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.report import leaderboard

    records, samples = _stored(options.results)
    if options.check:
        stale = leaderboard.check(records, samples, Path(options.out))
        if stale:
            sys.stderr.write(f"not up to date: {', '.join(stale)}; run ropebench leaderboard\n")
        return 1 if stale else 0
    written = leaderboard.build(records, samples, _folder(options.out))
    print(f"wrote {Path(options.out) / 'README.md'} and {len(written) - 1} files beside it")
    return 0


def _folder(word: str) -> Path:
    folder = Path(word)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"output folder {word!r} cannot be made: {error.strerror}") from None
    return folder


def _inspect(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.overview import pair_rows, tables_of
    from ropebench.plan import make_plan
    from ropebench.report.tables import Table, as_text

    _quiet()
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

        folder = _folder(options.out)
        (folder / "inspect.json").write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        plot_frequencies(rows, geometry.trained_length, folder / "inspect")
        sys.stderr.write(f"wrote {folder}/inspect.json, inspect.png and inspect.svg\n")
    return 0


def _span(pairs: Sequence[int]) -> str:
    return f"{pairs[0]}–{pairs[-1]} ({len(pairs)})" if pairs else "none"


def _plan(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.model import load_tokenizer
    from ropebench.overview import costs
    from ropebench.plan import make_plan
    from ropebench.report.tables import Table, as_text
    from ropebench.run import Stored

    _quiet()
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


def _list(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.listing import listing
    from ropebench.report import pages
    from ropebench.report.tables import as_text

    if options.json and options.markdown:
        raise UsageError("--json and --markdown contradict each other: give one")
    if options.out and not options.markdown:
        raise UsageError(f"--out {options.out}: goes with --markdown, and writes its pages there")
    rows = listing(options.what, options.plugins, options.models)
    if options.json:
        print(json.dumps(rows, ensure_ascii=False))
    elif options.out:
        written = pages.write(options.what, rows, _folder(options.out))
        print(f"wrote {written[0]} and {len(written) - 1} files beside it")
    elif options.markdown:
        print(pages.document(options.what, rows), end="")
    else:
        print(as_text(pages.table(options.what, rows)), end="")
    return 0


def _show(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench import replay

    record = replay.find_record(options.results, options.cell)
    if options.sample is None:
        print(json.dumps(record, ensure_ascii=False, indent=None if options.json else 1))
        return 0
    row = replay.find_row(options.results, record, options.sample)
    _quiet()
    try:
        example, encoder = replay.prompt_again(record, row, options.docs, options.plugins, options.models)
    except UsageError as error:
        prompt: dict[str, Any] = {"prompt": f"cannot be made again: {error}"}
    else:
        ids = example.ids or (example.windows[0].ids if example.windows else ())
        prompt = {
            "prompt_ids": len(ids),
            "head_ids": list(ids[:16]),
            "tail_ids": list(ids[-16:]),
            "prompt_head": encoder.decode(ids[:120]),
            "prompt_tail": encoder.decode(ids[-120:]),
        }
    sample = {**prompt, **{key: row[key] for key in ("tokens", "skip", "targets", "output", "scores", "meta")}}
    if options.json:
        print(json.dumps(sample, ensure_ascii=False))
        return 0
    condition = record["condition"]
    print(
        f"{record['model']['id']}  {record['method']['label']}  {record['task']['label']}  {condition['length']} tokens"
    )
    for key, value in sample.items():
        print(f"\n{key}:\n  {str(value).strip() if key.startswith('prompt_') else value!r}")
    return 0


def _cache(options: argparse.Namespace, words: list[str]) -> int:
    import shutil

    from ropebench.model import cache_dir

    folder = cache_dir()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else 0
    if options.clear and folder.is_dir():
        # Only what ropebench itself puts there, never whatever else the folder holds.
        for part in ("models", "weights", "samples"):
            shutil.rmtree(folder / part, ignore_errors=True)
    print(f"{folder}: {size / 1e6:,.0f} MB{' cleared' if options.clear else ''}")
    return 0


def _quiet() -> None:
    from ropebench.quiet import quiet

    quiet()


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


COMMANDS = {
    "run": _run,
    "plan": _plan,
    "inspect": _inspect,
    "list": _list,
    "report": _report,
    "leaderboard": _leaderboard,
    "show": _show,
    "cache": _cache,
}

if __name__ == "__main__":
    sys.exit(main())
