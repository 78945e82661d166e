"""Needle in a haystack: one fact at a chosen depth of a long text, and a question about it.

Variants: `number` (RULER's sentence, a 7-digit number), `passkey` (Landmark Attention's), `sentence` (the classic
needle; its ROUGE-1 recall is the "recall" that papers plot). Any corpus is a haystack, the repeated noise line too.
The needle goes between sentences, and the depth that is recorded is the one it has got.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Literal

from ropebench.corpus import Corpus, sentences, texts
from ropebench.errors import UsageError
from ropebench.prompt import Encoder, fill
from ropebench.task import Example, Metric, Output, Task

# Question, answer prefix and needle of each variant. number: NVIDIA/RULER (Apache-2.0), its niah template in the
# singular form. passkey: Landmark Attention (Apache-2.0). sentence: gkamradt/LLMTest_NeedleInAHaystack (MIT).
PROMPTS = {
    "number": (
        "A special magic number is hidden within the following text. Make sure to memorize it. I will quiz you about "
        "the number afterwards.\n{context}\nWhat is the special magic number for {key} mentioned in the provided text?",
        " The special magic number for {key} mentioned in the provided text is",
        "One of the special magic numbers for {key} is: {value}.",
    ),
    "passkey": (
        "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. I will quiz you "
        "about the important information there.\n{context}\nWhat is the pass key?",
        " The pass key is",
        "The pass key is {value}. Remember it. {value} is the pass key.",
    ),
    "sentence": (
        "{context}\n\nWhat is the best thing to do in San Francisco? Don't give information outside the document.",
        "",
        "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day.",
    ),
}
KEY_PHRASE = "eat a sandwich and sit in Dolores Park"

ADJECTIVES = "amber brisk clever dusty eager frosty gentle hollow ivory jolly keen lively mellow nimble olive".split()
NOUNS = (
    "anchor basket candle donkey engine falcon garden hammer island jacket kettle lantern marble needle oyster".split()
)

# The units that a haystack grows by: a word, a character of a script without spaces, a part of an endless line.
UNIT = re.compile(r"[\u2e80-\U0003ffff]\s*|[^\s\u2e80-\U0003ffff]{1,99}\s*|\s+")


@dataclass(frozen=True)
class Niah(Task):
    name, version = "niah", 1
    metrics = (Metric("recall", "higher"), Metric("key_phrase", "higher"))
    minimum_length, default_n, needs_corpus, default_docs = 256, 55, True, "installed"
    summary = "recall of one fact by depth and length"
    source = "gkamradt/LLMTest_NeedleInAHaystack; RULER, arXiv:2404.06654; Landmark Attention, arXiv:2305.16300"

    variant: Literal["number", "passkey", "sentence"] = "number"
    depths: int = 11  # evenly spaced from 0 to 1; n = depths × draws fills the grid
    max_new_tokens: int = 32

    def __post_init__(self) -> None:
        for name, value in (("depths", self.depths), ("max_new_tokens", self.max_new_tokens)):
            if value < 1:
                raise UsageError(f"niah: {name}={value} must be at least 1")

    def docs(self) -> str:
        return "noise" if self.variant == "passkey" else "installed"

    def scorer_name(self) -> str:
        return "rouge1_recall" if self.variant == "sentence" else "substring"

    def variant_name(self) -> str:
        return self.variant

    def examples(self, length: int, encoder: Encoder, seed: int, corpus: Corpus | None = None) -> Iterator[Example]:
        """Sample i: draw i // depths (one haystack), depth number i % depths of a balanced order."""
        assert corpus is not None
        text = haystack(corpus, 40 * length)
        starts, order = sentences(text)[:-1], balanced(self.depths)
        for i in count():
            draw, step = divmod(i, self.depths)
            start = Random(f"niah haystack {seed} {draw}").choice(starts)
            units = UNIT.findall(text[start:] + text[:start])
            wanted = order[step] / max(self.depths - 1, 1)
            yield self.example(length, encoder, (seed, i), units, wanted, f"draw-{draw}")

    def example(
        self, length: int, encoder: Encoder, sample: tuple[int, int], units: list[str], wanted: float, cluster: str
    ) -> Example:
        question, prefix, needle, value = self.words(*sample)

        def halves(size: int) -> tuple[str, str]:
            hay = "".join(units[i % len(units)] for i in range(size)).rstrip()
            at = min(sentences(hay), key=lambda end: abs(end - wanted * len(hay)))
            return hay[:at], hay[at:]

        def build(size: int) -> tuple[int, ...]:
            before, after = halves(size)
            gap = "" if not before or before[-1].isspace() else " "
            context = f"{before}{gap}{needle}{' ' if after else ''}{after}"
            return encoder.prompt(question.replace("{context}", context), prefix)

        budget = length - self.max_new_tokens
        size = fill(build, budget, int(0.6 * length), 4 * length)
        if size < 0:
            raise UsageError(f"niah: length {length} is too short; the smallest that works is {self.least(encoder)}")
        ids = build(size)
        before, after = (len(encoder.text(part)) for part in halves(size))
        skip = None if len(ids) + self.max_new_tokens >= 0.95 * length else f"fills {len(ids)} of {budget} tokens only"
        target = needle if self.variant == "sentence" else value
        meta = {"depth": before / max(before + after, 1), "depth_wanted": wanted, "cluster": cluster}
        return Example(ids, (target,), self.max_new_tokens, meta=meta, skip=skip)

    def words(self, seed: int, i: int) -> tuple[str, str, str, str]:
        """Question (with {context} to be replaced), answer prefix, needle and value of sample i."""
        rng = Random(f"niah needle {seed} {i}")
        low, high = (10**6, 10**7 - 1) if self.variant == "number" else (1, 50000)
        key, value = f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}", str(rng.randint(low, high))
        question, prefix, needle = (p.replace("{key}", key).replace("{value}", value) for p in PROMPTS[self.variant])
        return question, prefix, needle, value

    def least(self, encoder: Encoder) -> int:
        """The smallest length that holds prompt, needle and answer, whatever the words of a sample are."""
        parts = (self.words(0, i) for i in range(200))
        prompts = (
            encoder.prompt(question.replace("{context}", needle), prefix) for question, prefix, needle, _ in parts
        )
        return max(self.minimum_length, max(map(len, prompts)) + self.max_new_tokens)

    def score(self, example: Example, output: Output) -> dict[str, float]:
        if self.variant != "sentence":
            return {"recall": float(example.targets[0] in output.text)}
        found = float(plain(KEY_PHRASE) in plain(output.text))
        return {"recall": rouge1_recall(output.text, example.targets[0]), "key_phrase": found}


def balanced(depths: int) -> list[int]:
    """0 … depths − 1 in an order whose every beginning is spread evenly: the middle, the ends, then the largest gaps.

    >>> balanced(5)
    [2, 0, 4, 1, 3]
    """
    order = [(depths - 1) // 2]
    gaps = [abs(i - order[0]) for i in range(depths)]
    while len(order) < depths:
        order.append(max(range(depths), key=gaps.__getitem__))
        gaps = [min(gap, abs(i - order[-1])) for i, gap in enumerate(gaps)]
    return order


def plain(text: str) -> str:
    """Lower case, punctuation removed, single spaces."""
    return " ".join(re.sub(r"[^\w\s]", "", text.lower()).split())


def rouge1_recall(answer: str, reference: str) -> float:
    """Share of the reference's words (with multiplicity) that the answer holds: ROUGE-1 recall, no stemming."""
    wanted, got = (Counter(re.findall(r"[a-z0-9]+", part.lower())) for part in (reference, answer))
    return sum((wanted & got).values()) / max(sum(wanted.values()), 1)


def haystack(corpus: Corpus, enough: int) -> str:
    """The corpus's documents joined by blank lines, until there are more than `enough` characters."""
    parts = texts("niah", corpus, enough + 1)
    return "\n\n".join(parts) + ("\n\n" if len(parts) > 1 else " ")
