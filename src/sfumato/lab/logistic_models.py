"""Train many small logistic regressions at once, with and without differential privacy.

An example is one person's columns times their label (+1 or -1), a vector of norm at most 1.
Training minimises  sum of ln(1 + exp(-example . weights)) + ridge |weights|^2 / 2.

The private version uses output perturbation (Chaudhuri, Monteleoni and Sarwate 2011), for one
person added or removed. The gradient of each example is shorter than the example, so its norm is
at most 1. The objective is `ridge`-strongly convex. At the minimum of one objective, the gradient
of its neighbour has norm at most 1, so the two minima are at most 1/ridge apart. Training stops
when the norm of the gradient is below SLOPE (1e-6), and fails otherwise. So two trained models are
at most (1 + 2 SLOPE)/ridge apart. Rounding to the grid moves each weight by at most half a step.
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
STEPS: Final = 60  # the most steps of Newton's method; a dozen are enough
GRID: Final = 1 << 20  # before noise, weights are rounded to multiples of 1/GRID


def chance_of(margins: Floats) -> Floats:
    """Return the probability that a model gives to an example's true label, from its margin."""
    chances: Floats = 1 / (1 + np.exp(-np.clip(margins, -700, 700)))
    return chances


def trained(examples: Floats, ridge: float) -> Floats:
    """Train each model with Newton's method, and return the weights.

    The axes of `examples` are models x people x columns. Newton's steps from zero stay in the span
    of the examples. So the method solves for one coefficient per person: the linear systems stay
    small, however many columns there are.
    """
    alike = examples @ np.swapaxes(examples, 1, 2)
    if float(np.einsum("mpp->mp", alike).max(initial=0)) > 1 + 1e-10:
        raise Bug("an example of the lab has a norm above 1")
    shares = np.zeros(examples.shape[:2])
    for _ in range(STEPS):
        chances = chance_of(_times(alike, shares))
        excess = ridge * shares - (1 - chances)
        slope = np.sqrt(np.maximum((excess * _times(alike, excess)).sum(axis=1), 0))
        if float(slope.max()) < SLOPE:
            return _times(np.swapaxes(examples, 1, 2), shares)
        bent = (chances * (1 - chances))[..., None] * alike + ridge * np.eye(alike.shape[1])
        shares = shares - np.linalg.solve(bent, excess[..., None])[..., 0]
    raise Bug("a model of the lab has not converged")


def curves_of(examples: Floats, weights: Floats) -> Floats:
    """Return the curvature of each example's loss: its second derivative in the margin.

    Newton's method needs it to train a model.
    """
    chances = chance_of(_times(examples, weights))
    return chances * (1 - chances)


def _times(matrices: Floats, vectors: Floats) -> Floats:
    product: Floats = (matrices @ vectors[..., None])[..., 0]
    return product


def _reach(ridge: float, columns: int) -> int:
    """Return the squared L2 sensitivity of a model's weights to one person, in grid steps.

    It is rounded up, and covers the rounding of the weights to the grid.
    """
    apart = (1 + 2 * SLOPE) / ridge * GRID + math.sqrt(columns)
    return math.ceil(apart * apart * (1 + 1e-9))


def private_twins(
    weights: Floats, *, ridge: float, epsilon: float, dice: np.random.Generator
) -> Floats:
    """Return the trained weights with Gaussian noise: each model is (epsilon, delta)-DP.

    The delta is 1e-5 (DELTA of platform_noise.py).
    """
    steps = np.rint(weights * GRID).astype(np.int64)
    reach = _reach(ridge, weights.shape[-1])
    released = private_vectors(steps, sensitivity_squared=reach, epsilon=epsilon, dice=dice)
    return released / GRID


def noise_variance(*, ridge: float, columns: int, epsilon: float) -> float:
    """Return the variance of the noise on each weight of a private model."""
    steps = variance_within(_reach(ridge, columns), epsilon, DELTA)
    return float(steps) / GRID**2
