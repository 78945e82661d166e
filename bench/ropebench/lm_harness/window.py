"""Which tokenizer and which window the model at hand has, out of the arguments that lm-eval hands to a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from ropebench.aliases import aliases
from ropebench.errors import UsageError
from ropebench.lm_harness.setting import ModelArguments, Setting
from ropebench.model import load_tokenizer
from ropebench.sweep import length_of

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
            "ropebench's tasks measure prompts by the model's tokenizer: give --metadata tokenizer=NAME (in Python, with "
            "a model that is made already: metadata={'tokenizer': …, 'max_length': …})"
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
