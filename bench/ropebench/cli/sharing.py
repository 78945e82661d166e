"""The commands that bring others' results in, and take tables out."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ropebench.cli.output import folder_named, say
from ropebench.errors import UsageError


def export(options: argparse.Namespace, tables: list[Any], rows: list[Any]) -> int:
    """`report --format`: tables to a folder, or to where the command's output goes."""
    from ropebench.report import formats

    known = formats.named(tables)
    names = formats.chosen(options.table, list(known), options.format, bool(options.out))
    if options.out:
        written = formats.write(options.format, names, known, rows, folder_named(options.out))
        say(f"wrote {len(written)} files into {options.out}\n")
        return 0
    if options.format == "parquet" and sys.stdout.isatty():
        raise UsageError("--format parquet is binary: give --out DIR, or send the output to a file")
    data = formats.rendered(options.format, names, known, rows)
    if options.format == "parquet":
        sys.stdout.buffer.write(data)
    else:
        print(data.decode(), end="")
    return 0


def add(options: argparse.Namespace) -> int:
    """`leaderboard --add`: looks a stranger's records over, and takes good ones into the results folder. With --check
    nothing is written. Returns 1 where they are refused."""
    from ropebench import store
    from ropebench.validate import coverage, problems

    files = [store.offered(word) for word in options.add]
    everything = store.read(options.results)
    rows = [row for path in files for row in path.rows]
    records = [record for path in files for record in path.records]
    # A run that went on with stored samples has only its own rows beside it.
    found = problems(records, [*store.every_sample(options.results, {r["cell_id"] for r in records}), *rows])
    fatal = [one for one in found if one.fatal]
    notes = [one for one in found if not one.fatal]
    if not fatal:
        notes += coverage(store.newest_ok(records), store.newest_ok(everything))
    for title, several in (("not in order", fatal), ("to know", notes)):
        if several:
            print(f"{title}:")
            print("".join(f"  {one}\n" for one in several), end="")
    if fatal:
        print(f"refused: {len(fatal)} problems in {len(records)} records; nothing was added")
        return 1
    if options.check:
        print(f"{len(records)} records with {len(rows)} sample rows are in order; nothing was added (--check)")
        return 0
    written = store.adopt(options.results, {name: data for path in files for name, data in path.files.items()})
    print(f"{len(records)} records are in order; added {', '.join(written) or 'nothing: they are there already'}")
    return 0


def bring_in(options: argparse.Namespace, words: list[str]) -> int:
    """`import lm-eval PATH`."""
    from ropebench import store
    from ropebench.aliases import ModelSpec, find
    from ropebench.lm_harness import imported
    from ropebench.plan import length_of
    from ropebench.record import canonical
    from ropebench.validate import ROWLESS, problems

    trained = length_of(options.trained_length) if options.trained_length else None
    if trained is None and options.model:
        try:
            spec: ModelSpec | None = find(options.model, options.models)
        except UsageError:
            spec = None
        trained = spec.trained_length if spec else None
    length = length_of(options.length) if options.length else None
    for path in imported.files_in(options.path):
        got = imported.read(path, model=options.model, trained_length=trained, length=length, revision=options.revision)
        bad = [one for one in problems(got.records, got.samples) if one.fatal and ROWLESS not in one.text]
        if bad:
            raise UsageError(f"{path.name}: {'; '.join(map(str, bad[:3]))}")
        lines = {f"{got.run_id}.jsonl": got.records, f"{got.run_id}{store.SAMPLES}": got.samples}
        text = {name: "".join(canonical(one) + "\n" for one in several) for name, several in lines.items() if several}
        data = {name: several.encode() for name, several in text.items()}
        written = store.adopt(options.results, data)
        print(f"{path.name}: {len(got.records)} records, {len(got.samples)} sample rows"
              + (f" → {Path(options.results) / written[0]}" if written else ": there already"))  # fmt: skip
        if not got.samples:
            print("  no samples_*.jsonl beside it (lm-eval's --log_samples): no paired comparison, no clusters")
        print("".join(f"  {line}\n" for line in got.left_out), end="")
    return 0
