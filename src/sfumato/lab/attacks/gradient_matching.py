"""Reconstruct inputs by gradient matching: search for inputs that produce the observed gradient.

The attack of Zhu, Liu and Han (2019). `gradient_inversion.py` reads one input off one neuron. This
search uses all weights. So it needs no bias, handles batches whose inputs share neurons, and gets
the most out of noisy gradients. It takes thousands of steps, and may end in a local minimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sfumato.lab.dense_model import Dense, Floats, Gradient, Labels

STEPS: Final = 1500
RATE: Final = 0.05
DECAY: Final = (0.9, 0.999)  # decay rates of Adam's two running means (Kingma and Ba 2015)
TINY: Final = 1e-12
STARTS: Final = 4  # the most random starts; a start may end in a local minimum
FITS: Final = 1e-12  # a smaller loss is no local minimum, so the search ends


@dataclass(frozen=True, eq=False)
class Fit:
    """The inputs that a search found, and the distance of their gradient from the observed one."""

    inputs: Floats
    miss: float  # half the squared distance


def fit(
    model: Dense, seen: Gradient, labels: Labels, *, dice: np.random.Generator, steps: int = STEPS
) -> Fit:
    """Return the inputs in [0, 1] whose summed gradient is nearest to the observed one.

    The labels are known: a server can usually read a batch's labels from the last bias.
    """
    best = _searched(model, seen, labels, dice, steps)
    for _ in range(STARTS - 1):
        if best.miss > FITS:
            best = min(best, _searched(model, seen, labels, dice, steps), key=lambda one: one.miss)
    return best


def _searched(
    model: Dense, seen: Gradient, labels: Labels, dice: np.random.Generator, steps: int
) -> Fit:
    """Run one Adam search from a random start, and return the best inputs."""
    inputs = dice.uniform(0.2, 0.8, size=(len(labels), model.first.shape[1]))
    slow, square = np.zeros_like(inputs), np.zeros_like(inputs)
    best = Fit(inputs, np.inf)
    for step in range(1, steps + 1):
        miss, slope = miss_and_slope(model, seen, labels, inputs)
        if miss < best.miss:
            best = Fit(inputs.copy(), miss)
        slow = DECAY[0] * slow + (1 - DECAY[0]) * slope
        square = DECAY[1] * square + (1 - DECAY[1]) * slope**2
        moved = slow / (1 - DECAY[0] ** step)
        length = np.sqrt(square / (1 - DECAY[1] ** step)) + TINY
        inputs = np.clip(inputs - RATE * (1 - step / (steps + 1)) * moved / length, 0, 1)
    return best


def miss_and_slope(
    model: Dense, seen: Gradient, labels: Labels, inputs: Floats
) -> tuple[float, Floats]:
    """Return half the squared distance of the inputs' gradient from the observed gradient.

    Return also the derivative of this distance in each input. It applies the chain rule through
    `Dense.gradients`, with the set of active neurons fixed.
    """
    awake = inputs @ model.first.T + model.first_bias > 0
    every = model.gradients(inputs, labels)
    first, first_bias, last, last_bias = (
        made - wanted for made, wanted in zip(every.summed().parts, seen.parts, strict=True)
    )
    miss = sum(float((part**2).sum()) for part in (first, first_bias, last, last_bias)) / 2
    back, error = every.first_bias, every.last_bias
    hidden = np.maximum(inputs @ model.first.T + model.first_bias, 0)
    by_back = awake * (inputs @ first.T + first_bias)
    by_error = hidden @ last.T + last_bias + by_back @ model.last.T
    chances = error + np.eye(model.last.shape[0])[labels]
    by_score = chances * (by_error - (chances * by_error).sum(axis=1, keepdims=True))
    by_hidden = awake * (error @ last + by_score @ model.last)
    return miss, back @ first + by_hidden @ model.first
