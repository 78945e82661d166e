"""What a checkpoint was trained with (`RopeGeometry`) and what a method makes of it (`Frequencies`).

Pair index i runs from 0 to rotary_dim/2 − 1; the default frequency of pair i is theta^(−2i/rotary_dim) radians per
token (RoFormer, arXiv:2104.09864, eq. 15). Everything here is float64; only `apply` rounds to float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ropebench.errors import UsageError

Array = NDArray[np.float64]

# Types of rope_parameters that leave the table as it is.
UNSCALED = (None, "default")

# Far beyond any model, and what arithmetic in float64 still does exactly.
LONGEST = 2**40  # tokens, and the largest factor
_WIDEST = 2**16  # channels


@dataclass(frozen=True, eq=False)
class Frequencies:
    """A rotary table: `inv_freq` of shape (rotary_dim/2,), radians per token, and the factor `attention_factor` that
    multiplies both cos and sin (so attention scores grow by its square)."""

    inv_freq: Array
    attention_factor: float = 1.0

    def __post_init__(self) -> None:
        values = np.array(self.inv_freq, dtype=np.float64)
        if values.ndim != 1 or not np.all(np.isfinite(values)) or np.any(values < 0):
            raise UsageError("a rotary table must be one row of finite frequencies ≥ 0")
        if not np.isfinite(self.attention_factor) or self.attention_factor <= 0:
            raise UsageError(f"the attention factor must be a positive number, not {self.attention_factor}")
        values.setflags(write=False)
        object.__setattr__(self, "inv_freq", values)

    def same_as(self, other: Frequencies, rtol: float = 1e-6) -> bool:
        """Equal within `rtol` relative, table and attention factor."""
        return (
            len(self.inv_freq) == len(other.inv_freq)
            and bool(np.allclose(self.inv_freq, other.inv_freq, rtol=rtol, atol=0.0))
            and bool(np.isclose(self.attention_factor, other.attention_factor, rtol=rtol, atol=0.0))
        )


@dataclass(frozen=True)
class RopeGeometry:
    """What the checkpoint was trained with, read once from its config before anything touches the model.

    `rotary_dim`: rotated channels per head (even). `theta`: the base. `trained_length`: tokens. `shipped`: the
    checkpoint's own rope_parameters where it ships a scaling, else empty. `extended_length`: what that scaling reaches
    (= trained_length without one). `base` and `base_attention_factor`: the table that methods start from when it is
    not the plain one (`--base native`).
    """

    rotary_dim: int
    theta: float
    trained_length: int
    shipped: Mapping[str, Any] = field(default_factory=dict)
    extended_length: int = 0
    base: tuple[float, ...] | None = None
    base_attention_factor: float = 1.0

    def __post_init__(self) -> None:
        if not 2 <= self.rotary_dim <= _WIDEST or self.rotary_dim % 2:
            raise UsageError(f"rotary_dim must be an even number from 2 to {_WIDEST}, not {self.rotary_dim}")
        if not 1 < self.theta < math.inf:
            raise UsageError(f"theta must be a number > 1, not {self.theta}")
        if not 1 <= self.trained_length <= LONGEST:
            raise UsageError(f"the trained length must be from 1 to {LONGEST} tokens, not {self.trained_length}")
        if not self.extended_length:
            object.__setattr__(self, "extended_length", self.trained_length)

    @property
    def pairs(self) -> int:
        return self.rotary_dim // 2

    def inv_freq(self) -> Array:
        """The table methods start from, shape (pairs,), radians per token."""
        if self.base is not None:
            return np.array(self.base, dtype=np.float64)
        return self.theta ** (-2.0 * np.arange(self.pairs, dtype=np.float64) / self.rotary_dim)

    def rotations(self) -> Array:
        """Full turns of each pair within the trained window, shape (pairs,)."""
        return self.trained_length * self.inv_freq() / (2 * np.pi)

    def pair_at(self, rotations: float) -> float:
        """The (fractional) pair index that makes `rotations` turns within the trained window (YaRN, App. A.2).

        Log-linear in the index for the plain table; read off the table itself where the base is another one.
        """
        per_pair = 2 * np.log(self.theta) / self.rotary_dim
        if self.base is None:
            turns = np.log(self.trained_length / (rotations * 2 * np.pi))
            return float(self.rotary_dim * turns / (2 * np.log(self.theta)))
        own = self.rotations()
        slowing = -np.log(np.minimum.accumulate(own[own > 0]))  # rises with the index
        asked = -np.log(rotations)
        index = np.interp(asked, slowing, np.arange(len(slowing)))
        before, after = min(asked - slowing[0], 0.0), max(asked - slowing[-1], 0.0)  # past the ends, by the plain slope
        return float(index + (before + after) / per_pair)

    def scaled(self, slowdown: Sequence[float] | Array, attention_factor: float = 1.0) -> Frequencies:
        """Frequencies with pair i slowed by slowdown[i] (METHODS.md's cum_i), shape (pairs,)."""
        return Frequencies(
            self.inv_freq() / np.asarray(slowdown, dtype=np.float64), attention_factor * self.base_attention_factor
        )

    def on_base(self, table: Frequencies) -> RopeGeometry:
        """The geometry whose methods start from `table` with its extended length as the trained one."""
        return RopeGeometry(
            self.rotary_dim,
            self.theta,
            self.extended_length,
            base=tuple(float(f) for f in table.inv_freq),
            base_attention_factor=table.attention_factor,
        )


def geometry_of(config: Any, trained_length: int | None = None) -> RopeGeometry:
    """Read a Hugging Face config (object or mapping; the v5 layout `rope_parameters` or the older `rope_theta` +
    `rope_scaling`). `trained_length` overrides a config whose max_position_embeddings is known to be wrong.

    Raises UsageError, with the reason, for a model without RoPE, with several rotary tables, with multimodal RoPE,
    without a usable length, and for values of another kind than they should be.
    """
    get = _getter(_text_part(config))
    kind = str(get("model_type") or type(config).__name__)
    try:
        return _read(kind, get, trained_length)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(f"{kind}: the config says something else than a RoPE model's does ({error})") from None


def _read(kind: str, get: Any, trained_length: int | None) -> RopeGeometry:
    rope = get("rope_parameters") or get("rope_scaling") or {}
    if any(isinstance(value, Mapping) for value in rope.values()):
        raise UsageError(
            f"{kind}: this model has several rotary tables (one per layer type: {', '.join(sorted(rope))}); "
            "ropebench scales models with one table"
        )
    if "mrope_section" in rope or rope.get("rope_type", rope.get("type")) == "mrope":
        raise UsageError(f"{kind}: multimodal RoPE (mrope_section) gives each axis its own positions; not supported")
    theta = rope.get("rope_theta") or get("rope_theta") or get("rotary_emb_base")
    if theta is None:
        raise UsageError(
            f"{kind}: the config states no RoPE base (rope_theta), so this is a model without rotary position "
            "embeddings (or with its own layout of them); choose a model with RoPE"
        )
    rotary_dim = _rotary_dim(kind, get, rope)
    shipped = {} if rope.get("rope_type", rope.get("type")) in UNSCALED else _plain(rope)
    stated = get("max_position_embeddings") or get("n_positions") or get("max_sequence_length")
    original = shipped.get("original_max_position_embeddings") or (
        get("original_max_position_embeddings") if shipped else None
    )
    length = trained_length or original or stated
    if not length:
        raise UsageError(
            f"{kind}: the config states no usable length (max_position_embeddings); give the trained length in an "
            "alias or with --trained-length"
        )
    extended = int(length)
    if shipped:
        # The stated maximum is already the extended one where it exceeds the original (never multiply it again).
        factor = float(shipped.get("factor") or 1.0)
        extended = int(stated) if stated and stated > length else int(length * factor)
    return RopeGeometry(rotary_dim, float(theta), int(length), shipped, extended)


def _text_part(config: Any) -> Any:
    """The language model's config where a composite holds it, else the config itself."""
    if isinstance(config, Mapping):
        inner = config.get("text_config")
        return inner if isinstance(inner, Mapping) else config
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _getter(config: Any) -> Any:
    if isinstance(config, Mapping):
        return config.get
    return lambda key: getattr(config, key, None)


def _plain(rope: Mapping[str, Any]) -> dict[str, Any]:
    """rope_parameters as plain JSON values under the v5 key `rope_type`."""
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in rope.items()}
    plain.setdefault("rope_type", plain.pop("type", None))
    return plain


def _rotary_dim(kind: str, get: Any, rope: Mapping[str, Any]) -> int:
    """Rotated channels per head: of the rotary part, not of the whole head (partial rotary)."""
    head_dim = get("qk_rope_head_dim") or get("head_dim")
    if not head_dim:
        hidden, heads = get("hidden_size"), get("num_attention_heads")
        if not hidden or not heads:
            raise UsageError(f"{kind}: the config states neither head_dim nor hidden_size and num_attention_heads")
        head_dim = hidden // heads
    share = rope.get("partial_rotary_factor") or get("partial_rotary_factor") or get("rotary_pct") or 1.0
    return int(head_dim * share)
