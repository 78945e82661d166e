"""The words of `ropebench lens`. Imports nothing heavy."""

from __future__ import annotations

import argparse


def topics(lens: argparse.ArgumentParser) -> None:
    """Add the topics of the command to its parser."""
    words = lens.add_subparsers(dest="topic", metavar="TOPIC", required=True)
    _train(_topic(words, "train", "train the bundled model from scratch, or go on with it"))
    _spectrum(_topic(words, "spectrum", "how much of a model's attention lies at which rotary frequency"))
    _dependence(_topic(words, "dependence", "mutual information of a corpus by distance, its width, and π/W"))
    _experiment(_topic(words, "experiment", "train small models on data of known dependence, then fit and plot"))
    _kept(_topic(words, "report", "show what spectrum and dependence stored; with --out write lens.md and plots"))


def _topic(words: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str) -> argparse.ArgumentParser:
    return words.add_parser(name, help=text, description=text)


def _train(train: argparse.ArgumentParser) -> None:
    train.add_argument("what", choices=("tiny",))
    train.add_argument("--out", required=True, metavar="DIR", help="checkpoint, log and finished model are kept there")
    train.add_argument("--steps", type=int, metavar="N", help="optimizer steps in all (default: the recipe's)")
    train.add_argument("--seed", type=int, default=0, metavar="S")
    train.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: as many as there are cores)")
    train.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")


def _spectrum(sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    add("--model", metavar="NAME", help="alias (see `ropebench list models`), folder, or hub id")
    add("--method", "--methods", dest="methods", metavar="A,B:k=v", help="also under these methods (none: as it is)")
    add("--target", metavar="TOKENS", help="the length that sets the factor (default: 2 × the trained window)")
    add("--factor", type=float, metavar="S", help="pin the factor")
    docs = "text: installed (default), FOLDER, NAME=FOLDER or hub:ID; each further --docs is another domain"
    add("--docs", action="append", metavar="WORD", help=docs)
    add(
        "--task",
        "--tasks",
        dest="tasks",
        metavar="A,B:k=v",
        help="the same of arithmetic tasks: a domain of drills each",
    )
    add("--samples", type=int, default=2000, metavar="N", help="drills per task (default: 2000)")
    add("--n", type=int, default=8, metavar="N", help="prompts per domain (default: 8)")
    add("--length", metavar="TOKENS", help="tokens of a prompt (default: the trained window, at most 1024)")
    again = "also the same architecture with random weights, drawn so often (default: 4)"
    add("--random", type=int, nargs="?", const=4, default=0, metavar="INITS", help=again)
    bands = "attention scores are looked at on prompts of so many tokens (default: the target, at most 2048)"
    add("--score-length", metavar="TOKENS", help=bands)
    add("--seed", type=int, default=0, metavar="S", help="of random weights and drills")
    add("--bos", default="auto", metavar="RULE", help="auto (default), always or never")
    add("--trained-length", metavar="TOKENS", help="overrides the trained length of the config or alias")
    add("--revision", metavar="REV", help="hub revision of the model")
    add("--models", metavar="FILE", help="your own aliases (TOML; also ROPEBENCH_MODELS)")
    add("--device", default="auto", metavar="D")
    add("--dtype", default="auto", metavar="T")
    add("--attention", default="auto", metavar="A")
    add("--plugin", dest="plugins", action="append", metavar="FILE", help="a Python file with methods or tasks")
    add("--offline", action="store_true", default=None, help="use only what is already on this machine")
    add("--trust-remote-code", action="store_true", default=None, help="run code from the model's repository")
    _kept(sub)


def _dependence(sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    docs = "text: installed, FOLDER, NAME=FOLDER or hub:ID; each further --docs is another corpus"
    add("--docs", action="append", metavar="WORD", help=docs)
    tasks = "samples of such drills, one after the other, without the text around them"
    add("--task", "--tasks", dest="tasks", metavar="A,B:k=v", help=f"arithmetic tasks: {tasks}")
    add("--samples", type=int, default=8000, metavar="N", help="samples per task (default: 8000)")
    add("--most-bytes", default="2000000", metavar="N", help="read so much of a corpus (default: 2,000,000 bytes)")
    sizes = "BPE vocabularies trained on the corpus (default: of 320, 512, 2048, 8192 those it has merges for)"
    add("--vocabularies", metavar="A,B", help=sizes)
    add("--classes", type=int, default=64, metavar="V", help="token classes, 2 to 64 (default: 64)")
    reach = "the longest distance, in bytes (default: 4096); vocabularies: as many bytes"
    add("--distance", default="4096", metavar="BYTES", help=reach)
    add("--share", type=float, default=0.9, metavar="P", help="of the excess information within W (default: 0.9)")
    add("--seed", type=int, default=0, metavar="S")
    beside = "a model whose tokens are a granularity too, and whose θ_eff (lens spectrum) stands beside π/W"
    add("--model", metavar="NAME", help=beside)
    add("--trained-length", metavar="TOKENS", help="overrides the trained length of the config or alias")
    add("--revision", metavar="REV", help="hub revision of the model")
    add("--models", metavar="FILE", help="your own aliases (TOML; also ROPEBENCH_MODELS)")
    add("--plugin", dest="plugins", action="append", metavar="FILE", help="a Python file with tasks")
    add("--offline", action="store_true", default=None, help="use only what is already on this machine")
    _kept(sub)


def _experiment(sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    add("name", choices=("block", "igsm", "pi"))
    level = sub.add_mutually_exclusive_group()
    level.add_argument("--quick", dest="level", action="store_const", const="quick", help="to see that it runs")
    level.add_argument("--full", dest="level", action="store_const", const="full", help="more sizes, forms and seeds")
    sub.set_defaults(level="default")
    add("--forms", metavar="A,B", help="these kinds of data only, with as many models as the first has")
    add("--sizes", metavar="4,8", help="lengths of blocks (block), or numbers of operations (igsm)")
    add("--seeds", type=int, metavar="N", help="models of each size")
    add("--threads", type=int, metavar="N", help="CPU threads (default: as many as there are cores)")
    _kept(sub)


def _kept(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--out", metavar="DIR", help="write the tables and plots there, too")
    sub.add_argument("--results", default="results", metavar="DIR", help="results folder (default: results)")
    sub.add_argument("--json", action="store_true", help="print JSON instead of text")
