"""The noise of a weighted mean of independent draws of one kind: what a topped-up answer has.

The weights are the inverse variances, which makes the mean as precise as independent draws can
be. How far it may be off at 95 % comes from the law of the weighted sum itself, on a fine grid,
rounded outwards (blend.proof.md).
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

from sfumato.core.expression import Json
from sfumato.core.noise.kind import CONFIDENCE, Noise
from sfumato.core.ports import Dice
from sfumato.core.refusal import Bug

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
FINE: Final = 1000  # grid cells to a standard deviation
FAR: Final = 15  # standard deviations that the grid reaches to each side
LEAST: Final = 1e-300  # a variance below this counts as this, so that weights exist
GIVEN_AWAY: Final = 1e-6  # of the chance to miss: more than floats and a cut grid can lose
LISTED: Final = 1 << 12  # up to this sigma a Gaussian is summed weight by weight


@dataclass(frozen=True)
class Blend(Noise):
    """The noise of the inverse-variance mean of several draws; it stands wherever a noise does.

    A subclass, so that every verb reads it like the noise of one draw; it is never drawn itself.
    """

    draws: tuple[Noise, ...] = ()

    def weights(self) -> tuple[float, ...]:
        """Return the share of each draw in the mean."""
        return _weights(self.draws)

    def std(self) -> float:
        """Return the standard deviation of the mean, in steps."""
        pairs = zip(self.weights(), self.draws, strict=True)
        return math.hypot(*(weight * draw.std() for weight, draw in pairs))

    def margin(self) -> float:
        """Return a t with |noise| <= t at 95 %, in steps."""
        return self.within(CONFIDENCE)

    def within(self, confidence: Fraction) -> float:
        """Return a t with |noise| <= t at that confidence, in steps."""
        return _within(self, confidence)

    def width(self) -> float:
        """Return the scale, or sigma, of one draw that is as wide, but for its grid."""
        pairs = zip(self.weights(), self.draws, strict=True)
        return math.hypot(*(weight * draw.width() for weight, draw in pairs))

    def sample(self, count: int, dice: Dice) -> Integers:
        """Raise: what was drawn is drawn; a mean has no noise of its own."""
        raise Bug("the noise of a mean is never drawn")

    def as_json(self) -> Json:
        """Return every draw with its share, as the receipt prints it."""
        pairs = zip(self.weights(), self.draws, strict=True)
        return {
            "kind": " + ".join(str(draw.as_json()["kind"]) for draw in self.draws),
            "draws": [{**draw.as_json(), "std": draw.std(), "weight": w} for w, draw in pairs],
        }


def blend(draws: Sequence[Noise]) -> Noise:
    """Return the noise of the mean of these draws; of one, its own."""
    if len({draw.kind for draw in draws}) != 1:
        raise Bug("a mean is of draws of one kind")
    if len(draws) == 1:
        return draws[0]
    return Blend(draws[0].kind, Fraction(0), tuple(draws))


def mean_of(draws: Sequence[Noise], parts: Sequence[Integers]) -> Floats:
    """Return the weighted mean of what was released of one part, draw by draw.

    The differences are those of the noise alone, so they are small, and exact in integers.
    """
    first, *rest = parts
    moved = np.zeros(first.shape, dtype=np.float64)
    for weight, part in zip(_weights(tuple(draws))[1:], rest, strict=True):
        moved += weight * np.subtract(part, first)
    return first + moved


@lru_cache(maxsize=1024)
def _weights(draws: tuple[Noise, ...]) -> tuple[float, ...]:
    precise = [1 / max(draw.std() ** 2, LEAST) for draw in draws]
    return tuple(one / math.fsum(precise) for one in precise)


@lru_cache(maxsize=1024)
def _within(noise: Blend, confidence: Fraction) -> float:
    """Return a t that is enough: the grid's, and what rounding to the grid may have moved."""
    std = noise.std()
    if std < LEAST**0.5:
        return 0.0
    cell = std / FINE
    law = _convolved(
        [_on_grid(w, d, cell) for w, d in zip(noise.weights(), noise.draws, strict=True)]
    )
    middle = len(law) // 2
    inside = law[middle] + np.cumsum(
        np.concatenate([[0.0], law[middle + 1 :] + law[:middle][::-1]])
    )
    enough = np.flatnonzero(inside >= float(confidence) + GIVEN_AWAY)
    if not enough.size:
        raise Bug("the grid of a mean's noise does not reach that far")
    return float((enough[0] + len(noise.draws) / 2) * cell)


def _on_grid(weight: float, draw: Noise, cell: float) -> Floats:
    """Return the chances that the weighted draw is nearest to each point of the grid."""
    edges = (np.arange(-FAR * FINE, FAR * FINE + 2) - 0.5) * cell / weight
    return np.diff(_below(draw, np.floor(edges)))


def _below(draw: Noise, places: Floats) -> Floats:
    """Return P(X <= k) for whole places k, as floats."""
    if draw.kind == "laplace":
        return _laplace_below(float(draw.parameter), places)
    sigma = draw.width()
    if sigma > LISTED:  # the two laws differ by less than one part in 12 sigma^2
        return np.array([math.erfc(-(k + 0.5) / (sigma * math.sqrt(2))) / 2 for k in places])
    far = math.ceil(40 * sigma) + 1
    weights = np.exp(-(np.arange(-far, far + 1) ** 2) / (2 * float(draw.parameter)))
    sums = np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum()
    return np.asarray(sums[np.clip(places + far + 1, 0, 2 * far + 1).astype(np.int64)])


def _laplace_below(scale: float, places: Floats) -> Floats:
    """Return P(X <= k) = 1 - a^(k+1)/(1+a) from zero on, and a^-k/(1+a) below."""
    above = np.exp(-(np.abs(places) + (places >= 0)) / scale) / (1 + math.exp(-1 / scale))
    return np.asarray(np.where(places >= 0, 1 - above, above))


def _convolved(laws: Sequence[Floats]) -> Floats:
    """Return the law of the sum, on as many cells as each has: what falls outside is missing."""
    size = len(laws[0])
    length = 1 << (len(laws) * size).bit_length()
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    for law in laws:
        spectrum = spectrum * np.fft.rfft(law, length)
    whole = np.fft.irfft(spectrum, length)
    start = (len(laws) - 1) * (size // 2)
    return np.asarray(np.maximum(whole[start : start + size], 0.0))
