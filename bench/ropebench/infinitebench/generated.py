"""The synthetic subsets at any length: rows of our own making, built as the published ones are.

Sample i depends on (seed, i) alone, and what is asked for is spread evenly over depth. Two things differ from the
published rows: no key begins with 0, which a model may leave out for reasons that are none of position; and numbers of
math_find are drawn so that the answer is the same however many of them fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from random import Random
from typing import Any
from uuid import UUID

import numpy as np

from ropebench.infinitebench import structure
from ropebench.infinitebench.prompts import Prompts, filled
from ropebench.infinitebench.rows import Row
from ropebench.prompt import Encoder
from ropebench.ruler.depth import even_depths, nearest
from ropebench.ruler.sizing import Draft, added_tokens, running_total, stream, take_until
from ropebench.task import Example

LEVELS = (2, 4, 6, 8, 10)  # of code_run: how many functions a call runs through
ADDED = (-12, 17)  # the smallest and the largest number that a function adds
ARGUMENTS = (-10, 10)

_LEAST_LINES = 4
_LEAST_PAIRS = 9  # beside the one that is asked for
_LEAST_NUMBERS = 20


@dataclass(frozen=True)
class Asked:
    """One sample to be made: of which task, with which tokenizer, and how long."""

    task: str
    subset: str
    prompts: Prompts
    encoder: Encoder
    seed: int
    i: int
    length: int

    def rng(self, what: str) -> Random:
        return Random(f"{self.task} {what} {self.seed} {self.i}")

    def depths(self, number: int) -> list[float]:
        return even_depths(self.task, self.seed, self.i, number)

    def text(self, context: str, question: str) -> str:
        return filled(self.subset, self.prompts, Row(self.i, context, question, ()))

    def meta(self, **more: Any) -> Mapping[str, Any]:
        return {"cluster": f"sample-{self.i}", **more}


def generated_examples(
    task: str, subset: str, prompts: Prompts, new_tokens: int, length: int, encoder: Encoder, seed: int
) -> Iterator[Example]:
    """Samples without end. Raises UsageError with the smallest length that works for one that is too short."""
    draft = _DRAFTS[subset]

    def made(i: int, length: int) -> Draft:
        return draft(Asked(task, subset, prompts, encoder, seed, i, length))

    return stream(task, length, encoder, new_tokens, made)


def pass_key(rng: Random) -> str:
    """Five digits."""
    return str(rng.randrange(10_000, 100_000))


def digit_string(rng: Random) -> str:
    """Ten digits: five, and five times one of those that are there doubled."""
    digits = list(pass_key(rng))
    for _ in range(5):
        at = rng.randrange(len(digits))
        digits.insert(at, digits[at])
    return "".join(digits)


def _needle(asked: Asked) -> Draft:
    key = {"passkey": pass_key, "number_string": digit_string}[asked.subset](asked.rng("key"))
    needle = structure.NEEDLES[asked.subset].format(key=key)
    line = int(added_tokens(asked.encoder, [structure.NOISE_LINE])[0])

    def render(lines: int) -> tuple[str, Mapping[str, Any]]:
        (before,) = nearest(np.arange(lines + 1), asked.depths(1))
        context = structure.NOISE_LINE * before + needle + structure.NOISE_LINE * (lines - before)
        return asked.text(context, structure.QUESTIONS[asked.subset]), asked.meta(depth=before / lines)

    most = max(asked.length // 2, _LEAST_LINES)
    return Draft((key,), "", _LEAST_LINES, most, lambda lines: (lines - _LEAST_LINES) * line, render)


def _kv_retrieval(asked: Asked) -> Draft:
    rng = asked.rng("pairs")

    def uuid() -> str:
        return str(UUID(int=rng.getrandbits(128), version=4))

    key, value = uuid(), uuid()
    drawn = (structure.pair(uuid(), uuid()) for _ in repeat(None))
    others = list(islice(drawn, _LEAST_PAIRS))
    others += take_until(asked.encoder, ((text, f", {text}") for text in drawn), asked.length)[0]
    total = running_total(added_tokens(asked.encoder, [f", {text}" for text in others]))

    def render(number: int) -> tuple[str, Mapping[str, Any]]:
        (before,) = nearest(total[: number + 1], asked.depths(1))
        pairs = [*others[:before], structure.pair(key, value), *others[before:number]]
        depth = float(total[before] / total[number])
        return asked.text(structure.pairs_text(pairs), structure.key_question(key)), asked.meta(depth=depth)

    def extra(number: int) -> int:
        return int(total[number] - total[_LEAST_PAIRS])

    return Draft((value,), "", _LEAST_PAIRS, len(others), extra, render)


def _code_run(asked: Asked) -> Draft:
    levels = LEVELS[asked.i % len(LEVELS)]
    rng = asked.rng("chain")
    added = [rng.randint(*ADDED) for _ in range(levels)]
    argument = rng.randint(*ARGUMENTS)
    # Each function of the chain in a part of its own of the context, the parts in any order.
    first, within = asked.depths(2)
    parts = [part for part in range(levels) if part != int(first * levels)]
    rng.shuffle(parts)
    parts.insert(0, int(first * levels))
    typical = structure.function("func_1234", "func_5678", 12) + "\n"
    per_function = int(added_tokens(asked.encoder, [typical])[0])

    def render(functions: int) -> tuple[str, Mapping[str, Any]]:
        rng = asked.rng("functions")
        places = [int((part + within) * functions / levels) for part in parts]
        others = sorted({*range(functions)} - {*places})
        rng.shuffle(others)
        # By level the places of its functions: the one of the chain, then others.
        of_level = [[place, *others[level::levels]] for level, place in enumerate(places)]
        numbers = sorted(rng.sample(range(1, 2 * functions + 1), functions))
        texts = [""] * functions
        for level, own in enumerate(of_level):
            inner = of_level[level + 1] if level + 1 < levels else []
            for place in own:
                chained = place == places[level]
                called = (inner[0] if chained else rng.choice(inner)) if inner else None
                number = added[level] if chained else rng.randint(*ADDED)
                name = None if called is None else f"func_{numbers[called]}"
                texts[place] = structure.function(f"func_{numbers[place]}", name, number)
        call = f"func_{numbers[places[0]]}({argument})"
        shares = [place / functions for place in places]
        meta = asked.meta(depth=sum(shares) / levels, depths=shares, levels=levels)
        return asked.text("\n".join(texts), structure.call_question(call)), meta

    target = str(argument + sum(added))
    most = max(asked.length // 4, levels)
    return Draft((target,), "", levels, most, lambda functions: (functions - levels) * per_function, render)


def _math_find(asked: Asked) -> Draft:
    kind = structure.KINDS[asked.i % len(structure.KINDS)]
    rng = asked.rng("numbers")
    most = max(asked.length, 2 * _LEAST_NUMBERS)  # a number and its comma are two ids at least
    largest = kind.endswith("largest number")
    cut_above = largest or (kind == structure.MEDIAN and rng.random() < 0.5)
    low, high = (0, rng.randint(79, 99)) if cut_above else (rng.randint(0, 19), 99)
    if kind == structure.MEDIAN:
        answer = (low + high) // 2
        first, rest = [answer], _around(rng, low, answer, high, most // 2)
    else:
        first = [high - 2, high - 1, high] if largest else [low, low + 1, low + 2]
        answer = first[structure.RANKS[kind]]
        rest = rng.choices(range(low, high + 1), k=most)
    tokens = added_tokens(asked.encoder, [f", {number}" for number in rest])
    total = running_total(tokens)[::2]  # two numbers at a time, so that the median stays what it is

    def render(pairs: int) -> tuple[str, Mapping[str, Any]]:
        numbers = list(rest[: 2 * pairs])
        rng = asked.rng("places")
        for number in first:
            numbers.insert(rng.randrange(len(numbers) + 1), number)
        return asked.text(str(numbers), structure.number_question(kind)), asked.meta(kind=kind)

    least = _LEAST_NUMBERS // 2

    def extra(pairs: int) -> int:
        return int(total[pairs] - total[least])

    return Draft((str(answer),), "", least, len(total) - 1, extra, render)


def _around(rng: Random, low: int, middle: int, high: int, pairs: int) -> Sequence[int]:
    """Pairs of numbers, one not above the middle and one not below it, in any order: however many pairs there are,
    the middle stays the median."""
    numbers: list[int] = []
    for _ in range(pairs):
        both = [rng.randint(low, middle), rng.randint(middle, high)]
        rng.shuffle(both)
        numbers += both
    return numbers


_DRAFTS: dict[str, Callable[[Asked], Draft]] = {
    "passkey": _needle,
    "number_string": _needle,
    "kv_retrieval": _kv_retrieval,
    "code_run": _code_run,
    "math_find": _math_find,
}

GENERATED = tuple(_DRAFTS)
