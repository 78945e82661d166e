"""How InfiniteBench's synthetic subsets are built, to write them and to read them.

Source: the paper's section 3.2 and data/construct_synthetic_dataset.py of OpenBMB/InfiniteBench (MIT License, Copyright
(c) OpenBMB), whose sentences and question words these are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

from ropebench.corpus import NOISE

NOISE_LINE = NOISE + "\n"
NEEDLES = {
    "passkey": "The pass key is {key}. Remember it. {key} is the pass key.\n",
    "number_string": "The sequence of digits is {key}. Remember it. {key} is the sequence of digits.\n",
}
QUESTIONS = {"passkey": "What is the pass key?", "number_string": "What is the sequence of digits?"}

_KEY = re.compile(r'Key: "([^"]+)"')
_FUNCTION = re.compile(r"def (func_[0-9]+)\(x\):\n.*?(?=\n\s*(?:def |\Z)|\Z)", re.DOTALL)
_CALLED = re.compile(r"return (func_[0-9]+)\(x\)")
_NUMBER_ASKED = re.compile(r"The (.+) of")

# What math_find asks for: a rank among the different numbers of the list, or the median of all.
RANKS = {
    "largest number": -1,
    "second largest number": -2,
    "third largest number": -3,
    "smallest number": 0,
    "second smallest number": 1,
    "third smallest number": 2,
}
MEDIAN = "median number"
KINDS = (*RANKS, MEDIAN)


def pair(key: str, value: str) -> str:
    """A pair of kv_retrieval's JSON object."""
    return f'"{key}": "{value}"'


def pairs_text(pairs: Sequence[str]) -> str:
    return "JSON data:\n{" + ", ".join(pairs) + "}"


def key_question(key: str) -> str:
    return f'\nKey: "{key}"\nThe value associated with the specified key is: '


def key_asked(question: str) -> str | None:
    """The key that a row of kv_retrieval asks for."""
    match = _KEY.search(question)
    return match[1] if match else None


def function(name: str, inner: str | None, added: int) -> str:
    """A function of code_run: what another one (None: the argument itself) gives, plus a number."""
    term = f" {'+' if added > 0 else '-'} {abs(added)}" if added else ""
    return f"def {name}(x):\n    return {'x' if inner is None else f'{inner}(x)'}{term}\n"


def call_question(call: str) -> str:
    return (
        f"Please give me the exact number of the return value of {call}. Your response should end with the sentence "
        "'The return value is:'."
    )


def chain_of(context: str, name: str) -> list[str]:
    """The texts of the functions that a call of `name` runs through; those that are not defined are left out."""
    defined = {match[1]: match[0] for match in _FUNCTION.finditer(context)}
    chain: list[str] = []
    while name in defined and defined[name] not in chain:
        chain.append(defined[name])
        called = _CALLED.search(chain[-1])
        name = called[1] if called else ""
    return chain


def number_question(kind: str) -> str:
    return f"You should answer with only one number, no other words. The {kind} of the list is: "


def number_asked(question: str) -> str | None:
    """The kind of number that a row of math_find asks for."""
    match = _NUMBER_ASKED.search(question)
    kind = match[1].lower() if match else ""
    return MEDIAN if kind == "median" else kind if kind in KINDS else None


def number_of(kind: str, numbers: Sequence[int]) -> float | None:
    """The number of a kind in a list; None where the list is too short to have it.

    >>> [number_of(kind, [3, 1, 4, 1, 5, 9]) for kind in ("second largest number", "median number")]
    [5, 3.5]
    """
    if kind == MEDIAN:
        return median(numbers) if numbers else None
    ranked, rank = sorted(set(numbers)), RANKS[kind]
    return ranked[rank] if -len(ranked) <= rank < len(ranked) else None
