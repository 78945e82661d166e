"""The commands that look at what is stored, known or kept."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ropebench.cli.output import folder_named, quietly, say, stored_in
from ropebench.cli.sharing import add, export
from ropebench.errors import UsageError, unknown


def report(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.report import cells, figures, tables
    from ropebench.report.dissociation import with_dissociation
    from ropebench.report.effective import Enough
    from ropebench.report.paired import by_cell
    from ropebench.report.pooling import pooled
    from ropebench.report.repeats import disagreements
    from ropebench.report.sections import composite_tables, family_tables, tables_of
    from ropebench.store import read

    if options.table and not options.format:
        raise UsageError(f"--table {options.table}: goes with --format latex, markdown, csv, json or parquet")
    if options.json and options.format:
        raise UsageError("--json and --format contradict each other: give one")
    enough = Enough(options.effective_share, options.effective_threshold)
    records, samples = stored_in(options.results)
    models = {record["model"]["id"] for record in records}
    if options.model is not None:
        if options.model not in models:
            raise unknown(f"model in {options.results}:", options.model, models)
        records = [record for record in records if record["model"]["id"] == options.model]
    beside: list[Any] = []
    if options.published:
        from ropebench.published import published
        from ropebench.report import published as against

        given = [] if options.published is True else [options.published]
        beside = against.beside(published(given), against.measured(records, samples))
        if options.json:
            print(json.dumps(against.as_rows(beside), ensure_ascii=False))
            return 0
    records, samples = pooled(records, samples)
    known = by_cell(records)
    rows = with_dissociation(cells.cell_rows(records, samples, metric=options.metric), samples, known)
    blocks = cells.blocks(rows)
    shown = [table for block in blocks for table in tables_of(block, samples, known, enough)]
    shown += family_tables(blocks, samples, enough)
    shown += composite_tables(blocks, samples)
    shown += against.beside_tables(beside) if beside else []
    if options.format:
        return export(options, shown, rows)
    if options.json:
        print(tables.as_json(rows), end="")
    else:
        print("\n".join(tables.as_text(table) for table in shown), end="")
    for line in disagreements(read(options.results))[0]:
        say(f"{line}\n")
    if options.out:
        folder = folder_named(options.out)
        planned = figures.plan(blocks, samples, known)
        drawn = [path for one in planned for path in figures.draw(one, samples, folder, enough)]
        pictures = [f"![{one.title}]({one.stem}.png)\n" for one in planned]
        (folder / "report.md").write_text(
            "\n".join(["# Report\n", *map(tables.as_markdown, shown), *pictures]), encoding="utf-8"
        )
        (folder / "report.csv").write_text(tables.as_csv(rows), encoding="utf-8", newline="\n")
        sys.stderr.write(f"wrote {folder}/report.md, report.csv and {len(drawn)} plot files\n")
    return 0


def leaderboard(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.report import leaderboard
    from ropebench.report.effective import Enough
    from ropebench.store import read

    enough = Enough(options.effective_share, options.effective_threshold)
    if options.add:
        refused = add(options)
        if refused or options.check:
            return refused
    records, samples = stored_in(options.results)
    every = read(options.results)
    if options.check:
        stale = leaderboard.check(records, samples, Path(options.out), every, enough)
        if stale:
            sys.stderr.write(f"not up to date: {', '.join(stale)}; run ropebench leaderboard\n")
        return 1 if stale else 0
    written = leaderboard.build(records, samples, folder_named(options.out), every, enough)
    print(f"wrote {Path(options.out) / 'README.md'} and {len(written) - 1} files beside it")
    return 0


def listing(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.listing import listing
    from ropebench.report import pages
    from ropebench.report.tables import as_text

    if options.json and options.markdown:
        raise UsageError("--json and --markdown contradict each other: give one")
    if options.out and not options.markdown:
        raise UsageError(f"--out {options.out}: goes with --markdown, and writes its pages there")
    rows = listing(options.what, options.plugins, options.models, options.published)
    if options.json:
        print(json.dumps(rows, ensure_ascii=False))
    elif options.out:
        written = pages.write(options.what, rows, folder_named(options.out))
        print(f"wrote {written[0]} and {len(written) - 1} files beside it")
    elif options.markdown:
        print(pages.document(options.what, rows), end="")
    else:
        print(as_text(pages.table(options.what, rows)), end="")
    return 0


def show(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench import replay

    record = replay.find_record(options.results, options.cell)
    if options.sample is None:
        print(json.dumps(record, ensure_ascii=False, indent=None if options.json else 1))
        return 0
    row = replay.find_row(options.results, record, options.sample)
    quietly()
    try:
        example, encoder = replay.prompt_again(record, row, options.docs, options.plugins, options.models, options.data)
    except UsageError as error:
        if options.docs or options.data:  # a mistake in what was just given
            raise
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


def cache(options: argparse.Namespace, words: list[str]) -> int:
    import shutil

    from ropebench.model import cache_dir

    folder = cache_dir()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else 0
    if options.clear and folder.is_dir():
        # Only what ropebench itself puts there, never whatever else the folder holds.
        for part in ("models", "weights", "samples", "lm_eval"):
            shutil.rmtree(folder / part, ignore_errors=True)
    print(f"{folder}: {size / 1e6:,.0f} MB{' cleared' if options.clear else ''}")
    return 0
