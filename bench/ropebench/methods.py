"""Every built-in method: a frozen dataclass whose fields are its hyper-parameters, and one pure function.

Notation (pair index i from 0): θ_i the trained frequency, s the factor, L the trained window, r_i = L·θ_i/2π the turns
of pair i within it. A method is stated as its slowdown cum_i = θ_i/θ'_i. MrRoPE (arXiv:2601.22181) reads every such
table as a mixed-radix number system with digits λ_0 = cum_0, λ_i = cum_i/cum_{i−1} (`radix`).

The band of YaRN's code and of MrRoPE runs from `low` (the last pair that turns ≥ 32 times) to `high` (the first that
turns less than once). MrRoPE's paper calls the 32 α and the 1 β; YaRN's paper names them the other way round. Here
they are `beta_fast` and `beta_slow`, as in transformers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from ropebench.errors import UsageError, unknown
from ropebench.geometry import Array, Frequencies, RopeGeometry


@dataclass(frozen=True)
class Method:
    """Base of every method. A subclass sets `name`, `version` (raised whenever a table could change), `summary`,
    `source` (paper and equation), and defines `frequencies`.

    `length_dependent`: the table depends on the length of the sequence, so it is computed for each example and nothing
    cached under another length is reused. `scales` is False for the unmodified models.
    """

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    length_dependent: ClassVar[bool] = False
    scales: ClassVar[bool] = True
    summary: ClassVar[str] = ""
    source: ClassVar[str] = ""

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        """The table for `geometry` stretched by `factor` (≥ 1); `length` in tokens matters to length-dependent methods
        only. Pure: no model, no state."""
        raise TypeError(f"method {self.name!r} does not define frequencies()")

    @property
    def params(self) -> dict[str, Any]:
        """All hyper-parameters as plain JSON values."""
        return {f.name: list(v) if isinstance(v := getattr(self, f.name), tuple) else v for f in fields(self)}

    @property
    def set_params(self) -> dict[str, Any]:
        """The hyper-parameters that differ from their defaults."""
        plain = {f.name: f.default for f in fields(self)}
        return {name: value for name, value in self.params.items() if value != plain[name]}


def radix(geometry: RopeGeometry, table: Frequencies) -> Array:
    """The mixed-radix digits λ_i of a table against the trained one, shape (pairs,); their running product is the
    slowdown. PI: λ_0 = s, the rest 1. (MrRoPE's paper counts the product one place later.)"""
    slowdown = geometry.inv_freq() / table.inv_freq
    return slowdown / np.concatenate([[1.0], slowdown[:-1]])


def band(
    geometry: RopeGeometry, beta_fast: float = 32.0, beta_slow: float = 1.0, truncate: bool = True
) -> tuple[float, float]:
    """`low` and `high` of YaRN's code: the pair indices that turn beta_fast and beta_slow times within the window,
    rounded outwards and clamped to [0, rotary_dim − 1] (the published clamp; in pair units it hardly ever binds)."""
    low, high = geometry.pair_at(beta_fast), geometry.pair_at(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, geometry.rotary_dim - 1)
    return low, high if high > low else low + 0.001  # transformers' own guard against an empty band


def yarn_attention(factor: float, mscale: float = 1.0) -> float:
    """0.1·mscale·ln s + 1 for s > 1, else 1 (YaRN, arXiv:2309.00071, eq. 22; it multiplies cos and sin)."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _index_ramp(geometry: RopeGeometry, low: float, high: float) -> Array:
    """0 up to `low`, 1 from `high`, linear in the pair index between."""
    return np.clip((np.arange(geometry.pairs) - low) / (high - low), 0.0, 1.0)


def _rotation_ramp(geometry: RopeGeometry, fast: float, slow: float) -> Array:
    """0 for pairs that turn `fast` times or more, 1 for `slow` or fewer, linear in the rotations between."""
    return 1.0 - np.clip((geometry.rotations() - slow) / (fast - slow), 0.0, 1.0)


def _blend(ramp: Array, factor: float) -> Array:
    """Slowdown of the frequency blend θ·((1 − ramp) + ramp/s). (Blending wavelengths would be another method.)"""
    return np.asarray(1.0 / ((1.0 - ramp) + ramp / factor))


@dataclass(frozen=True)
class Unscaled(Method):
    """The table the checkpoint was trained with, whatever scaling it ships."""

    name, scales = "none", False
    summary = "the trained table, unscaled"
    source = "RoFormer, arXiv:2104.09864"

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        return geometry.scaled(np.ones(geometry.pairs))


@dataclass(frozen=True)
class PositionInterpolation(Method):
    """Every frequency divided by s: positions interpolated into the trained window.

    >>> PositionInterpolation().frequencies(RopeGeometry(4, 100.0, 8), 2.0, 16).inv_freq.tolist()
    [0.5, 0.05]
    """

    name = "pi"
    summary = "position interpolation: every frequency divided by the factor"
    source = "Chen et al., arXiv:2306.15595, eq. 4; transformers 'linear'"

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        return geometry.scaled(np.full(geometry.pairs, factor))


def _ntk(geometry: RopeGeometry, factor: float) -> Array:
    """cum_i = s^(2i/(d−2)): the base becomes b·s^(d/(d−2)), so that the last pair is slowed by exactly s."""
    return np.asarray(factor ** (2.0 * np.arange(geometry.pairs) / max(geometry.rotary_dim - 2, 1)))


@dataclass(frozen=True)
class Ntk(Method):
    """NTK-aware: a larger base, b·s^(d/(d−2)); the fastest pair is kept and the slowest slowed by s."""

    name = "ntk"
    summary = "NTK-aware: the base raised so that the last pair is slowed by the factor"
    source = "YaRN, arXiv:2309.00071, eq. 16"

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        return geometry.scaled(_ntk(geometry, factor))


@dataclass(frozen=True)
class DynamicNtk(Method):
    """NTK-aware at the factor of the sequence at hand: s_t = f·max(length, L)/L − (f − 1).

    f = 1 (default) is NTK-aware at s = length/L; f = 2 is transformers' `dynamic` with factor 2 and LCEG's NTK-Frozen.
    The sweep's factor is not used.
    """

    name, length_dependent = "dynamic_ntk", True
    summary = "NTK-aware at the factor of each sequence's own length"
    source = "transformers 'dynamic'; LCEG, arXiv:2409.12181 (f=2)"
    f: float = 1.0

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        longest = max(length, geometry.trained_length)
        return geometry.scaled(_ntk(geometry, self.f * longest / geometry.trained_length - (self.f - 1.0)))


@dataclass(frozen=True)
class Yarn(Method):
    """YaRN as its code and transformers have it: the blend is linear in the pair *index* between low and high.

    Not `yarn_paper`: the published equation is linear in rotations, and gives other tables. `mscale` and
    `mscale_all_dim` are DeepSeek's; an explicit `attention_factor` wins over both.
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
        ramp = _index_ramp(geometry, *band(geometry, self.beta_fast, self.beta_slow, self.truncate))
        return geometry.scaled(_blend(ramp, factor), self._attention(factor))

    def _attention(self, factor: float) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return yarn_attention(factor, self.mscale) / yarn_attention(factor, self.mscale_all_dim)
        return yarn_attention(factor)


@dataclass(frozen=True)
class YarnPaper(Method):
    """YaRN as its paper states it: the blend is linear in *rotations* between β = 32 and α = 1 turns."""

    name = "yarn_paper"
    summary = "YaRN as in its paper: blend linear in rotations, attention factor 0.1·ln s + 1"
    source = "YaRN, arXiv:2309.00071, eq. 17-22"
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        slowdown = _blend(_rotation_ramp(geometry, self.beta_fast, self.beta_slow), factor)
        a = yarn_attention(factor) if self.attention_factor is None else self.attention_factor
        return geometry.scaled(slowdown, a)


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
        ramp = _index_ramp(geometry, *band(geometry, self.beta_fast, self.beta_slow, self.truncate))
        return geometry.scaled(_blend(ramp, factor))


@dataclass(frozen=True)
class NtkByPartsPaper(Method):
    """`yarn_paper` without its attention factor."""

    name = "ntk_by_parts_paper"
    summary = "the yarn_paper table with attention factor 1"
    source = "YaRN, arXiv:2309.00071, eq. 17-20"
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        return geometry.scaled(_blend(_rotation_ramp(geometry, self.beta_fast, self.beta_slow), factor))


@dataclass(frozen=True)
class DynamicYarn(Method):
    """`yarn` at the factor of the sequence at hand: s_t = max(1, length/L), attention factor included."""

    name, length_dependent = "dynamic_yarn", True
    summary = "yarn at the factor of each sequence's own length"
    source = "YaRN, arXiv:2309.00071, §3.3"
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        inner = Yarn(self.beta_fast, self.beta_slow, self.truncate)
        return inner.frequencies(geometry, max(1.0, length / geometry.trained_length), length)


@dataclass(frozen=True)
class Llama3(Method):
    """Llama 3.1's rule: pairs with a wavelength over L/low_freq_factor are divided by s, under L/high_freq_factor kept,
    between them blended linearly in rotations."""

    name = "llama3"
    summary = "Llama 3.1's rule: rotations between low_freq_factor and high_freq_factor blended"
    source = "transformers 'llama3'; Llama 3, arXiv:2407.21783"
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        return geometry.scaled(_blend(_rotation_ramp(geometry, self.high_freq_factor, self.low_freq_factor), factor))


@dataclass(frozen=True)
class LongRope(Method):
    """Searched per-pair factors: `short_factor` up to the trained length, `long_factor` beyond it.

    Not searched here: they come with the checkpoint or are given. Attention factor sqrt(1 + ln s / ln L) for s > 1.
    """

    name, length_dependent = "longrope", True
    summary = "LongRoPE's searched factors, given or shipped; switched by the sequence's own length"
    source = "Ding et al., arXiv:2402.13753; transformers 'longrope'"
    short_factor: tuple[float, ...] = field(default=())
    long_factor: tuple[float, ...] = field(default=())
    attention_factor: float | None = None

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        shipped = geometry.shipped
        long = self.long_factor or tuple(shipped.get("long_factor") or ())
        short = self.short_factor or tuple(shipped.get("short_factor") or ()) or (1.0,) * geometry.pairs
        for label, given in (("long_factor", long), ("short_factor", short)):
            if len(given) != geometry.pairs:
                raise UsageError(
                    f"longrope: {label} needs {geometry.pairs} numbers for this model, got {len(given)}; ropebench does "
                    f"not search them: give them (longrope:{label}=1.0/1.1/…) or choose a checkpoint that ships them"
                )
        a = self.attention_factor
        if a is None:
            a = math.sqrt(1 + math.log(factor) / math.log(geometry.trained_length)) if factor > 1 else 1.0
        return geometry.scaled(long if length > geometry.trained_length else short, a)


def _mrrope(geometry: RopeGeometry, factor: float, low: float, high: float, exponent: Callable[..., Array]) -> Array:
    """cum = s^exponent(q, n), q = i − low clipped to [0, n], n = high − low."""
    n = high - low
    q = np.clip(np.arange(geometry.pairs) - low, 0, n)
    return np.asarray(factor ** exponent(q, n))


@dataclass(frozen=True)
class MrRopeUni(Method):
    """Uniform radix in the band: λ = s^(1/n) for each of its n digits."""

    name = "mrrope_uni"
    summary = "MrRoPE-Uni: the same radix for every digit of the band"
    source = "MrRoPE, arXiv:2601.22181, eq. 13"
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        edges = band(geometry, self.beta_fast, self.beta_slow)
        a = yarn_attention(factor) if self.attention_factor is None else self.attention_factor
        return geometry.scaled(_mrrope(geometry, factor, *edges, lambda q, n: q / n), a)


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
        edges = band(geometry, self.beta_fast, self.beta_slow)
        a = yarn_attention(factor) if self.attention_factor is None else self.attention_factor
        return geometry.scaled(_mrrope(geometry, factor, *edges, lambda q, n: q * (q + 1) / (n * (n + 1))), a)


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
        edges = band(geometry, self.beta_fast, self.beta_slow)
        a = yarn_attention(factor) if self.attention_factor is None else self.attention_factor
        slowdown = _mrrope(geometry, factor, *edges, lambda q, n: q * (2 * n + 1 - q) / (n * (n + 1)))
        return geometry.scaled(slowdown, a)


@dataclass(frozen=True)
class Native(Method):
    """The checkpoint as shipped: its own type and factor (an explicit factor wins over any ratio of lengths).

    Length-dependent where the shipped type is (`dynamic`, `longrope`); see `native_method`.
    """

    name, length_dependent, scales = "native", True, False
    summary = "the checkpoint as shipped, with its own scaling"
    source = "the checkpoint's config"

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        if not geometry.shipped:
            return Unscaled().frequencies(geometry, 1.0, length)
        method, own_factor = native_method(geometry)
        return method.frequencies(geometry, own_factor, length)


def native_method(geometry: RopeGeometry) -> tuple[Method, float]:
    """The built-in method and factor that a checkpoint's own rope_parameters stand for.

    Raises UsageError for a type that is not known: never a silent default.
    """
    p = geometry.shipped
    kind = p.get("rope_type")
    ratio = geometry.extended_length / geometry.trained_length
    factor = float(p.get("factor") or ratio)
    attention = p.get("attention_factor")
    edges = {key: float(p[key]) for key in ("beta_fast", "beta_slow") if p.get(key) is not None}
    if kind == "linear":
        return PositionInterpolation(), factor
    if kind == "dynamic":
        return DynamicNtk(f=factor), factor
    if kind == "yarn":
        scales = {key: p.get(key) for key in ("mscale", "mscale_all_dim")}
        return Yarn(**edges, truncate=bool(p.get("truncate", True)), attention_factor=attention, **scales), factor
    if kind == "llama3":
        return Llama3(float(p["low_freq_factor"]), float(p["high_freq_factor"])), factor
    if kind == "longrope":
        return LongRope(tuple(p["short_factor"]), tuple(p["long_factor"]), attention), factor
    raise unknown("rope_type in the checkpoint's config", str(kind), ("linear", "dynamic", "yarn", "llama3", "longrope"))


ALIASES = {"linear": "pi", "dynamic": "dynamic_ntk"}
