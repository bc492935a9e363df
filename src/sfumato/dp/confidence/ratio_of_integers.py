"""Confidence intervals for a ratio of two noisy integers, from released values only.

The method is Fieller's. A ratio theta is plausible if the noise X - theta*Y can explain |S -
theta*N|. Here S and N are the noisy numerator and denominator, and X and Y their noises. The tail
of X - theta*Y has a closed form for Laplace and for Gaussian noise. Each discrete noise differs
from the continuous one by less than one unit, so the code widens the interval by that.
tests/dp/confidence/test_ratio_of_integers.py checks the coverage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MISS: Final = 0.05  # for intervals at 95 % confidence
_MANY_STEPS: Final = (2, 60)  # search: pieces per step, number of steps; 2**60 exhausts a float
_FEW_STEPS: Final = (32, 12)  # the same for few groups: numpy's call overhead dominates
_FEW_CELLS: Final = 64


@dataclass(frozen=True)
class Spread:
    """The noise widths of a ratio's numerator and denominator: Laplace scales or Gaussian sigmas.

    The two noises are independent.
    """

    kind: Literal["laplace", "gaussian"]
    top: float
    bottom: float
    miss: float = MISS

    def noise_bound(self, scale: float, miss: float) -> float:
        """Return a bound that noise of this scale exceeds with probability at most `miss`."""
        if self.kind == "laplace":
            return scale * math.log(1 / miss) + 1
        return scale * math.sqrt(2 * math.log(2 / miss)) + 1


def ratio_interval(
    top: Floats, bottom: Floats, spread: Spread, *, lower: float, upper: float
) -> tuple[Floats, Floats]:
    """Return the confidence interval of the ratio in each group, limited to the public range.

    The confidence is 95 % unless `spread.miss` is smaller. If the denominator may be zero, the
    interval is the whole range.
    """
    far_top = spread.noise_bound(spread.top, spread.miss / 2)
    far_bottom = spread.noise_bound(spread.bottom, spread.miss / 2)
    known = bottom > far_bottom
    divisor = np.where(known, bottom, far_bottom + 1)
    centre = top / divisor
    width = (far_top + np.abs(centre) * far_bottom) / (divisor - far_bottom) + 1
    low, high = _edges(top, divisor, spread, centre, np.stack([-width, width]))
    low = np.where(known, np.clip(low, lower, upper), lower)
    high = np.where(known, np.clip(high, lower, upper), upper)
    return low, high


def _edges(top: Floats, bottom: Floats, spread: Spread, centre: Floats, width: Floats) -> Floats:
    """Return the ends of the interval of plausible ratios: those that the noise can explain.

    `width` says how far to search from `centre` on either side; negative for the lower end. The
    search ends on the outer side, so the interval is never too narrow.
    """
    outside = centre + width
    inside = np.broadcast_to(centre, outside.shape)
    pieces, times = _FEW_STEPS if centre.size <= _FEW_CELLS else _MANY_STEPS
    places = np.arange(1.0, pieces).reshape(-1, *(1 for _ in outside.shape))
    for _ in range(times):
        far = outside - inside
        plausible = _is_plausible(top, bottom, spread, inside + far * (places / pieces))
        last = np.where(plausible, places, 0.0).max(axis=0)  # the outermost plausible one, or 0
        next_out = inside + far * ((last + 1) / pieces)
        outside = np.where(last == pieces - 1, outside, next_out)
        inside = inside + far * (last / pieces)
    return outside


def _is_plausible(top: Floats, bottom: Floats, spread: Spread, theta: Floats) -> NDArray[np.bool_]:
    distance = np.maximum(np.abs(top - theta * bottom) - 1 - np.abs(theta), 0)
    second = np.abs(theta) * spread.bottom
    if spread.kind == "gaussian":
        return np.asarray(distance <= _normal(spread.miss) * np.hypot(spread.top, second))
    return np.asarray(_laplace_tail(distance, spread.top, second) >= spread.miss)


@lru_cache(maxsize=64)
def _normal(miss: float) -> float:
    return NormalDist().inv_cdf(1 - miss / 2)


def _laplace_tail(distance: Floats, first: float, second: Floats) -> Floats:
    """Return P(|X + Y| > distance) for independent Laplace noises X and Y of these scales."""
    near = np.abs(second - first) < 1e-6 * first
    second = np.where(near, first * (1 + 2e-6), np.maximum(second, first * 1e-9))
    top = first**2 * np.exp(-distance / first) - second**2 * np.exp(-distance / second)
    return np.asarray(top / (first**2 - second**2))
