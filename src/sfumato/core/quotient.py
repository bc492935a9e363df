"""Intervals for a quotient of two sums of noisy numbers, from released values only (rules.md, 4).

Fieller's idea, as in ratio.py: theta is plausible when |T - theta*B| is what its own noise can do.
T and B are weighted sums that may share numbers, so the noise of number p counts with the weight
t_p - theta*b_p. The tail of such a sum is known in closed form for Gaussian and, for a few numbers,
for Laplace noise: of scales s it is the sum over i of s_i^(2n-2) e^(-d/s_i) / prod (s_i^2 - s_j^2).
Scales that nearly tie are moved apart, upwards, which only widens (quotient.proof.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.noise.kind import Noise
from sfumato.core.noise.weighted import within_of

Floats = NDArray[np.float64]
MOST: Final = 4  # noisy numbers that the closed form is taken for
_APART: Final = {1: 0.0, 2: 1e-6, 3: 1e-4, 4: 1e-3}  # how far scales are moved apart, relatively
_LEAST: Final = 1e-9  # a scale below this share of the largest counts as this
_HALVINGS: Final = 34  # to a 10^10th of the first width, outwards


@dataclass(frozen=True)
class Quotient:
    """Two weighted sums of the same noisy numbers, one above the other."""

    top: tuple[float, ...]  # a weight for each number
    bottom: tuple[float, ...]
    noises: tuple[Noise, ...]
    miss: Fraction

    def weights(self, theta: Floats) -> list[Floats]:
        """Return with what weight each number counts in T - theta*B."""
        pairs = zip(self.top, self.bottom, strict=True)
        return [np.asarray(np.abs(t - theta * b)) for t, b in pairs]

    def reach(self, weights: tuple[float, ...], miss: Fraction) -> float:
        """Return how far off a weighted sum may be; a unit of each number is given away."""
        return within_of(weights, self.noises, 1 - miss) + sum(map(abs, weights))


def is_known(bottom: Floats, of: Quotient) -> NDArray[np.bool_]:
    """Say, per cell, whether the divisor can be told from zero."""
    return np.asarray(np.abs(bottom) > of.reach(of.bottom, of.miss / 2))


def quotient_interval(top: Floats, bottom: Floats, of: Quotient) -> tuple[Floats, Floats]:
    """Return, per cell, the plausible quotients; where the divisor may be zero, all numbers are."""
    known, sign = is_known(bottom, of), np.where(bottom < 0, -1.0, 1.0)
    far_top, far_bottom = (of.reach(w, of.miss / 2) for w in (of.top, of.bottom))
    divisor = np.where(known, np.abs(bottom), far_bottom + 1)
    centre = sign * top / divisor
    width = (far_top + np.abs(centre) * far_bottom) / (divisor - far_bottom)
    width = width + 1e-9 * np.abs(centre) + np.finfo(float).tiny
    high = _edge(sign * top, divisor, of, centre, width)
    low = _edge(sign * top, divisor, of, centre, -width)
    return np.where(known, low, -np.inf), np.where(known, high, np.inf)


def _edge(top: Floats, bottom: Floats, of: Quotient, centre: Floats, width: Floats) -> Floats:
    inside, outside = centre, centre + width
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        plausible = _is_plausible(top, bottom, of, middle)
        inside = np.where(plausible, middle, inside)
        outside = np.where(plausible, outside, middle)
    return outside


def _is_plausible(top: Floats, bottom: Floats, of: Quotient, theta: Floats) -> NDArray[np.bool_]:
    weights = of.weights(theta)
    distance = np.maximum(np.abs(top - theta * bottom) - np.sum(weights, axis=0), 0.0)
    scales = [w * noise.width() for w, noise in zip(weights, of.noises, strict=True)]
    if of.noises[0].kind == "gaussian":
        sigma = np.sqrt(np.sum(np.square(scales), axis=0))
        return np.asarray(distance <= NormalDist().inv_cdf(float(1 - of.miss / 2)) * sigma)
    return np.asarray(laplace_tail(distance, scales) >= float(of.miss))


def laplace_tail(distance: Floats, scales: Sequence[Floats]) -> Floats:
    """Return P(|X1 + ... + Xn| > d) or a little more, for independent Laplace noise."""
    count = len(scales)
    largest = np.maximum(np.max(scales, axis=0), np.finfo(float).tiny)
    apart = _moved_apart([np.maximum(s / largest, _LEAST) for s in scales], _APART[count])
    total = np.zeros(distance.shape)
    for place, scale in enumerate(apart):
        others = [scale**2 - other**2 for p, other in enumerate(apart) if p != place]
        share = scale ** (2 * count - 2) / np.prod(others, axis=0) if others else 1.0
        total = total + share * np.exp(-(distance / largest) / scale)
    return np.asarray(np.clip(total, 0.0, 1.0))


def _sorted(scales: Sequence[Floats]) -> Sequence[Floats]:
    """Return the scales from the smallest up, cell by cell; two are quicker without sorting."""
    if len(scales) == 2:
        return np.minimum(*scales), np.maximum(*scales)
    return list(np.sort(np.array(scales), axis=0))


def _moved_apart(scales: Sequence[Floats], by: float) -> list[Floats]:
    made: list[Floats] = []
    for scale in _sorted(scales):
        made.append(scale if not made else np.maximum(scale, made[-1] * (1 + by)))
    return made
