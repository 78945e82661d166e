"""RULER's two aggregation tasks: the commonest words of a list (cwe), and of a coded text (fwe)."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ropebench.prompt import Encoder
from ropebench.ruler.prompts import CWE, FWE
from ropebench.ruler.sizing import Draft, added_tokens, running_total, stream
from ropebench.ruler.words import distinct_words
from ropebench.task import Example

NVIDIA_SEED = 42  # the original shuffles every sample with it: the same layout in all

COMMON = 10
_LEAST_WORDS = 20  # as many as the shorter worked example has: ten common, ten that are not

ALPHA = 2.0
_ZETA = np.pi**2 / 6  # ζ(ALPHA)
_CODED = 6  # letters of a coded word
_RANKS = slice(1, 4)  # the answers: rank 1 is noise


def repeats(length: int) -> tuple[int, int, int, int, int]:
    """Settings of cwe by length: words of the worked example, how often its common and its other words stand there, and
    the same two numbers for the real list."""
    return (20, 3, 1, 6, 1) if length < 4096 else (40, 10, 3, 30, 3)


def numbered(words: Sequence[str]) -> str:
    return " ".join(f"{i}. {word}" for i, word in enumerate(words, 1))


def shuffled(words: Sequence[str], often: int, seldom: int, rng: Random) -> list[str]:
    """The first ten words `often` times each, the others `seldom` times, in random order."""
    drawn = list(words[:COMMON]) * often + list(words[COMMON:]) * seldom
    rng.shuffle(drawn)
    return drawn


def common_words_examples(
    name: str, layout: str, length: int, encoder: Encoder, seed: int, start: int
) -> Iterator[Example]:
    """The samples of common words extraction; see `ropebench.ruler` for what they promise."""

    def shuffler(i: int, part: str) -> Random:
        return Random(NVIDIA_SEED) if layout == "nvidia" else Random(f"{name} order {part} {seed} {i}")

    def draft(i: int, length: int) -> Draft:
        in_example, example_often, example_seldom, often, seldom = repeats(length)
        rng = Random(f"{name} words {seed} {i}")
        shown = distinct_words(rng, in_example)
        listed = numbered(shuffled(shown, example_often, example_seldom, shuffler(i, "example")))
        example = CWE.template.format(context=listed) + CWE.answer_prefix + " " + numbered(shown[:COMMON]) + "\n"
        # A word adds at least a number, a point and itself, `seldom` times.
        most = max(length // (3 * seldom), _LEAST_WORDS)
        words = distinct_words(rng, most)
        tokens = added_tokens(encoder, [" " + word for word in words])
        items = COMMON * often + (most - COMMON) * seldom
        before = running_total(_numbers(encoder, items))
        total = running_total(tokens[COMMON:]) * seldom + before[COMMON * often :: seldom]

        def render(units: int) -> tuple[str, Mapping[str, Any]]:
            order = shuffled(words[:units], often, seldom, shuffler(i, "list"))
            answers = set(words[:COMMON])
            depth = _mean_place([word in answers for word in order])
            text = example + CWE.template.format(context=numbered(order))
            return text, {"depth": depth, "cluster": f"sample-{i}", "items": len(order)}

        def extra(units: int) -> int:
            return int(total[units - COMMON] - total[_LEAST_WORDS - COMMON])

        return Draft(tuple(words[:COMMON]), CWE.answer_prefix, _LEAST_WORDS, most, extra, render)

    return stream(name, length, encoder, CWE.new_tokens, draft, start=start)


def _numbers(encoder: Encoder, items: int) -> NDArray[np.int64]:
    """Tokens of the numbers ` 1.` … ` items.`"""
    return added_tokens(encoder, [f" {number}." for number in range(1, items + 1)])


def _mean_place(wanted: Sequence[bool]) -> float:
    """Where the wanted items of a list lie on average, 0–1."""
    return float(np.flatnonzero(wanted).mean() / max(len(wanted) - 1, 1))


@cache
def _shares(ranks: int) -> NDArray[np.float64]:
    """The share of the coded words that each rank is expected to have: k^−α / ζ(α)."""
    return np.arange(1, ranks + 1, dtype=np.float64) ** -ALPHA / float(_ZETA)


def counts(words: int, ranks: int) -> NDArray[np.int64]:
    """How often the coded word of each rank stands in a text of nominally `words` words: the shares, rounded down. A
    size at which the fifth would stand as often as the fourth has no right answer: the next lower one is taken."""
    while True:
        found = (words * _shares(ranks)).astype(np.int64)
        if ranks < 5 or found[3] > found[4] or words <= _LEAST_CODED:
            return found
        words -= 1


_LEAST_CODED = 27  # nominal words with which the third answer stands there once, and no other word


def coded_words(rng: Random, number: int) -> list[str]:
    """Different random words of six letters, by rank; the commonest is three dots, which are to be ignored."""
    found: dict[str, None] = {"...": None}
    while len(found) < number:
        found["".join(rng.choices(string.ascii_lowercase, k=_CODED))] = None
    return list(found)


def frequent_words_examples(
    name: str, layout: str, length: int, encoder: Encoder, seed: int, start: int
) -> Iterator[Example]:
    """The samples of frequent words extraction; see `ropebench.ruler` for what they promise."""

    def draft(i: int, length: int) -> Draft:
        ranks = max(length // 50, 4)
        most = max(2 * length, _LEAST_CODED)
        seen = int((counts(most, ranks) > 0).sum())  # the others never stand in the text
        words = coded_words(Random(f"{name} words {seed} {i}"), seen)
        tokens = added_tokens(encoder, [" " + word for word in words])
        answers = words[_RANKS]

        def size(units: int) -> int:
            return int(counts(units, ranks)[:seen] @ tokens)

        def render(units: int) -> tuple[str, Mapping[str, Any]]:
            often = counts(units, ranks)[:seen].tolist()
            text = [word for word, n in zip(words, often, strict=True) for _ in range(n)]
            (Random(NVIDIA_SEED) if layout == "nvidia" else Random(f"{name} order {seed} {i}")).shuffle(text)
            meta = {"depth": _mean_place([w in answers for w in text]), "cluster": f"sample-{i}", "items": len(text)}
            return FWE.template.format(context=" ".join(text)), meta

        return Draft(
            tuple(answers),
            FWE.answer_prefix,
            _LEAST_CODED,
            most,
            lambda units: size(units) - size(_LEAST_CODED),
            render,
        )

    return stream(name, length, encoder, FWE.new_tokens, draft, start=start)
