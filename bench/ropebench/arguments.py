"""The command line's words: its parser, and the sweep that they stand for. Imports nothing heavy."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ropebench import __version__
from ropebench.errors import UsageError, nearest, unknown
from ropebench.lens.arguments import topics

Command = Callable[[argparse.Namespace, list[str]], int]


_CODE = "a Python file with methods or tasks; it is run as code"
_YAML = "lm_eval:FOLDER is lm-eval's YAML, which is run as code"


class _Parser(argparse.ArgumentParser):
    """argparse's, with its errors as ours: one line, with the nearest match."""

    def error(self, message: str) -> NoReturn:
        given = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        near = nearest(given[1], re.findall(r"[\w-]+", given[2])) if given else None
        raise UsageError(f"{message}{f'; did you mean {near!r}?' if near else ''}; see {self.prog} --help")


def parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """The parser of `ropebench`; `commands` are the functions behind the command words."""
    top = _Parser(
        prog="ropebench",
        description="Which way of extending a RoPE model's context should I use, and what does it cost me?",
        epilog="Plug-in files (--plugin), lm-eval's YAML task folders and a model's own code (--trust-remote-code) are "
        "run as code. Results files, sweeps, documents and weights are only read.",
    )
    top.add_argument("--version", action="version", version=f"ropebench {__version__}")
    words = top.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        sub = words.add_parser(name, help=text, description=text)
        sub.set_defaults(go=commands[name], parser=sub)
        return sub

    run = command("run", "measure method × task × length on one model; goes on where an earlier run stopped")
    _sweep_arguments(run)
    run.add_argument("--rerun", action="store_true", help="measure again what is already stored")
    _executor(run)
    _watched(run)
    _json(run)
    plan = command("plan", "what `run` would do and cost: cells, tokens, FLOPs, memory, time; what is already stored")
    _sweep_arguments(plan)
    _probe(plan)
    _json(plan)
    inspect = command("inspect", "the rotary tables of methods on a model: wavelengths, slowdown, radix; no weights")
    _sweep_arguments(inspect)
    inspect.add_argument("--out", metavar="DIR", help="write inspect.json and the plot (PNG, SVG) there")
    _json(inspect)
    again = command(
        "reproduce", "measure again what a paper published, and print the deviation; flags override its sweep"
    )
    again.add_argument("name", metavar="NAME", help="such as mrrope-olmo-1b; a wrong name lists all")
    again.add_argument("--plan", action="store_true", help="measure nothing: what it would cost, and what would differ")
    _sweep_arguments(again, sweep=False)
    _published(again)
    again.add_argument("--rerun", action="store_true", help="measure again what is already stored")
    _executor(again)
    _probe(again)
    _watched(again)
    _json(again)
    listing = command("list", "what can be named: methods, tasks, models, sweeps or published numbers")
    listing.add_argument("what", choices=("methods", "tasks", "models", "sweeps", "published"))
    listing.add_argument("--plugin", dest="plugins", action="append", default=[], metavar="FILE", help=_CODE)
    listing.add_argument("--models", metavar="FILE", help="your own aliases (TOML)")
    _published(listing)
    pages = "print Markdown: of every task or method a page with its protocol, metrics, parameters, needs and source"
    listing.add_argument("--markdown", action="store_true", help=pages)
    listing.add_argument("--out", metavar="DIR", help="with --markdown: write a file per page there, and their index")
    _json(listing)
    report = command("report", "tables by length, and with --out Markdown, CSV and plots, from stored records")
    _results(report)
    report.add_argument("--metric", help="another metric than each task's primary one")
    report.add_argument("--model", help="this model only")
    _enough(report)
    beside = "published numbers beside yours where model, task and protocol match, and why not where they don't"
    report.add_argument("--published", nargs="?", const=True, metavar="FILE", help=f"{beside}; FILE has more of them")
    report.add_argument("--out", metavar="DIR", help="write report.md, report.csv and the plots there")
    formats = ("latex", "markdown", "csv", "json", "parquet")
    report.add_argument("--format", choices=formats, help="the tables alone: printed, or with --out a file for each")
    named = "with --format: one table by name (cells: a row per cell, all columns), or all"
    report.add_argument("--table", metavar="NAME", help=named)
    _json(report)
    board = command("leaderboard", "write the leaderboard (Markdown, CSV, plots) from stored records alone")
    _results(board)
    board.add_argument("--out", default="leaderboard", metavar="DIR", help="where to write (default: leaderboard)")
    _enough(board)
    board.add_argument("--check", action="store_true", help="write nothing; exit 1 if it is not up to date")
    adding = "look over a run's .jsonl from elsewhere, its sample rows beside it, and take it into the results folder"
    board.add_argument("--add", action="append", metavar="FILE", help=f"{adding} (with --check: only look)")
    out = command("export", "a method as settings of transformers, vLLM, SGLang or llama.cpp; loads no weights")
    _export(out)
    bring = command("import", "bring in results of another tool as records, marked as such")
    bring.add_argument("tool", choices=("lm-eval",), help="whose results")
    bring.add_argument("path", help="lm-eval's results_*.json (its samples_*.jsonl beside it), or a folder of them")
    bring.add_argument("--model", metavar="NAME", help="the model, where the file does not name it as you do")
    bring.add_argument("--models", metavar="FILE", help="your own aliases (TOML)")
    bring.add_argument("--revision", metavar="REV", help="revision of the weights")
    bring.add_argument("--trained-length", metavar="TOKENS", help="the trained window, where --model is no alias")
    bring.add_argument("--length", metavar="TOKENS", help="longest input, where the file does not tell")
    _results(bring)
    versus = command("compare", "two methods, models or runs on the samples that both have: differences, tests, power")
    versus.add_argument(
        "a", metavar="A", help="a method label (yarn×2, or yarnx2), model=NAME, a run id or results folder"
    )
    versus.add_argument("b", metavar="B", help="another of the same kind")
    versus.add_argument("--task", metavar="T", help="this task only, by name or label")
    versus.add_argument("--length", metavar="TOKENS", help="this length only")
    versus.add_argument("--model", metavar="NAME", help="this model only")
    versus.add_argument("--metric", metavar="M", help="another metric than each task's primary one")
    versus.add_argument(
        "--detect", type=float, metavar="D", help="also the n that would show a difference of D (points)"
    )
    _results(versus)
    _json(versus)
    show = command("show", "one cell, or one of its samples: prompt head and tail, ids, output, score")
    show.add_argument("cell", help="cell id, or its first characters (see `ropebench report --json`)")
    show.add_argument("--sample", type=int, metavar="I", help="the sample's index")
    show.add_argument("--docs", metavar="WORD", help="the long text of the cell, where it is not installed")
    show.add_argument("--data", metavar="FOLDER", help="the files that the task reads (its parameter data=)")
    show.add_argument("--plugin", dest="plugins", action="append", default=[], metavar="FILE", help=_CODE)
    show.add_argument("--models", metavar="FILE")
    _results(show)
    _json(show)
    verify = command("verify", "look over stored records: layout, hashes, every number and rotary table computed again")
    verify.epilog = (
        "Exit code 0: in order, 1: something is wrong, named by file and line, 2: nothing to look at. What is "
        "consistent in itself passes, true or not: only measuring again (run --rerun, reproduce) shows a forgery."
    )
    verify.add_argument(
        "results", metavar="DIR", nargs="?", default="results", help="results folder (default: results)"
    )
    _json(verify)
    harness = command("lm-eval", "lm-eval's own command line, with --model ropebench and ropebench's tasks in it")
    harness.usage = "ropebench lm-eval [--plugin FILE] (--path | lm-eval's own words, such as run --help)"
    harness.epilog = "Example: ropebench lm-eval --model ropebench --model_args pretrained=M,method=yarn,factor=4 -t T"
    harness.add_argument("--path", action="store_true", help="print the folder for stock lm-eval's --include_path")
    harness.add_argument("--plugin", dest="plugins", action="append", default=[], metavar="FILE", help=_CODE)
    topics(command("lens", "how a model uses its frequencies, how a corpus depends on distance; small models"))
    cache = command("cache", "where the cache is and how large; --clear empties it")
    cache.add_argument("--clear", action="store_true")
    return top


def parsed(top: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """What the words mean. Of `lm-eval` only our own options, which come first, are read; the others are in `rest`.

    Raises UsageError for a word that is not known.
    """
    at = len(words)
    if words[:1] == ["lm-eval"]:
        at = 1
        while at < len(words) and words[at].partition("=")[0] in ("--path", "--plugin", "-h", "--help"):
            at += 2 if words[at] == "--plugin" else 1
    options, left = top.parse_known_args(words[:at])
    if left:
        sub = options.parser if options.command else top
        near = nearest(left[0].partition("=")[0], re.findall(r"--[\w-]+", sub.format_help()))
        meant = f"; did you mean {near}?" if near else ""
        raise UsageError(f"unrecognized arguments: {' '.join(left)}{meant}; see {sub.prog} --help")
    options.rest = list(words[at:])
    return options


def _enough(sub: argparse.ArgumentParser) -> None:
    share = "effective length: the share of the unmodified model's score that a method has to keep (default: 85)"
    sub.add_argument("--effective-share", type=float, default=85.0, metavar="PERCENT", help=share)
    score = "effective length: the score that it has to reach (default: 85.6, RULER's)"
    sub.add_argument("--effective-threshold", type=float, default=85.6, metavar="PERCENT", help=score)


def _json(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--json", action="store_true", help="print JSON instead of text")


def _results(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--results", default="results", metavar="DIR", help="results folder (default: results)")


def _published(sub: argparse.ArgumentParser) -> None:
    form = "more published numbers, in a TOML file of the form of ropebench/published"
    sub.add_argument("--published", action="append", default=[], metavar="FILE", help=form)


def _sweep_arguments(sub: argparse.ArgumentParser, sweep: bool = True) -> None:
    add = sub.add_argument
    add("--model", metavar="NAME", help="alias (see `ropebench list models`), folder, or hub id")
    add("--as-method", metavar="A", help="of a served model (--model openai:http://HOST:PORT/v1): the method it runs")
    add("--tokenizer", metavar="NAME", help="of a served model: the model whose tokenizer and config it has")
    add("--served-model", metavar="NAME", help="of a served model: its name there (default: the only one)")
    add("--method", "--methods", dest="methods", metavar="A,B:k=v", help="methods: comma between, parameters by colon")
    add(
        "--tasks", "--task", dest="tasks", metavar="A,B:k=v", help=f"tasks, likewise (default: proofpile,niah); {_YAML}"
    )
    if sweep:
        add("--sweep", metavar="FILE", help="a sweep file (TOML), or a built-in one by name; flags override it")
    add("--lengths", metavar="2k,4k", help="lengths in tokens (default: ½, 1, 2 and 4 × the trained length)")
    add("--target", metavar="TOKENS", help="the length that sets the factor for every length (default: the longest)")
    add("--matched", action="store_true", default=None, help="factor = length ÷ trained length, cell by cell")
    add("--factor", type=float, metavar="S", help="pin the factor")
    add("--n", metavar="N", help="samples per cell, or TASK:N,TASK:N; a larger n tops up")
    add("--seed", type=int, metavar="S")
    docs = "long text: installed, FOLDER, NAME=FOLDER, noise, or hub:ID; TASK:WORD for one task (repeatable)"
    add("--docs", action="append", metavar="WORD", help=docs)
    add("--bos", metavar="RULE", help="auto (default: what the tokenizer adds), always, or never")
    add("--chat-template", metavar="MODE", help="auto (default), on or off")
    add("--base", metavar="BASE", help="unscaled (default) or native: the table that methods start from")
    add("--no-baseline", dest="baseline", action="store_false", default=None, help="leave out the unmodified model")
    add("--trained-length", metavar="TOKENS", help="overrides the trained length of the config or alias")
    add("--revision", metavar="REV", help="hub revision of the model")
    add("--models", metavar="FILE", help="your own aliases (TOML; also ROPEBENCH_MODELS)")
    add("--device", metavar="D", help="auto (default), cuda, cuda:1, mps or cpu")
    add("--dtype", metavar="T", help="auto (default), float32, bfloat16 or float16")
    add("--attention", metavar="A", help="auto (default: sdpa where the model has it, else eager), sdpa, eager …")
    add("--compile", action="store_true", default=None, help="torch.compile the model's layers")
    add("--device-map", metavar="auto", help="auto: spread the layers over all devices (needs accelerate)")
    add("--quantize", metavar="Q", help="bnb4 or bnb8: quantise the weights while loading (needs bitsandbytes)")
    add("--batch-size", metavar="N", help="samples at once: 1 (default), N, or auto; no number depends on it")
    add("--offline", action="store_true", default=None, help="use only what is already on this machine")
    add("--trust-remote-code", action="store_true", default=None, help="run code from the model's repository")
    add("--plugin", dest="plugins", action="append", metavar="FILE", help=_CODE)
    _results(sub)


def _export(sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    add("--method", required=True, metavar="M:k=v", help="the method, parameters by colon")
    add("--model", required=True, metavar="NAME", help="alias (see `ropebench list models`), folder, or hub id")
    add("--target", required=True, metavar="TOKENS", help="the longest sequence to serve; it sets the factor")
    add("--to", required=True, metavar="ENGINE", help="hf, vllm, sglang or llama.cpp")
    files = "hf: a folder for config.json, or a .json file; vllm, sglang: a file for the overrides; llama.cpp: the GGUF"
    add("--out", metavar="PATH", help=files)
    add("--patch", action="store_true", help="hf: write the keys that change alone, not the whole config")
    add("--gguf", metavar="FILE", help="llama.cpp: the model's GGUF file, which is copied")
    add("--force", action="store_true", help="replace what is at --out")
    add("--base", default="unscaled", metavar="BASE", help="unscaled (default) or native: the table methods start from")
    add("--trained-length", metavar="TOKENS", help="overrides the trained length of the config or alias")
    add("--revision", metavar="REV", help="hub revision of the model")
    add("--models", metavar="FILE", help="your own aliases (TOML; also ROPEBENCH_MODELS)")
    add("--offline", action="store_true", help="use only what is already on this machine")
    add("--trust-remote-code", action="store_true", help="run code from the model's repository")
    add("--plugin", dest="plugins", action="append", default=[], metavar="FILE", help="a Python file with methods")
    _json(sub)


def _watched(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("-q", "--quiet", action="store_true", help="no notes and no progress; failures are still said")
    log = "one JSON object per line and event, appended to FILE, or on standard error in place of progress"
    sub.add_argument("--log-json", nargs="?", const="-", metavar="FILE", help=log)


def _executor(sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    add("--executor", choices=("local", "ray"), default="local", help="ray: over many GPUs, CPUs or machines")
    add("--address", metavar="A", help="the Ray cluster: auto (the running one), local, HOST:PORT (default: Ray's own)")
    add("--gpus-per-cell", type=float, metavar="G", help="GPUs of each Ray worker (default: 1 where there are any)")
    add("--workers", type=int, metavar="N", help="Ray workers (default: as many as the GPUs, or CPUs, allow)")


def _probe(sub: argparse.ArgumentParser) -> None:
    text = "for the plan: load the model and measure for some seconds how fast it is"
    sub.add_argument("--probe", action="store_true", help=text)


def sweep_of(options: argparse.Namespace) -> Any:
    """The `Sweep` of the flags, laid over a sweep file where one is named. Raises UsageError for unreadable words."""
    from dataclasses import fields, replace

    from ropebench.plan import Sweep, length_of

    sweep = Sweep.from_toml(options.sweep) if options.sweep else Sweep()
    words = {f.name: getattr(options, f.name, None) for f in fields(Sweep)}
    given: dict[str, Any] = {name: value for name, value in words.items() if value is not None}
    for name in ("methods", "tasks"):
        if name in given:
            given[name] = tuple(word.strip() for word in given[name].split(",") if word.strip())
    for name in ("target", "trained_length"):
        if name in given:
            given[name] = length_of(given[name])
    # A flag that says how the factor is found replaces whatever rule the file has.
    rules = ("target", "matched", "factor")
    if any(name in given for name in rules):
        given = {**{name: getattr(Sweep(), name) for name in rules}, **given}
    tasks = [word.split(":")[0] for word in given.get("tasks", sweep.tasks)]
    if "n" in given:
        given["n"] = _over(sweep.n, by_task(given["n"].split(","), tasks, _count), tasks)
    if "docs" in given:
        given["docs"] = _over(sweep.docs, by_task(given["docs"], tasks, str), tasks)
    if "plugins" in given:
        given["plugins"] = tuple(given["plugins"])
    for name in ("n", "docs", "lengths"):
        # Per-task settings of a sweep file whose task was left out on the command line.
        value = getattr(sweep, name)
        if name not in given and isinstance(value, Mapping) and "tasks" in given:
            given[name] = {task: v for task, v in value.items() if task in tasks} or None
    return replace(sweep, **given)


def by_task(words: Sequence[str], tasks: Sequence[str], value: Callable[[str], Any]) -> Any:
    """One value for all tasks, or a mapping from words of the form TASK:VALUE."""
    named = {}
    for word in words:
        task, colon, rest = word.partition(":")
        if colon and task in tasks:
            named[task] = value(rest)
        elif colon and value is _count:
            raise unknown(f"task in --n {word}:", task, tasks, "a number alone is for every task")
        elif len(words) > 1:
            raise UsageError(f"{word!r}: with several values write TASK:VALUE, where TASK is one of {', '.join(tasks)}")
        else:
            return value(word)
    return named


def _over(old: Any, new: Any, tasks: Sequence[str]) -> Any:
    """`new` for the tasks it names, what the sweep file says for the others."""
    if not isinstance(new, Mapping) or old is None:
        return new
    before = old if isinstance(old, Mapping) else dict.fromkeys(tasks, old)
    return {task: value for task, value in before.items() if task in tasks} | dict(new)


def _count(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise UsageError(f"--n {word!r}: the number of samples must be a whole number, or TASK:N") from None
