"""Every number behind the bundled model: sizes, the mixture of its training rows, the schedule."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# Evaluations have the seeds that people use; training seeds begin far above them, so that no random stream is shared.
FIRST_TRAINING_SEED = 1_000_000_000


@dataclass(frozen=True)
class Stage:
    """A part of the curriculum: rows of `width` ids, `batch` of them a step, until `steps` (None: to the end).

    Short rows come first: looking a key up is learnt from many answers at small distances (the loss sits at chance
    until it is), and then carried over to long ones. `shares` are the kinds of rows (see `rows`), by tokens.
    """

    width: int
    batch: int
    until: int | None
    shares: Mapping[str, float]


@dataclass(frozen=True)
class Shape:
    """A Llama model. head_dim 64 and theta 10000 put the band of the YaRN and MrRoPE formulas at pairs 3…16."""

    vocabulary: int = 1536
    hidden: int = 192
    layers: int = 4
    heads: int = 4
    head_dim: int = 64
    inner: int = 448
    theta: float = 10_000.0
    spread: float = 0.06  # standard deviation of the first weights; about one over the root of `hidden`
    window: int = 512


# What the first stage is for: copying what followed the same words before. In rows of 64 ids with half of them repeated
# text the loss leaves chance after about 0.4 million tokens, and falls within 0.15 million at about 1.1; in rows of 128
# with keys and values nothing had happened after 0.8.
STAGES = (
    Stage(64, 8, 2800, {"echo": 0.45, "drills": 0.35, "prose": 0.2}),
    Stage(128, 8, 4800, {"echo": 0.15, "kv": 0.4, "drills": 0.2, "lines": 0.1, "prose": 0.15}),
    Stage(
        256, 8, 6800, {"echo": 0.05, "kv": 0.2, "lines": 0.1, "niah": 0.25, "drills": 0.18, "vt": 0.12, "prose": 0.1}
    ),
    Stage(
        512,
        4,
        None,
        {"kv": 0.16, "lines": 0.06, "niah": 0.3, "passkey": 0.06, "drills": 0.16, "vt": 0.12, "prose": 0.14},
    ),
)


@dataclass(frozen=True)
class Recipe:
    """`steps` in all: linear warm-up, constant rate, and from `decay_from` of the steps on half a cosine down to
    `floor` of the rate. Up to there nothing depends on `steps`, so a run may be made longer before its decay begins."""

    steps: int
    seed: int = 0
    shape: Shape = field(default_factory=Shape)
    stages: tuple[Stage, ...] = STAGES
    rate: float = 2e-3
    warmup: int = 100
    decay_from: float = 0.6
    floor: float = 0.05
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    clip: float = 1.0
    # How much a token counts by what it is: an answer, natural text, or anything else (most of it random, and so
    # nothing to be learnt).
    answer_weight: float = 4.0
    prose_weight: float = 0.5
    other_weight: float = 0.1

    @property
    def decay_begins(self) -> int:
        return int(self.steps * self.decay_from)

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        warm = min((step + 1) / self.warmup, 1.0)
        if step < self.decay_begins:
            return self.rate * warm
        through = (step - self.decay_begins) / max(self.steps - self.decay_begins, 1)
        return self.rate * warm * (self.floor + (1 - self.floor) * (1 + math.cos(math.pi * min(through, 1.0))) / 2)

    def place(self, step: int) -> tuple[Stage, int]:
        """The stage of a step, and the number of its first row. No number comes twice in a run."""
        row, begun = 0, 0
        for stage in self.stages:
            if stage.until is None or step < stage.until:
                break
            row, begun = row + (stage.until - begun) * stage.batch, stage.until
        return stage, row + (step - begun) * stage.batch

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found

    @property
    def sha256(self) -> str:
        """Of all that the steps before the decay depend on."""
        lasting = {name: value for name, value in self.as_json().items() if name != "steps"}
        return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()


RECIPE = Recipe(steps=14_800)  # 24 million tokens
