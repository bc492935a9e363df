"""The platform's own noise, drawn with the lab's dice, so that a run can be repeated from a seed.

It is the sampler that the door uses. Here it protects nobody: dice that can be repeated are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.noise import laplace

EPSILONS: Final = (0.1, 1.0, 10.0)  # what an attack is tried against, unless told otherwise


@dataclass(frozen=True)
class LabDice:
    """Bytes of a numpy generator, where the core asks for dice."""

    generator: np.random.Generator

    def draw(self, count: int) -> bytes:
        """Return that many bytes."""
        return self.generator.bytes(count)


def private_sums(
    sums: NDArray[np.int64], *, sensitivity: int, epsilon: float, dice: np.random.Generator
) -> NDArray[np.int64]:
    """Return the whole-number sums with the platform's Laplace noise on each; any shape."""
    scale = laplace.scale_for(sensitivity, Fraction(epsilon).limit_denominator(10**6))
    noise = laplace.sample(scale, sums.size, LabDice(dice))
    released: NDArray[np.int64] = sums + noise.reshape(sums.shape)
    return released
