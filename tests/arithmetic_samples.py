"""What the tests of the arithmetic probes share: the tasks by word, an invented text without a digit, samples."""

from __future__ import annotations

from functools import cache
from itertools import islice
from pathlib import Path
from random import Random

from transformers import AutoTokenizer

from ropebench.corpus import Corpus, Document
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.task import Example, Task

TOKENIZERS = Path(__file__).with_name("data") / "tokenizers"
REGISTRY = Registry.load()
WORDS = "amber brisk clever dusty eager frosty gentle hollow ivory jolly keen lively mellow nimble olive".split()
TEXT = " ".join(" ".join(Random(i).choices(WORDS, k=8)).capitalize() + "." for i in range(3000))  # has no digit
CORPUS = Corpus("words", "invented", lambda: iter([Document("words", TEXT)]))

SHORT = ["addition", "addition:digits=1:operation=add", "addition:digits=5:operation=subtract", "copy", "digit_index"]
IGSM = ["igsm", "igsm:operations=1:shots=1", "igsm:solution=direct"]
DEEP = ["addition:depths=5", "copy:depths=5", "digit_index:depths=5", "igsm:depths=5"]
ALL = [*SHORT, *IGSM, *DEEP]


def task_of(word: str) -> Task:
    made: Task = REGISTRY.build("task", f"arithmetic/{word}")[0]
    return made


@cache
def encoder_of(name: str, chat: bool = False) -> Encoder:
    return Encoder(AutoTokenizer.from_pretrained(TOKENIZERS / name), chat=chat)


BPE = encoder_of("bpe")


@cache
def some(word: str, n: int, length: int = 0, encoder: Encoder = BPE, seed: int = 0) -> tuple[Example, ...]:
    """The first n samples, by default at a length that holds a problem and about as much text."""
    length = length or (2400 if "igsm" in word else 600)
    return tuple(islice(task_of(word).examples(length, encoder, seed, CORPUS), n))
