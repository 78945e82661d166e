"""RULER's variable tracking: a chain of assignments in repeated noise, after one worked example."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

from ropebench.corpus import NOISE
from ropebench.prompt import Encoder
from ropebench.ruler.depth import even_depths, nearest
from ropebench.ruler.haystack import with_needles
from ropebench.ruler.prompts import VT
from ropebench.ruler.sizing import Draft, added_tokens, running_total, stream
from ropebench.task import Example

HOPS = 4
_LINES = 5  # noise lines at least, as many as the chain has
_EXAMPLE = 500  # tokens of the worked example at most


def names(rng: Random, letters: int) -> list[str]:
    """The chain's variables: different random capitals."""
    found: dict[str, None] = {}
    while len(found) < HOPS + 1:
        name = "".join(rng.choices(string.ascii_uppercase, k=letters))
        if name != "VAR":
            found[name] = None
    return list(found)


def chain_lines(variables: list[str], value: int) -> list[str]:
    """The assignments, each but the first with the original's space at its end."""
    return [f"VAR {variables[0]} = {value}", *(f"VAR {b} = VAR {a} " for a, b in pairwise(variables))]


def question(variables: list[str], value: int, cuts: list[int]) -> tuple[str, str]:
    """Template and answer prefix filled in; `cuts` are the noise lines before each assignment, and their number."""
    segments = ["\n".join([NOISE] * (b - a)) for a, b in pairwise([0, *cuts])]
    context = with_needles(segments, chain_lines(variables, value), "\n")
    template = VT.template.format(context=context, query=value)
    return template, VT.answer_prefix.format(num_v=len(variables), query=value)


def worked_example(variables: list[str], value: int, cuts: list[int]) -> str:
    """A question with its answer, as it stands before the real one. The prefix ends in a space and another follows."""
    return "".join(question(variables, value, cuts)) + " " + " ".join(variables) + "\n\n"


def _example_cuts(name: str, encoder: Encoder, seed: int) -> list[int]:
    """The layout of the worked example, the same in all samples: at most 500 tokens with the original's placeholder."""
    rng = Random(f"{name} example {seed}")
    variables = names(rng, 3)
    shares = sorted(rng.random() for _ in variables)

    def cuts(lines: int) -> list[int]:
        return [*(int(share * lines) for share in shares), lines]

    lines = _LINES
    while len(encoder.text("".join(question(variables, 12345, cuts(lines + 1))))) <= _EXAMPLE and lines < _EXAMPLE:
        lines += 1
    return cuts(lines)


def chain_examples(name: str, layout: str, length: int, encoder: Encoder, seed: int, start: int) -> Iterator[Example]:
    """The samples of variable tracking; see `ropebench.ruler` for what they promise."""
    example = _example_cuts(name, encoder, seed)
    line = int(added_tokens(encoder, ["\n" + NOISE])[0])

    def draft(i: int, length: int) -> Draft:
        rng = Random(f"{name} chain {seed} {i}")
        variables, value = names(rng, 5), rng.randrange(10000, 99999)
        before = worked_example(names(rng, 3), rng.randrange(10000, 99999), example)
        own = running_total(added_tokens(encoder, ["\n" + text for text in chain_lines(variables, value)]))
        prefix = question(variables, value, [0] * (HOPS + 1) + [0])[1]

        def render(units: int) -> tuple[str, Mapping[str, Any]]:
            if layout == "nvidia":
                places = sorted(Random(f"{name} depths {seed} {i}").sample(range(units), HOPS + 1))
            else:
                places = nearest(np.arange(units + 1), sorted(even_depths(name, seed, i, HOPS + 1)))
            whole = max(units * line + int(own[-1]), 1)
            depths = [(place * line + int(own[n])) / whole for n, place in enumerate(places)]
            meta = {"depth": sum(depths) / len(depths), "depths": depths, "cluster": f"sample-{i}"}
            return before + question(variables, value, [*places, units])[0], meta

        most = max(length // 2, _LINES)
        return Draft(tuple(variables), prefix, _LINES, most, lambda units: (units - _LINES) * line, render)

    return stream(name, length, encoder, VT.new_tokens, draft, start=start)
