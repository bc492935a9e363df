"""The platform's own noise, drawn with the lab's dice, so that a run can be repeated from a seed.

It is the sampler that the door uses. Here it protects nobody: dice that can be repeated are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.accounting.composition import rho_within
from sfumato.dp.budget import read_epsilon
from sfumato.dp.mechanisms import gaussian, laplace
from sfumato.dp.refusal import Refused

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
    """Return the whole-number sums with the platform's Laplace noise on each; any shape.

    Args:
        sums: Whole numbers; `laplacian_mechanism` takes fractions.
        sensitivity: How far one person moves a sum at most, a whole number.
        epsilon: What each sum is released at.
        dice: A generator; its noise can be repeated, and protects nobody.

    Raises:
        Refused: A sum or the sensitivity is a fraction, or epsilon is no price.
    """
    sums = whole_numbers(sums)
    scale = laplace.scale_for(whole_sensitivity(sensitivity), read_epsilon(epsilon))
    noise = laplace.sample(scale, sums.size, LabDice(dice))
    released: NDArray[np.int64] = sums + noise.reshape(sums.shape)
    return released


def whole_numbers(numbers: Any) -> NDArray[np.int64]:  # Any: whatever a caller hands in
    """Return the numbers, or refuse fractions: whole-number noise would leave their digits bare."""
    array = np.asarray(numbers)
    if array.dtype.kind not in "biu":
        raise Refused(
            "bad-request",
            f"This noise is of whole numbers, and these are {array.dtype}.",
            "Give whole numbers, or use sfumato.lab.laplacian_mechanism, which takes fractions.",
        )
    return array.astype(np.int64)


def whole_sensitivity(sensitivity: float) -> int:
    """Return the sensitivity, or refuse one that whole numbers cannot have."""
    if not (1 <= sensitivity < 2**60 and sensitivity == int(sensitivity)):
        raise Refused(
            "bad-request",
            f"A sensitivity of whole numbers is a whole number from 1, not {sensitivity}.",
            "Give one, or use sfumato.lab.laplacian_mechanism, which takes fractions.",
        )
    return int(sensitivity)


# --- The platform's discrete Gaussian noise, drawn with the lab's dice; see `ours`


DELTA: Final = 1e-5


@lru_cache(maxsize=64)
def variance_within(sensitivity_squared: int, epsilon: float, delta: float = DELTA) -> Fraction:
    """Return the variance that makes whole-number vectors (epsilon, delta)-DP as one release."""
    rho = rho_within(Fraction(str(epsilon)), Fraction(str(delta)))
    return gaussian.variance_for(sensitivity_squared, rho)


def private_vectors(
    vectors: NDArray[np.int64],
    *,
    sensitivity_squared: int,
    epsilon: float,
    dice: np.random.Generator,
    delta: float = DELTA,
) -> NDArray[np.int64]:
    """Return the vectors with noise, each one (epsilon, delta)-DP as a whole; any shape.

    The sensitivity is the square of how far one person moves a vector, as the crow flies.
    """
    vectors = whole_numbers(vectors)
    variance = variance_within(whole_sensitivity(sensitivity_squared), epsilon, delta)
    noise = gaussian.sample(variance, vectors.size, LabDice(dice))
    released: NDArray[np.int64] = vectors + noise.reshape(vectors.shape)
    return released
