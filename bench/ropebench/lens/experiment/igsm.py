"""The frequencies of models trained on word problems of one number of operations each.

The problems are those of `ropebench.igsm`, ours in the manner of iGSM; the number of operations that the paper used is
not known. Context, model and training are the same for all; what differs is how far the parts of a solution lie apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ropebench.errors import UsageError
from ropebench.igsm import MODULUS, MOST
from ropebench.lens import dependence
from ropebench.lens.experiment import words
from ropebench.lens.experiment.small import HELD_OUT, Batch, Training, learnt, own_seed, score, stream
from ropebench.lens.experiment.units import Unit
from ropebench.lens.tiny.recipe import Shape
from ropebench.record import Json

NAME, VERSION = "igsm", 1
SIZES = {"quick": (1, 2, 4), "default": (1, 2, 4, 8), "full": (1, 2, 3, 4, 6, 8)}
SEEDS = {"quick": 1, "default": 3, "full": 5}
CONTEXT = 512
CLASSES, GROUPS, MEASURED = 64, 8, 20_000  # of a dependence profile: word classes, sequences, tokens in each


def units(level: str, forms: Sequence[str] = (), sizes: Sequence[int] = (), seeds: int | None = None) -> list[Unit]:
    """The models of a level, or of given numbers of operations and seeds. Raises UsageError for what cannot be."""
    if forms:
        raise UsageError("--forms: igsm has one kind of data; vary its operations by --sizes")
    if seeds is not None and seeds < 1:
        raise UsageError(f"--seeds {seeds} must be at least 1")
    for size in sizes:
        if not 1 <= size <= MOST:
            raise UsageError(f"--sizes {size}: operations must be from 1 to {MOST}")
        words.checked(size, CONTEXT)
    training, hidden = Training(steps=200), 64
    if level == "quick":
        training, hidden = Training(steps=2, tokens=CONTEXT, warmup=1), 16
    shape = Shape(len(words.vocabulary()), hidden, 2, 2, 32, 2 * hidden, 10_000.0, window=CONTEXT)
    return [
        Unit(
            NAME, VERSION,
            {"size": size, "seed": seed, "shape": asdict(shape), "training": asdict(training)},
            f"{size} operations, seed {seed}",
        )
        for size in sizes or SIZES[level]
        for seed in range(seeds or SEEDS[level])
    ]  # fmt: skip


def measure(setting: Mapping[str, Any]) -> Json:
    """Train one model on packed problems and look at it; `answers` are scored at the number after "the answer is"."""
    operations, tokens, seed = int(setting["size"]), int(setting["shape"]["window"]), own_seed(setting)

    def drawn(rng: np.random.Generator, rows: int) -> tuple[Batch, Any]:
        ids, answers = words.problems(rng, operations, rows * tokens)
        ids, answers = ids[: rows * tokens].reshape(rows, tokens), answers[: rows * tokens].reshape(rows, tokens)
        return Batch(ids, ids, np.ones(ids.shape, bool)), answers

    model, found = learnt(setting, lambda rng, rows: drawn(rng, rows)[0])
    batch, answers = drawn(stream(HELD_OUT, seed, 2), max(8 * setting["training"]["tokens"] // tokens, 4))
    profile = _profile(operations, seed, int(setting["training"]["steps"]))
    about = {"chance": 1 / MODULUS, "problem_tokens": words.checked(operations, tokens)}
    return {**found, **about, "answers": score(model, Batch(batch.ids, batch.targets, answers)), **profile}


def _profile(operations: int, seed: int, steps: int) -> Json:
    """Mutual information by distance, of the 63 most frequent words and one class for all others, and its width."""
    rng = stream(HELD_OUT, seed, 1)
    measured = MEASURED if steps > 10 else MEASURED // 20
    rows = [words.problems(rng, operations, measured)[0] for _ in range(GROUPS)]
    folded, classes, _ = dependence.folded(rows, CLASSES)
    profile = dependence.profile([[row] for row in folded], dependence.grid(CONTEXT - 1), classes)
    return dependence_json(profile)


def dependence_json(profile: dependence.Profile) -> Json:
    """A profile and its width as plain JSON: nats and tokens."""
    found = dependence.width(profile)
    ends = (found.interval.value, found.interval.low, found.interval.high)
    return {
        "profile": {"distances": profile.distances.tolist(), "mi": profile.mi.tolist(), "classes": profile.classes},
        "width": {**dict(zip(("value", "low", "high"), ends, strict=True)), "share": found.share, "open": found.open},
    }
