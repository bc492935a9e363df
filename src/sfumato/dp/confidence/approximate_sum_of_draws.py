"""How far off the sum of several independent draws of one noise may be; for people to read."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.mechanisms.noise import CONFIDENCE, Noise

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
