"""How much of a model's attention is written at which rotary frequency: the frequency energy of each pair.

The raw score between query t and key s is a sum over pairs, A_i cos((t − s)θ_i + φ_i) with A_i = |q_i||k_i|, the norms
of the two channels of pair i. The energy of a pair is the mean of A_i² over (query, key), its share p_i = E_i / Σ E_j.
Rotation leaves norms alone, and a common factor (scaling, attention factor) cancels, so it does not matter whether it
is read before or after RoPE. Effective frequency: ln θ_eff = Σ p_i ln θ_i.

**The definition is ours**: the paper (arXiv:2607.07678) was not to be had in full. What its abstract leaves open is
not decided in silence but measured in all variants, named PAIRS/MEAN/POOL:

    PAIRS  causal: each query with the keys it may see;  all: each query with every key
    MEAN   mean_square: E = mean(A²);  square_mean: E = (mean A)²
    POOL   share: heads are normalised, then averaged (each head counts alike);  energy: energies are added over heads
           and layers, then normalised (loud heads count more)

The first of each is the default: it is what a causal model computes, and no head speaks for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ropebench.lens.watching import forward, pair_channels, pairs_of

Array = NDArray[np.float64]

PAIRS = ("causal", "all")
MEANS = ("mean_square", "square_mean")
POOLS = ("share", "energy")
VARIANTS = tuple("/".join(words) for words in product(PAIRS, MEANS, POOLS))
DEFAULT = VARIANTS[0]

Energies = Mapping[str, Array]  # "causal/mean_square" … → energies of shape (layers, heads, pairs)


def energies(model: Any, ids: Sequence[int], channels: Mapping[int, np.ndarray] | None = None) -> dict[str, Array]:
    """Frequency energies of every rotated layer and head over one sequence, by PAIRS/MEAN: arrays of shape (layers,
    heads, pairs), layers in order. Any loaded transformers model: grouped keys count once for each of their queries'
    heads. `channels`: `pair_channels(model)`, found anew where it is not given. Cost: one pass, linear memory.

    The model's current rotary table is used; put the call within `apply.applied` for another.
    """
    channels = pair_channels(model) if channels is None else channels
    found: dict[str, dict[int, Array]] = {f"{pairs}/{mean}": {} for pairs, mean in product(PAIRS, MEANS)}

    def see(layer: int, query: torch.Tensor, key: torch.Tensor) -> None:
        if layer not in channels:
            return
        a, b = (pairs_of(one, channels[layer]).double().norm(dim=-1) for one in (query, key))
        b = b.repeat_interleave(len(a) // len(b), dim=0)
        for mean, power in zip(MEANS, (2, 1), strict=True):
            own, other = a**power, b**power
            tokens = own.shape[1]
            every = own.mean(1) * other.mean(1)
            causal = (own * other.cumsum(1)).sum(1) / (tokens * (tokens + 1) / 2)
            for pairs, value in zip(PAIRS, (causal, every), strict=True):
                found[f"{pairs}/{mean}"][layer] = (value if power == 2 else value**2).cpu().numpy()

    forward(model, ids, see)
    return {name: np.stack([by[layer] for layer in sorted(by)]) for name, by in found.items()}


def mean_energies(several: Sequence[Energies]) -> dict[str, Array]:
    """The mean over sequences, by PAIRS/MEAN. (Of square_mean: the mean of the sequences' squares.)"""
    return {name: np.mean([one[name] for one in several], axis=0) for name in several[0]}


def head_shares(energy: Array) -> Array:
    """Each head's shares p, summing to 1 over pairs; the shape stays (…, pairs). A head without energy is uniform."""
    total = energy.sum(-1, keepdims=True)
    return np.where(total > 0, energy / np.where(total > 0, total, 1.0), 1.0 / energy.shape[-1])


def shares(found: Energies, variant: str = DEFAULT) -> Array:
    """The model's shares p under a variant, shape (pairs,), from energies of shape (layers, heads, pairs)."""
    pairs, mean, pool = variant.split("/")
    energy = found[f"{pairs}/{mean}"]
    energy = energy.reshape(-1, energy.shape[-1])
    return head_shares(energy).mean(0) if pool == "share" else head_shares(energy.sum(0))


def effective_frequency(share: Array, inv_freq: Array) -> float:
    """θ_eff in radians per token: the p-weighted geometric mean of the frequencies (of those that turn at all)."""
    turning = inv_freq > 0
    weight = share[..., turning] / share[..., turning].sum(-1, keepdims=True)
    return float(np.exp((weight * np.log(inv_freq[turning])).sum(-1)))


def concentration(share: Array) -> float:
    """0 where all pairs have the same share, 1 where one pair has all: 1 − entropy ÷ ln(pairs). Ours."""
    inside = share[share > 0]
    return float(1 + (inside * np.log(inside)).sum() / np.log(len(share))) if len(share) > 1 else 0.0


def unevenness(share: Array) -> float:
    """The largest relative deviation of any pair's share from 1/pairs; 0.2 is "uniform to 20 %"."""
    return float(np.abs(share * len(share) - 1).max())


def similarity(one: Array, other: Array) -> float:
    """What two spectra have in common, 0 to 1: 1 − half the sum of absolute differences of their shares."""
    return float(1 - np.abs(one - other).sum() / 2)


def positive_reach(inv_freq: Array, most: int = 1 << 20) -> int | None:
    """The last distance m up to which B(m) = Σ_i cos(mθ_i) stays ≥ 0 (Men et al., arXiv:2405.14591: what keeps similar
    tokens attended to); None where it does so up to `most`. B is spiky, so that small changes move this far."""
    step = max(1, (1 << 20) // len(inv_freq))
    for first in range(1, most + 1, step):
        m = np.arange(first, min(first + step, most + 1), dtype=np.float64)
        below = np.flatnonzero(np.cos(np.outer(m, inv_freq)).sum(1) < 0)
        if len(below):
            return first + int(below[0]) - 1
    return None
