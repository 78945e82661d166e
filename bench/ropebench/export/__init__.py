"""A method as settings of the programs that serve models: transformers, vLLM, SGLang, llama.cpp.

A static method is a vector of per-pair slowdowns and an attention factor, which all of them can hold, under names of
their own: `longrope` with the same factors for short and long sequences, or `rope_freqs.weight`. `rotation_of` is what
is to be expressed; `hf`, `engines` and `llama_cpp` express it. Nothing here loads weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ropebench.errors import UsageError
from ropebench.geometry import Frequencies, RopeGeometry
from ropebench.method import Method
from ropebench.model import ModelCard

ENGINES = ("hf", "vllm", "sglang", "llama.cpp")


@dataclass(frozen=True)
class Rotation:
    """What a served model is to do: `short` is the table of sequences up to the trained length, `long` that of longer
    ones; for a static method they are one and the same. `start` is the geometry that the method started from."""

    card: ModelCard
    method: Method
    start: RopeGeometry
    target: int
    factor: float
    short: Frequencies
    long: Frequencies

    @property
    def label(self) -> str:
        words = [self.method.name, *(f"{key}={value}" for key, value in self.method.set_params.items())]
        return f"{':'.join(words)}×{self.factor:g}"

    @property
    def trained(self) -> int:
        return self.start.trained_length

    @property
    def switches(self) -> bool:
        """Whether longer sequences have another table."""
        return not self.short.same_as(self.long, 1e-12)

    def slowdown(self, table: Frequencies) -> list[float]:
        """Pair by pair, the plain frequency theta^(−2i/rotary_dim) ÷ that of `table`: what all these programs divide
        by, whatever table the method started from."""
        plain = RopeGeometry(self.start.rotary_dim, self.start.theta, self.trained).inv_freq()
        return [float(value) for value in plain / table.inv_freq]


def rotation_of(card: ModelCard, method: Method, start: RopeGeometry, target: int) -> Rotation:
    """The tables of `method` for a model that is to reach `target` tokens.

    Raises UsageError with the reason for what is no scaling, for a target within the trained window, for a table that
    follows the length of every sequence, and for pairs that stand still.
    """
    what, trained = f"method {method.name!r}", start.trained_length
    if not method.scales:
        raise UsageError(f"{what} is the model as it is: there is nothing to export; name a method that scales")
    if target <= trained:
        raise UsageError(
            f"--target {target} lies within the trained window of {card.id} ({trained} tokens), where every method "
            "equals the unmodified model; give a longer one"
        )
    factor = target / trained
    # Up to the trained length, and past it: a served model holds one table for each, no matter how long a sequence is.
    below = [method.frequencies(start, factor, length) for length in (trained, max(1, trained // 2))]
    above = [method.frequencies(start, factor, length) for length in (target, trained + 1, (trained + target) // 2)]
    if not (_one(below) and _one(above)):
        raise UsageError(
            f"{what}: its table follows the length of each sequence, and served models hold one table for all of them "
            "(keys that are cached under an earlier table cannot be turned again); export a static method, such as "
            f"{'yarn' if 'yarn' in method.name else 'ntk'} at the target's factor, which is the same at that length"
        )
    if not all(np.all(table.inv_freq > 0) for table in (below[0], above[0])):
        raise UsageError(f"{what}: some pairs stand still (frequency 0), which no finite factor expresses")
    return Rotation(card, method, start, target, factor, below[0], above[0])


def _one(tables: list[Frequencies]) -> bool:
    return all(table.same_as(tables[0], 1e-12) for table in tables)
