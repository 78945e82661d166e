"""Where in a haystack something goes: evenly spread over samples, or as the original draws it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

_BASES = (2, 3, 5, 7, 11)  # a prime per needle: each needle's depths are spread evenly, and so are their combinations

# The original's depths in percent: 40 points from 0 to 100, rounded (0, 3, 5, 8, 10, 13 …).
GRID = tuple(round(point * 100 / 39) for point in range(40))


def even_depths(name: str, seed: int, i: int, needles: int) -> list[float]:
    """Depths (0–1) of sample i's needles: a Halton sequence, shifted by the seed. Any first n samples cover the whole
    range evenly, and the depth is the same at every length.

    Source: Halton, Numer. Math. 2 (1960); shifted as in Cranley & Patterson, SIAM J. Numer. Anal. 13 (1976).
    """
    shift = Random(f"{name} depth {seed}")
    return [(radical_inverse(i, base) + shift.random()) % 1.0 for base in _BASES[:needles]]


def radical_inverse(i: int, base: int) -> float:
    """The digits of i in `base`, mirrored at the point.

    >>> [radical_inverse(i, 2) for i in range(5)]
    [0.0, 0.5, 0.25, 0.75, 0.125]
    """
    value, weight = 0.0, 1.0
    while i:
        i, digit = divmod(i, base)
        weight /= base
        value += digit * weight
    return value


def grid_depths(rng: Random, needles: int) -> list[float]:
    """Depths (0–1) as the original draws them: from its 40 points, without replacement."""
    return [percent / 100 for percent in rng.sample(GRID, needles)]


def nearest(places: NDArray[np.int64], depths: Sequence[float]) -> list[int]:
    """Per depth, which of the places is nearest to it. `places` are the tokens before each possible place, rising; the
    last one is the end."""
    wanted = np.asarray(depths) * places[-1]
    right = np.clip(np.searchsorted(places, wanted), 1, max(len(places) - 1, 1))
    if len(places) == 1:
        return [0] * len(depths)
    left_is_nearer = wanted - places[right - 1] <= places[right] - wanted
    return [int(place) for place in np.where(left_is_nearer, right - 1, right)]
