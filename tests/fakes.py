"""Stand-ins that tests share: a tokenizer, an engine, tasks, cells made by hand, and tiny random models.

The tokenizer and the engine are torch-free, so that a run can be tested (and killed) without a model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice, pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np

from ropebench.aliases import ModelSpec
from ropebench.cell import Cell
from ropebench.geometry import RopeGeometry
from ropebench.methods import Unscaled
from ropebench.model import ModelCard
from ropebench.store import Writer
from ropebench.task import Example, Metric, Output, Task, Window

TOKENIZERS = Path(__file__).with_name("data") / "tokenizers"


class Letters:
    """A tokenizer with one id per character. `adds_bos`: as a Llama-style post-processor does, asked or not."""

    chat_template = None
    eos_token_id = 1

    def __init__(self, bos: int | None = 0, adds_bos: bool = False) -> None:
        self.bos_token_id = bos
        self.adds_bos = adds_bos

    def __call__(self, text: str, add_special_tokens: bool = True, **_: Any) -> dict[str, list[int]]:
        head = [self.bos_token_id] if add_special_tokens and self.adds_bos and self.bos_token_id is not None else []
        return {"input_ids": [*head, *(2 + ord(letter) for letter in text)]}

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(chr(i - 2) for i in ids if i >= 2)


def ids(length: int, seed: int = 0) -> list[int]:
    """Random ids for the tiny models' vocabulary."""
    return [int(i) for i in np.random.default_rng(seed).integers(2, 500, length)]


class FakeEngine:
    """Answers from the ids alone. Counts its calls; calls `at_call(k)` before the k-th."""

    def __init__(self, at_call: Callable[[int], None] = lambda _: None) -> None:
        self.at_call = at_call
        self.calls = 0
        self.tokens_fed = 0
        self.fed: list[tuple[int, ...]] = []

    def __call__(self, model: Any, encoder: Any) -> FakeEngine:
        return self

    def nll(self, ids: Sequence[int], keep: bool = False, reuse: bool = True) -> Any:
        self._call(ids)
        return np.array([((7 * a + 3 * b) % 11) / 5 for a, b in pairwise(ids)], dtype=np.float32)

    def generate(
        self, ids: Sequence[int], max_new_tokens: int, stop: Sequence[str] = (), reuse: bool = True
    ) -> tuple[str, tuple[int, ...]]:
        self._call(ids)
        self.tokens_fed += 1
        return str(sum(ids) % 2), (sum(ids) % 2,)

    def nll_of_each(self, texts: Sequence[Sequence[int]]) -> list[Any]:
        return [self.nll(ids) for ids in texts]

    def begin(self, asked: Any) -> Any:
        return asked, self.generate(asked.ids, asked.budget, asked.stop)

    def finish(self, begun: Sequence[Any]) -> list[Any]:
        return [answer for _, answer in begun]

    def batch(self, length: int) -> int:
        return 4

    def halve(self) -> bool:
        return False

    @property
    def sizes(self) -> dict[str, int]:
        return {}

    def _call(self, ids: Sequence[int]) -> None:
        self.calls += 1
        self.at_call(self.calls - 1)
        self.tokens_fed += len(ids)
        self.fed.append(tuple(ids))


@dataclass(frozen=True)
class Coins(Task):
    """Generation: one token, right half of the time."""

    name, version, scorer, summary = "coins", 1, "equal", "test"
    metrics = (Metric("right", "higher"),)

    def examples(self, length: int, encoder: Any, seed: int, corpus: Any = None) -> Iterator[Example]:
        for i in count():
            rng = Random(f"coins {seed} {i}")
            ids = tuple(rng.randrange(2, 100) for _ in range(length - 1))
            yield Example(ids, (str(rng.randrange(2)),), 1, meta={"cluster": str(i), "depth": (i % 5) / 4})

    def score(self, example: Example, output: Output) -> dict[str, float]:
        return {"right": float(output.text == example.targets[0])}


@dataclass(frozen=True)
class Pages(Task):
    """Likelihood: document i cut to the length; with `text` also an answer on the same sample."""

    name, version, scorer, summary = "pages", 1, "token_nll", "test"
    metrics = (
        Metric("perplexity", "lower", 1.0, None, None, derived=("exp", "nll")),
        Metric("nll", "lower", 0.0, None),
    )
    text: bool = False

    def examples(self, length: int, encoder: Any, seed: int, corpus: Any = None) -> Iterator[Example]:
        for i in count():
            rng = Random(f"pages {seed} {i}")
            ids = tuple(rng.randrange(2, 100) for _ in range(256))[:length]
            about = {"document": f"page-{i}", "document_sha256": f"{i:064}", "cluster": f"page-{i}"}
            yield Example(
                ids=ids[:-1] if self.text else (), max_new_tokens=int(self.text), windows=(Window(ids),), meta=about
            )

    def score(self, example: Example, output: Output) -> dict[str, float]:
        assert len(output.nll[0]) == len(example.windows[0].ids) - 1
        return {"nll": float(np.mean(output.nll[0]))}


@dataclass(frozen=True)
class Few(Coins):
    """A source with three samples, the second of which does not fit."""

    name = "few"

    def examples(self, length: int, encoder: Any, seed: int, corpus: Any = None) -> Iterator[Example]:
        for i, example in enumerate(islice(super().examples(length, encoder, seed, corpus), 3)):
            yield Example(skip="too long") if i == 1 else example


GEOMETRY = RopeGeometry(8, 10000.0, 64)


def cell(task: Task | None = None, **changes: Any) -> Cell:
    """A cell made by hand, of a model that does not exist."""
    card = ModelCard(ModelSpec("fake", "some/fake"), "some/fake", "abc123", None, GEOMETRY, None)
    plain = Cell(
        card=card, geometry=GEOMETRY, base="unscaled", device="cpu", dtype="float32", attention="sdpa",
        method=Unscaled(), method_code=None, factor=None, factor_rule="none",
        task=task or Coins(), task_code=None, corpus=None, length=32, seed=0, bos="auto", chat=False, n=4,
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)


def loaded(tokenizer: Any = None) -> Any:
    """What `load` gives, without a model."""
    return SimpleNamespace(model=None, tokenizer=tokenizer or Letters(), device="cpu")


def writer(folder: Path, run_id: str | None = None) -> Writer:
    """A writer; `run_id` fixes the names of its files."""
    made = Writer(folder)
    made.run_id = run_id or made.run_id
    return made


def tiny_config(kind: str, vocabulary: int = 500, **changes: Any) -> Any:
    """The config of a random model of two layers, width 32, four heads of 8, trained on 64 tokens."""
    from transformers import AutoConfig

    size = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "pad_token_id": None,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    return AutoConfig.for_model(kind, **{**size, **changes})


def tiny(kind: str = "llama", seed: int = 0, attention: str = "sdpa", **changes: Any) -> Any:
    """A random float32 model of `tiny_config`, ready to run."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    config = tiny_config(kind, **changes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).float().eval()
    with torch.no_grad():  # from_config draws weights so small that every token looks alike
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(8.0)
    return model


def tokenizer(name: str = "bpe") -> Any:
    """A small real tokenizer: bpe (owns a BOS, does not add it), bpe-bos, word (no BOS), word-bos."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(TOKENIZERS / name)


def save_tiny(folder: Path, name: str = "bpe", **changes: Any) -> Path:
    """A folder as save_pretrained leaves it: a tiny llama in safetensors, and a tokenizer."""
    words = tokenizer(name)
    model = tiny(vocabulary=len(words), **changes)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
