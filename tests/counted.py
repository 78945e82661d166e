"""A task that counts what it makes, a tokenizer without anything heavy, and their samples through the cache."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from fakes import Letters
from ropebench import sample_cache
from ropebench.prompt import Encoder
from ropebench.sample_cache import kept_examples
from ropebench.task import Example, Metric, Task, Window


class Words(Letters):
    """A tokenizer whose content is `text`."""

    special_tokens_map: ClassVar[dict[str, str]] = {}

    def __init__(self, text: str = "letters", **how: Any) -> None:
        super().__init__(**how)
        self.backend_tokenizer = SimpleNamespace(to_str=lambda: text)

    def __len__(self) -> int:
        return 1000


@dataclass(frozen=True)
class Counted(Task):
    """Samples of every kind of content; `made` notes each that is made, and `began` where a stream began."""

    name, version, metrics = "counted", 1, (Metric("right", "higher"),)
    made: ClassVar[list[int]] = []
    began: ClassVar[list[int]] = []
    size: int = 3
    ends: int | None = None

    def examples(self, length: int, encoder: Any, seed: int, corpus: Any = None, start: int = 0) -> Iterator[Example]:
        self.began.append(start)
        for i in count(start):
            if i == self.ends:
                return
            self.made.append(i)
            rng = random.Random(f"{seed} {i}")
            ids = tuple(rng.randrange(100) for _ in range(length))
            meta = {"depth": rng.random(), "ints": [i, [1.0, True, None]], "text": "é\u2028\n", "a": {"b": -0.0}}
            windows = (Window(ids[: self.size], 2), Window(ids))
            yield Example(ids, ("x", ""), 7, ("\n",), windows, meta, "too long" if i % 3 == 1 else None)

    def score(self, example: Example, output: Any) -> dict[str, float]:
        return {"right": 1.0}


class Plain(Counted):
    """The same, that cannot begin in the middle."""

    def examples(self, length: int, encoder: Any, seed: int, corpus: Any = None) -> Iterator[Example]:  # type: ignore[override]
        return Counted.examples(self, length, encoder, seed, corpus)


WORDS = Encoder(Words())


def kept(
    task: Task, n: int = 4, length: int = 8, encoder: Encoder = WORDS, seed: int = 0, **more: Any
) -> list[Example]:
    return list(islice(kept_examples(task, length, encoder, seed, **more), n))


def fresh(task: Task, n: int = 4, length: int = 8, encoder: Encoder = WORDS, seed: int = 0) -> list[Example]:
    found = list(islice(task.examples(length, encoder, seed), n))
    Counted.made.clear()
    Counted.began.clear()
    return found


def name(task: Task | None = None, length: int = 8, encoder: Encoder = WORDS, seed: int = 0, corpus: Any = None) -> Any:
    return sample_cache._name(task or Counted(), length, encoder, seed, corpus, None)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache in which everything is worth keeping, and no sample counted."""
    monkeypatch.setenv("ROPEBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(sample_cache, "WORTH", 0.0)
    Counted.made.clear()
    Counted.began.clear()
    return tmp_path / "samples"
