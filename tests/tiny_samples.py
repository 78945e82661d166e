"""Invented text, and a tokenizer and rows made of it, for the tests of the bundled model's training."""

from __future__ import annotations

from functools import cache
from random import Random

from tokenizers import Tokenizer

from ropebench.lens.tiny import vocabulary
from ropebench.lens.tiny.recipe import FIRST_TRAINING_SEED
from ropebench.lens.tiny.rows import Rows
from ropebench.lens.tiny.sources import Sources

WORDS = "the a of module class name value object returns is sets with for when list function type each one that".split()


def sentences(seed: int, number: int) -> str:
    rng = Random(seed)
    return "".join(" ".join(rng.choices(WORDS, k=rng.randint(4, 12))).capitalize() + ". " for _ in range(number))


TEXT = "\n\n".join(sentences(seed, 20) for seed in range(12))


@cache
def tokenizer() -> Tokenizer:
    return vocabulary.train([TEXT, *Sources().texts(FIRST_TRAINING_SEED, 60)], 1024)


@cache
def rows(seed: int = 0) -> Rows:
    return Rows(tokenizer(), TEXT, seed)
