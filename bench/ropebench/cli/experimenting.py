"""`lens experiment`: train small models, measure them, and show what is stored of all of them."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module

from ropebench.cli.output import folder_named, say
from ropebench.errors import UsageError


def experiment(options: argparse.Namespace, argv: list[str]) -> int:
    from ropebench.lens.experiment import units

    forms = [word.strip() for word in (options.forms or "").split(",") if word.strip()]
    module = import_module(f"ropebench.lens.experiment.{options.name}")
    wanted = module.units(options.level, forms, _numbers(options.sizes), options.seeds)
    if options.threads is not None:
        import torch

        if options.threads < 1:
            raise UsageError(f"--threads {options.threads} must be at least 1")
        torch.set_num_threads(options.threads)
    records = units.run(wanted, module.measure, options.results, lambda line: say(f"{line}\n"), argv)
    if options.json:
        print(json.dumps([record["lens"] for record in records], ensure_ascii=False))
    else:
        from ropebench.report import experiments
        from ropebench.report.tables import as_text

        print("\n".join(as_text(table) for table in experiments.tables(records)), end="")
    if options.out:
        from ropebench import store
        from ropebench.report import experiment_page

        written = experiment_page.write(units.stored(store.read(options.results)), folder_named(options.out))
        sys.stderr.write(f"wrote {written[0]} and {len(written) - 1} plot files, of all that {options.results} holds\n")
    return 0


def _numbers(word: str | None) -> list[int]:
    try:
        return [int(part) for part in word.split(",")] if word else []
    except ValueError:
        raise UsageError(f"--sizes {word!r}: write whole numbers with commas between, such as 4,8,16") from None
