"""`make bench`: what ropebench saves against the plain way, as ratios within one run, on smollm2-135m and real text.

The plain way is what other tools do: a forward pass per length with all its logits, a prompt filled anew for each
needle depth, weights loaded anew for each method. Both ways must give the same answers in the same run, else no figure
is given. The table goes to the terminal, one record per figure to results/bench.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from measuring import needles, peaks, perplexity, start, sweeps
from measuring.figure import AnswersDiffer, Figure, detail, table
from measuring.profile import as_text, profile
from measuring.ruler import ruler
from measuring.sizes import DEFAULT, FULL, QUICK, Sizes
from measuring.subject import Subject, subject
from measuring.workers import workers
from ropebench.errors import UsageError
from ropebench.quiet import quiet
from ropebench.store import Writer, append

Measured = Callable[[Callable[[], Subject], Sizes], list[Figure]]

# In the order in which they are measured. A subject is loaded by the first that asks for it.
FIGURES: dict[str, Measured] = {
    "help": lambda loaded, sizes: start.help_time(sizes),
    "switch": lambda loaded, sizes: start.switching(loaded(), sizes),
    "perplexity": lambda loaded, sizes: perplexity.perplexity(loaded(), sizes),
    "niah": lambda loaded, sizes: needles.needles(loaded(), sizes),
    "memory": lambda loaded, sizes: peaks.peaks(loaded(), sizes),
    "sweep": lambda loaded, sizes: sweeps.sweeps(loaded(), sizes),
    "ruler": lambda loaded, sizes: ruler(sizes.ruler_samples, loaded().word),
    "workers": lambda loaded, sizes: workers(sizes),
}
PROFILES = {"perplexity": perplexity.ours, "niah": needles.ours, "sweep": sweeps.ours}


def main(words: list[str] | None = None) -> int:
    """Exit codes: 0, also where a target is missed; 1 where a figure could not be given; 2 for a mistake in `words`."""
    options = arguments().parse_args(words)
    quiet()
    sizes = QUICK if options.quick else FULL if options.full else DEFAULT
    if options.child:
        print(json.dumps(peaks.child(options.child, subject(options.model, options.docs), options.length)))
        return 0
    loaded = cache(lambda: subject(options.model, options.docs))
    try:
        if options.profile:
            work = PROFILES[options.profile]
            work(loaded(), QUICK)  # first use of the kernels, and the samples
            print(as_text(options.profile, profile(loaded().model, lambda: work(loaded(), sizes))))
            return 0
        # A folder that cannot be written is said before minutes are spent.
        code = measured(options.only or [*FIGURES], loaded, sizes, Writer(options.results))
        if options.quick:
            print("The targets are meant for longer inputs than those of --quick.")
        return code
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="shorter lengths: two or three minutes")
    how.add_argument("--full", action="store_true", help="run every plain pass instead of a part of them: half an hour")
    parser.add_argument("--only", action="append", choices=FIGURES, metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument("--profile", choices=PROFILES, metavar="NAME", help=f"where time goes: {', '.join(PROFILES)}")
    parser.add_argument("--model", default="smollm2-135m", help="a name, or a folder (default: %(default)s)")
    parser.add_argument("--docs", default="installed", help="long text, as for ropebench run (default: %(default)s)")
    parser.add_argument("--results", default="results", metavar="FOLDER")
    parser.add_argument("--child", choices=peaks.WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--length", type=int, help=argparse.SUPPRESS)
    return parser


def measured(names: list[str], loaded: Callable[[], Subject], sizes: Sizes, writer: Writer) -> int:
    """Measure, store each figure at once, and print the table in the end."""
    import torch

    figures: list[Figure] = []
    failed: list[tuple[str, str]] = []
    for name in FIGURES:
        if name not in names:
            continue
        say(f"measuring {name} …")
        try:
            found = FIGURES[name](loaded, sizes)
        except (AnswersDiffer, RuntimeError) as error:
            failed.append((name, f"{'answers differ: ' if isinstance(error, AnswersDiffer) else ''}{error}"))
            say(f"  no figure: {failed[-1][1]}")
            continue
        for figure in found:
            figure = replace(figure, row={**figure.row, "threads": torch.get_num_threads()})
            append(writer.folder / "bench.jsonl", figure.record(writer.run_id, "cpu"))
            say(f"  {figure.name}: {detail(figure)}")
        figures += found
    print(table(figures, failed))
    return 1 if failed else 0


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
