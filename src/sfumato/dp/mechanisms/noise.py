"""The additive noise of one released number: mechanism, parameter, error and sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms import gaussian, laplace
from sfumato.dp.ports import RandomSource

CONFIDENCE = Fraction(95, 100)
MAX_WIDTH = 2**50


@dataclass(frozen=True)
class Noise:
    """The additive noise of one released number: discrete Laplace or discrete Gaussian.

    `parameter` is the scale of Laplace noise, or the variance of Gaussian noise. The unit is one
    step of the integer grid on which the aggregate is computed.
    """

    kind: Literal["laplace", "gaussian"]
    parameter: Fraction

    def std(self) -> float:
        """Return the standard deviation of the noise, in steps of the integer grid."""
        return _std(self)

    def margin(self) -> float:
        """Return the half-width of the 95 % interval of the noise, in whole grid steps."""
        return _within(self, CONFIDENCE)

    def within(self, confidence: Fraction) -> float:
        """Return the smallest t with |noise| <= t at the given confidence, in whole grid steps."""
        return _within(self, confidence)

    def miss(self) -> Fraction:
        """Return the largest probability that the 95 % interval misses the exact value: 0.05."""
        return 1 - CONFIDENCE

    def width(self) -> float:
        """Return the scale of Laplace noise, or the sigma of Gaussian noise, in grid steps."""
        if self.kind == "laplace":
            return float(self.parameter)
        return math.sqrt(self.parameter)

    def is_drawable(self) -> bool:
        """Return whether the noise is small enough for the exact samplers to draw it."""
        if self.kind == "laplace":
            return self.parameter <= MAX_WIDTH
        return self.parameter <= MAX_WIDTH**2

    def sample(self, count: int, dice: RandomSource) -> NDArray[np.int64]:
        """Draw `count` independent exact samples of the noise."""
        if self.kind == "laplace":
            return laplace.sample(self.parameter, count, dice)
        return gaussian.sample(self.parameter, count, dice)

    def as_json(self) -> Json:
        """Return the mechanism and its exact parameter as JSON, for the receipt of an answer."""
        name = "scale" if self.kind == "laplace" else "variance"
        return {"kind": f"discrete {self.kind}", name: str(self.parameter)}


@lru_cache(maxsize=4096)
def _std(noise: Noise) -> float:
    if noise.kind == "laplace":
        return laplace.std(noise.parameter)
    return gaussian.std(noise.parameter)


@lru_cache(maxsize=4096)
def _within(noise: Noise, confidence: Fraction) -> int:
    if noise.kind == "laplace":
        return laplace.interval(noise.parameter, confidence)
    return gaussian.interval(noise.parameter, confidence)
