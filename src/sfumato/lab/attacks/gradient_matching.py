"""Rebuild inputs by fitting them: search for those whose gradient is the one that was seen.

The form of Zhu, Liu and Han (2019). Where `gradient_inversion.py` reads a single input off one
neuron, this looks at all weights at once, so that it needs no bias, takes a batch whose inputs
share their neurons, and makes the best of noise. It costs thousands of steps, and may end in a
wrong valley.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sfumato.lab.dense_model import Dense, Floats, Gradient, Labels

STEPS: Final = 1500
RATE: Final = 0.05
DECAY: Final = (0.9, 0.999)  # of the two running means of Adam (Kingma and Ba 2015)
TINY: Final = 1e-12
STARTS: Final = 4  # a search may end in a wrong valley: another neuron awake, and no way back
FITS: Final = 1e-12  # a miss that small is no wrong valley


@dataclass(frozen=True, eq=False)
class Fit:
    """Inputs that were found, and how far their gradient is from the one that was seen."""

    inputs: Floats
    miss: float  # half the squared distance


def fit(
    model: Dense, seen: Gradient, labels: Labels, *, dice: np.random.Generator, steps: int = STEPS
) -> Fit:
    """Return inputs between 0 and 1 whose summed gradient is nearest to the seen one.

    The labels are known, as the server mostly can: those of a batch stand in the last bias.
    """
    best = _searched(model, seen, labels, dice, steps)
    for _ in range(STARTS - 1):
        if best.miss > FITS:
            best = min(best, _searched(model, seen, labels, dice, steps), key=lambda one: one.miss)
    return best


def _searched(
    model: Dense, seen: Gradient, labels: Labels, dice: np.random.Generator, steps: int
) -> Fit:
    """Return the best inputs on the way down from a start by chance."""
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
    """Return half the squared distance of the two gradients, and how it changes with each input.

    The chain rule through `Dense.gradients`; which neurons are awake is taken as it is.
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
