"""Confidence margins for a weighted sum of independent draws of one kind of noise.

The code computes the distribution of the sum on a fine grid, and rounds it outwards
(dp/mechanisms/averaged_noise.proof.md). It serves weighted means of draws, and sums of released
numbers whose noises differ.
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
FINE: Final = 1000  # grid cells per standard deviation
COARSEST: Final = 100  # grid cells per standard deviation for a sum of very many draws
FEW_DRAWS: Final = 8  # up to this many draws the grid has FINE cells
GRID_STDS: Final = 15  # standard deviations from the centre of the grid to each end
MIN_STD: Final = 1e-150  # a standard deviation below this counts as zero
CONFIDENCE_SLACK: Final = (
    1e-6  # added to the confidence; more than floats and a finite grid can lose
)
LISTED: Final = 1 << 12  # up to this sigma the Gaussian weights are summed one by one


def std_of_weighted_sum(weights: Sequence[float], draws: Sequence[Noise]) -> float:
    """Return the standard deviation of a weighted sum of independent noise draws."""
    return math.hypot(*(w * draw.std() for w, draw in zip(weights, draws, strict=True)))


@lru_cache(maxsize=1024)
def margin_of_weighted_sum(
    weights: tuple[float, ...], draws: tuple[Noise, ...], confidence: Fraction
) -> float:
    """Return a t with |weighted sum of noise draws| <= t at the given confidence.

    The t on the grid is increased by the largest error of rounding to the grid.
    """
    std = std_of_weighted_sum(weights, draws)
    if std < MIN_STD:
        return 0.0
    pairs = [(abs(w), d) for w, d in zip(weights, draws, strict=True) if w * d.std()]
    cell = std / max(FINE * min(len(pairs), FEW_DRAWS) // len(pairs), COARSEST)
    law = _convolved([_on_grid(w, d, cell, std) for w, d in pairs])
    middle = len(law) // 2
    inside = law[middle] + np.cumsum(
        np.concatenate([[0.0], law[middle + 1 :] + law[:middle][::-1]])
    )
    enough = np.flatnonzero(inside >= float(confidence) + CONFIDENCE_SLACK)
    if not enough.size:  # the confidence is too high for the grid: use a union bound over the draws
        each = 1 - (1 - confidence) / len(pairs)
        return math.fsum(w * draw.within(each) for w, draw in pairs)
    return float((enough[0] + len(pairs) / 2) * cell)


def _on_grid(weight: float, draw: Noise, cell: float, std: float) -> Floats:
    """Return the distribution of weight * draw, rounded to a grid with steps of `cell`.

    The grid ends at a fixed number of standard deviations `std` on each side of 0.
    """
    far = round(GRID_STDS * std / cell)
    edges = (np.arange(-far, far + 2) - 0.5) * cell / weight
    return np.diff(_below(draw, np.floor(edges)))


def _below(draw: Noise, places: Floats) -> Floats:
    """Return P(X <= k) of one noise draw X, for each integer k in `places` (floats)."""
    if draw.kind == "laplace":
        return _laplace_below(float(draw.parameter), places)
    sigma = draw.width()
    # discrete and continuous Gaussian differ by less than one part in 12 sigma^2
    if sigma > LISTED:
        return np.array([math.erfc(-(k + 0.5) / (sigma * math.sqrt(2))) / 2 for k in places])
    far = math.ceil(40 * sigma) + 1
    weights = np.exp(-(np.arange(-far, far + 1) ** 2) / (2 * float(draw.parameter)))
    sums = np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum()
    return np.asarray(sums[np.clip(places + far + 1, 0, 2 * far + 1).astype(np.int64)])


def _laplace_below(scale: float, places: Floats) -> Floats:
    """Return P(X <= k) of discrete Laplace noise X, for each integer k in `places` (floats).

    It is 1 - a^(k+1)/(1+a) for k >= 0, and a^-k/(1+a) for k < 0, with a = exp(-1/scale).
    """
    above = np.exp(-(np.abs(places) + (places >= 0)) / scale) / (1 + math.exp(-1 / scale))
    return np.asarray(np.where(places >= 0, 1 - above, above))


def _convolved(laws: Sequence[Floats]) -> Floats:
    """Return the distribution of a sum of independent numbers, by FFT, on the grid of each.

    Probability outside the grid is dropped.
    """
    size = len(laws[0])
    length = 1 << (len(laws) * size).bit_length()
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    for law in laws:
        spectrum = spectrum * np.fft.rfft(law, length)
    whole = np.fft.irfft(spectrum, length)
    start = (len(laws) - 1) * (size // 2)
    return np.asarray(np.maximum(whole[start : start + size], 0.0))
