"""How far off a weighted sum of independent draws of one kind may be, by the law of the sum itself.

The law is taken on a fine grid and rounded outwards (dp/mechanisms/averaged_noise.proof.md): what a
weighted mean of draws has, and what a sum of released numbers has that have noise of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.mechanisms.noise import Noise

Floats = NDArray[np.float64]
FINE: Final = 1000  # grid cells to a standard deviation
COARSEST: Final = 100  # the same of a sum of very many draws
SEVERAL: Final = 8  # draws up to which the grid stays fine
FAR: Final = 15  # standard deviations that the grid reaches to each side
LEAST: Final = 1e-150  # a deviation below this is none
GIVEN_AWAY: Final = 1e-6  # of the chance to miss: more than floats and a cut grid can lose
LISTED: Final = 1 << 12  # up to this sigma a Gaussian is summed weight by weight


def std_of(weights: Sequence[float], draws: Sequence[Noise]) -> float:
    """Return the standard deviation of the weighted sum of independent draws."""
    return math.hypot(*(w * draw.std() for w, draw in zip(weights, draws, strict=True)))


@lru_cache(maxsize=1024)
def within_of(weights: tuple[float, ...], draws: tuple[Noise, ...], confidence: Fraction) -> float:
    """Return a t with |weighted sum| <= t at that confidence.

    It is enough: the grid's, and what rounding to the grid may have moved.
    """
    std = std_of(weights, draws)
    if std < LEAST:
        return 0.0
    pairs = [(abs(w), d) for w, d in zip(weights, draws, strict=True) if w * d.std()]
    cell = std / max(FINE * min(len(pairs), SEVERAL) // len(pairs), COARSEST)
    law = _convolved([_on_grid(w, d, cell, std) for w, d in pairs])
    middle = len(law) // 2
    inside = law[middle] + np.cumsum(
        np.concatenate([[0.0], law[middle + 1 :] + law[:middle][::-1]])
    )
    enough = np.flatnonzero(inside >= float(confidence) + GIVEN_AWAY)
    if not enough.size:  # so rare a miss lies beyond the grid: each draw has its part of it
        each = 1 - (1 - confidence) / len(pairs)
        return math.fsum(w * draw.within(each) for w, draw in pairs)
    return float((enough[0] + len(pairs) / 2) * cell)


def _on_grid(weight: float, draw: Noise, cell: float, std: float) -> Floats:
    """Return the chances that the weighted draw is nearest to each point of the grid."""
    far = round(FAR * std / cell)
    edges = (np.arange(-far, far + 2) - 0.5) * cell / weight
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
