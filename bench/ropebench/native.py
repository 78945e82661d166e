"""What a checkpoint's own rope_parameters stand for, in the terms of the built-in methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropebench.errors import UsageError, unknown
from ropebench.geometry import RopeGeometry
from ropebench.method import Method
from ropebench.methods import DynamicNtk, Llama3, LongRope, PositionInterpolation, Yarn


def native_method(geometry: RopeGeometry) -> tuple[Method, float]:
    """The built-in method and factor that a checkpoint's own rope_parameters stand for.

    Raises UsageError for a type that is not known, or that lacks a key: never a silent default.
    """
    try:
        return _of_type(geometry, geometry.shipped)
    except KeyError as missing:
        kind = geometry.shipped.get("rope_type")
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
        case kind:
            known = ("linear", "dynamic", "yarn", "llama3", "longrope")
            raise unknown("rope_type in the checkpoint's config", str(kind), known)
