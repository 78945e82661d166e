"""`ropebench lens`: what it measures is stored as a record, and shown from there."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ropebench.cli.experimenting import experiment
from ropebench.cli.output import folder_named, quietly, say
from ropebench.errors import UsageError

SHOWN = ("spectrum", "dependence")


def lens(options: argparse.Namespace, words: list[str]) -> int:
    quietly()
    topics = {
        "train": train,
        "spectrum": spectrum,
        "dependence": dependence,
        "experiment": experiment,
        "report": report,
    }
    return topics[options.topic](options, ["ropebench", *words])


def train(options: argparse.Namespace, argv: list[str]) -> int:
    from dataclasses import replace

    from ropebench.lens.tiny.prose import installed
    from ropebench.lens.tiny.recipe import RECIPE
    from ropebench.lens.tiny.train import train

    steps = RECIPE.steps if options.steps is None else options.steps
    recipe, folder = replace(RECIPE, steps=steps, seed=options.seed), folder_named(options.out)
    train(recipe, installed, folder, options.resume, lambda line: say(f"{line}\n"), threads=options.threads)
    print(f"model: {folder / 'model'}   its early curve: {folder / 'log.jsonl'}")
    return 0


def spectrum(options: argparse.Namespace, argv: list[str]) -> int:
    from ropebench.lens.study import spectrum

    return _kept(options, [spectrum(options, argv, _note)])


def dependence(options: argparse.Namespace, argv: list[str]) -> int:
    from ropebench.lens.study import dependence

    return _kept(options, dependence(options, argv, _note))


def report(options: argparse.Namespace, argv: list[str]) -> int:
    from ropebench import store
    from ropebench.lens.record import newest

    records = [record for record in newest(store.read(options.results)) if record["lens"]["what"] in SHOWN]
    if not records:
        raise UsageError(
            f"no records of {' or '.join(SHOWN)} in {options.results!r}; measure something first: "
            "ropebench lens spectrum --help"
        )
    return _kept(options, records)


def _note(text: str) -> None:
    say(f"{text}\n")


def _kept(options: argparse.Namespace, records: list[Any]) -> int:
    """Show records, and draw them where --out is given."""
    from ropebench.report import lens
    from ropebench.report.tables import as_text

    if options.json:
        print(json.dumps(records, ensure_ascii=False))
    else:
        print("\n".join(as_text(table) for record in records for table in lens.tables(record)), end="")
    if options.out:
        written = lens.write(records, folder_named(options.out))
        sys.stderr.write(f"wrote {written[0]} and {len(written) - 1} plot files\n")
    return 0
