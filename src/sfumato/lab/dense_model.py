"""A small neural network on images, its gradients, and clipped, noisy gradients as in DP-SGD.

It has one hidden layer with ReLU, and a softmax over the labels. All of it is numpy, so that an
attack on its gradients is easy to read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.platform_noise import private_vectors

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
SIDE: Final = 8  # width and height of an image, in pixels
LABELS: Final = 4
GRID: Final = 1 << 16  # before noise, gradients are rounded to multiples of 1/GRID


@dataclass(frozen=True)
class Dense:
    """A small neural network: weights and biases of its hidden layer and of its output layer."""

    first: Floats  # neurons x inputs
    first_bias: Floats
    last: Floats  # labels x neurons
    last_bias: Floats

    def gradients(self, inputs: Floats, labels: Labels) -> Gradient:
        """Return, for each example, the gradient of its loss with respect to all weights."""
        awake = inputs @ self.first.T + self.first_bias
        hidden = np.maximum(awake, 0)
        scores = hidden @ self.last.T + self.last_bias
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        error = chances - np.eye(self.last.shape[0])[labels]
        back = (error @ self.last) * (awake > 0)
        return Gradient(
            back[:, :, None] * inputs[:, None, :],
            back,
            error[:, :, None] * hidden[:, None, :],
            error,
        )


@dataclass(frozen=True)
class Gradient:
    """The gradient of all weights: of one batch, or per example along a first axis."""

    first: Floats
    first_bias: Floats
    last: Floats
    last_bias: Floats

    @property
    def parts(self) -> tuple[Floats, ...]:
        """Return the four arrays of the gradient, in their order."""
        return self.first, self.first_bias, self.last, self.last_bias

    def summed(self) -> Gradient:
        """Return the batch gradient: the sum over the examples."""
        return Gradient(*(part.sum(axis=0) for part in self.parts))

    def flat(self) -> Floats:
        """Return a matrix with one row per example: the four arrays of its gradient, flattened."""
        return np.concatenate([part.reshape(len(part), -1) for part in self.parts], axis=1)

    def shaped(self, row: Floats) -> Gradient:
        """Reshape one flat row to the four arrays of a gradient."""
        sizes = np.cumsum([part[0].size for part in self.parts])[:-1]
        pieces = zip(np.split(row, sizes), self.parts, strict=True)
        return Gradient(*(piece.reshape(part.shape[1:]) for piece, part in pieces))


def clipped(rows: Floats, most: float) -> Floats:
    """Clip each row (an example's gradient) to the norm `most`."""
    lengths = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    shortened: Floats = rows * np.minimum(1, most / np.maximum(lengths, 1e-300))
    return shortened


def private_sum(rows: Floats, *, most: float, epsilon: float, dice: np.random.Generator) -> Floats:
    """Return the sum of clipped gradients with Gaussian noise: (epsilon, delta)-DP for one step.

    After rounding, an example's norm is at most the clipping norm plus half a grid step per
    coordinate.
    """
    steps = np.rint(clipped(rows, most) * GRID).astype(np.int64)
    length = most * GRID * (1 + 1e-9) + math.sqrt(rows.shape[1]) / 2
    total = steps.sum(axis=0)
    reach = math.ceil(length * length)
    released = private_vectors(total, sensitivity_squared=reach, epsilon=epsilon, dice=dice)
    return released / GRID


def draw_model(neurons: int, dice: np.random.Generator) -> Dense:
    """Draw a model with random weights, as at the start of training."""
    inputs = SIDE * SIDE
    return Dense(
        dice.standard_normal((neurons, inputs)) / math.sqrt(inputs),
        dice.standard_normal(neurons) / 4 - 0.25,
        dice.standard_normal((LABELS, neurons)) / math.sqrt(neurons),
        np.zeros(LABELS),
    )


def draw_pictures(count: int, dice: np.random.Generator) -> tuple[Floats, Labels]:
    """Draw synthetic images of a few blurred spots, with a random label each."""
    grid = np.arange(SIDE)
    spots = dice.uniform(0.5, SIDE - 1.5, (count, 3, 2))
    wide = dice.uniform(0.7, 1.6, (count, 3, 1))
    down = np.exp(-((grid - spots[..., :1]) ** 2) / (2 * wide**2))
    across = np.exp(-((grid - spots[..., 1:]) ** 2) / (2 * wide**2))
    pictures = np.einsum("nsi,nsj->nij", down, across).clip(0, 1)
    return pictures.reshape(count, -1), dice.integers(0, LABELS, count)
