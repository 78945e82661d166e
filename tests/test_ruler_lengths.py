"""No generator hangs: at any length, under any tokenizer, a sample fits or the smallest length that works is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any

import pytest

import fakes
from ropebench.corpus import Corpus, Document
from ropebench.errors import UsageError
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.ruler import TASKS
from ropebench.task import Example, Task

DATA = Path(__file__).with_name("data") / "ruler"
NAMES = (*(f"ruler/{name}" for name in TASKS), "niah")
SENTENCES = "".join(f"Sentence {i} says {'very ' * (i % 9)}little. " for i in range(300))
CORPUS = Corpus("sentences", "invented", lambda: iter([Document("a", SENTENCES)]))


class Odd:
    """A tokenizer that is any function from a text to its ids."""

    chat_template = bos_token_id = None

    def __init__(self, ids: Callable[[str], list[int]]) -> None:
        self.ids = ids

    def __call__(self, text: str | Sequence[str], **_: Any) -> dict[str, Any]:
        return {"input_ids": self.ids(text) if isinstance(text, str) else [self.ids(one) for one in text]}


ENCODERS: dict[str, Callable[[], Encoder]] = {
    **{name: lambda name=name: Encoder(fakes.tokenizer(name)) for name in ("bpe", "bpe-bos", "word", "word-bos")},
    "chat": lambda: Encoder(fakes.tokenizer("word-bos"), chat=True),
    "a letter each": lambda: Encoder(Odd(lambda text: [ord(letter) for letter in text])),
    "nine for a letter": lambda: Encoder(Odd(lambda text: [ord(letter) for letter in text for _ in range(9)])),
    "capitals only": lambda: Encoder(Odd(lambda text: [ord(letter) for letter in text if letter.isupper()])),
    "one for a thousand letters": lambda: Encoder(Odd(lambda text: [1] * (len(text) // 1000))),
    "nothing": lambda: Encoder(Odd(lambda text: [])),
}


@cache
def encoder(name: str) -> Encoder:
    return ENCODERS[name]()


@cache
def made(name: str) -> Task:
    data = f":data={DATA}" if "qa_" in name else ""
    task: Task = Registry.load().build("task", f"{name}{data}")[0]
    return task


def samples(name: str, length: int, coder: str, n: int) -> list[Example]:
    task = made(name)
    return list(islice(task.examples(length, encoder(coder), 0, CORPUS if task.needs_corpus else None), n))


def smallest_named(name: str, length: int, coder: str) -> int | None:
    """The length that a refusal names; None where samples come, which then fit or are skipped with a reason."""
    began = process_time()
    found, refused = [], ""
    try:
        found = samples(name, length, coder, 2)
    except UsageError as error:
        refused = str(error)
    assert process_time() - began < 10
    assert all(example.tokens <= length or example.skip for example in found)
    assert bool(found) != bool(refused)
    said = re.fullmatch(rf"{name}: length {length} is too short; the smallest that works is (\d+)", refused)
    assert bool(said) == bool(refused), refused
    return int(said[1]) if said else None


def check(name: str, coder: str, lengths: Sequence[int]) -> None:
    """Every length is decided in one way: below the one that is named all are refused, and from it on all work."""
    refused = {length: smallest_named(name, length, coder) for length in lengths}
    named = {smallest for smallest in refused.values() if smallest is not None}
    assert len(named) <= 1  # the same from everywhere
    for smallest in named:
        assert max(length for length in refused if refused[length]) < smallest
        for example in samples(name, smallest, coder, 8):
            assert example.tokens <= smallest
            assert example.skip is None or name == "niah"  # which has no units without tokens, and says so
            assert example.skip is None or re.fullmatch(r"fills \d+ of 224 tokens only", example.skip)


@pytest.mark.parametrize("coder", ["bpe", "chat", "a letter each", "one for a thousand letters", "nothing"])
@pytest.mark.parametrize("name", NAMES)
def test_a_short_length_fits_or_names_the_smallest_that_works(name: str, coder: str) -> None:  # fault 31
    check(name, coder, (1, 450))


@pytest.mark.slow
@pytest.mark.parametrize("coder", ENCODERS)
@pytest.mark.parametrize("name", NAMES)
def test_every_short_length_fits_or_names_the_smallest_that_works(name: str, coder: str) -> None:  # fault 31
    step = 7 if coder in ("bpe-bos", "word", "chat", "a letter each") else 70
    check(name, coder, range(1, 601, step))


@pytest.mark.parametrize("name", [name for name in NAMES if "qa_" not in name])  # whose documents are of all sizes
def test_no_shorter_length_works_than_the_one_named(name: str) -> None:  # fault 31
    smallest = smallest_named(name, 1, "word")
    assert smallest
    if smallest > made(name).minimum_length:
        assert smallest_named(name, smallest - 1, "word") == smallest


def test_the_text_of_a_longer_length_is_what_decides_there() -> None:
    # Prose from another corpus position: the first sentence of the longer text begins with a word of its own length.
    words = "".join(f"{'a' * (i % 90 + 1)} b. " for i in range(9000))
    long = Corpus("long", "invented", lambda: iter([Document("a", words)]))
    task, coder = made("ruler/niah_multiquery"), encoder("nine for a letter")
    with pytest.raises(UsageError, match="the smallest that works is") as caught:
        next(task.examples(600, coder, 0, long))
    smallest = int(str(caught.value).split()[-1])
    assert smallest > 4096
    assert all(example.skip is None for example in islice(task.examples(smallest, coder, 0, long), 8))


def test_a_task_that_asks_for_more_from_some_length_on_names_both() -> None:
    with pytest.raises(UsageError) as caught:
        samples("ruler/cwe", 4096, "bpe", 1)
    said = re.fullmatch(
        r"ruler/cwe: length 4096 is too short; the next that works is (\d+), and below it (\d+)", str(caught.value)
    )
    assert said
    longer, smaller = map(int, said.groups())
    assert longer > 4096 > smaller
    for length in (longer, smaller, 4095):
        assert all(
            example.skip is None and example.tokens <= length for example in samples("ruler/cwe", length, "bpe", 2)
        )
