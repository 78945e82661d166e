"""How a corpus depends on distance: mutual information between tokens r apart, the width of that dependence, and
whether it looks alike at several granularities.

The paper (arXiv:2607.07678) was not to be had in full; **estimator, width and scores are ours**. Everything is in nats.

Estimator. Plug-in mutual information of the joint histogram of (token, token r later) over V classes, minus the same of
tokens that cannot depend on each other: a token of one part of the corpus with one of another part. The plug-in is
biased upwards by about (V − 1)²/(2N) for N independent pairs, and by more where neighbouring pairs are alike; pairs of
parts have the same runs and the same marginals, and so the same bias. (Tokens in random order, the usual baseline, have
lost the runs: of blocks of 128 equal symbols they leave a false 0.002 nats at any distance. `shuffled` tells them too.)
What is left includes what tokens share by being in one document: topic and style.

Spread. A corpus comes in groups of sequences (`groups`); each estimate is repeated with one group left out, and t
intervals come from the jackknife's pseudo-values (Efron and Stein 1981). Fewer than 5 groups: no interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ropebench.stats import LEVEL, Interval, from_stderr

Array = NDArray[np.float64]
Tokens = NDArray[np.int64]
Groups = Sequence[Sequence[Tokens]]  # groups of sequences of token classes

SHARE = 0.9  # of the excess mutual information, within the width
SHIFTS = 8  # pairings of the corpus's groups with one another


@dataclass(frozen=True)
class Profile:
    """Mutual information by distance, nats. Arrays of shape (distances,), `without` (groups, distances) holds `mi` with
    one group left out. `baseline` is what independent pairs show, `shuffled` the same of tokens in random order."""

    classes: int
    distances: NDArray[np.int64]
    pairs: NDArray[np.int64]
    plug_in: Array
    baseline: Array
    shuffled: Array
    without: Array = field(repr=False)

    @property
    def mi(self) -> Array:
        return self.plug_in - self.baseline

    @property
    def bias(self) -> Array:
        """(V − 1)²/(2N), what the plug-in is too high by for N independent pairs."""
        return np.asarray((self.classes - 1) ** 2 / (2 * self.pairs))

    def intervals(self, level: float = LEVEL) -> list[Interval]:
        """Of `mi`, one per distance."""
        return [jackknifed(value, left, level) for value, left in zip(self.mi, self.without.T, strict=True)]

    @property
    def shown(self) -> NDArray[np.bool_]:
        """Where the mutual information is shown to be above 0, over all distances together (Bonferroni); without
        intervals nothing is."""
        strict = 1 - 2 * (1 - LEVEL) / len(self.distances)  # one-sided
        return np.array([found.low is not None and found.low > 0 for found in self.intervals(strict)])


def histogram_mi(joint: Array) -> Array:
    """Plug-in mutual information of joint counts (…, V, V), nats."""
    total = joint.sum((-2, -1), keepdims=True)
    entropies = [-_sum_xlogx(part / total[..., 0]) for part in (joint.sum(-1), joint.sum(-2))]
    both = -_sum_xlogx((joint / total).reshape(*joint.shape[:-2], -1))
    return np.asarray(entropies[0] + entropies[1] - both)


def _sum_xlogx(p: Array) -> Array:
    return np.asarray((p * np.log(np.where(p > 0, p, 1.0))).sum(-1))


def joint_counts(groups: Groups, distance: int, classes: int) -> Array:
    """Counts of (token, token `distance` later) within sequences, shape (groups, classes, classes)."""
    found = np.zeros((len(groups), classes * classes))
    for group, sequences in zip(found, groups, strict=True):
        for tokens in sequences:
            if len(tokens) > distance:
                code = tokens[:-distance] * classes + tokens[distance:]
                group += np.bincount(code, minlength=classes * classes)
    return found.reshape(-1, classes, classes)


def profile(groups: Groups, distances: Sequence[int], classes: int, seed: int = 0) -> Profile:
    """The profile of token classes 0 … classes − 1 at the given distances (tokens, ≥ 1). `groups`: at least 2 parts of
    the corpus, of about one size; no pair reaches from one into another.

    Raises ValueError for a distance that no sequence reaches and for a single group; `ropebench.lens.corpora` checks
    what a person gives.
    """
    if len(groups) < 2:
        raise ValueError("a profile needs at least 2 groups of sequences")
    apart = _independent(groups, classes, seed)  # nats × pairs: falls as 1/N whatever the distance
    mixed = _mixed(groups, classes, seed)
    pairs, plug_in, without = [], [], []
    for distance in distances:
        joint = joint_counts(groups, int(distance), classes)
        whole = joint.sum(0)
        if not whole.sum():
            raise ValueError(f"no two tokens of a sequence are {distance} apart")
        left = whole - joint  # with one group left out
        pairs.append(int(whole.sum()))
        plug_in.append(float(histogram_mi(whole)))
        without.append(histogram_mi(left) - apart / np.maximum(left.sum((1, 2)), 1))
    n = np.asarray(pairs)
    where, seen = np.asarray(distances, np.int64), np.asarray(plug_in)
    return Profile(classes, where, n, seen, apart / n, mixed / n, np.stack(without, axis=1))


def _independent(groups: Groups, classes: int, seed: int) -> float:
    """Plug-in mutual information × pairs of tokens of one group with those of another, turned by a random amount so
    that what stands at the same place of every sequence does not meet; the mean of several pairings."""
    rng, whole = np.random.default_rng([seed, 1]), [np.concatenate(list(group)) for group in groups]
    found = []
    for shift in rng.permutation(np.arange(1, len(whole)))[:SHIFTS]:
        joint = np.zeros(classes * classes)
        for place, one in enumerate(whole):
            other = np.roll(whole[(place + int(shift)) % len(whole)], int(rng.integers(len(one) + 1)))
            size = min(len(one), len(other))
            joint += np.bincount(one[:size] * classes + other[:size], minlength=classes * classes)
        found.append(float(histogram_mi(joint.reshape(classes, classes))) * joint.sum())
    return float(np.mean(found))


def _mixed(groups: Groups, classes: int, seed: int) -> float:
    """The same of all tokens in random order, each with the next."""
    every = np.random.default_rng([seed, 2]).permutation(np.concatenate([t for group in groups for t in group]))
    joint = joint_counts([[every]], 1, classes)[0]
    return float(histogram_mi(joint)) * float(joint.sum())


def jackknifed(value: float, left: Array, level: float = LEVEL) -> Interval:
    """t interval around `value` from its repetitions with one group left out each."""
    k = len(left)
    stderr = float(np.sqrt((k - 1) / k * ((left - left.mean()) ** 2).sum())) if k > 1 else None
    return from_stderr(float(value), stderr, k, k, level)


@dataclass(frozen=True)
class Width:
    """The dependency width W: the distance within which `share` of the excess mutual information lies, of that up to
    `longest`. `open`: there is still some at the longest distance, so W would grow with a longer look."""

    interval: Interval
    share: float
    longest: int
    open: bool


def width(found: Profile, share: float = SHARE) -> Width:
    """W of a profile, in its tokens: excess is summed over every distance, linearly in the log of the distance between
    the measured ones, as it was estimated (noise around 0 cancels, and its size is in the interval). No W (value None)
    where no distance is shown to be above 0, or the sum is not above 0 without some group."""
    shown, k = found.shown, len(found.without)
    value = _width(found.distances, found.mi, share) if shown.any() else None
    left = [_width(found.distances, one, share) for one in found.without]
    if value is None or any(one is None for one in left):
        interval = Interval(None, None, None, "no dependence shown", k, k)
    else:
        logs = jackknifed(float(np.log(value)), np.log(np.array(left, float)))
        low, high = (None if end is None else float(np.exp(end)) for end in (logs.low, logs.high))
        interval = Interval(value, low, high, logs.kind, k, k)
    return Width(interval, share, int(found.distances[-1]), bool(shown[-1]))


def width_within(distances: Sequence[int], mi: Sequence[float], longest: int, share: float = SHARE) -> float | None:
    """W as it would be with no look beyond `longest`, from a measured profile. Where a dependence has a width of its
    own this is W itself; where it falls as a power of the distance, W follows the look."""
    near = np.asarray(distances, np.int64)
    near = near[near <= longest]
    return _width(near, np.asarray(mi, float)[: len(near)], share) if len(near) else None


def _width(distances: NDArray[np.int64], mi: Array, share: float) -> float | None:
    every = np.arange(1, distances[-1] + 1)
    within = np.cumsum(np.interp(np.log(every), np.log(distances), mi))
    if not within[-1] > 0:
        return None
    rising = np.maximum.accumulate(np.concatenate([[0.0], within]))
    return float(np.interp(share * within[-1], rising, np.arange(len(every) + 1)))


@dataclass(frozen=True)
class Similarity:
    """How well a coarse profile is a fine one, dilated: I_coarse(r) against I_fine(α·r), α = fine tokens in a coarse
    one. `score`: R² of ln I (1: equal; 0: no better than the coarse profile's own mean; below: worse). `shape`: the
    same with a free common factor. `error`: root mean square of the log ratio. `dilation`: the α that fits best."""

    score: Interval
    shape: Interval
    error: Interval
    alpha: float
    dilation: float
    points: int


def self_similarity(coarse: Profile, fine: Profile, alpha: float) -> Similarity | None:
    """Over the coarse distances whose dilated counterpart was measured and both are shown to be above 0; None for fewer
    than 4 of those. Both profiles must have the same groups of the same text."""
    r, there_shown = coarse.distances, fine.shown
    good = coarse.shown & (alpha * r >= fine.distances[there_shown].min(initial=1 << 60))
    good &= alpha * r <= fine.distances[there_shown].max(initial=0)
    if good.sum() < 4:
        return None

    def measures(own: Array, other: Array, dilation: float) -> Array:
        keep = there_shown & (other > 0)
        there = np.interp(np.log(dilation * r[good]), np.log(fine.distances[keep]), np.log(other[keep]))
        here = np.log(np.maximum(own[good], 1e-12))
        off, spread = here - there, max(float(((here - here.mean()) ** 2).sum()), 1e-12)
        return np.array([1 - (off**2).sum() / spread, 1 - ((off - off.mean()) ** 2).sum() / spread,
                         np.sqrt((off**2).mean())])  # fmt: skip

    values = measures(coarse.mi, fine.mi, alpha)
    left = np.stack([measures(a, b, alpha) for a, b in zip(coarse.without, fine.without, strict=True)])
    score, shape, error = (jackknifed(value, column) for value, column in zip(values, left.T, strict=True))
    dilations = alpha * np.exp(np.linspace(-np.log(4), np.log(4), 65))
    best = max(dilations, key=lambda d: float(measures(coarse.mi, fine.mi, float(d))[0]))
    return Similarity(score, shape, error, alpha, float(best), int(good.sum()))


def folded(sequences: Sequence[Tokens], most: int) -> tuple[list[Tokens], int, float]:
    """Tokens as at most `most` classes: the most frequent `most` − 1 are their own, all others one. Returns the
    sequences, the number of classes, and the share of tokens in classes of their own. Ties go to the lower id."""
    counts = np.bincount(np.concatenate(list(sequences)))
    used = np.flatnonzero(counts)
    ranked = used[np.argsort(-counts[used], kind="stable")]
    own = ranked if len(ranked) <= most else ranked[: most - 1]
    table = np.full(len(counts), len(own), np.int64)
    table[own] = np.arange(len(own))
    classes = len(own) + (len(own) < len(ranked))
    return [table[tokens] for tokens in sequences], classes, float(counts[own].sum() / counts.sum())


def grid(longest: int, per_octave: int = 4, dense: int = 16) -> list[int]:
    """Distances 1 … dense one by one, then `per_octave` for every doubling, up to `longest` itself."""
    steps = dense * 2 ** (np.arange(1, 1 + per_octave * 40) / per_octave)
    far = {round(step) for step in steps if step < longest}
    return sorted({*range(1, min(dense, longest) + 1), *far, longest})
