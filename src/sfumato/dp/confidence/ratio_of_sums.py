"""Confidence intervals for ratios of two noisy sums, from released values (soundness rule 4).

The method is Fieller's, as in ratio_of_integers.py. A ratio theta is plausible if noise can explain
|T - theta*B|. T and B are weighted sums that may share noisy numbers, so the noise of number p has
the weight t_p - theta*b_p. The tail of such a sum has a closed form for Gaussian noise and, for a
few numbers, for Laplace noise. For scales s it is the sum over i of s_i^(2n-2) e^(-d/s_i) / prod
(s_i^2 - s_j^2). The code increases nearly equal scales until they differ, which can only widen the
interval (ratio_of_sums.proof.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.confidence.weighted_sum_of_draws import margin_of_weighted_sum
from sfumato.dp.mechanisms.noise import Noise

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
MAX_NUMBERS: Final = 4  # most noisy numbers of a ratio for which the closed form is used
MAX_NOISES: Final = 8  # most noises of a sum for which the closed form is accurate enough
# Smallest relative difference between two scales, by the number of scales.
_MIN_DIFFERENCE: Final = (0.0, 0.0, 1e-6, 1e-4, 1e-3, 3e-3, 6e-3, 1e-2, 1.5e-2)
_MIN_SCALE: Final = 1e-9  # smaller scales, relative to the largest, are raised to this
_DOUBLINGS: Final = 40  # of the first width, until a ratio is not plausible
_HALVINGS: Final = 34  # bisection steps: to 1e-10 of the last width, rounded outwards


@dataclass(frozen=True)
class Quotient:
    """A ratio of two weighted sums of the same noisy numbers, with the noise of each number."""

    top: tuple[float, ...]  # one weight for each number
    bottom: tuple[float, ...]
    noises: tuple[Noise, ...]
    miss: Fraction

    def weights(self, theta: Floats) -> list[Floats]:
        """Return the weight of each noisy number in T - theta*B, without sign.

        T is the numerator of the ratio, B the denominator, and theta a possible ratio. Noise that
        explains T - theta*B makes theta plausible.
        """
        pairs = zip(self.top, self.bottom, strict=True)
        return [np.asarray(np.abs(t - theta * b)) for t, b in pairs]

    def margin(self, weights: tuple[float, ...], miss: Fraction) -> float:
        """Return the error that a weighted sum of the numbers exceeds with probability <= `miss`.

        The result includes one unit for each number, because the noise is discrete.
        """
        return margin_of_weighted_sum(weights, self.noises, 1 - miss) + sum(map(abs, weights))


@dataclass(frozen=True)
class Plausible:
    """The plausible ratios in each group: between two ends, or on two rays away from zero.

    If the denominator is surely not zero, the plausible ratios are those from `low` to `high`.
    Otherwise all ratios up to `below`, and all from `above` on, are plausible.
    """

    has_ends: NDArray[np.bool_]
    low: Floats
    high: Floats
    below: Floats
    above: Floats

    def within(self, lower: float, upper: float) -> tuple[Floats, Floats]:
        """Return the ends of the smallest interval with all plausible ratios in public bounds.

        `lower` and `upper` are these bounds.
        """
        left, right = self.below >= lower, self.above <= upper
        either = left | right
        low = np.where(left | ~either, lower, np.maximum(self.above, lower))
        high = np.where(right | ~either, upper, np.minimum(self.below, upper))
        return (
            np.where(self.has_ends, np.clip(self.low, lower, upper), low),
            np.where(self.has_ends, np.clip(self.high, lower, upper), high),
        )


def is_known(bottom: Floats, of: Quotient) -> NDArray[np.bool_]:
    """Return a mask of the groups whose denominator is surely not zero, so that a ratio exists.

    It surely is not zero if noise alone cannot explain a denominator this large.
    """
    weights = [np.full(bottom.shape, abs(weight)) for weight in of.bottom]
    return ~is_within(np.abs(bottom), weights, of.noises, of.miss)


def plausible(top: Floats, bottom: Floats, of: Quotient) -> Plausible:
    """Return the plausible ratios in each group: those that noise can explain (Fieller's method).

    They miss the true ratio with probability at most `of.miss`.
    """
    known, sign = is_known(bottom, of), np.where(bottom < 0, -1.0, 1.0)
    far_top, far_bottom = (of.margin(w, of.miss / 2) for w in (of.top, of.bottom))
    divisor = np.where(known, np.abs(bottom), far_bottom + 1)
    centre = sign * top / divisor
    width = (far_top + np.abs(centre) * far_bottom) / divisor
    width = width + 1e-9 * np.abs(centre) + np.finfo(float).tiny

    def is_plausible(theta: Floats) -> Mask:
        distance = np.abs(sign * top - theta * divisor)
        return is_within(distance, of.weights(theta), of.noises, of.miss)

    high = edge(is_plausible, centre, width)
    low = edge(is_plausible, centre, -width)
    known = known & np.isfinite(low) & np.isfinite(high)
    return Plausible(known, low, high, *_rays(top, bottom, far_top, far_bottom))


def _rays(top: Floats, bottom: Floats, far_top: float, far_bottom: float) -> tuple[Floats, Floats]:
    """Return the largest negative and the smallest positive plausible ratio of each group.

    They are the ends of two rays of plausible ratios, if the denominator may be zero. A ratio theta
    of numerator T and denominator B is plausible only if |T - theta*B| <= far_top + |theta|
    far_bottom. `far_top` and `far_bottom` bound the noise of T and of B.
    """
    excess = np.maximum(np.abs(top) - far_top, 0.0)
    along = np.where(top < 0, -bottom, bottom)  # of quotients above zero
    up, down = far_bottom + along, far_bottom - along
    above = np.where(up > 0, excess / np.where(up > 0, up, 1.0), np.inf)
    below = np.where(down > 0, -excess / np.where(down > 0, down, 1.0), -np.inf)
    return below, above


def edge(is_plausible: Callable[[Floats], Mask], centre: Floats, width: Floats) -> Floats:
    """Find the end of each group's interval of plausible numbers, on one side of the centre.

    The end is infinite if no implausible number is found.

    Args:
        is_plausible: Tests one number for each group. The plausible numbers form an interval.
        centre: A plausible number for each group.
        width: Approximate distance from centre to edge; negative for the left edge.
    """
    inside, outside = centre, centre + width
    for _ in range(_DOUBLINGS):
        reaches = is_plausible(outside)
        if not reaches.any():
            break
        inside = np.where(reaches, outside, inside)
        outside = np.where(reaches, centre + 2 * (outside - centre), outside)
    lost = is_plausible(outside)
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        reaches = is_plausible(middle)
        inside = np.where(reaches, middle, inside)
        outside = np.where(reaches, outside, middle)
    return np.where(lost, np.copysign(np.inf, width), outside)


def is_within(
    distance: Floats, weights: Sequence[Floats], noises: Sequence[Noise], miss: Fraction
) -> Mask:
    """Return whether noise with these weights can explain the distance, in each group.

    It can if the noise exceeds the distance with probability `miss` or more.
    """
    distance = np.maximum(distance - np.sum(weights, axis=0), 0.0)
    scales = [w * noise.width() for w, noise in zip(weights, noises, strict=True)]
    if noises[0].kind == "gaussian":
        sigma = np.sqrt(np.sum(np.square(scales), axis=0))
        return np.asarray(distance <= NormalDist().inv_cdf(float(1 - miss / 2)) * sigma)
    return np.asarray(laplace_tail(distance, scales) >= float(miss))


def laplace_tail(distance: Floats, scales: Sequence[Floats]) -> Floats:
    """Return P(|X1 + ... + Xn| > distance) for independent Laplace noises, or slightly more."""
    count = len(scales)
    largest = np.maximum(np.max(scales, axis=0), np.finfo(float).tiny)
    apart = _separated(
        [np.maximum(s / largest, _MIN_SCALE) for s in scales], _MIN_DIFFERENCE[count]
    )
    total = np.zeros(distance.shape)
    for place, scale in enumerate(apart):
        others = [scale**2 - other**2 for p, other in enumerate(apart) if p != place]
        share = scale ** (2 * count - 2) / np.prod(others, axis=0) if others else 1.0
        total = total + share * np.exp(-(distance / largest) / scale)
    return np.asarray(np.clip(total, 0.0, 1.0))


def _sorted(scales: Sequence[Floats]) -> Sequence[Floats]:
    """Sort the noise scales of each group in rising order, faster if there are only two."""
    if len(scales) == 2:
        return np.minimum(*scales), np.maximum(*scales)
    return list(np.sort(np.array(scales), axis=0))


def _separated(scales: Sequence[Floats], by: float) -> list[Floats]:
    made: list[Floats] = []
    for scale in _sorted(scales):
        made.append(scale if not made else np.maximum(scale, made[-1] * (1 + by)))
    return made
