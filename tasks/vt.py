"""Variable tracking, short: chains of assignments in noise, and the value that one chain ends with.

`VAR B = VAR A` comes somewhere after `VAR A = 12345`; the value of B is asked for. RULER's task (`ruler/vt`) asks for
all names behind one value and shows a worked example of 500 tokens; here there is none, the hops are a parameter, and a
model may write the steps (`VAR B = VAR A = 12345`). Other chains of the same form make guessing wrong: 1 in `chains`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any, ClassVar

import numpy as np

from ropebench.corpus import NOISE, Corpus
from ropebench.errors import UsageError
from ropebench.prompt import Encoder
from ropebench.ruler.depth import even_depths, nearest
from ropebench.ruler.haystack import with_needles
from ropebench.ruler.sizing import Draft, added_tokens, stream
from ropebench.task import Example, Metric, Output, Task

NEW_TOKENS = 24
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Tracking(Task):
    name, version, scorer = "vt", 1, "first_integer"
    metrics = (Metric("accuracy", "higher", chance=0.25),)  # an instance has that of its parameters
    minimum_length, default_n = 256, 50
    summary = "the value at the end of one of several chains of assignments in noise"
    source = "ours, after variable tracking in RULER, arXiv:2404.06654"
    header: ClassVar[str] = "Follow the assignments in the text.\n"
    question: ClassVar[str] = "\n\nWhat is the value of VAR {name}?"
    answer_prefix: ClassVar[str] = "\nVAR {name} ="

    hops: int = 1
    chains: int = 4

    def __post_init__(self) -> None:
        for name, value, most in (("hops", self.hops, 4), ("chains", self.chains, 8)):
            if not 1 <= value <= most:
                raise UsageError(f"vt: {name}={value} must be from 1 to {most}")
        object.__setattr__(self, "metrics", (Metric("accuracy", "higher", chance=1 / self.chains),))

    def variant_name(self) -> str:
        return f"{self.hops}-hop"

    def examples(self, length: int, encoder: Encoder, seed: int, corpus: Corpus | None = None) -> Iterator[Example]:
        line = int(added_tokens(encoder, ["\n" + NOISE])[0])

        def draft(i: int, length: int) -> Draft:
            rng = Random(f"vt {seed} {i}")
            drawn = self.drawn(rng)
            names, value = drawn[0]
            depths = [even_depths("vt", seed, i, self.hops + 1)]
            depths += [[rng.random() for _ in names] for _ in drawn[1:]]
            # Per assignment its depth and text; of one chain, each stands after what it refers to.
            stated = [
                (depth, text)
                for own, chain in zip(depths, drawn, strict=True)
                for depth, text in zip(sorted(own), self.assignments(*chain), strict=True)
            ]
            stated.sort(key=lambda pair: pair[0])
            asked = [n for n, (_, text) in enumerate(stated) if text in self.assignments(names, value)]

            def render(units: int) -> tuple[str, Mapping[str, Any]]:
                places = nearest(np.arange(units + 1), [depth for depth, _ in stated])
                gaps = ["\n".join([NOISE] * (b - a)) for a, b in pairwise([0, *places, units])]
                context = with_needles(gaps, [text for _, text in stated], "\n")
                own = [places[n] / max(units, 1) for n in asked]
                meta = {"depth": sum(own) / len(own), "depths": own, "cluster": f"sample-{i}"}
                return self.header + context + self.question.format(name=names[-1]), meta

            prefix = self.answer_prefix.format(name=names[-1])
            return Draft((value,), prefix, 1, max(length // 2, 2), lambda units: (units - 1) * line, render)

        return stream("vt", length, encoder, NEW_TOKENS, draft)

    def drawn(self, rng: Random) -> list[tuple[list[str], str]]:
        """Names (three capitals, all different) and value of each chain; values differ too."""
        names: dict[str, None] = {}
        while len(names) < self.chains * (self.hops + 1):
            name = "".join(rng.choices(LETTERS, k=3))
            if name != "VAR":
                names[name] = None
        values = rng.sample(range(10_000, 100_000), self.chains)
        return [(list(names)[n :: self.chains], str(value)) for n, value in enumerate(values)]

    @staticmethod
    def assignments(names: list[str], value: str) -> list[str]:
        return [f"VAR {names[0]} = {value}", *(f"VAR {b} = VAR {a}" for a, b in pairwise(names))]

    def score(self, example: Example, output: Output) -> dict[str, float]:
        found = re.search(r"[0-9]+", output.text)
        return {"accuracy": float(found is not None and found[0] == example.targets[0])}
