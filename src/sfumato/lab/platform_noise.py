"""Draw the platform's own noise from a numpy generator, so that a seed repeats a run.

The sampler is the one that releases use. Here it protects nobody, because repeatable noise can be
known.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.budget import read_epsilon
from sfumato.dp.mechanisms import gaussian, laplace
from sfumato.dp.refusal import Refused

EPSILONS: Final = (0.1, 1.0, 10.0)  # the epsilons of the releases that an attack tries by default


@dataclass(frozen=True)
class NumpyRandomSource:
    """A numpy generator in the form of the random source that the mechanisms take.

    With it, a seed repeats a run.
    """

    generator: np.random.Generator

    def draw(self, count: int) -> bytes:
        """Return `count` random bytes."""
        return self.generator.bytes(count)


LabDice = NumpyRandomSource  # the name of this class in version 0.1


def private_sums(
    sums: NDArray[np.int64], *, sensitivity: int, epsilon: float, dice: np.random.Generator
) -> NDArray[np.int64]:
    """Add the platform's discrete Laplace noise to each of an array of integer sums.

    Args:
        sums: Whole numbers of any shape; `laplacian_mechanism` takes fractions.
        sensitivity: The largest change of a sum by one person, a whole number.
        epsilon: The price of each sum.
        dice: A random generator; its noise can be repeated, and protects nobody.

    Raises:
        Refused: A sum or the sensitivity is a fraction, or epsilon is no price.
    """
    sums = whole_numbers(sums)
    scale = laplace.scale_for(whole_sensitivity(sensitivity), read_epsilon(epsilon))
    noise = laplace.sample(scale, sums.size, NumpyRandomSource(dice))
    released: NDArray[np.int64] = sums + noise.reshape(sums.shape)
    return released


def whole_numbers(numbers: Any) -> NDArray[np.int64]:  # Any: the caller's own kind of array
    """Return the numbers as integers, or refuse fractions.

    Integer noise does not hide the digits after the point.
    """
    array = np.asarray(numbers)
    if array.dtype.kind not in "biu":
        raise Refused(
            "bad-request",
            f"This noise is for whole numbers, and the values have the type {array.dtype}.",
            "Give whole numbers, or use sfumato.lab.laplacian_mechanism, which takes fractions.",
        )
    return array.astype(np.int64)


def whole_sensitivity(sensitivity: float) -> int:
    """Return the sensitivity as an integer, or refuse a fraction or one below 1."""
    if not (1 <= sensitivity < 2**60 and sensitivity == int(sensitivity)):
        raise Refused(
            "bad-request",
            f"The sensitivity must be a whole number of at least 1, not {sensitivity}.",
            "Give a whole number, or use sfumato.lab.laplacian_mechanism, which takes fractions.",
        )
    return int(sensitivity)


# --- The platform's discrete Gaussian noise, drawn from a numpy generator


DELTA: Final = 1e-5


@lru_cache(maxsize=64)
def variance_within(sensitivity_squared: int, epsilon: float, delta: float = DELTA) -> Fraction:
    """Return the Gaussian variance that makes one integer vector (epsilon, delta)-DP."""
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
    """Add discrete Gaussian noise to vectors of integers; each vector is (epsilon, delta)-DP.

    The array may have any shape. `sensitivity_squared` is the square of the L2 sensitivity of one
    vector to one person.
    """
    vectors = whole_numbers(vectors)
    variance = variance_within(whole_sensitivity(sensitivity_squared), epsilon, delta)
    noise = gaussian.sample(variance, vectors.size, NumpyRandomSource(dice))
    released: NDArray[np.int64] = vectors + noise.reshape(vectors.shape)
    return released
