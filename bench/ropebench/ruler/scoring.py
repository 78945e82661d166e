"""RULER's scorers and the summary over lengths, as `scripts/eval` of NVIDIA/RULER @ c3f5e3b computes them.

From task scores to a row of a table: `length_score` of the 13 at each length, `length_summary` of these over lengths.
Nothing here knows a model or a DataFrame.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_CONTROL = re.compile(r"[\x00-\x1f]")

EFFECTIVE = 85.6  # percent: Llama-2-7B-chat at 4K, the paper's threshold of a length that still works
NUMBER_OF_TASKS = 13


def cleaned(prediction: str) -> str:
    """A prediction as it is scored: stripped, each control character a newline, stripped again."""
    return _CONTROL.sub("\n", prediction.strip()).strip()


def match_all(prediction: str, references: Sequence[str]) -> float:
    """Share of the references (0–1) that the prediction holds: lower case, plain substring, no word boundary."""
    return sum(_matches(prediction, references)) / len(references)


def match_part(prediction: str, references: Sequence[str]) -> float:
    """1 when the prediction holds any of the references, else 0."""
    return max(_matches(prediction, references))


def _matches(prediction: str, references: Sequence[str]) -> list[float]:
    """Per reference 1 or 0. A bare string is a TypeError: it would be compared letter by letter (NVIDIA/RULER#30)."""
    if isinstance(references, str):
        raise TypeError(f"references must be a sequence of strings, not the string {references[:40]!r}")
    if not references:
        raise ValueError("a sample without a reference cannot be scored")
    return [float(reference.lower() in prediction.lower()) for reference in references]


def string_match_all(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Percent, two decimals: the mean over samples of `match_all`."""
    return _percent(match_all, predictions, references)


def string_match_part(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Percent, two decimals: the mean over samples of `match_part`."""
    return _percent(match_part, predictions, references)


def _percent(
    match: Callable[[str, Sequence[str]], float], predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> float:
    if isinstance(predictions, str) or isinstance(references, str):
        raise TypeError("predictions are a sequence of strings, references a sequence of sequences of strings")
    if not predictions or len(predictions) != len(references):
        raise ValueError(f"{len(predictions)} predictions for {len(references)} samples")
    # Summed in the order and divided in the way of the original, so that the last digit agrees.
    total = sum(match(prediction, wanted) for prediction, wanted in zip(predictions, references, strict=True))
    return round(total / len(predictions) * 100, 2)


def length_score(scores: Mapping[str, float]) -> float | None:
    """The score of a length: the plain mean of its 13 task scores (by task name, all in one unit); None while one is
    missing."""
    if len(scores) > NUMBER_OF_TASKS:
        raise ValueError(f"{len(scores)} task scores for one length; RULER has {NUMBER_OF_TASKS}")
    return sum(scores.values()) / NUMBER_OF_TASKS if len(scores) == NUMBER_OF_TASKS else None


@dataclass(frozen=True)
class LengthSummary:
    """Over lengths: the plain mean, the means weighted 1, 2, 3 … towards long and towards short, and the longest length
    at or above the threshold (None: no length is)."""

    mean: float
    increasing: float
    decreasing: float
    effective_length: int | None


def length_summary(scores: Mapping[int, float], threshold: float = EFFECTIVE) -> LengthSummary:
    """The summary of one model's length scores, by length in tokens. Scores and threshold in the same unit: percent
    with the default; `threshold=EFFECTIVE / 100` for scores of 0–1.

    The effective length is the longest at or above the threshold, as the original takes it, also where a shorter one is
    below. Raises ValueError where there is no score.

    >>> length_summary({4096: 96.5, 8192: 95.8, 16384: 95.4, 32768: 94.8, 65536: 88.4, 131072: 66.6}).effective_length
    65536
    """
    if not scores:
        raise ValueError("no length has a score")
    ordered = [scores[length] for length in sorted(scores)]
    weights = range(1, len(ordered) + 1)

    def weighted(values: Sequence[float]) -> float:
        return sum(w * value for w, value in zip(weights, values, strict=True)) / sum(weights)

    enough = [length for length in scores if scores[length] >= threshold]
    return LengthSummary(
        sum(ordered) / len(ordered), weighted(ordered), weighted(ordered[::-1]), max(enough, default=None)
    )
