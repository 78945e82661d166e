"""What a method is (`Method`), and the vocabulary that the built-in ones in `methods` are written in.

Notation (pair index i from 0): θ_i the trained frequency, s the factor, L the trained window, r_i = L·θ_i/2π the turns
of pair i within it. A method is stated as its slowdown cum_i = θ_i/θ'_i; where it is a power of s, m_i = ln cum_i/ln s
is its exponent. MrRoPE (arXiv:2601.22181) reads every such table as a mixed-radix number system with digits λ_0 =
cum_0, λ_i = cum_i/cum_{i−1} (`radix`).

The band of YaRN's code and of MrRoPE runs from `low` (the last pair that turns ≥ 32 times) to `high` (the first that
turns less than once). MrRoPE's paper calls the 32 α and the 1 β; YaRN's paper names them the other way round. Here
they are `beta_fast` and `beta_slow`, as in transformers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from ropebench.errors import UsageError
from ropebench.geometry import Array, Frequencies, RopeGeometry


@dataclass(frozen=True)
class Method:
    """Base of every method. A subclass sets `name`, `version` (raised whenever a table could change), `summary`,
    `source` (paper and equation), and defines `frequencies`.

    `length_dependent`: the table depends on the length of the sequence, so it is computed for each example and nothing
    cached under another length is reused. `scales` is False for the unmodified models. `uses_factor` is False where the
    table is the same whatever the factor of the sweep: such a method takes none, so that none stands in its label.
    """

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    length_dependent: ClassVar[bool] = False
    scales: ClassVar[bool] = True
    uses_factor: ClassVar[bool] = True
    summary: ClassVar[str] = ""
    source: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name, value in self._values().items():
            if isinstance(value, list):  # as JSON has it; a tuple is hashable, and equal to what was stored
                object.__setattr__(self, name, tuple(value))
            elif isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"method {self.name!r}: {name} must be a finite number, not {value}")

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        """The table for `geometry` stretched by `factor` (≥ 1); `length` in tokens matters to length-dependent methods
        only. Pure: no model, no state. Raises UsageError for a parameter or factor it has no table for."""
        raise TypeError(f"method {self.name!r} does not define frequencies()")

    def varies(self, geometry: RopeGeometry) -> bool:
        """Whether the table depends on the length of the sequence for a checkpoint of this geometry."""
        return self.length_dependent

    @property
    def params(self) -> dict[str, Any]:
        """All hyper-parameters as plain JSON values; `type(method)(**params)` is an equal method."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in self._values().items()}

    @property
    def set_params(self) -> dict[str, Any]:
        """The hyper-parameters that differ from their defaults."""
        default = {f.name: f.default for f in fields(self)}
        return {name: v for name, v in self.params.items() if getattr(self, name) != default[name]}

    def _values(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


def radix(geometry: RopeGeometry, table: Frequencies) -> Array:
    """The mixed-radix digits λ_i of a table against the trained one, shape (pairs,); their running product is the
    slowdown. PI: λ_0 = s, the rest 1. (MrRoPE's paper counts the product one place later.)

    A pair that stands still (frequency 0) has an infinite digit; the digits after it are 1.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        slowdown = geometry.inv_freq() / table.inv_freq
        each = slowdown / np.concatenate([[1.0], slowdown[:-1]])
    return np.where(np.isnan(each), 1.0, each)


def band(
    geometry: RopeGeometry, beta_fast: float = 32.0, beta_slow: float = 1.0, truncate: bool = True
) -> tuple[float, float]:
    """`low` and `high` of YaRN's code: the pair indices that turn beta_fast and beta_slow times within the window,
    rounded outwards and clamped to [0, rotary_dim − 1] (the published clamp; in pair units it hardly ever binds).

    >>> band(RopeGeometry(128, 10000.0, 4096))
    (20, 46)
    """
    _check_edges(beta_fast, beta_slow)
    low, high = geometry.pair_at(beta_fast), geometry.pair_at(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, geometry.rotary_dim - 1)
    return low, high if high > low else low + 0.001  # transformers' own guard against an empty band


def index_ramp(geometry: RopeGeometry, low: float, high: float) -> Array:
    """0 up to pair `low`, 1 from pair `high`, linear in the pair index between; shape (pairs,)."""
    return np.clip((np.arange(geometry.pairs) - low) / (high - low), 0.0, 1.0)


def rotation_ramp(geometry: RopeGeometry, fast: float, slow: float) -> Array:
    """0 for pairs that turn `fast` times or more within the window, 1 for `slow` or fewer, linear in the rotations
    between; shape (pairs,)."""
    _check_edges(fast, slow)
    return 1.0 - np.clip((geometry.rotations() - slow) / (fast - slow), 0.0, 1.0)


def blend(ramp: Array, factor: float) -> Array:
    """Slowdown of the frequency blend θ·((1 − ramp) + ramp/s). (Blending wavelengths would be another method.)"""
    return np.asarray(1.0 / ((1.0 - ramp) + ramp / at_least_one(factor)))


def power(factor: float, exponent: Array) -> Array:
    """Slowdown s^m_i."""
    return np.asarray(at_least_one(factor) ** exponent)


def ntk_exponent(geometry: RopeGeometry) -> Array:
    """m_i = 2i/(d−2): what the base b·s^(d/(d−2)) amounts to, by which the last pair is slowed by exactly s."""
    return np.asarray(2.0 * np.arange(geometry.pairs) / max(geometry.rotary_dim - 2, 1))


def digits(geometry: RopeGeometry, low: float, high: float) -> tuple[Array, float]:
    """MrRoPE's position within the band: q_i = i − low clipped to [0, n], shape (pairs,), and n = high − low."""
    n = high - low
    return np.clip(np.arange(geometry.pairs) - low, 0, n), n


def yarn_attention(
    factor: float, given: float | None = None, mscale: float | None = None, mscale_all_dim: float | None = None
) -> float:
    """`given` where it is not None, else 0.1·ln s + 1 for s > 1, else 1 (YaRN, arXiv:2309.00071, eq. 22).

    It multiplies cos and sin, of queries and of keys, so attention scores grow by its square. `mscale` and
    `mscale_all_dim` are DeepSeek's, and come as a pair: (0.1·mscale·ln s + 1)/(0.1·mscale_all_dim·ln s + 1).

    >>> round(yarn_attention(16.0), 6)
    1.277259
    """
    if given is not None:
        return given
    log = math.log(factor) if factor > 1 else 0.0
    if mscale is None and mscale_all_dim is None:
        return 0.1 * log + 1.0
    if mscale is None or mscale_all_dim is None or mscale <= 0 or mscale_all_dim <= 0:
        raise UsageError(f"mscale={mscale} and mscale_all_dim={mscale_all_dim}; allowed: both above 0, or neither")
    return (0.1 * mscale * log + 1.0) / (0.1 * mscale_all_dim * log + 1.0)


def at_least_one(factor: float) -> float:
    """`factor`, or a UsageError where it would shrink the window or is no number."""
    if not 1 <= factor < math.inf:
        raise UsageError(f"the factor must be a number of at least 1, not {factor} (below 1 would shrink the window)")
    return factor


def _check_edges(fast: float, slow: float) -> None:
    if not 0 < slow < fast < math.inf:
        raise UsageError(
            f"the band's edges are {fast:g} and {slow:g} turns within the trained window; allowed: the fast edge "
            "(beta_fast, high_freq_factor) above the slow edge (beta_slow, low_freq_factor), and both above 0"
        )
