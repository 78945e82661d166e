"""Resampling over clusters, with fixed random numbers: the same data give the same interval and the same p-value.

scipy has neither the bootstrap-t nor one that keeps ratios of sums together by cluster, and its permutation test takes
a second for 500 clusters; a report makes hundreds. Both here are one matrix product with draws that are kept. The tests
hold the permutation test to scipy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1999
FLIPS = 9999
EXACT = 13  # up to so many clusters that are not 0 every way of signs is tried

Array = NDArray[np.float64]


@lru_cache(maxsize=8)
def draws(clusters: int) -> NDArray[np.float32]:
    """How often each cluster is drawn in each resample, shape (RESAMPLES, clusters)."""
    found = np.random.default_rng(0).multinomial(clusters, np.full(clusters, 1 / clusters), size=RESAMPLES)
    return found.astype(np.float32)


def bootstrap_t(sums: Sequence[float], counts: Sequence[int], level: float) -> tuple[float, float] | None:
    """Ends of the bootstrap-t interval (Efron 1981) of a mean over samples, from each cluster's sum and number.

    Clusters are drawn with replacement; each resample is studentised with its own standard error. None where an end is
    beyond all resamples, because too many of them have no spread.
    """
    total, number = np.asarray(sums, float), np.asarray(counts, float)
    k = len(total)
    value = total.sum() / number.sum()
    rest = total - value * number
    # Of each resample: its mean minus the mean, and its standard error, from sums of products.
    made = draws(k) @ np.stack([rest, number, rest**2, rest * number, number**2], axis=1)
    shift = made[:, 0] / made[:, 1]
    square = made[:, 2] - 2 * shift * made[:, 3] + shift**2 * made[:, 4]
    spread = np.sqrt(np.maximum(square, 0.0) * k / (k - 1)) / made[:, 1]
    stderr = np.sqrt((rest**2).sum() * k / (k - 1)) / number.sum()
    flat = spread <= 1e-9 * stderr
    ratio = np.sort(np.where(flat, np.copysign(np.inf, shift), shift / np.where(flat, 1.0, spread)))
    tail = (1 - level) / 2
    low, high = (ratio[round(share * (RESAMPLES + 1)) - 1] for share in (tail, 1 - tail))
    if not np.isfinite([low, high]).all():
        return None
    # More digits would be those of this machine's arithmetic; the draws themselves leave no more than three.
    return tuple(float(f"{value - end * stderr:.6g}") for end in (high, low))  # type: ignore[return-value]


@lru_cache(maxsize=8)
def _signs(clusters: int) -> Any:
    if clusters <= EXACT:
        bits = np.arange(2**clusters)[:, None] >> np.arange(clusters) & 1
        return (2 * bits - 1).astype(np.float32)
    return np.random.default_rng(0).choice(np.array([-1, 1], np.float32), size=(FLIPS, clusters))


def flip_signs(differences: Sequence[float]) -> float:
    """Two-sided p-value of the paired permutation test: how often a sum at least as far from 0 arises when each
    cluster's difference might as well have had the other sign. Every way is tried for up to EXACT clusters that differ,
    else FLIPS random ones and the one seen."""
    known = np.asarray([value for value in differences if value], float)
    if not len(known):
        return 1.0
    reached = np.abs(_signs(len(known)) @ known) >= abs(known.sum()) * (1 - 1e-9)
    return float(reached.mean() if len(known) <= EXACT else (reached.sum() + 1) / (FLIPS + 1))
