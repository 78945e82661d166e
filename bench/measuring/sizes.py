"""How much is measured: as promised (the default, and `full`), or shorter (`quick`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Sizes:
    """Lengths are in tokens. Plain passes are minutes of waiting for what is known to be slow, so the default times
    some of them, and a fit or a mean stands for the others; `full` times all."""

    lengths: Sequence[int]  # of the perplexity curve
    every: int  # of these lengths, each how-many-th is also run the plain way; the longest always
    rounds: int  # of our pass, each between two bare forwards
    needle_length: int
    depths: int
    refills: int  # of the depths, how many are also run the plain way
    peak_length: int
    sweep_lengths: tuple[int, ...]
    loads: int  # of the methods, how many are also run the plain way
    ruler_samples: int
    spread_lengths: tuple[int, ...] = (512, 1024)  # of the bundled model, over several workers
    spread_samples: int = 12


DEFAULT = Sizes(
    lengths=range(1024, 10240 + 1, 512), every=6, rounds=1,
    needle_length=8192, depths=10, refills=2,
    peak_length=16384, sweep_lengths=(1024, 2048), loads=2, ruler_samples=100,
)  # fmt: skip
FULL = replace(DEFAULT, every=1, rounds=3, refills=10, loads=9, ruler_samples=500)
QUICK = replace(
    DEFAULT, lengths=range(256, 2560 + 1, 128), rounds=3, needle_length=2048,
    peak_length=4096, sweep_lengths=(256, 512), ruler_samples=40, spread_samples=4,
)  # fmt: skip


def some(count: int, of: int) -> list[int]:
    """`count` of the indices 0 … of − 1, evenly spread, both ends among them.

    >>> some(3, 10), some(1, 10), some(12, 3)
    ([0, 4, 9], [9], [0, 1, 2])
    """
    count = min(count, of)
    return [round(i * (of - 1) / (count - 1)) for i in range(count)] if count > 1 else [of - 1][:count]
