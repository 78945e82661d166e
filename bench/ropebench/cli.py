"""The command line: the only code that prints or exits.

Nothing heavy is imported until a command needs it, so that help answers at once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from ropebench.errors import UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Exit codes: 0 all ok, 1 some cells failed, 2 a mistake in what was given, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(words)
    if not getattr(options, "command", None):
        _parser().print_help()
        return 2
    try:
        return int(options.go(options, words))
    except UsageError as error:
        sys.stderr.write(f"ropebench: error: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\nropebench: interrupted; what was measured is stored, run the same command to go on\n")
        return 130
    except BrokenPipeError:  # the reader of a pipe went away
        sys.stderr.close()
        return 0


def _sweep_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="NAME", help="alias (see `ropebench list models`), folder, or hub id")
    add("--method", "--methods", dest="methods", metavar="A,B:k=v", help="methods, comma between, parameters by colon")
    add("--tasks", "--task", dest="tasks", metavar="A,B:k=v", help="tasks, likewise (default: proofpile,niah)")
    add("--sweep", metavar="FILE", help="a sweep file (TOML) or a built-in sweep; flags override it")
    add("--lengths", metavar="2k,4k", help="lengths in tokens (default: ½, 1, 2, 4 × the trained window)")
    add("--target", metavar="TOKENS", help="length that sets the factor for every length (default: the longest)")
    add("--matched", action="store_true", default=None, help="factor = length ÷ trained length, cell by cell")
    add("--factor", type=float, help="pin the factor")
    add("--n", metavar="N", help="samples per cell (or TASK:N, repeatable by comma); a larger n tops up")
    add("--seed", type=int)
    add("--docs", action="append", metavar="WORD", help="long text: FOLDER, NAME=FOLDER, installed, noise, hub:ID; "
        "TASK:WORD for one task only")  # fmt: skip
    add("--bos", metavar="RULE", help="auto, always or never")
    add("--chat-template", metavar="MODE", help="auto, on or off")
    add("--base", metavar="BASE", help="unscaled (default) or native: what methods start from")
    add("--no-baseline", dest="baseline", action="store_false", default=None, help="leave out the unmodified model")
    add("--trained-length", metavar="TOKENS", help="overrides the trained length of the config or alias")
    add("--revision", help="hub revision of the model")
    add("--models", metavar="FILE", help="your own aliases (TOML; also ROPEBENCH_MODELS)")
    add("--device", help="auto, cuda, cuda:1, mps or cpu")
    add("--dtype", help="auto, float32, bfloat16 or float16")
    add("--attention", help="sdpa (default), eager, flash_attention_2 or flex_attention")
    add("--offline", action="store_true", default=None, help="use only what is already on this machine")
    add("--trust-remote-code", action="store_true", default=None, help="run code from the model's repository")
    add("--plugin", dest="plugins", action="append", metavar="FILE", help="a Python file with methods or tasks; it is "
        "run as code")  # fmt: skip
    add("--results", default="results", metavar="DIR", help="results folder (default: results)")


def _parser() -> argparse.ArgumentParser:
    from ropebench import __version__

    parser = argparse.ArgumentParser(
        prog="ropebench",
        description="Which way of extending a RoPE model's context should I use, and what does it cost me?",
    )
    parser.add_argument("--version", action="version", version=f"ropebench {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, go: Any, text: str, sweep: bool = False) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(go=go)
        if sweep:
            _sweep_options(sub)
        sub.add_argument("--json", action="store_true", help="print JSON instead of text")
        return sub

    run = command("run", _run, "measure: method × task × length on one model; goes on where it stopped", sweep=True)
    run.add_argument("--rerun", action="store_true", help="measure again what is already stored")
    command("plan", _plan, "what `run` would do: cells, tokens, what is already stored", sweep=True)
    listing = command("list", _list, "what can be named: methods, tasks, models, sweeps")
    listing.add_argument("what", choices=("methods", "tasks", "models", "sweeps"))
    listing.add_argument("--plugin", dest="plugins", action="append", metavar="FILE")
    listing.add_argument("--models", metavar="FILE")
    return parser


def _sweep(options: argparse.Namespace) -> Any:
    """The sweep of the flags, laid over a sweep file where one is named."""
    from dataclasses import fields, replace

    from ropebench.plan import Sweep, length_of

    sweep = Sweep.from_toml(options.sweep) if options.sweep else Sweep()
    given = {f.name: getattr(options, f.name, None) for f in fields(Sweep)}
    given = {name: value for name, value in given.items() if value is not None}
    for name in ("methods", "tasks"):
        if name in given:
            given[name] = tuple(word.strip() for word in given[name].split(",") if word.strip())
    for name in ("target", "trained_length"):
        if name in given:
            given[name] = length_of(given[name])
    tasks = {word.split(":")[0] for word in given.get("tasks", sweep.tasks)}
    if "n" in given:
        given["n"] = _by_task(given["n"].split(","), tasks, _count)
    if "docs" in given:
        given["docs"] = _by_task(given["docs"], tasks, str)
    if "plugins" in given:
        given["plugins"] = tuple(given["plugins"])
    return replace(sweep, **given)


def _by_task(words: Sequence[str], tasks: set[str], value: Any) -> Any:
    """One value for all tasks, or a mapping from words of the form TASK:VALUE."""
    named = {}
    for word in words:
        task, colon, rest = word.partition(":")
        if colon and task in tasks:
            named[task] = value(rest)
        elif len(words) > 1:
            raise UsageError(f"{word!r}: with several values write TASK:VALUE, with a task of: {', '.join(sorted(tasks))}")
        else:
            return value(word)
    return named


def _count(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise UsageError(f"--n {word!r}: the number of samples must be a whole number") from None


def _run(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.model import load, load_tokenizer
    from ropebench.plan import make_plan
    from ropebench.run import Stored, preflight, run_cells
    from ropebench.store import Writer

    _quiet()
    plan = make_plan(_sweep(options))
    writer = Writer(options.results)
    stored = Stored() if options.rerun else Stored.read(options.results)
    pending = [cell for cell in plan.cells if not stored.done(cell)]
    for note in plan.notes:
        sys.stderr.write(f"note: {note}\n")
    if len(pending) < len(plan.cells):
        sys.stderr.write(f"{len(plan.cells) - len(pending)} of {len(plan.cells)} cells are already stored\n")
    records = []
    if pending:
        first = pending[0]
        preflight(pending, load_tokenizer(first.card, first.trust_remote_code))
        loaded = load(first.card, first.device, first.dtype, first.attention, first.trust_remote_code)
        records = run_cells(pending, loaded, stored, writer, ["ropebench", *words], _progress)
        sys.stderr.write("\r\033[K" if sys.stderr.isatty() else "")
    failed = [r for r in records if r["outcome"]["status"] != "ok"]
    for record in failed:
        error = record["outcome"]["error"]
        sys.stderr.write(
            f"failed: {record['method']['label']} {record['task']['label']} at {record['condition']['length']}: "
            f"{record['outcome']['status']} ({error['type']}: {error['message'][:300]})\n"
        )
    if options.json:
        print(json.dumps(records))
    return 1 if failed else 0


def _quiet() -> None:
    """Keep libraries' progress bars and advice out of our output."""
    import os
    import warnings

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module="transformers")


def _progress(at: Any) -> None:
    """One line on a terminal; silence elsewhere except at the start of a cell."""
    cell = at.cell
    rate = f"{at.tokens_per_second:,.0f} tokens/s" if at.tokens_per_second else ""
    left = f"{at.seconds_left:,.0f} s left in cell" if at.seconds_left else ""
    text = (
        f"cell {at.number}/{at.cells}  {cell.method_label}  {cell.task_label}  length {cell.length}  "
        f"sample {at.sample + 1}/{at.samples}  {rate}  {left}"
    )
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text.strip()}")
        sys.stderr.flush()
    elif at.sample == 0:
        sys.stderr.write(text.strip() + "\n")
        sys.stderr.flush()


def _plan(options: argparse.Namespace, words: list[str]) -> int:
    return 0


def _list(options: argparse.Namespace, words: list[str]) -> int:
    return 0


if __name__ == "__main__":
    sys.exit(main())
