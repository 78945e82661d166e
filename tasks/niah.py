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

from ropebench.corpus import Corpus, sentences
from ropebench.errors import UsageError
from ropebench.prompt import Encoder, fill
from ropebench.task import Example, Metric, Output, Task

# Prompt literals. number: NVIDIA/RULER (Apache-2.0), its niah template in the singular form. passkey: Landmark
# Attention (Apache-2.0). sentence: gkamradt/LLMTest_NeedleInAHaystack (MIT). {context} holds haystack and needle.
NUMBER = (
    "A special magic number is hidden within the following text. Make sure to memorize it. I will quiz you about the "
    "number afterwards.\n{context}\nWhat is the special magic number for {key} mentioned in the provided text?",
    " The special magic number for {key} mentioned in the provided text is",
    "One of the special magic numbers for {key} is: {value}.",
)
PASSKEY = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. I will quiz you "
    "about the important information there.\n{context}\nWhat is the pass key?",
    " The pass key is",
    "The pass key is {value}. Remember it. {value} is the pass key.",
)
SENTENCE = (
    "{context}\n\nWhat is the best thing to do in San Francisco? Don't give information outside the document.",
    "",
    "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day.",
)
PROMPTS = {"number": NUMBER, "passkey": PASSKEY, "sentence": SENTENCE}
KEY_PHRASE = "eat a sandwich and sit in Dolores Park"

ADJECTIVES = "amber brisk clever dusty eager frosty gentle hollow ivory jolly keen lively mellow nimble olive".split()
NOUNS = "anchor basket candle donkey engine falcon garden hammer island jacket kettle lantern marble needle oyster".split()


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

    def docs(self) -> str:
        return "noise" if self.variant == "passkey" else "installed"

    def scorer_name(self) -> str:
        return "rouge1_recall" if self.variant == "sentence" else "substring"

    def variant_name(self) -> str:
        return self.variant

    def examples(self, length: int, encoder: Encoder, seed: int, corpus: Corpus | None = None) -> Iterator[Example]:
        """Sample i: draw i // depths (one haystack), depth number i % depths of a balanced order."""
        assert corpus is not None
        if self.depths < 1:
            raise UsageError(f"niah: depths={self.depths} must be at least 1")
        text = _haystack(corpus, 40 * length)
        order = balanced(self.depths)
        for i in count():
            draw, depth = divmod(i, self.depths)
            start = Random(f"niah haystack {seed} {draw}").choice(sentences(text)[:-1] or [0])
            wanted = order[depth] / max(self.depths - 1, 1)
            yield self._example(length, encoder, Random(f"niah needle {seed} {i}"), text, start, wanted, f"draw-{draw}")

    def _example(
        self, length: int, encoder: Encoder, rng: Random, text: str, start: int, wanted: float, cluster: str
    ) -> Example:
        question, prefix, needle = PROMPTS[self.variant]
        low, high = (10**6, 10**7 - 1) if self.variant == "number" else (1, 50000)
        words = {"key": f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}", "value": str(rng.randint(low, high))}
        needle, question, prefix = (part.replace("{key}", words["key"]) for part in (needle, question, prefix))
        needle = needle.replace("{value}", words["value"])
        pieces = re.findall(r"\S+\s*|\s+", text[start:] + text[:start])

        def split(units: int) -> tuple[str, str]:
            hay = "".join(pieces[i % len(pieces)] for i in range(units)).rstrip()
            at = min(sentences(hay), key=lambda end: abs(end - wanted * len(hay)))
            return hay[:at], hay[at:]

        def build(units: int) -> tuple[int, ...]:
            before, after = split(units)
            gap = "" if not before or before[-1].isspace() else " "
            context = f"{before}{gap}{needle}{' ' if after else ''}{after}"
            return encoder.prompt(question.replace("{context}", context), prefix)

        budget = length - self.max_new_tokens
        units = fill(build, budget, int(0.6 * length), 4 * length)
        if units < 0:
            raise UsageError(f"niah: length {length} is too short; the smallest that works is {len(build(0)) + self.max_new_tokens}")
        ids = build(units)
        before, after = (len(encoder.text(part)) for part in split(units))
        skip = None if len(ids) + self.max_new_tokens >= 0.95 * length else f"fills {len(ids)} of {budget} tokens only"
        target = words["value"] if self.variant != "sentence" else needle
        meta = {"depth": before / max(before + after, 1), "depth_wanted": wanted, "cluster": cluster}
        return Example(ids, (target,), self.max_new_tokens, meta=meta, skip=skip)

    def score(self, example: Example, output: Output) -> dict[str, float]:
        if self.variant == "sentence":
            found = float(plain(KEY_PHRASE) in plain(output.text))
            return {"recall": rouge1_recall(output.text, example.targets[0]), "key_phrase": found}
        return {"recall": float(example.targets[0] in output.text)}


def balanced(depths: int) -> list[int]:
    """0 … depths − 1 in an order whose every beginning is spread evenly: the middle, the ends, then the largest gaps.

    >>> balanced(5)
    [2, 0, 4, 1, 3]
    """
    order = [(depths - 1) // 2]
    while len(order) < depths:
        order.append(max((i for i in range(depths) if i not in order), key=lambda i: min(abs(i - j) for j in order)))
    return order


def plain(text: str) -> str:
    """Lower case, punctuation removed, single spaces."""
    return " ".join(re.sub(r"[^\w\s]", "", text.lower()).split())


def rouge1_recall(answer: str, reference: str) -> float:
    """Share of the reference's words (with multiplicity) that the answer holds: ROUGE-1 recall, no stemming."""
    wanted, got = (Counter(re.findall(r"[a-z0-9]+", part.lower())) for part in (reference, answer))
    return sum((wanted & got).values()) / max(sum(wanted.values()), 1)


def _haystack(corpus: Corpus, enough: int) -> str:
    """The corpus's documents joined by blank lines, until there are `enough` characters."""
    parts: list[str] = []
    for document in corpus.documents():
        if document.ids is not None:
            raise UsageError(f"niah: {corpus.label} is pre-tokenised; a haystack needs text")
        parts.append(document.text)
        if sum(map(len, parts)) > enough:
            break
    return "\n\n".join(parts) + ("\n\n" if len(parts) > 1 else " ")
