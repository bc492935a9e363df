"""The platform's discrete Gaussian noise, drawn with the lab's dice; see `ours`."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.accounting.composition import rho_within
from sfumato.dp.mechanisms import gaussian
from sfumato.lab.platform_noise import LabDice, whole_numbers, whole_sensitivity

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
