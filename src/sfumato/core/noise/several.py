"""How far off the sum of several independent draws of one noise may be; for people to read."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.noise.kind import CONFIDENCE, Noise

SIZE: Final = 1 << 17  # places of the law that is folded
FINEST: Final = 4096.0  # the sum's deviation in those places: 16 deviations fit to either side
SLACK: Final = 1e-9  # what floats and the law's cut tails may be off by


def std_of_several(noise: Noise, count: int) -> float:
    """Return the standard deviation of the sum."""
    return noise.std() * math.sqrt(count)


@lru_cache(maxsize=4096)
def margin_of_several(noise: Noise, count: int) -> int:
    """Return a t with |sum| <= t at 95 %: the smallest, or for wide noise 1/4,000 more.

    The law of one draw is folded with itself by Fourier's transform. Noise too wide for that is
    taken on a coarser grid, whose unit is added to the answer.
    """
    if count == 1:
        return noise.margin()
    deviation = std_of_several(noise, count)
    unit = 1 << max(0, math.ceil(math.log2(max(deviation, 1.0) / FINEST)))
    law = _folded(_coarser(noise, unit), count)
    within = np.cumsum(law[: SIZE // 2]) * 2 - law[0]
    t = int(np.searchsorted(within, float(CONFIDENCE) + SLACK))
    return t if unit == 1 else (t + 1) * unit


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
