"""The word lists behind RULER's keys and word tasks: wonderwords 3.0.1. Other versions hold other words, so other
samples; a wrong one is refused."""

from __future__ import annotations

from functools import cache
from importlib import metadata, resources
from random import Random

from ropebench.errors import UsageError

VERSION = "3.0.1"
_SIZES = {"adjective": 912, "noun": 6782, "verb": 1042}
PAIRS = 6_171_620  # distinct adjective-noun pairs: 910 distinct adjectives × 6782 nouns, no pair made in two ways


@cache
def _list(kind: str) -> tuple[str, ...]:
    try:
        text = (resources.files("wonderwords") / "assets" / f"{kind}list.txt").read_text(encoding="utf-8")
    except ModuleNotFoundError:
        raise UsageError(f"RULER's words come from a package: pip install wonderwords=={VERSION}") from None
    words = tuple(line.rstrip() for line in text.splitlines())
    if len(words) != _SIZES[kind]:
        found = metadata.version("wonderwords")
        raise UsageError(f"wonderwords {found} has other words than RULER's: pip install wonderwords=={VERSION}")
    return words


@cache
def _parts() -> tuple[tuple[str, ...], tuple[str, ...]]:
    adjectives, nouns = (tuple(sorted(set(_list(kind)))) for kind in ("adjective", "noun"))
    assert len(adjectives) * len(nouns) == PAIRS
    return adjectives, nouns


def word_pair(rng: Random) -> str:
    """A key such as `quiet-lantern`, uniform over all distinct adjective-noun pairs."""
    adjectives, nouns = _parts()
    adjective, noun = divmod(rng.randrange(PAIRS), len(nouns))
    return f"{adjectives[adjective]}-{nouns[noun]}"


@cache
def single_words() -> tuple[str, ...]:
    """The 8166 distinct nouns, adjectives and verbs, sorted."""
    return tuple(sorted({word for kind in _SIZES for word in _list(kind)}))


def distinct_words(rng: Random, number: int) -> list[str]:
    """`number` different words in random order. Beyond the 8166 single words (lists of more than about 130,000 tokens),
    adjective-noun pairs follow; the original's larger list of English words is a data file of its own."""
    words = single_words()
    drawn = rng.sample(words, min(number, len(words)))
    seen = set(drawn)
    while len(drawn) < number:
        pair = word_pair(rng)
        if pair not in seen:
            seen.add(pair)
            drawn.append(pair)
    return drawn
