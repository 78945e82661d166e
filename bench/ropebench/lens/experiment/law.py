"""The line ln θ_eff = ln c + slope · ln B through trained models, with intervals; numpy and scipy alone.

Models of one size differ by their seed; sizes may also lie off any line, all models of a size alike (the grid of
frequencies is coarse, and a law may hold only about). Both are seen in the scatter of the sizes' means around the line,
so the line is drawn through the means, and its t intervals have sizes − 2 degrees of freedom. For as many seeds at
every size that is the fit of the mixed model with a random effect of size. Where the means happen to lie closer to the
line than models of one size lie to each other, the scatter that the seeds imply is used: a lucky line is no narrow one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ropebench.stats import LEVEL, TOO_SMALL, Interval

PAPER_SLOPE, PAPER_CONSTANT = -1.0, 3.02  # arXiv:2607.07678; its theory says π
KIND = "t over sizes"


class Point(NamedTuple):
    """One trained model: x (a block's length, a number of operations), its seed, and its effective frequency."""

    size: float
    seed: int
    theta: float


@dataclass(frozen=True)
class Line:
    """`constant` is exp of the intercept of the free fit; `at_minus_one` that of the line of slope −1. `seeds` is the
    standard deviation of ln θ_eff between models of one size, `off` that of the sizes' means around the line."""

    slope: Interval
    constant: Interval
    at_minus_one: Interval
    seeds: float | None
    off: float | None
    points: int

    def at(self, size: float) -> float:
        """θ on the line."""
        return float((self.constant.value or 0.0) * size ** (self.slope.value or 0.0))


def fitted(points: Sequence[Point], level: float = LEVEL) -> Line | None:
    """The line through models of two sizes or more; without intervals for two. None for fewer."""
    sizes = sorted({point.size for point in points})
    k, n = len(sizes), len(points)
    if k < 2:
        return None
    from scipy.stats import linregress, t

    groups = [np.log([p.theta for p in points if p.size == size]) for size in sizes]
    x, y = np.log(sizes), np.array([group.mean() for group in groups])
    inside = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    seeds = math.sqrt(inside / (n - k)) if n > k else None
    found = linregress(x, y)
    slope, constant = float(found.slope), float(found.intercept)
    level_one = float((y + x).mean())
    if k < 3:
        one, other, level_at = (
            Interval(value, None, None, TOO_SMALL, n, k) for value in (slope, math.exp(constant), math.exp(level_one))
        )
        return Line(one, other, level_at, seeds, None, n)
    off = math.sqrt(float(((y - slope * x - constant) ** 2).sum()) / (k - 2))
    least = (seeds or 0.0) / math.sqrt(n / k)  # of a size's mean, from its seeds
    wide = float(t.ppf((1 + level) / 2, k - 2)) * (max(off, least) / off if off else 1.0)
    around_one = float(t.ppf((1 + level) / 2, k - 1)) * max(float((y + x).std(ddof=1)), least) / math.sqrt(k)

    def around(value: float, half: float, log: bool) -> Interval:
        low, middle, high = (math.exp(v) if log else v for v in (value - half, value, value + half))
        return Interval(middle, low, high, KIND, n, k)

    return Line(
        around(slope, wide * float(found.stderr), False),
        around(constant, wide * float(found.intercept_stderr), True),
        around(level_one, around_one, True),
        seeds, off, n,
    )  # fmt: skip
