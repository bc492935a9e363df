"""Compute the noise of an average of several noisy releases of the same number.

Such an average is called a topped-up answer: the analyst paid for more releases to get less noise.
All releases use the same mechanism, Laplace or Gaussian. Weights proportional to the inverse
variances minimise the variance of the mean. The 95 % margin comes from the distribution of the
weighted sum (dp/confidence/weighted_sum_of_draws.py, averaged_noise.proof.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.confidence.weighted_sum_of_draws import margin_of_weighted_sum, std_of_weighted_sum
from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.noise import CONFIDENCE, Noise
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MIN_VARIANCE: Final = 1e-300  # smallest variance; avoids division by zero in the weights


@dataclass(frozen=True)
class AveragedNoise(Noise):
    """The noise of the inverse-variance weighted mean of several releases of the same number.

    It is a subclass of Noise, so that every aggregate treats the mean like a single noisy release.
    It cannot be sampled, because the noise was already drawn when the releases were made.
    """

    draws: tuple[Noise, ...] = ()

    def weights(self) -> tuple[float, ...]:
        """Return the inverse-variance weight of each release in the mean; the weights sum to 1."""
        return _weights(self.draws)

    def std(self) -> float:
        """Return the standard deviation of the mean's noise, in steps of the integer grid."""
        return std_of_weighted_sum(self.weights(), self.draws)

    def margin(self) -> float:
        """Return a half-width t of the 95 % interval of the noise, in steps of the integer grid."""
        return self.within(CONFIDENCE)

    def within(self, confidence: Fraction) -> float:
        """Return a t with |noise| <= t at the given confidence, in steps of the integer grid."""
        return _within(self, confidence)

    def width(self) -> float:
        """Return the scale or sigma of a single draw with the same spread as the mean's noise.

        It is the root of the summed squares of the weighted Laplace scales or Gaussian sigmas. The
        rounding to the integer grid is ignored.
        """
        pairs = zip(self.weights(), self.draws, strict=True)
        return math.hypot(*(weight * draw.width() for weight, draw in pairs))

    def sample(self, count: int, dice: RandomSource) -> Integers:
        """Raise a Bug: the noise of a mean was already drawn for the averaged releases."""
        raise Bug("the noise of a mean is never drawn")

    def as_json(self) -> Json:
        """Return each averaged draw, its std and its weight as JSON, for an answer's receipt."""
        pairs = zip(self.weights(), self.draws, strict=True)
        return {
            "kind": " + ".join(str(draw.as_json()["kind"]) for draw in self.draws),
            "draws": [{**draw.as_json(), "std": draw.std(), "weight": w} for w, draw in pairs],
        }


def average_noise(draws: Sequence[Noise]) -> Noise:
    """Return the noise of an average of several releases, weighted by their inverse variances.

    `draws` holds the noise of each release. If there is only one release, its noise is returned.
    """
    if len({draw.kind for draw in draws}) != 1:
        raise Bug("a mean is of draws of one kind")
    if len(draws) == 1:
        return draws[0]
    return AveragedNoise(draws[0].kind, Fraction(0), tuple(draws))


def mean_of(draws: Sequence[Noise], parts: Sequence[Integers]) -> Floats:
    """Return the inverse-variance weighted mean of several noisy releases of the same numbers.

    `parts` has one array of released numbers for each item of `draws`. The releases differ only by
    their noise, so their differences are small exact integers.
    """
    first, *rest = parts
    moved = np.zeros(first.shape, dtype=np.float64)
    for weight, part in zip(_weights(tuple(draws))[1:], rest, strict=True):
        moved += weight * np.subtract(part, first)
    return first + moved


@lru_cache(maxsize=1024)
def _weights(draws: tuple[Noise, ...]) -> tuple[float, ...]:
    precise = [1 / max(draw.std() ** 2, MIN_VARIANCE) for draw in draws]
    return tuple(one / math.fsum(precise) for one in precise)


def _within(noise: AveragedNoise, confidence: Fraction) -> float:
    return margin_of_weighted_sum(noise.weights(), noise.draws, confidence)
