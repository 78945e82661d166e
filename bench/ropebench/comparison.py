"""Differences on the same samples, tested: plain numbers in, what they do and do not show out.

    paired(a, b)          a − b on the same samples, with interval and test
    holm(p_values)        p-values of one table, corrected for their number

Which interval is decided by simulated coverage, as in `ropebench.stats`. Tests are exact where there is an exact one:
McNemar's for 0/1 scores of independent samples, the permutation test of signs over clusters from 12 clusters on. With
fewer its smallest p-value, 2^(1 − clusters), would decide nothing in a table of many comparisons; there t is taken.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ropebench.stats import FEW, LEVEL, MIN_CLUSTERS, TOO_SMALL, binary, from_stderr, grouped, stderr_of, widened

MCNEMAR, SIGN_TEST, PERMUTATION = "mcnemar", "sign test", "permutation"
BONETT, ADJUSTED = "bonett-price", "adjusted t"
PERMUTED = 12  # clusters: below, no permutation test could decide anything in a table of a hundred comparisons

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences with its 95 % interval.

    `p` is two-sided and uncorrected, `adjusted` the same after Holm's correction over the table it stands in (None
    where none was made). `kind` is the test: mcnemar (exact), sign test (exact, over clusters), permutation (of signs,
    over clusters), t, or why there is none. `interval` is the kind of interval. `agreeing` counts the clusters whose
    own difference has the sign of the mean.
    """

    value: float
    low: float | None
    high: float | None
    p: float | None
    kind: str
    n: int
    clusters: int
    agreeing: int = 0
    adjusted: float | None = None
    stderr: float | None = None
    interval: str = ""

    @property
    def decided(self) -> bool:
        """Whether the difference is told from zero at the 5 % level, corrected where it stands among others."""
        p = self.p if self.adjusted is None else self.adjusted
        return p is not None and p < 1 - LEVEL

    @property
    def testable(self) -> bool:
        return self.p is not None

    def could_decide(self, tests: int) -> bool:
        """Whether so many clusters could be told apart at all in a table of so many comparisons: exact tests have a
        smallest p-value."""
        return self.testable and (self.kind == "t" or self.clusters >= smallest_decisive_n(tests))


def paired(
    a: Sequence[float],
    b: Sequence[float],
    clusters: Sequence[Any] | None = None,
    level: float = LEVEL,
    share: bool | None = None,
) -> Difference:
    """Mean of a − b over the same samples, by cluster. `share`: both lie within 0–1 (None: where all are 0 or 1).

    0/1 scores of independent samples: McNemar's exact test, and the interval of Bonett and Price for paired
    proportions. Anything else: the permutation test over clusters from 12 clusters on, t below; the interval is
    bootstrap-t from 10 on (for shares `_adjusted`), t below. 0/1 scores whose clusters all differ alike get the exact
    sign test over clusters. Raises ValueError for no values.
    """
    if not a:
        raise ValueError("no paired values")
    raw = [x - y for x, y in zip(a, b, strict=True)]
    (sums, counts), n, yes_no = grouped(raw, clusters), len(raw), share is not False and binary([*a, *b])
    value, k = math.fsum(raw) / n, len(sums)
    found = Difference(value, None, None, None, TOO_SMALL, n, k, sum(s * value > 0 for s in sums))
    if k < MIN_CLUSTERS:
        return found
    if yes_no and k == n:
        low, high, stderr = paired_proportions(raw, level)
        return replace(found, low=low, high=high, p=sign_test(raw), kind=MCNEMAR, stderr=stderr, interval=BONETT)
    stderr = stderr_of(sums, counts)
    around = from_stderr(value, stderr, n, k, level)
    if not around.known:
        return replace(found, kind=SIGN_TEST, p=sign_test(sums)) if yes_no else replace(found, kind=around.kind)
    from scipy.stats import t

    from ropebench.resampling import bootstrap_t, flip_signs

    permuted = k >= PERMUTED
    p = flip_signs(sums) if permuted else float(2 * t.sf(abs(value) / stderr, k - 1))
    if k >= FEW and (yes_no or share):
        low, high, stderr = _adjusted(sums, counts, level)
        around = replace(around, low=low, high=high, kind=ADJUSTED)
    elif k >= FEW:
        around = widened(around, bootstrap_t(sums, counts, level))
    test = PERMUTATION if permuted else "t"
    return replace(found, low=around.low, high=around.high, p=p, kind=test, stderr=stderr, interval=around.kind)


def _adjusted(sums: Sequence[float], counts: Sequence[int], level: float) -> tuple[float, float, float]:
    """t interval, and its standard error, of a mean of differences within −1 … 1 over clusters, with two made-up ones
    of the usual size, half better and half worse: Bonett and Price's idea for clusters. Where few clusters differ, t
    alone is far too short."""
    from scipy.stats import t

    k, size = len(sums), sum(counts) / len(sums)
    wide = [*sums, size / 2, -size / 2]
    n = sum(counts) + 2 * size
    value = math.fsum(sums) / n
    rest = math.fsum((s - c * value) ** 2 for s, c in zip(wide, [*counts, size, size], strict=True))
    stderr = math.sqrt(rest) / n
    half = float(t.ppf((1 + level) / 2, k - 1)) * stderr
    return max(-1.0, value - half), min(1.0, value + half), stderr


def sign_test(differences: Sequence[float]) -> float:
    """Exact two-sided p-value for as many positive as negative differences; those of 0 do not count."""
    from scipy.stats import binomtest

    above, below = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    return float(binomtest(above, above + below).pvalue) if above + below else 1.0


def paired_proportions(differences: Sequence[float], level: float = LEVEL) -> tuple[float, float, float]:
    """Interval, and its standard error, for the difference of two proportions on the same samples, from the differences
    −1, 0 and 1 (Bonett and Price 2012, their adjusted Wald interval): not empty where no sample differs, and within
    −1 … 1."""
    from scipy.stats import norm

    n = len(differences) + 2
    up, down = (1 + sum(d == side for d in differences) for side in (1, -1))
    z, centre = float(norm.ppf((1 + level) / 2)), (up - down) / n
    stderr = math.sqrt(((up + down) / n - centre**2) / n)
    return max(-1.0, centre - z * stderr), min(1.0, centre + z * stderr), stderr


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) corrected p-values, in the order given: each below 5 % is decided, whatever the others are."""
    adjusted, most = [0.0] * len(p_values), 0.0
    for done, place in enumerate(sorted(range(len(p_values)), key=lambda k: p_values[k])):
        most = max(most, min(1.0, (len(p_values) - done) * p_values[place]))
        adjusted[place] = most
    return adjusted


def corrected(differences: Mapping[Key, Difference]) -> dict[Key, Difference]:
    """The differences of one table with Holm's correction over those that were tested."""
    tested = [key for key, found in differences.items() if found.p is not None]
    adjusted = dict(zip(tested, holm([differences[key].p or 0.0 for key in tested]), strict=True))
    return {key: replace(found, adjusted=adjusted.get(key)) for key, found in differences.items()}


def smallest_decisive_n(tests: int = 1, level: float = LEVEL) -> int:
    """Fewest 0/1 pairs with which the exact test could find any difference among `tests` of them (Holm's first step):
    all must go one way, and there must be enough of them to be tested at all."""
    n = MIN_CLUSTERS
    while sign_test([1.0] * n) >= (1 - level) / max(tests, 1):
        n += 1
    return n
