"""The part of attention scores that a band of rotary pairs makes, and how its distribution moves beyond the window.

Bands by full turns within the trained window, as YaRN and MrRoPE cut them: fast (32 and more), middle (1 to 32), slow
(fewer than 1). MrRoPE (arXiv:2601.22181) holds that its progressive radix keeps the middle band's scores steady; **how
that is measured is ours**: per head, scores are standardised by that head's own mean and deviation in the unmodified
model within the trained window, so that heads add up and constant factors cancel. What a method then shows is compared
with that distribution: by its mean and deviation (0 and 1 would be unmoved) and by the Kolmogorov-Smirnov distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ropebench.geometry import Array, RopeGeometry
from ropebench.lens.watching import forward, pairs_of

BANDS = ("fast", "middle", "slow")
QUERIES = 64  # per prompt, spread evenly
EDGES = np.linspace(-8.0, 8.0, 321)  # of standardised scores; what lies outside counts in the first or last bin

Channels = Mapping[int, np.ndarray]


def bands_of(geometry: RopeGeometry) -> dict[str, np.ndarray]:
    """Pair numbers by band; bands without a pair are left out."""
    turns = geometry.rotations()
    cut = {"fast": turns >= 32, "middle": (turns >= 1) & (turns < 32), "slow": turns < 1}
    return {name: np.flatnonzero(cut[name]) for name in BANDS if cut[name].any()}


@dataclass
class Moments:
    """Sums over scores per layer and head: count, sum, sum of squares, of each band."""

    sums: dict[tuple[int, str], Array] = field(default_factory=dict)  # → (heads, 3)

    def add(self, layer: int, band: str, scores: torch.Tensor, seen: torch.Tensor) -> None:
        chosen = scores[:, seen].double()
        row = torch.stack([torch.full((len(chosen),), chosen.shape[1], device=chosen.device, dtype=chosen.dtype),
                           chosen.sum(1), chosen.square().sum(1)], dim=1)  # fmt: skip
        self.sums[layer, band] = self.sums.get((layer, band), 0.0) + row.cpu().numpy()

    def standard(self, layer: int, band: str) -> tuple[Array, Array]:
        """Mean and standard deviation per head."""
        count, total, square = self.sums[layer, band].T
        mean = total / count
        return mean, np.sqrt(np.maximum(square / count - mean**2, 1e-24))


def _visit(model: Any, ids: Sequence[int], channels: Channels, bands: Mapping[str, np.ndarray], see: Any) -> None:
    """Call see(layer, band, scores (heads, queries, tokens), distance (queries, tokens)) for every rotated layer."""
    rows = np.unique(np.linspace(0, len(ids) - 1, QUERIES).astype(int))

    def look(layer: int, query: torch.Tensor, key: torch.Tensor) -> None:
        if layer not in channels:
            return
        at = torch.as_tensor(rows, device=query.device)
        q, k = pairs_of(query[:, at], channels[layer]), pairs_of(key, channels[layer])
        k = k.repeat_interleave(len(q) // len(k), dim=0)
        distance = at[:, None] - torch.arange(len(ids), device=query.device)[None]
        for band, pairs in bands.items():
            own = torch.as_tensor(pairs, device=query.device)
            see(layer, band, q[:, :, own].flatten(2) @ k[:, :, own].flatten(2).transpose(1, 2), distance)

    forward(model, ids, look)


def moments(
    model: Any, prompts: Sequence[Sequence[int]], channels: Channels, bands: Mapping[str, np.ndarray]
) -> Moments:
    """Of all causal scores of prompts under the table that is live: those of the unmodified model within its window are
    the standard."""
    found = Moments()
    for ids in prompts:
        _visit(model, ids, channels, bands, lambda i, band, s, d: found.add(i, band, s, d >= 0))
    return found


def histograms(
    model: Any, ids: Sequence[int], channels: Channels, bands: Mapping[str, np.ndarray], standard: Moments
) -> dict[str, Array]:
    """Per band the counts of standardised scores of one prompt by distance: shape (octaves, bins); octave k holds the
    distances from 2^k up to 2^(k+1), and distance 0 is in none."""
    octaves = max(len(ids) - 1, 1).bit_length()
    found = {band: np.zeros((octaves, len(EDGES) - 1)) for band in bands}

    def see(layer: int, band: str, scores: torch.Tensor, distance: torch.Tensor) -> None:
        mean, spread = (torch.as_tensor(one, device=scores.device)[:, None] for one in standard.standard(layer, band))
        seen = distance >= 1
        z = (scores[:, seen] - mean) / spread
        bins = ((z - EDGES[0]) / (EDGES[1] - EDGES[0])).floor().clamp(0, len(EDGES) - 2).long()
        octave = torch.log2(distance[seen].double()).floor().long()  # exact for whole powers of 2
        code = (octave * (len(EDGES) - 1) + bins).flatten()
        found[band] += torch.bincount(code, minlength=found[band].size).cpu().numpy().reshape(found[band].shape)

    _visit(model, ids, channels, bands, see)
    return found


def distance_between(one: Array, other: Array) -> float:
    """Kolmogorov-Smirnov distance of two histograms over the same bins, 0 to 1."""
    return float(np.abs(np.cumsum(one) / one.sum() - np.cumsum(other) / other.sum()).max())


def summary(counts: Array) -> dict[str, float]:
    """Mean, standard deviation and quantiles of a histogram, in standard deviations of the reference."""
    middle, total = (EDGES[1:] + EDGES[:-1]) / 2, counts.sum()
    mean = float((counts * middle).sum() / total)
    spread = float(np.sqrt((counts * (middle - mean) ** 2).sum() / total))
    below = np.cumsum(counts) / total
    quantiles = {f"q{share}": float(np.interp(share / 100, below, EDGES[1:])) for share in (5, 25, 50, 75, 95)}
    return {"mean": mean, "deviation": spread, **quantiles}
