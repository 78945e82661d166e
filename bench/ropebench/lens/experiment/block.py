"""The effective frequency of models trained on latent blocks of one length each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ropebench.errors import UsageError, unknown
from ropebench.lens import dependence
from ropebench.lens.experiment.forms import FORMS, SYMBOLS
from ropebench.lens.experiment.small import HELD_OUT, Training, learnt, own_seed, stream
from ropebench.lens.experiment.units import Unit
from ropebench.lens.tiny.recipe import Shape
from ropebench.record import Json

NAME, VERSION = "block", 1
MAIN = "recall"
SIZES, SOME, MORE = (4, 8, 16, 32, 64), (4, 16, 64), (4, 8, 16, 32, 64, 128)
# One layer, so that no second one can pass on what the first has gathered; a base that leaves π ÷ size well inside.
SHAPE = Shape(SYMBOLS, 64, 1, 2, 32, 128, 1000.0)
LEAST = 4  # tokens of a block: below, π ÷ size is above the fastest frequency

GROUPS, MEASURED = 8, 40_000  # sequences of a dependence profile, and tokens in each


def units(level: str, forms: Sequence[str] = (), sizes: Sequence[int] = (), seeds: int | None = None) -> list[Unit]:
    """The models of a level (quick, default, full), or of the forms, sizes and number of seeds that are given.

    By default the main form has all sizes and three seeds, each other form three sizes and one seed: a look, no fit.
    Raises UsageError for an unknown form or a size out of range.
    """
    for form in forms:
        if form not in FORMS:
            raise unknown("form", form, FORMS)
    most = int(math.pi / 2 * SHAPE.theta ** (1 - 2 / SHAPE.head_dim))
    for size in sizes:
        if not LEAST <= size <= most:
            raise UsageError(f"--sizes {size}: a block must have from {LEAST} to {most} tokens; outside that π ÷ size "
                             "is not well inside the model's frequencies")  # fmt: skip
    if seeds is not None and seeds < 1:
        raise UsageError(f"--seeds {seeds} must be at least 1")
    wanted = []
    for form in forms or ([MAIN] if level == "quick" else FORMS):
        own = form == MAIN or bool(forms) or level == "full"
        default = {"quick": SOME, "default": SIZES if own else SOME, "full": MORE}[level]
        number = seeds or {"quick": 1, "default": 3 if own else 1, "full": 5 if form == MAIN else 3}[level]
        wanted += [(form, size, seed) for size in sizes or default for seed in range(number)]
    training = Training(steps=6, tokens=256, warmup=2) if level == "quick" else Training()
    return [_unit(form, size, seed, training) for form, size, seed in wanted]


def _unit(form: str, size: int, seed: int, training: Training) -> Unit:
    shape = {**asdict(SHAPE), "window": FORMS[form].context(size)}
    setting = {"form": form, "size": size, "seed": seed, "shape": shape, "training": asdict(training)}
    return Unit(NAME, VERSION, setting, f"{form}, blocks of {size}, seed {seed}")


def measure(setting: Mapping[str, Any]) -> Json:
    """Train one model and look at it. Beside its spectrum: the width W that a dependence profile of its data shows."""
    form, size = FORMS[setting["form"]], int(setting["size"])
    tokens = int(setting["shape"]["window"])

    def draw(rng: np.random.Generator, rows: int) -> Any:
        return form.make(rng, rows, tokens, size)

    _, found = learnt(setting, draw)
    return {**found, "chance": form.chance, "width": _width(form.make, size, own_seed(setting))}


def _width(make: Any, size: int, seed: int) -> Json:
    """W of long sequences (many blocks), in tokens, with its interval."""
    rng = stream(HELD_OUT, seed, 1)
    groups = [[row] for row in make(rng, GROUPS, MEASURED, size).ids]
    profile = dependence.profile(groups, dependence.grid(3 * size), SYMBOLS)
    found = dependence.width(profile)
    ends = (found.interval.value, found.interval.low, found.interval.high)
    return {**dict(zip(("value", "low", "high"), ends, strict=True)), "share": found.share, "open": found.open}
