"""Pairs that turn less than `turns` times within the trained window are interpolated, the others left as trained."""

from dataclasses import dataclass

import numpy as np

from ropebench import Frequencies, Method, UsageError


@dataclass(frozen=True)
class StepRope(Method):
    name, version = "step_rope", 1
    summary = "pairs that turn less than `turns` times in the window slowed by the factor, the others not"
    source = "YaRN's ramp (NTK-by-parts) with both of its ends in one place"
    turns: float = 8.0

    def __post_init__(self) -> None:
        if not self.turns > 0:
            raise UsageError(f"step_rope: turns={self.turns}: must be more than 0")

    def frequencies(self, geometry, factor, length) -> Frequencies:
        return geometry.scaled(np.where(geometry.rotations() < self.turns, factor, 1.0))
