"""What a comparison of this size could have shown, and what size a given difference needs.

The t test over clusters stands in for every test, with the spread that was seen: close for the permutation test, a
little hopeful for McNemar's exact one at small n. A difference counts as shown with `POWER` when four samples of five
would tell it from 0.
"""

from __future__ import annotations

import math

from ropebench.comparison import Difference
from ropebench.stats import LEVEL, MIN_CLUSTERS

POWER = 0.8
MOST = 10**7  # clusters: more is said to be out of reach


def chance_to_show(effect: float, clusters: int, alpha: float) -> float:
    """Power of the two-sided t test; `effect` counts standard errors."""
    from scipy.stats import nct, norm, t

    if clusters > 1000:  # there scipy's noncentral t loses digits, and the normal has them
        z = float(norm.ppf(1 - alpha / 2))
        return float(norm.sf(z - effect) + norm.cdf(-z - effect))
    critical = float(t.ppf(1 - alpha / 2, clusters - 1))
    return float(nct.sf(critical, clusters - 1, effect))  # the other tail is below 1e-6 wherever this is asked


def detectable(found: Difference, tests: int = 1, power: float = POWER) -> float | None:
    """The smallest difference that would be told from 0 with this power, were it tested by itself among `tests` (Holm's
    first step). None where there is no test or no spread."""
    if not found.stderr or not found.testable:
        return None
    from scipy.optimize import brentq

    alpha = (1 - LEVEL) / max(tests, 1)
    effect = brentq(lambda size: chance_to_show(size, found.clusters, alpha) - power, 0.0, 1e3)
    return float(effect) * found.stderr


def needed(found: Difference, difference: float, tests: int = 1, power: float = POWER) -> int | None:
    """Samples needed to tell `difference` from 0 with this power, at the spread and the cluster size that were seen.
    None where there is no spread, or where they would be more than MOST clusters. Raises ValueError for 0."""
    if difference == 0:
        raise ValueError("no number of samples shows a difference of 0")
    if not found.stderr:
        return None
    alpha, single = (1 - LEVEL) / max(tests, 1), abs(difference) / (found.stderr * math.sqrt(found.clusters))
    low, high = MIN_CLUSTERS - 1, MOST
    if chance_to_show(single * math.sqrt(high), high, alpha) < power:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = chance_to_show(single * math.sqrt(middle), middle, alpha) >= power
        low, high = (low, middle) if enough else (middle, high)
    return math.ceil(high * found.n / found.clusters)
