"""Every built-in method: a frozen dataclass whose fields are its hyper-parameters, and one pure function.

The notation (i, s, L, r_i, cum_i, m_i, low and high) and the words the formulas are written in are those of `method`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ropebench.errors import UsageError
from ropebench.geometry import Array, Frequencies, RopeGeometry
from ropebench.method import Method as Method  # re-exported: where plug-ins look for it
from ropebench.method import (
    at_least_one,
    band,
    blend,
    digits,
    index_ramp,
    ntk_exponent,
    power,
    rotation_ramp,
    yarn_attention,
)

ALIASES = {"linear": "pi", "dynamic": "dynamic_ntk"}


@dataclass(frozen=True)
class Unscaled(Method):
    """The table the checkpoint was trained with, whatever scaling it ships: cum_i = 1.

    >>> Unscaled().frequencies(RopeGeometry(4, 100.0, 8), 2.0, 16).inv_freq.tolist()
    [1.0, 0.1]
    """

    name, scales = "none", False
    summary = "the trained table, unscaled"
    source = "RoFormer, arXiv:2104.09864, eq. 15"

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        return geometry.scaled(np.ones(geometry.pairs))


@dataclass(frozen=True)
class PositionInterpolation(Method):
    """Every frequency divided by s, as if positions were interpolated into the trained window: cum_i = s.

    >>> PositionInterpolation().frequencies(RopeGeometry(4, 100.0, 8), 2.0, 16).inv_freq.tolist()
    [0.5, 0.05]
    """

    name = "pi"
    summary = "position interpolation: every frequency divided by the factor"
    source = "Chen et al., arXiv:2306.15595, eq. 4; transformers 'linear'"

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        return geometry.scaled(power(factor, np.ones(geometry.pairs)))


@dataclass(frozen=True)
class Ntk(Method):
    """NTK-aware: a larger base, b·s^(d/(d−2)), so cum_i = s^(2i/(d−2)): the fastest pair is kept, the slowest slowed
    by s, and every digit after the first is the same.

    >>> Ntk().frequencies(RopeGeometry(4, 100.0, 8), 2.0, 16).inv_freq.tolist()
    [1.0, 0.05]
    """

    name = "ntk"
    summary = "NTK-aware: the base raised so that the last pair is slowed by the factor"
    source = "YaRN, arXiv:2309.00071, eq. 16"

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        return geometry.scaled(power(factor, ntk_exponent(geometry)))


@dataclass(frozen=True)
class DynamicNtk(Method):
    """NTK-aware at the factor of the sequence at hand: s_t = f·max(length, L)/L − (f − 1).

    f = 1 (default) is NTK-aware at s = length/L; f = 2 is transformers' `dynamic` with factor 2 and LCEG's NTK-Frozen.
    The sweep's factor is not used.
    """

    name, length_dependent, uses_factor = "dynamic_ntk", True, False
    summary = "NTK-aware at the factor of each sequence's own length"
    source = "transformers 'dynamic'; LCEG, arXiv:2409.12181 (f=2)"
    f: float = 1.0

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        if not self.f > 0:
            raise UsageError(f"dynamic_ntk: f must be above 0, not {self.f:g}")
        longest = max(length, geometry.trained_length)
        own_factor = self.f * longest / geometry.trained_length - (self.f - 1.0)
        return geometry.scaled(power(own_factor, ntk_exponent(geometry)))


@dataclass(frozen=True)
class Yarn(Method):
    """YaRN as its code and transformers have it: θ·((1 − t) + t/s), t linear in the pair *index* from low to high.

    Not `yarn_paper`: the published equation is linear in rotations, and gives other tables. `mscale` and
    `mscale_all_dim` are DeepSeek's and come as a pair; an explicit `attention_factor` wins over both.
    """

    name = "yarn"
    summary = "YaRN as in its code and transformers: blend linear in pair index, attention factor 0.1·ln s + 1"
    source = "github.com/jquesnelle/yarn; YaRN, arXiv:2309.00071, eq. 22"
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        ramp = index_ramp(geometry, *band(geometry, self.beta_fast, self.beta_slow, self.truncate))
        attention = yarn_attention(factor, self.attention_factor, self.mscale, self.mscale_all_dim)
        return geometry.scaled(blend(ramp, factor), attention)


@dataclass(frozen=True)
class YarnPaper(Method):
    """YaRN as its paper states it: θ·((1 − t) + t/s), t linear in *rotations*, 0 from β = 32 turns, 1 to α = 1."""

    name = "yarn_paper"
    summary = "YaRN as in its paper: blend linear in rotations, attention factor 0.1·ln s + 1"
    source = "YaRN, arXiv:2309.00071, eq. 17-22"
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        slowdown = blend(rotation_ramp(geometry, self.beta_fast, self.beta_slow), factor)
        return geometry.scaled(slowdown, yarn_attention(factor, self.attention_factor))


@dataclass(frozen=True)
class NtkByParts(Method):
    """`yarn` without its attention factor."""

    name = "ntk_by_parts"
    summary = "the yarn table with attention factor 1"
    source = "github.com/jquesnelle/yarn; transformers 'yarn' with attention_factor 1"
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        yarn = Yarn(self.beta_fast, self.beta_slow, self.truncate, attention_factor=1.0)
        return yarn.frequencies(geometry, factor, length)


@dataclass(frozen=True)
class NtkByPartsPaper(Method):
    """`yarn_paper` without its attention factor."""

    name = "ntk_by_parts_paper"
    summary = "the yarn_paper table with attention factor 1"
    source = "YaRN, arXiv:2309.00071, eq. 17-20"
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        return YarnPaper(self.beta_fast, self.beta_slow, attention_factor=1.0).frequencies(geometry, factor, length)


@dataclass(frozen=True)
class DynamicYarn(Method):
    """`yarn` at the factor of the sequence at hand: s_t = max(1, length/L), attention factor included."""

    name, length_dependent, uses_factor = "dynamic_yarn", True, False
    summary = "yarn at the factor of each sequence's own length"
    source = "YaRN, arXiv:2309.00071, §3.3"
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        yarn = Yarn(self.beta_fast, self.beta_slow, self.truncate)
        return yarn.frequencies(geometry, max(1.0, length / geometry.trained_length), length)


@dataclass(frozen=True)
class Llama3(Method):
    """Llama 3.1's rule: pairs with a wavelength over L/low_freq_factor are divided by s, under L/high_freq_factor kept,
    between them blended linearly in rotations (`yarn_paper`'s ramp with other edges)."""

    name = "llama3"
    summary = "Llama 3.1's rule: rotations between low_freq_factor and high_freq_factor blended"
    source = "transformers 'llama3'; Llama 3, arXiv:2407.21783"
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        return geometry.scaled(blend(rotation_ramp(geometry, self.high_freq_factor, self.low_freq_factor), factor))


@dataclass(frozen=True)
class LongRope(Method):
    """Searched per-pair slowdowns: cum = `short_factor` up to the trained length L, `long_factor` beyond it.

    Not searched here: they come with the checkpoint or are given. Attention factor sqrt(1 + ln s/ln L) for s > 1.
    """

    name, length_dependent = "longrope", True
    summary = "LongRoPE's searched factors, given or shipped; switched by the sequence's own length"
    source = "Ding et al., arXiv:2402.13753; transformers 'longrope'"
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    attention_factor: float | None = None

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        shipped = geometry.shipped
        long = _searched("long_factor", self.long_factor or shipped.get("long_factor") or (), geometry)
        given = self.short_factor or shipped.get("short_factor") or (1.0,) * geometry.pairs
        short = _searched("short_factor", given, geometry)
        attention = self.attention_factor
        if attention is None:
            if geometry.trained_length == 1:
                raise UsageError(
                    "longrope: a trained length of 1 token gives no attention factor; set attention_factor"
                )
            attention = math.sqrt(1 + math.log(at_least_one(factor)) / math.log(geometry.trained_length))
        return geometry.scaled(long if length > geometry.trained_length else short, attention)


def _searched(label: str, given: Sequence[float], geometry: RopeGeometry) -> Array:
    """LongRoPE's factors, one positive number for each pair of this model."""
    values = np.asarray(given, dtype=np.float64)
    if values.shape != (geometry.pairs,) or not np.all(np.isfinite(values) & (values > 0)):
        raise UsageError(
            f"longrope: {label} needs {geometry.pairs} numbers above 0 for this model, got {list(given)[:3]}… "
            f"({len(given)} in all); ropebench does not search them: give them (longrope:{label}=1.0/1.1/…) or choose "
            "a checkpoint that ships them"
        )
    return values


@dataclass(frozen=True)
class MrRopeUni(Method):
    """Uniform radix in the band: λ = s^(1/n) for each of its n digits, so cum = s^(q/n), q = i − low."""

    name = "mrrope_uni"
    summary = "MrRoPE-Uni: the same radix for every digit of the band"
    source = "MrRoPE, arXiv:2601.22181, eq. 13"
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        q, n = digits(geometry, *band(geometry, self.beta_fast, self.beta_slow))
        return geometry.scaled(power(factor, q / n), yarn_attention(factor, self.attention_factor))


@dataclass(frozen=True)
class MrRopePro(Method):
    """Progressive radix: λ_q = s^(2q/(n(n+1))), growing towards the slow pairs, so cum = s^(q(q+1)/(n(n+1)))."""

    name = "mrrope_pro"
    summary = "MrRoPE-Pro: radix growing towards the slow pairs of the band"
    source = "MrRoPE, arXiv:2601.22181, eq. 14"
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        q, n = digits(geometry, *band(geometry, self.beta_fast, self.beta_slow))
        slowdown = power(factor, q * (q + 1) / (n * (n + 1)))
        return geometry.scaled(slowdown, yarn_attention(factor, self.attention_factor))


@dataclass(frozen=True)
class MrRopeReg(Method):
    """The regressive counterpart of Pro (a control): cum = s^(q(2n+1−q)/(n(n+1))), Pro's digits in reverse order."""

    name = "mrrope_reg"
    summary = "regressive counterpart of MrRoPE-Pro (control): radix shrinking towards the slow pairs"
    source = "code of arXiv:2601.22181 (yarn_radix4); not in the paper"
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        q, n = digits(geometry, *band(geometry, self.beta_fast, self.beta_slow))
        slowdown = power(factor, q * (2 * n + 1 - q) / (n * (n + 1)))
        return geometry.scaled(slowdown, yarn_attention(factor, self.attention_factor))


@dataclass(frozen=True)
class Native(Method):
    """The checkpoint as shipped: its own type and factor (an explicit factor wins over any ratio of lengths).

    Its table varies with the length where the shipped type's does (`dynamic`, `longrope`); see `native`.
    """

    name, scales = "native", False
    summary = "the checkpoint as shipped, with its own scaling"
    source = "the checkpoint's config"

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        if not geometry.shipped:
            return Unscaled().frequencies(geometry, 1.0, length)
        from ropebench.native import native_method  # which is written in the methods above

        method, own_factor = native_method(geometry)
        return method.frequencies(geometry, own_factor, length)

    def varies(self, geometry: RopeGeometry) -> bool:
        from ropebench.native import native_method

        return bool(geometry.shipped) and native_method(geometry)[0].length_dependent
