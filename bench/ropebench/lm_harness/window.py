"""Which tokenizer, which window and which lengths: what lm-eval hands to a task, `--metadata` and the model's arguments
in one mapping."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from ropebench.aliases import aliases
from ropebench.errors import UsageError, unknown
from ropebench.lm_harness.setting import ModelArguments, Setting
from ropebench.model import load_tokenizer
from ropebench.sweep import length_of
from ropebench.task import Task

OWN = ("max_seq_lengths", "lengths", "n", "docs", "seed", "bos")  # keys of --metadata that are ours

_WINDOWS = ("max_length", "max_model_len")  # Hugging Face and ours; vLLM


def max_length_of(given: Mapping[str, Any], tokenizer: Any) -> int:
    """The window that prompts have to fit into: as given, else the model's own.

    Raises UsageError where neither is known (lm-eval would silently take 2048), or truncation is asked for.
    """
    if given.get("truncation"):
        raise UsageError("--model_args truncation: cuts prompts, and with them what is asked for; leave it out")
    for name in _WINDOWS:
        if given.get(name) is not None:
            return length_of(given[name])
    found = _ours(given)
    window = found.max_length if found else _config_window(*_hub(given))
    if not window:
        raise UsageError(
            "the model's window is not known (its config has no length, and lm-eval would take 2048); add max_length=… "
            "to --model_args, or to --metadata where the model was made elsewhere"
        )
    return window


def tokenizer_of(given: Mapping[str, Any]) -> Any:
    """The model's tokenizer, as lm-eval's own model loads it. Raises UsageError where no name is given."""
    named = given.get("tokenizer") or given.get("pretrained")
    if named is None:
        raise UsageError(
            "ropebench's tasks measure prompts by the model's tokenizer: give --metadata tokenizer=NAME (in Python: "
            "metadata={'tokenizer': …, 'max_length': …})"
        )
    if not isinstance(named, str):
        return named
    found = None if given.get("tokenizer") else _ours(given)
    if found is not None:
        return load_tokenizer(found.card, found.arguments.trust_remote_code)
    return _hub_tokenizer(named, *_hub(given)[1:])


def _ours(given: Mapping[str, Any]) -> Setting | None:
    """The setting of `--model ropebench`, which is known by its arguments or by the alias of its model."""
    names = {f.name for f in fields(ModelArguments)}
    told = {"method", "factor", "target", "base", "trained_length", "models", "bos"} & given.keys()
    if not (told or given.get("pretrained") in aliases(given.get("models"))):
        return None
    return _setting(tuple(sorted((name, given[name]) for name in names & given.keys())))


@cache
def _setting(arguments: tuple[tuple[str, Any], ...]) -> Setting:
    return Setting.of(ModelArguments.of(dict(arguments)))


def _hub(given: Mapping[str, Any]) -> tuple[str | None, str, bool]:
    named = given.get("pretrained")
    return (
        named if isinstance(named, str) else None,
        str(given.get("revision", "main")),
        bool(given.get("trust_remote_code", False)),
    )


@cache
def _hub_tokenizer(name: str, revision: str, trust: bool) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=trust)


@cache
def _config_window(name: str | None, revision: str, trust: bool) -> int:
    """The window that lm-eval's Hugging Face model finds in a config; 0 where there is none."""
    if name is None:
        return 0
    from lm_eval.models.utils import resolve_max_length
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=trust)
    return int(resolve_max_length(config, None, default=0))


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """`--metadata`, which also holds the model's arguments, so that a word of ours can only be told from theirs by
    being misspelled. Raises UsageError for one that is."""
    for name in given:
        if name not in OWN and difflib.get_close_matches(name, OWN, 1, 0.9):
            raise unknown("key in --metadata:", name, OWN)
    return dict(given)


def lengths_of(task: Task, given: Mapping[str, Any]) -> tuple[int, ...]:
    """The lengths asked for in `--metadata`, else the model's window. Raises UsageError for one that is below the
    task's minimum, or above the window, where lm-eval would cut."""
    asked = given.get("max_seq_lengths", given.get("lengths"))
    window = max_length_of(given, None)
    words = [window] if asked is None else asked.split(",") if isinstance(asked, str) else asked
    lengths = tuple(dict.fromkeys(length_of(word) for word in (words if isinstance(words, Iterable) else [words])))
    for length in lengths:
        if length < task.minimum_length:
            raise UsageError(
                f"length {length} is below the minimum of task {task.name!r} ({task.minimum_length} tokens)"
                + ("; give max_seq_lengths in --metadata, and max_length in --model_args" if asked is None else "")
            )
        if length > window:
            raise UsageError(
                f"length {length} of task {task.name!r}: the model's window is {window}, and lm-eval would cut the "
                f"prompt's beginning off; add max_length={max(lengths)} to --model_args"
            )
    return lengths
