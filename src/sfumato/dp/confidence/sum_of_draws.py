"""Confidence margins for the sum of many numbers with independent noise of one distribution.

The code computes the distribution of the sum from its characteristic function, which has a closed
form (sum_of_draws.proof.md). Rounding errors do not accumulate with the number of draws, so the
margin stays tight for thousands of draws.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.confidence.weighted_sum_of_draws import (
    CONFIDENCE_SLACK,
    FEW_DRAWS,
    margin_of_weighted_sum,
)
from sfumato.dp.mechanisms.averaged_noise import AveragedNoise
from sfumato.dp.mechanisms.noise import CONFIDENCE, Noise
from sfumato.dp.refusal import Bug

# --- Margins of a running count: the sum of several draws of one noise, by FFT; for display


SIZE: Final = 1 << 16  # points of the FFT grid
FINEST: Final = 2048.0  # largest std of the sum in grid points: 16 stds fit on each side
ONE_BY_ONE: Final = 64  # counts up to this have a margin each; larger ones are rounded up
SLACK: Final = 1e-9  # bound of the error of floats and of the truncated tails


def margin_95_of_sum(noise: Noise, count: int) -> int:
    """Return a half-width of the 95 % interval for the sum of `count` draws of one noise.

    It is in grid steps, and the smallest possible, or up to 2 % more for many draws or wide noise.
    A larger count never has a smaller margin, so the code rounds large counts up. An answer with
    ten thousand periods then needs few FFTs.
    """
    return math.ceil(noise.margin()) if count == 1 else _margin(noise, _rounded_up(count))


def _rounded_up(count: int) -> int:
    """Round up a large count of draws, so that many counts share one cached margin.

    A count above 64 keeps six significant binary digits. The margin grows with the count, so a
    margin for more draws is safe.
    """
    grid = 1 if count <= ONE_BY_ONE else 1 << (count.bit_length() - 6)
    return -(-count // grid) * grid


@lru_cache(maxsize=4096)
def _margin(noise: Noise, count: int) -> int:
    """Return the 95 % margin of a sum of draws, from its distribution (computed by FFT).

    Noise that is too wide for the grid uses a coarser unit, and the margin is two units larger.
    """
    deviation = std_of_sum(noise, count)
    unit = 1 << max(0, math.ceil(math.log2(max(deviation, 1.0) / FINEST)))
    law = _folded(_coarser(noise, unit), count)
    within = np.cumsum(law[: SIZE // 2]) * 2 - law[0]
    t = int(np.searchsorted(within, float(CONFIDENCE) + SLACK))
    return t if unit == 1 else (t + 2) * unit


def _coarser(noise: Noise, unit: int) -> Noise:
    power = 1 if noise.kind == "laplace" else 2
    return Noise(noise.kind, noise.parameter / Fraction(unit) ** power)


def _folded(noise: Noise, count: int) -> NDArray[np.float64]:
    """Return the probability of each value of the sum of `count` draws, in the order of an FFT.

    The order of the values is 0, 1, 2, ..., then ..., -2, -1.
    """
    return np.asarray(np.fft.irfft(_transformed(noise) ** count, SIZE))


@lru_cache(maxsize=8)
def _transformed(noise: Noise) -> NDArray[np.complex128]:
    places = np.minimum(np.arange(SIZE), SIZE - np.arange(SIZE)).astype(np.float64)
    if noise.kind == "laplace":
        weights = np.exp(-places / float(noise.parameter))
    else:
        weights = np.exp(-(places**2) / (2 * float(noise.parameter)))
    return np.asarray(np.fft.rfft(weights / weights.sum()))


# --- Margins of a sum of released numbers, at any confidence, by the characteristic function

Floats = NDArray[np.float64]
POINTS: Final = 1 << 13  # points of the grid
GRID_STDS: Final = 40  # width of the grid in standard deviations of the sum
NARROW: Final = 1.0  # below this sigma, the characteristic function is a sum over the weights


def std_of_sum(noise: Noise, count: int) -> float:
    """Return the standard deviation of the sum of `count` independent draws of one noise."""
    return math.sqrt(count) * noise.std()


@lru_cache(maxsize=1024)
def margin_of_sum(noise: Noise, count: int, confidence: Fraction) -> float:
    """Return a t with |sum of `count` draws of one noise| <= t at the given confidence."""
    if isinstance(noise, AveragedNoise):
        return _of_means(noise, count, confidence)
    if count == 1:
        return noise.within(confidence)
    if count <= FEW_DRAWS:
        return margin_of_weighted_sum((1.0,) * count, (noise,) * count, confidence)
    return _of_many(noise, count, confidence)


def _of_means(noise: AveragedNoise, count: int, confidence: Fraction) -> float:
    """Return the confidence margin of a sum of `count` averaged noises (means of several draws).

    It is a union bound: the weighted sum of the margins for each draw of the mean.
    """
    miss = (1 - confidence) / len(noise.draws)
    pairs = zip(noise.weights(), noise.draws, strict=True)
    return sum(abs(w) * margin_of_sum(draw, count, 1 - miss) for w, draw in pairs)


def _of_many(noise: Noise, count: int, confidence: Fraction) -> float:
    cell = max(1, math.floor(GRID_STDS * std_of_sum(noise, count) / POINTS))
    angles = 2 * math.pi * np.fft.fftfreq(POINTS) / cell
    law = np.maximum(np.fft.ifft(_characteristic(noise, angles) ** count).real, 0.0)
    inside = law[0] + 2 * np.concatenate([[0.0], np.cumsum(law[1 : POINTS // 2])])
    enough = np.flatnonzero(inside >= float(confidence) + CONFIDENCE_SLACK)
    if not enough.size:
        raise Bug("the grid of a sum's noise does not reach that far")
    return float((enough[0] + (cell > 1)) * cell)


def _characteristic(noise: Noise, angles: Floats) -> Floats:
    """Return the characteristic function E cos(uX) of one noise draw X, at each angle |u| <= pi.

    Its power gives the distribution of a sum of draws.
    """
    if noise.kind == "laplace":
        b = 1 / float(noise.parameter)
        wide = 4 * math.exp(-b) / math.expm1(-b) ** 2  # expm1 keeps precision at a large scale
        return np.asarray(1 / (1 + wide * np.sin(angles / 2) ** 2))
    variance = float(noise.parameter)
    if variance < NARROW**2:
        places = np.arange(-40, 41)
        weights = np.exp(-(places**2) / (2 * variance))
        return np.asarray(np.cos(np.outer(angles, places)) @ weights / weights.sum())
    turns = angles / (2 * math.pi)  # Poisson summation: three terms are enough
    waves = [np.exp(-2 * math.pi**2 * variance * (turns + n) ** 2) for n in (-1, 0, 1)]
    whole = 1 + 2 * math.exp(-2 * math.pi**2 * variance)
    return np.asarray(np.sum(waves, axis=0) / whole)
