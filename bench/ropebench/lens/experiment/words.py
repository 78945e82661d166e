"""iGSM-like problems as ids of whole words, numbers and marks, one problem after another."""

from __future__ import annotations

import re
from functools import cache
from random import Random

import numpy as np
from numpy.typing import NDArray

from ropebench.errors import UsageError
from ropebench.igsm import MODULUS, THEMES, draw

END = "\n"
_TOKEN = re.compile(r"\w+|[^\w\s]|\n")
_FORMS = """the number of total in each is sum and minus more than times what answer , . : ; ? = + - * \n""".split(" ")
_LARGEST = MODULUS * MODULUS  # above any result that a step shows before it is reduced


@cache
def vocabulary() -> dict[str, int]:
    """Id of every token that a problem may have; the same for any number of operations. END has 0."""
    things = [word for theme in THEMES for one, several, names in theme for word in (one, several, *names.split())]
    every = [END, *sorted({*_FORMS, *things} - {END}), *map(str, range(_LARGEST))]
    return {word: place for place, word in enumerate(every)}


def encoded(text: str) -> list[int]:
    """Ids of a text, without regard to capitals. A word that no problem has is a KeyError."""
    return [vocabulary()[word] for word in _TOKEN.findall(text.lower())]


def problems(rng: np.random.Generator, operations: int, tokens: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """At least `tokens` ids of whole problems, and which of them are answers (the number after "the answer is")."""
    ids: list[int] = []
    answers: list[int] = []
    text = Random(int(rng.integers(1 << 62)))
    while len(ids) < tokens:
        problem = draw(text, operations)
        ids += encoded(f"{problem.statement} {problem.solution}{END}")
        answers.append(len(ids) - 3)  # number, full stop, END
    marked = np.zeros(len(ids), bool)
    marked[answers] = True
    return np.array(ids, np.int64), marked


def checked(operations: int, tokens: int) -> int:
    """The mean length of a problem in tokens. Raises UsageError where a context of `tokens` holds less than one."""
    ids, marked = problems(np.random.default_rng(0), operations, 3000)
    mean = len(ids) / int(marked.sum())
    if mean > tokens:
        raise UsageError(f"--sizes {operations}: a problem of {operations} operations has about {mean:.0f} tokens, the "
                         f"context of this experiment {tokens}; give fewer operations")  # fmt: skip
    return round(mean)
