"""RULER's eight needle tasks: their settings, and how a sample of one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise, repeat
from random import Random
from typing import Any, Literal
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from ropebench.corpus import NOISE, Corpus
from ropebench.prompt import Encoder
from ropebench.ruler.depth import even_depths, grid_depths, nearest
from ropebench.ruler.haystack import any_beginning, prose, stretch, with_needles
from ropebench.ruler.prompts import NEEDLE, NIAH, singular
from ropebench.ruler.sizing import Draft, added_tokens, running_total, stream, take_until
from ropebench.ruler.words import word_pair
from ropebench.task import Example

Layout = Literal["balanced", "nvidia"]
Kind = Literal["words", "numbers", "uuids"]


@dataclass(frozen=True)
class Setting:
    """One of the needle tasks: haystack, kinds of key and value, and how many keys, values per key and queries."""

    haystack: Literal["noise", "needle", "essay"]
    key: Kind = "words"
    value: Kind = "numbers"
    keys: int = 1
    values: int = 1
    queries: int = 1


def random_item(kind: Kind, rng: Random) -> str:
    """A key or value: adjective-noun pair, 7-digit number, or version-4 UUID."""
    if kind == "words":
        return word_pair(rng)
    if kind == "numbers":
        return str(rng.randint(10**6, 10**7 - 1))
    return str(UUID(int=rng.getrandbits(128), version=4))


def distinct(kind: Kind, rng: Random, number: int, others: Sequence[str] = ()) -> list[str]:
    """`number` different items, none of them among `others`: each key has one answer only."""
    found: dict[str, None] = {}
    while len(found) < number:
        item = random_item(kind, rng)
        if item not in others:
            found[item] = None
    return list(found)


def needle(setting: Setting, key: str, value: str) -> str:
    return NEEDLE.format(type_needle_v=setting.value, key=key, value=value)


@dataclass(frozen=True)
class Question:
    """The needles of a sample with what is asked: `asked` are the numbers of the needles that are answers."""

    needles: tuple[str, ...]
    asked: tuple[int, ...]
    targets: tuple[str, ...]
    template: str
    answer_prefix: str


def question(setting: Setting, rng: Random) -> Question:
    """Keys, values and query of a sample, and RULER's wording for one or several answers."""
    keys = distinct(setting.key, rng, setting.keys)
    values = distinct(setting.value, rng, setting.keys * setting.values)
    pairs = [(key, values[k * setting.values + v]) for k, key in enumerate(keys) for v in range(setting.values)]
    queried = rng.sample(keys, setting.queries)
    asked = [n for key in queried for n, (of, _) in enumerate(pairs) if of == key]
    one = setting.queries * setting.values == 1
    template, prefix = (singular(part) if one else part for part in (NIAH.template, NIAH.answer_prefix))
    query = queried[0] if len(queried) == 1 else ", ".join(queried[:-1]) + ", and " + queried[-1]
    slots = {"type_needle_v": setting.value[:-1] if one else setting.value, "query": query}
    return Question(
        tuple(needle(setting, key, value) for key, value in pairs),
        tuple(asked),
        tuple(pairs[n][1] for n in asked),
        template.format(context="{context}", **slots),
        prefix.format(**slots),
    )


@dataclass(frozen=True)
class Hay:
    """A haystack of any size. `total`: tokens of the first n units; `places(n)`: units before which a needle may stand;
    `text(a, b)`: the units from a to b."""

    total: NDArray[np.int64]
    places: Callable[[int], NDArray[np.int64]]
    text: Callable[[int, int], str]
    joint: str


def needle_examples(
    name: str,
    setting: Setting,
    layout: Layout,
    length: int,
    encoder: Encoder,
    seed: int,
    corpus: Corpus | None,
    start: int,
) -> Iterator[Example]:
    """The samples of a needle task; see `ropebench.ruler` for what they promise."""
    hay = _essays(name, layout, encoder, seed, corpus) if setting.haystack == "essay" else None

    def draft(i: int, length: int) -> Draft:
        rng = Random(f"{name} needles {seed} {i}")
        asks = question(setting, rng)
        straw = hay(i, length) if hay else _lines(name, setting, asks, length, encoder, seed, i)
        return _draft(name, layout, asks, straw, seed, i, least=1 if hay else len(asks.needles))

    return stream(name, length, encoder, NIAH.new_tokens, draft, start=start)


def _essays(name: str, layout: Layout, encoder: Encoder, seed: int, corpus: Corpus | None) -> Callable[[int, int], Hay]:
    assert corpus is not None
    prose_of = cache(partial(prose, name, corpus, encoder))

    def hay(i: int, length: int) -> Hay:
        text = prose_of(length)
        # The original's haystack always begins with the first essay; ours with any sentence, or every sample would hide
        # its needles in the same words.
        start = 0 if layout == "nvidia" else any_beginning(text, Random(f"{name} haystack {seed} {i}"))
        part = stretch(text, start, length)
        return Hay(part.total, part.places, part.text, " ")

    return hay


def _lines(name: str, setting: Setting, asks: Question, length: int, encoder: Encoder, seed: int, i: int) -> Hay:
    if setting.haystack == "noise":
        tokens = np.repeat(added_tokens(encoder, ["\n" + NOISE]), max(length // 2, len(asks.needles)))
        return Hay(running_total(tokens), np.arange, lambda a, b: "\n".join([NOISE] * (b - a)), "\n")
    rng = Random(f"{name} haystack {seed} {i}")
    # A distractor with a queried key would be a second answer.
    drawn = (needle(setting, _unlike(setting, asks, rng), random_item(setting.value, rng)) for _ in repeat(None))
    lines, tokens = take_until(encoder, ((line, "\n" + line) for line in drawn), length)
    return Hay(running_total(tokens), np.arange, lambda a, b: "\n".join(lines[a:b]), "\n")


def _unlike(setting: Setting, asks: Question, rng: Random) -> str:
    while True:
        key = random_item(setting.key, rng)
        if f" {key} " not in asks.answer_prefix:
            return key


def _draft(name: str, layout: Layout, asks: Question, hay: Hay, seed: int, i: int, least: int) -> Draft:
    count = len(asks.needles)

    def render(units: int) -> tuple[str, Mapping[str, Any]]:
        places = hay.places(units) if hay.joint == " " else np.arange(units + 1)
        before = hay.total[places]
        if layout == "balanced":
            chosen = nearest(before, even_depths(name, seed, i, count))
        elif hay.joint == " ":
            depths = grid_depths(Random(f"{name} depths {seed} {i}"), count)
            chosen = [int((len(places) - 1) * depth) for depth in depths]
        else:
            chosen = Random(f"{name} depths {seed} {i}").sample(range(units), count)
        order = sorted(range(count), key=chosen.__getitem__)
        cuts = [0, *(int(places[chosen[n]]) for n in order), units]
        segments = [hay.text(a, b) for a, b in pairwise(cuts)]
        context = with_needles(segments, [asks.needles[n] for n in order], hay.joint)
        depths = [float(before[chosen[n]] / max(before[-1], 1)) for n in asks.asked]
        meta: dict[str, Any] = {"depth": sum(depths) / len(depths), "cluster": f"sample-{i}"}
        if count > 1:
            meta["depths"] = depths
        return asks.template.replace("{context}", context), meta

    total = hay.total
    return Draft(
        asks.targets,
        asks.answer_prefix,
        least,
        len(total) - 1,
        lambda units: int(total[units] - total[least]),
        render,
    )
