"""How far off a sum of many released numbers may be that have independent noise of one law.

The law of the sum is had from its characteristic function, which is known in closed form
(sum_of_draws.proof.md); nothing is rounded draw by draw, so it stays sharp for thousands of them.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.confidence.weighted_sum_of_draws import GIVEN_AWAY, SEVERAL, within_of
from sfumato.dp.mechanisms.averaged_noise import AveragedNoise
from sfumato.dp.mechanisms.noise import CONFIDENCE, Noise
from sfumato.dp.refusal import Bug

# --- How far off the sum of several independent draws of one noise may be; for people to read


SIZE: Final = 1 << 16  # places of the law that is folded
FINEST: Final = 2048.0  # the sum's deviation in those places: 16 deviations fit to either side
ONE_BY_ONE: Final = 64  # counts up to this have a margin each
SLACK: Final = 1e-9  # what floats and the law's cut tails may be off by


def std_of_several(noise: Noise, count: int) -> float:
    """Return the standard deviation of the sum."""
    return noise.std() * math.sqrt(count)


def margin_of_several(noise: Noise, count: int) -> int:
    """Return a t with |sum| <= t at 95 %: the smallest, or up to 2 % more of many or wide draws.

    More draws are never closer to zero, so a count may be taken for a larger one; it keeps an
    answer of ten thousand periods from folding as many laws.
    """
    return math.ceil(noise.margin()) if count == 1 else _margin(noise, _rounded_up(count))


def _rounded_up(count: int) -> int:
    """Return the count, or from 64 on the next that has six binary digits and then zeros."""
    grid = 1 if count <= ONE_BY_ONE else 1 << (count.bit_length() - 6)
    return -(-count // grid) * grid


@lru_cache(maxsize=4096)
def _margin(noise: Noise, count: int) -> int:
    """Fold the law of one draw with itself by Fourier's transform, and look where 95 % are.

    Noise too wide for that is taken on a coarser grid, of which two units are added.
    """
    deviation = std_of_several(noise, count)
    unit = 1 << max(0, math.ceil(math.log2(max(deviation, 1.0) / FINEST)))
    law = _folded(_coarser(noise, unit), count)
    within = np.cumsum(law[: SIZE // 2]) * 2 - law[0]
    t = int(np.searchsorted(within, float(CONFIDENCE) + SLACK))
    return t if unit == 1 else (t + 2) * unit


def _coarser(noise: Noise, unit: int) -> Noise:
    power = 1 if noise.kind == "laplace" else 2
    return Noise(noise.kind, noise.parameter / Fraction(unit) ** power)


def _folded(noise: Noise, count: int) -> NDArray[np.float64]:
    """Return the chances of 0, 1, 2, ... for the sum, and of the negative ones from the end."""
    return np.asarray(np.fft.irfft(_transformed(noise) ** count, SIZE))


@lru_cache(maxsize=8)
def _transformed(noise: Noise) -> NDArray[np.complex128]:
    places = np.minimum(np.arange(SIZE), SIZE - np.arange(SIZE)).astype(np.float64)
    if noise.kind == "laplace":
        weights = np.exp(-places / float(noise.parameter))
    else:
        weights = np.exp(-(places**2) / (2 * float(noise.parameter)))
    return np.asarray(np.fft.rfft(weights / weights.sum()))


Floats = NDArray[np.float64]
POINTS: Final = 1 << 13  # of the grid, from one end to the other
REACH: Final = 40  # deviations from one end to the other
NARROW: Final = 1.0  # a sigma below this is summed weight by weight


def std_of_sum(noise: Noise, count: int) -> float:
    """Return the standard deviation of the sum of that many draws."""
    return math.sqrt(count) * noise.std()


@lru_cache(maxsize=1024)
def within_of_sum(noise: Noise, count: int, confidence: Fraction) -> float:
    """Return a t with |sum of that many draws| <= t at that confidence."""
    if isinstance(noise, AveragedNoise):
        return _of_means(noise, count, confidence)
    if count == 1:
        return noise.within(confidence)
    if count <= SEVERAL:
        return within_of((1.0,) * count, (noise,) * count, confidence)
    return _of_many(noise, count, confidence)


def _of_means(noise: AveragedNoise, count: int, confidence: Fraction) -> float:
    """Return the same of means of several draws: each draw's sum misses so many times less."""
    miss = (1 - confidence) / len(noise.draws)
    pairs = zip(noise.weights(), noise.draws, strict=True)
    return sum(abs(w) * within_of_sum(draw, count, 1 - miss) for w, draw in pairs)


def _of_many(noise: Noise, count: int, confidence: Fraction) -> float:
    cell = max(1, math.floor(REACH * std_of_sum(noise, count) / POINTS))
    angles = 2 * math.pi * np.fft.fftfreq(POINTS) / cell
    law = np.maximum(np.fft.ifft(_characteristic(noise, angles) ** count).real, 0.0)
    inside = law[0] + 2 * np.concatenate([[0.0], np.cumsum(law[1 : POINTS // 2])])
    enough = np.flatnonzero(inside >= float(confidence) + GIVEN_AWAY)
    if not enough.size:
        raise Bug("the grid of a sum's noise does not reach that far")
    return float((enough[0] + (cell > 1)) * cell)


def _characteristic(noise: Noise, angles: Floats) -> Floats:
    """Return E cos(uX) of a draw for each u within half a turn."""
    if noise.kind == "laplace":
        b = 1 / float(noise.parameter)
        wide = 4 * math.exp(-b) / math.expm1(-b) ** 2  # nothing is lost where the scale is large
        return np.asarray(1 / (1 + wide * np.sin(angles / 2) ** 2))
    variance = float(noise.parameter)
    if variance < NARROW**2:
        places = np.arange(-40, 41)
        weights = np.exp(-(places**2) / (2 * variance))
        return np.asarray(np.cos(np.outer(angles, places)) @ weights / weights.sum())
    turns = angles / (2 * math.pi)  # by Poisson's summation: a few terms are all there is
    waves = [np.exp(-2 * math.pi**2 * variance * (turns + n) ** 2) for n in (-1, 0, 1)]
    whole = 1 + 2 * math.exp(-2 * math.pi**2 * variance)
    return np.asarray(np.sum(waves, axis=0) / whole)
