"""What a subset is measured by, and the scores of one sample under either scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal

from ropebench.errors import UsageError
from ropebench.infinitebench import lenient, scoring
from ropebench.infinitebench.prompts import NEW_TOKENS
from ropebench.task import Example, Metric, Output

Scorer = Literal["official", "lenient"]

SCORERS = {"official": scoring.NAME, "lenient": lenient.NAME}

_CHANCE = {
    "longbook_choice_eng": 0.25,
    "code_debug": 0.25,
    # Knowing how the subset is built, without reading: the answer is the argument and 2, 4, 6, 8 or 10 numbers from
    # -12 to 17, and right 2 times in 100 at best; or one of some 20 numbers.
    "code_run": 0.02,
    "math_find": 0.05,
}


def metrics_of(subset: str) -> tuple[Metric, ...]:
    """The subset's metrics, the official one first."""
    if subset == "math_calc":
        return (
            Metric("correct_prefix", "higher", unit="share of all values"),
            Metric("correct_values", "higher", high=None, chance=None, unit="values before the first error"),
        )
    name = {"longbook_sum_eng": "rouge_lsum", "longbook_qa_eng": "f1", "longbook_qa_chn": "f1"}.get(subset, "accuracy")
    return (Metric(name, "higher", chance=_CHANCE.get(subset, 0.0)),)


def scores(subset: str, scorer: Scorer, prompts: str, example: Example, output: Output) -> dict[str, float]:
    """The metrics of one sample. Where the official scorer stops with an error, the sample is wrong."""
    targets: Sequence[str] = example.targets
    options: Sequence[str] = example.meta.get("options", ())
    if subset in ("code_debug", "longbook_choice_eng"):  # stored as "B. option"
        letter, _, option = targets[0].partition(". ")
        targets = (option, letter)
    if scorer == "lenient":
        value = lenient.lenient(subset, output.text, targets, options)
    else:
        try:
            model = "gpt4" if prompts == "gpt4" else "yarn-mistral"
            value = scoring.official(subset, output.text, scoring.label_of(subset, targets, options), model)
        except ValueError:
            value = 0.0
    if subset != "math_calc":
        return {metrics_of(subset)[0].name: value}
    # The stored targets are the first of the values; the share is of all of them.
    right = round(value * len(targets))
    return {"correct_prefix": right / example.meta["values"], "correct_values": float(right)}


def check_rouge(name: str) -> None:
    """Raise UsageError where the library that computes ROUGE is not installed."""
    if find_spec("rouge_score") is None:
        raise UsageError(f"{name} needs rouge-score for ROUGE-Lsum: pip install 'ropebench[rouge]'")


def variant_of(subset: str, params: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """What follows the task's name in a label, in the words of the command line: each parameter that is not the
    default, and the answer budget where it is not the official one."""
    shown = {
        name: value
        for name, value in params.items()
        if name != "data_sha256" and value != (NEW_TOKENS[subset] if name == "max_new_tokens" else defaults[name])
    }
    return ":".join(f"{name}={value}" for name, value in shown.items())


def check_tokens(name: str, **values: int | None) -> None:
    """Raise UsageError for a number of tokens that cannot be one."""
    for parameter, value in values.items():
        least = 1 if parameter.startswith("max") else 0
        if value is not None and value < least:
            raise UsageError(f"{name}: {parameter}={value} must be at least {least}")
