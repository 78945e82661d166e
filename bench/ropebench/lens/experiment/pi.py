"""Three small models taken past their window under every method: likelihood and exactness side by side.

Kinds of data, all ours:

- `blocks`: `forms.recall`, blocks of BLOCK tokens. The test in a window of s times the length is of two sorts:
  `dilated` (blocks s times as long: the training data, dilated) and `same` (the same blocks, more of them).
- `text`: natural text (the manual of the running Python), character by character in CHARACTERS classes. The last tenth
  is the test's.
- `arithmetic`: running totals modulo 10, "+7=5+8=3…". An answer depends on the digit three back and the one two back,
  however long the sequence: at no other distance.

What is scored lies in the last half of a window, so at s ≥ 2 beyond the trained one. Exact: the block's symbol, the
next character, the digit after "=", as the likeliest token.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ropebench.apply import applied
from ropebench.errors import UsageError, unknown
from ropebench.geometry import RopeGeometry
from ropebench.lens import dependence
from ropebench.lens.experiment import forms as blocks
from ropebench.lens.experiment.igsm import dependence_json
from ropebench.lens.experiment.small import HELD_OUT, Batch, Training, learnt, own_seed, score, stream
from ropebench.lens.experiment.units import Unit
from ropebench.lens.tiny.recipe import Shape
from ropebench.record import Json
from ropebench.registry import Registry

NAME, VERSION = "pi", 1
WINDOW, BLOCK, CHARACTERS = 128, 32, 64
FACTORS = (1, 2, 4)
SEEDS = {"quick": 1, "default": 3, "full": 5}
TESTED = 32_768  # tokens of a test, at each factor and under each method
GROUPS, MEASURED = 8, 30_000  # of a dependence profile: sequences, and tokens in each
DIGITS, PLUS, EQUALS = 10, 10, 11

Make = Callable[[np.random.Generator, int, int, int], Batch]  # stream, rows, tokens, factor of dilation


@cache
def _text() -> NDArray[np.int64]:
    """The manual in classes of characters: white space is one character, capitals are small ones."""
    from ropebench.corpus import open_corpus

    text = " ".join("\n".join(document.text for document in open_corpus("installed").documents()).lower().split())
    ranked = [character for character, _ in Counter(text).most_common(CHARACTERS - 1)]
    table = {character: place for place, character in enumerate(ranked)}
    return np.array([table.get(character, CHARACTERS - 1) for character in text], np.int64)


def text(rng: np.random.Generator, rows: int, tokens: int, dilation: int, part: slice = slice(None)) -> Batch:
    """Pieces of the manual. It cannot be dilated: `dilation` is without effect."""
    whole = _text()[part]
    first = rng.integers(0, len(whole) - tokens, rows)
    ids = whole[first[:, None] + np.arange(tokens)]
    return Batch(ids, ids, np.ones(ids.shape, bool))


def text_for_training(rng: np.random.Generator, rows: int, tokens: int, dilation: int) -> Batch:
    return text(rng, rows, tokens, dilation, slice(0, len(_text()) * 9 // 10))


def text_held_out(rng: np.random.Generator, rows: int, tokens: int, dilation: int) -> Batch:
    return text(rng, rows, tokens, dilation, slice(len(_text()) * 9 // 10, None))


def arithmetic(rng: np.random.Generator, rows: int, tokens: int, dilation: int) -> Batch:
    """Running totals: digits 0 … 9, PLUS, EQUALS. It cannot be dilated either."""
    terms = rng.integers(0, 10, (rows, tokens // 4 + 2))
    totals = np.cumsum(terms, 1) % 10
    signs = [np.full(terms.shape, sign) for sign in (PLUS, EQUALS)]
    whole = np.stack([signs[0], terms, signs[1], totals], -1).reshape(rows, -1)
    first = rng.integers(0, 4, (rows, 1))
    ids = np.take_along_axis(whole, first + np.arange(tokens), 1)
    answers = (first + np.arange(tokens)) % 4 == 3
    answers[:, :4] = False  # the total before is not there yet
    return Batch(ids, ids, answers)


def recall(rng: np.random.Generator, rows: int, tokens: int, dilation: int) -> Batch:
    return blocks.recall(rng, rows, tokens, BLOCK * dilation)


# Vocabulary, training data, held-out data, the sorts of test, chance of an exact guess (None: not known)
KINDS: Mapping[str, tuple[int, Make, Make, tuple[str, ...], float | None]] = {
    "blocks": (blocks.SYMBOLS, recall, recall, ("dilated", "same"), 1 / blocks.SYMBOLS),
    "text": (CHARACTERS, text_for_training, text_held_out, ("same",), None),
    "arithmetic": (DIGITS + 2, arithmetic, arithmetic, ("same",), 1 / DIGITS),
}


def methods() -> dict[str, Any]:
    """Every built-in static method by name, `none` among them: what scales with nothing but a factor."""
    entries = [one for one in Registry.load().of("method") if one.origin == "built in"]
    return {one.name: one.cls() for one in entries if not one.cls.length_dependent and one.name != "native"}


def units(level: str, forms: Sequence[str] = (), sizes: Sequence[int] = (), seeds: int | None = None) -> list[Unit]:
    """The models of a level, or of given kinds and numbers of seeds. Raises UsageError for what cannot be."""
    if sizes:
        raise UsageError("--sizes: the pi experiment has one size of each kind; choose kinds by --forms")
    for form in forms:
        if form not in KINDS:
            raise unknown("form", form, KINDS)
    if seeds is not None and seeds < 1:
        raise UsageError(f"--seeds {seeds} must be at least 1")
    training, hidden, tested = Training(), 64, TESTED
    if level == "quick":
        training, hidden, tested = Training(steps=4, tokens=4 * WINDOW, warmup=2), 16, 4 * WINDOW
    about = {"methods": {name: method.version for name, method in methods().items()}, "tested": tested}
    return [
        Unit(
            NAME, VERSION,
            {"form": kind, "seed": seed, "training": asdict(training), **about,
             "shape": asdict(Shape(KINDS[kind][0], hidden, 2, 2, 32, 2 * hidden, 10_000.0, window=WINDOW))},
            f"{kind}, seed {seed}",
        )
        for kind in forms or KINDS
        for seed in range(seeds or SEEDS[level])
    ]  # fmt: skip


def measure(setting: Mapping[str, Any]) -> Json:
    """Train one model in its window, then score it under every method at every factor, on the same sequences."""
    _, trained_on, held_out, sorts, chance = KINDS[setting["form"]]
    seed, tested = own_seed(setting), int(setting["tested"])
    model, found = learnt(
        setting, lambda rng, rows: trained_on(rng, rows, WINDOW, 1), lambda rng, rows: held_out(rng, rows, WINDOW, 1)
    )
    geometry = RopeGeometry(int(setting["shape"]["head_dim"]), float(setting["shape"]["theta"]), WINDOW)
    scores: list[Json] = []
    for place, sort in enumerate(sorts):
        for factor in FACTORS:
            tokens = WINDOW * factor
            rng = stream(HELD_OUT, seed, 100 + 10 * factor + place)
            batch = _second_half(held_out(rng, max(tested // tokens, 1), tokens, factor if sort == "dilated" else 1))
            for name, method in methods().items():
                if factor == 1 and name != "none":  # all are the unmodified model
                    continue
                with applied(model, method.frequencies(geometry, float(factor), tokens)):
                    scores.append({"test": sort, "factor": factor, "method": name, **_in_parts(model, batch)})
    return {**found, "chance": chance, "tests": scores, "dependence": _dependence(setting, sorts)}


def _second_half(batch: Batch) -> Batch:
    scored = batch.scored.copy()
    scored[:, : scored.shape[1] // 2] = False
    return Batch(batch.ids, batch.targets, scored)


def _in_parts(model: Any, batch: Batch, at_once: int = 8192) -> Json:
    """`score` of a batch that is too large for one pass; its perplexity beside it."""
    rows = max(at_once // batch.ids.shape[1], 1)
    parts = []
    for first in range(0, len(batch.ids), rows):
        here = slice(first, first + rows)
        one = Batch(batch.ids[here], batch.targets[here], batch.scored[here])
        if one.scored[:, 1:].any():
            parts.append(score(model, one))
    n = sum(part["n"] for part in parts)
    mean = {name: sum(part[name] * part["n"] for part in parts) / n for name in ("nll", "accuracy")}
    return {**mean, "perplexity": math.exp(mean["nll"]), "n": n}


def _dependence(setting: Mapping[str, Any], sorts: Sequence[str]) -> Json:
    """Profiles of the training data, and of the test data in the longest window. Of text there is one: of all of it."""
    kind = setting["form"]
    classes, make, _, _, _ = KINDS[kind]
    measured = MEASURED if int(setting["training"]["steps"]) > 10 else MEASURED // 10
    dilations = {"training": 1, **{sort: FACTORS[-1] if sort == "dilated" else 1 for sort in sorts}}
    found: dict[int, Json] = {}
    for dilation in set(dilations.values()):
        # Pieces that share no token, so that what is left out for an interval is left out once.
        rows = make(stream(HELD_OUT, own_seed(setting), 1), GROUPS, measured, dilation).ids
        pieces = np.array_split(_text(), GROUPS) if kind == "text" else list(rows)
        profile = dependence.profile([[one] for one in pieces], dependence.grid(WINDOW * FACTORS[-1]), classes)
        found[dilation] = dependence_json(profile)
    return {name: found[dilation] for name, dilation in dilations.items()}
