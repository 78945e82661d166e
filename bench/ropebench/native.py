"""What a checkpoint's own rope_parameters stand for, in the terms of the built-in methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropebench import methods
from ropebench.errors import UsageError, unknown
from ropebench.geometry import RopeGeometry
from ropebench.method import Method
from ropebench.methods import DynamicNtk, Llama3, LongRope, PositionInterpolation, Yarn
from ropebench.task import with_params

# What every block of rope_parameters may hold; any other key of one of our types is a parameter of the method.
BLOCK = {
    "rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings", "partial_rotary_factor",
}  # fmt: skip


def native_method(geometry: RopeGeometry) -> tuple[Method, float]:
    """The built-in method and factor that a checkpoint's own rope_parameters stand for.

    Raises UsageError for a type that is not known, that lacks a key, or whose value is of another kind: never a silent
    default.
    """
    kind = geometry.shipped.get("rope_type")
    try:
        return _of_type(geometry, geometry.shipped)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"the checkpoint's config: rope_parameters of type {kind!r} cannot be read: {error}") from None
    except KeyError as missing:
        raise UsageError(f"the checkpoint's config: rope_parameters of type {kind!r} lack {missing}") from None


def _of_type(geometry: RopeGeometry, p: Mapping[str, Any]) -> tuple[Method, float]:
    factor = float(p.get("factor") or geometry.extended_length / geometry.trained_length)
    attention = p.get("attention_factor")
    match p.get("rope_type"):
        case "linear":
            return PositionInterpolation(), factor
        case "dynamic":
            return DynamicNtk(f=factor), factor
        case "yarn":
            edges = {key: float(p[key]) for key in ("beta_fast", "beta_slow") if p.get(key)}
            scales = {
                key: p[key] for key in ("mscale", "mscale_all_dim") if p.get("mscale") and p.get("mscale_all_dim")
            }
            truncate = bool(p.get("truncate", True))
            return Yarn(**edges, **scales, truncate=truncate, attention_factor=attention), factor
        case "llama3":
            return Llama3(float(p["low_freq_factor"]), float(p["high_freq_factor"])), factor
        case "longrope":
            return LongRope(tuple(p["short_factor"]), tuple(p["long_factor"]), attention), factor
        case kind if kind in (ours := _ours()):
            given = {key: as_word(value) for key, value in p.items() if key not in BLOCK and value is not None}
            method: Method = with_params("method", ours[kind], given)
            return method, float(p["factor"])
        case kind:
            known = ("linear", "dynamic", "yarn", "llama3", "longrope")
            raise unknown("rope_type in the checkpoint's config", str(kind), known)


def _ours() -> dict[str, type[Method]]:
    """Our own methods by the names that `ropebench.hf` gives them; transformers' names stay transformers' types."""
    found = [m for m in vars(methods).values() if isinstance(m, type) and issubclass(m, Method) and m is not Method]
    static = [m for m in found if m.scales and not m.length_dependent]
    return {name: m for m in static for name in (m.name, f"ropebench_{m.name}")}


def as_word(value: Any) -> str:
    """A JSON value as the word that stands for it on the command line."""
    return "/".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
