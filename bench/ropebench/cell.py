"""A cell: one number to measure, with all that it depends on, and the identity that decides "already done"."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ropebench.corpus import Corpus
from ropebench.geometry import RopeGeometry
from ropebench.loading import PLAIN, Loading
from ropebench.method import Method
from ropebench.model import ModelCard
from ropebench.record import Json, digest
from ropebench.served import Served
from ropebench.task import Task


@dataclass(frozen=True, eq=False)
class Cell:
    """One number to measure, with all that it depends on. `n` is wanted, not part of the identity."""

    card: ModelCard
    geometry: RopeGeometry
    base: str
    device: str
    dtype: str
    attention: str
    method: Method
    method_code: str | None
    factor: float | None
    factor_rule: str
    task: Task
    task_code: str | None
    corpus: Corpus | None
    length: int
    seed: int
    bos: str
    chat: bool
    n: int
    trust_remote_code: bool = False
    loading: Loading = PLAIN
    served: Served | None = None  # where a server has the model

    @cached_property
    def identity(self) -> Json:
        """Everything the number depends on, as JSON; `id` is its hash."""
        table = self.method.frequencies(self.geometry, self.factor or 1.0, self.length)
        # Seven digits: the float32 that the model is given, and the same on every platform's pow().
        values = [f"{value:.6e}" for value in [*table.inv_freq.astype(np.float32), table.attention_factor]]
        return {
            "model": {
                "id": self.card.id,
                "revision": None if self.served else self.card.revision,
                "trained_length": self.geometry.trained_length,
                "dtype": self.dtype,
                "attention": self.attention,
                "quantization": self.loading.quantize,
                **({"compiled": True} if self.loading.compiled else {}),
                **({"served": self.served.identity} if self.served else {}),
            },
            "method": {
                "name": self.method.name,
                "version": self.method.version,
                "params": self.method.params,
                "code": self.method_code,
                "factor": self.factor,
                "base": self.base,
                "frequencies": digest(values),
            },
            "task": {
                "name": self.task.name,
                "version": self.task.version,
                "params": self.task.params,
                "code": self.task_code,
                "scorer": self.task.scorer_name(),
                "corpus": self.corpus.identity if self.corpus else None,
            },
            "length": self.length,
            "seed": self.seed,
            "bos": self.bos,
            "chat_template": self.chat,
        }

    @property
    def length_dependent(self) -> bool:
        """Whether each example gets a table of its own, and nothing computed at another length is reused."""
        return self.method.varies(self.geometry)

    @cached_property
    def id(self) -> str:
        return digest(self.identity)

    @property
    def method_label(self) -> str:
        """Name, non-default parameters and factor: `yarn:beta_fast=16.0×4`."""
        words = [self.method.name, *(f"{k}={_short(v)}" for k, v in self.method.set_params.items())]
        return ":".join(words) + (f"×{self.factor:g}" if self.factor is not None else "")

    @property
    def task_label(self) -> str:
        """Name, variant and corpus: `niah:number[python-docs-3.11.7]`."""
        variant = self.task.variant_name()
        return self.task.name + (f":{variant}" if variant else "") + (f"[{self.corpus.label}]" if self.corpus else "")


def _short(value: Any) -> str:
    return f"<{len(value)} values>" if isinstance(value, list) else str(value)
