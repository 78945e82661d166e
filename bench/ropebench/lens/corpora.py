"""The dependence of a corpus on distance at several granularities: from texts to plain JSON values for a record."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ropebench.errors import UsageError
from ropebench.lens.dependence import Groups, Profile, folded, grid, profile, self_similarity, width
from ropebench.lens.record import ends
from ropebench.lens.texts import as_bytes, bpe, in_groups
from ropebench.record import Json, digest

SIZES = (320, 512, 2048, 8192)  # of vocabularies, where none are asked for
PAIRS_PER_CELL = 10  # at the longest distance, for each of (classes − 1)² cells
MOST_BIAS = 0.1  # of the signal


@dataclass(frozen=True)
class Source:
    """Texts to look at: a corpus, or a task's drills."""

    label: str
    about: Json
    texts: list[str] = field(repr=False)


@dataclass(frozen=True)
class Granularity:
    """A way of cutting text into tokens: groups of sequences folded to `classes`, and what a token is on average."""

    name: str
    groups: Groups = field(repr=False)
    classes: int
    vocabulary: int
    own: float  # share of tokens in classes of their own
    bytes_per_token: float
    tokens: int


def granularities(
    source: Source,
    sizes: Sequence[int] | None,
    classes: int,
    model: tuple[str, Callable[[str], list[int]]] | None = None,
) -> tuple[list[Granularity], list[str]]:
    """Bytes, the BPE vocabularies by size, and a model's tokens (its name and tokenizer), from fine to coarse; and what
    was left out. Raises UsageError for a vocabulary too large for the text, where it was asked for."""
    notes = []
    parts = in_groups(source.texts)
    if len(parts) < 2:
        raise UsageError(f"{source.label}: its text is too short to be looked at in parts; give more")
    ways: list[tuple[str, int, Callable[[str], np.ndarray]]] = [("bytes", 256, as_bytes)]
    for size in sorted(set(SIZES if sizes is None else sizes)):
        try:
            tokenizer = bpe(source.texts, size)
        except UsageError as error:
            if sizes is not None:
                raise UsageError(f"{source.label}: {error}") from None
            notes.append(f"{source.label}: left out: {error}")
            continue
        ways.append((f"bpe-{size}", size, lambda text, own=tokenizer: np.array(own.encode(text).ids, np.int64)))  # type: ignore[misc]
    if model is not None:
        name, encode = model
        ways.append((f"tokens of {name}", 0, lambda text: np.array(encode(text), np.int64)))
    total, found = sum(len(text.encode()) for text in source.texts), []
    for name, vocabulary, cut in ways:
        sequences = [[cut(text) for text in part] for part in parts]
        flat = [tokens for part in sequences for tokens in part]
        classed, used, own = folded(flat, classes)
        pieces = iter(classed)
        groups = [[next(pieces) for _ in part] for part in sequences]
        tokens = sum(map(len, flat))
        distinct = vocabulary or len(np.unique(np.concatenate(flat)))
        found.append(Granularity(name, groups, used, distinct, own, total / tokens, tokens))
    return sorted(found, key=lambda one: one.bytes_per_token), notes


def reaches(found: Sequence[Granularity], distance: int) -> list[int]:
    """A distance in bytes as whole tokens of each granularity. Raises UsageError, with the bound that holds for all of
    them, where too few pairs of tokens of one are so far apart."""
    made = [max(1, int(distance / one.bytes_per_token)) for one in found]
    short = [(one, r) for one, r in zip(found, made, strict=True) if _pairs(one, r) < _needed(one)]
    if not short:
        return made
    one, r = short[0]
    most = min(int(_furthest(other) * other.bytes_per_token) for other in found)
    bound = f"--distance {most} or less, " if most else ""
    longest = max(len(tokens) for group in one.groups for tokens in group)
    raise UsageError(
        f"--distance {distance}: the texts are too short for it. In {one.name} (longest text {longest:,} tokens) "
        f"{_pairs(one, r):,} pairs are so far apart, and {one.classes} classes need {_needed(one):,}; give {bound}"
        "fewer --classes, or more text"
    )


def _needed(one: Granularity) -> int:
    return PAIRS_PER_CELL * (one.classes - 1) ** 2


def _pairs(one: Granularity, reach: int) -> int:
    return sum(max(0, len(tokens) - reach) for group in one.groups for tokens in group)


def _furthest(one: Granularity) -> int:
    """The longest distance in tokens with enough pairs; 0 where there is none."""
    low, high = 0, max(len(tokens) for group in one.groups for tokens in group)  # pairs fall with the distance
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _pairs(one, middle) >= _needed(one) else (low, middle)
    return low


def checked(one: Granularity, found: Profile) -> Profile:
    """The profile, where its bias is at most a tenth of its strongest signal. Raises UsageError with the bound."""
    strongest = int(np.argmax(found.mi))
    signal, bias = float(found.mi[strongest]), float(found.bias[strongest])
    if bias <= MOST_BIAS * signal:
        return found
    n = int(found.pairs[strongest])
    most = 1 + math.isqrt(max(0, int(2 * n * MOST_BIAS * max(signal, 0.0))))
    advice = f"at most --classes {most}" if most >= 2 else "it hardly depends on distance, and no --classes would do"
    raise UsageError(
        f"{one.name}: {one.classes} classes are too many for {n:,} pairs: the estimate's bias, {bias:.2g} nats, is "
        f"more than a tenth of the mutual information itself, {max(signal, 0.0):.2g}; {advice}, or more text"
    )


def dependence(
    source: Source, found: Sequence[Granularity], distance: int, share: float, seed: int, say: Callable[[str], None]
) -> Json:
    """Profiles, widths and the self-similarity of each granularity with the next finer ones."""
    profiles = []
    for one, reach in zip(found, reaches(found, distance), strict=True):
        say(f"{source.label}: {one.name}, {one.tokens:,} tokens, distances up to {reach}")
        profiles.append(checked(one, profile(one.groups, grid(reach), one.classes, seed)))
    rows = [_row(one, own, share) for one, own in zip(found, profiles, strict=True)]
    alike = []
    for place in range(1, len(found)):
        for finer in sorted({0, place - 1}):  # bytes, and the next finer one
            alpha = found[place].bytes_per_token / found[finer].bytes_per_token
            seen = self_similarity(profiles[place], profiles[finer], alpha)
            row: Json = {"coarse": found[place].name, "fine": found[finer].name, "alpha": alpha, "score": None}
            if seen is not None:
                row |= {"score": ends(seen.score), "shape": ends(seen.shape), "error": ends(seen.error),
                        "dilation": seen.dilation, "points": seen.points}  # fmt: skip
            alike.append(row)
    return {"source": source.about | {"label": source.label}, "groups": len(found[0].groups),
            "granularities": rows, "self_similarity": alike}  # fmt: skip


def _row(one: Granularity, own: Profile, share: float) -> Json:
    w, shown = width(own, share), own.shown
    intervals = own.intervals()
    return {
        "name": one.name,
        "vocabulary": one.vocabulary,
        "classes": one.classes,
        "own_classes": one.own,
        "tokens": one.tokens,
        "bytes_per_token": one.bytes_per_token,
        "distances": [int(r) for r in own.distances],
        "pairs": [int(n) for n in own.pairs],
        "mi": [float(v) for v in own.mi],
        "low": [found.low for found in intervals],
        "high": [found.high for found in intervals],
        "shown": [bool(v) for v in shown],
        "plug_in": [float(v) for v in own.plug_in],
        "baseline": [float(v) for v in own.baseline],
        "shuffled": [float(v) for v in own.shuffled],
        "bias": [float(v) for v in own.bias],
        "width": {**ends(w.interval), "share": w.share, "longest": w.longest, "open": w.open},
    }


def beside_model(row: Json, theta_eff: Json) -> Json:
    """π/W of a granularity's row (the model's own tokens) beside the model's effective frequency on the same text, both
    radians per token. Theory: θ* = π/W."""
    w = row["width"]
    over = [None if w[end] is None else math.pi / w[end] for end in ("value", "high", "low")]
    ratio = None if over[0] is None else theta_eff["value"] / over[0]
    return {"granularity": row["name"], "pi_over_width": dict(zip(("value", "low", "high"), over, strict=True)),
            "theta_eff": theta_eff, "ratio": ratio}  # fmt: skip


def identity_of(source: Source, **how: Any) -> Json:
    """What a dependence record's numbers depend on."""
    return {"source": source.label, "texts": digest(source.texts), **how}
