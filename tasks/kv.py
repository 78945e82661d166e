"""Key-value retrieval: lines of `key: value`, one of which is asked for again. Nothing but other pairs around it.

Keys are adjective-noun pairs (RULER's words), values five digits. The prompt ends with the key and a colon, as the line
does, so that a model needs no instruction to be followed: it has to find one line among all of one form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from ropebench.corpus import Corpus
from ropebench.prompt import Encoder
from ropebench.ruler.depth import even_depths
from ropebench.ruler.scoring import cleaned, match_all
from ropebench.ruler.sizing import Draft, running_total, stream, take_until
from ropebench.ruler.words import word_pair
from ropebench.task import Example, Metric, Output, Task

NEW_TOKENS = 16


@dataclass(frozen=True)
class KeyValue(Task):
    name, version, scorer = "kv", 1, "substring"
    metrics = (Metric("recall", "higher"),)
    minimum_length, default_n = 256, 50
    summary = "the value of one key among nothing but other keys"
    source = "ours, after the key-value retrieval of Lost in the Middle, arXiv:2307.03172"
    header: ClassVar[str] = "Keys and their values, one pair a line:\n"
    question: ClassVar[str] = "\n\nWhat is the value of {key}?"
    answer_prefix: ClassVar[str] = "\n{key}:"

    def examples(self, length: int, encoder: Encoder, seed: int, corpus: Corpus | None = None) -> Iterator[Example]:
        def draft(i: int, length: int) -> Draft:
            rng = Random(f"kv {seed} {i}")
            lines = ((pair, f"\n{pair[0]}: {pair[1]}") for pair in self.pairs(rng))
            taken, tokens = take_until(encoder, lines, length)
            (key, value), others = taken[0], [f"{key}: {value}" for key, value in taken[1:]]
            (depth,) = even_depths("kv", seed, i, 1)
            total = running_total(tokens[1:])

            def render(units: int) -> tuple[str, Mapping[str, Any]]:
                at = round(depth * units)
                text = self.header + "\n".join([*others[:at], f"{key}: {value}", *others[at:units]])
                meta = {"depth": float(total[at] / max(total[units], 1)), "cluster": f"sample-{i}"}
                return text + self.question.format(key=key), meta

            prefix = self.answer_prefix.format(key=key)
            return Draft((value,), prefix, 1, len(others), lambda units: int(total[units] - total[1]), render)

        return stream("kv", length, encoder, NEW_TOKENS, draft)

    @staticmethod
    def pairs(rng: Random) -> Iterator[tuple[str, str]]:
        """Keys, all different, with their values, without end."""
        seen: set[str] = set()
        while True:
            key, value = word_pair(rng), str(rng.randrange(10_000, 100_000))
            if key not in seen:
                seen.add(key)
                yield key, value

    def score(self, example: Example, output: Output) -> dict[str, float]:
        return {"recall": match_all(cleaned(output.text), example.targets)}
