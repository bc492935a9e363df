"""Small models of odds, many at once, and their differentially private twins.

An example is one vector: the columns of a person times their label, +1 or -1, no longer than one.
A model is trained by the least of  sum of ln(1 + exp(-example . weights)) + ridge |weights|^2 / 2.

Private twin (output perturbation, Chaudhuri, Monteleoni and Sarwate 2011), for a person added or
removed: each example pulls the slope by less than its length, at most 1, and the sum curves by at
least `ridge` everywhere. Where one sum has no slope, the other's is at most 1, so their least
points are at most 1/ridge apart. Training stops when the slope is below SLOPE, and is refused
otherwise; so two trained models are at most (1 + 2 SLOPE)/ridge apart. Rounding to the grid moves
each weight by at most half a step.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Bug
from sfumato.lab.platform_noise import DELTA, private_vectors, variance_within

Floats = NDArray[np.float64]
SLOPE: Final = 1e-6
STEPS: Final = 60  # of Newton; a dozen are enough
GRID: Final = 1 << 20  # weights are kept in steps of 1/this before noise


def chance_of(margins: Floats) -> Floats:
    """Return the chance that the model gives the true label, by its margin."""
    chances: Floats = 1 / (1 + np.exp(-np.clip(margins, -700, 700)))
    return chances


def trained(examples: Floats, ridge: float) -> Floats:
    """Return the weights of each model; examples are models x people x columns.

    Newton's steps from zero stay among the sums of the examples, so they are taken in the people's
    shares of the weights: small systems, however many columns there are.
    """
    alike = examples @ np.swapaxes(examples, 1, 2)
    if float(np.einsum("mpp->mp", alike).max(initial=0)) > 1 + 1e-10:
        raise Bug("an example of the lab is longer than one")
    shares = np.zeros(examples.shape[:2])
    for _ in range(STEPS):
        chances = chance_of(_times(alike, shares))
        excess = ridge * shares - (1 - chances)
        slope = np.sqrt(np.maximum((excess * _times(alike, excess)).sum(axis=1), 0))
        if float(slope.max()) < SLOPE:
            return _times(np.swapaxes(examples, 1, 2), shares)
        bent = (chances * (1 - chances))[..., None] * alike + ridge * np.eye(alike.shape[1])
        shares = shares - np.linalg.solve(bent, excess[..., None])[..., 0]
    raise Bug("a model of the lab has not come to rest")


def curves_of(examples: Floats, weights: Floats) -> Floats:
    """Return how much each example bends the sum of its model, along itself."""
    chances = chance_of(_times(examples, weights))
    return chances * (1 - chances)


def _times(matrices: Floats, vectors: Floats) -> Floats:
    product: Floats = (matrices @ vectors[..., None])[..., 0]
    return product


def _reach(ridge: float, columns: int) -> int:
    """Return the square of how far one person moves the weights, in steps of the grid."""
    apart = (1 + 2 * SLOPE) / ridge * GRID + math.sqrt(columns)
    return math.ceil(apart * apart * (1 + 1e-9))


def private_twins(
    weights: Floats, *, ridge: float, epsilon: float, dice: np.random.Generator
) -> Floats:
    """Return the trained weights with noise: each model is (epsilon, delta)-DP."""
    steps = np.rint(weights * GRID).astype(np.int64)
    reach = _reach(ridge, weights.shape[-1])
    released = private_vectors(steps, sensitivity_squared=reach, epsilon=epsilon, dice=dice)
    return released / GRID


def noise_variance(*, ridge: float, columns: int, epsilon: float) -> float:
    """Return the variance of the noise on each weight of a private twin."""
    steps = variance_within(_reach(ridge, columns), epsilon, DELTA)
    return float(steps) / GRID**2
