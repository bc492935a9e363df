"""Skellam noise, the difference of two Poisson draws: exact sampling and Rényi accounting.

A sum of independent Skellam draws is again Skellam. So several parties can each draw a share of the
noise in secret. The sum of the shares has the same distribution and privacy cost as one draw of the
total variance (skellam.proof.md; Agarwal, Kairouz, Liu 2021). Certified threshold tables give the
Poisson draws. A Poisson draw of large mean is a sum of draws of smaller means.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final

import numpy as np

from sfumato.dp.accounting.poisson_subsampling import Curve, subsampled_renyi
from sfumato.dp.accounting.renyi import epsilon_at
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.sampling.certified_arithmetic import Interval, ratio
from sfumato.dp.sampling.threshold_table import (
    Distribution,
    Integers,
    Table,
    draw_from,
    in_chunks,
    table_of,
)

MAX_VARIANCE: Final = Fraction(1 << 26)  # above it a draw would be a sum of too many draws
MAX_MEAN: Final = 1 << 14  # largest Poisson mean of one table
MIN_ORDER: Final = 2
NO_SUBSAMPLING: Final = Fraction(1)  # sampling probability without subsampling
_MARGIN: Final = Decimal("1e-9")


def sample(variance: Fraction, count: int, dice: RandomSource) -> Integers:
    """Draw `count` independent numbers of centred Skellam noise with this variance."""
    check_variance(variance)
    mean = variance / 2
    return in_chunks(lambda size: poisson(mean, size, dice) - poisson(mean, size, dice), count)


def check_variance(variance: Fraction) -> None:
    """Raise an error if Skellam noise of this variance cannot be sampled exactly."""
    if variance <= 0:
        raise Bug("noise must have a variance above zero")
    if variance > MAX_VARIANCE:
        raise Refused(
            "noise-out-of-range",
            "The noise would be wider than can be drawn exactly.",
            "Ask with a larger epsilon, a smaller clip or a coarser step.",
        )


def poisson(mean: Fraction, count: int, dice: RandomSource) -> Integers:
    """Draw `count` independent Poisson numbers of this mean.

    A number of large mean is a sum of several draws of smaller means.
    """
    parts = max(1, math.ceil(mean / MAX_MEAN))
    table = _poisson_table(mean / parts)
    total = np.zeros(count, dtype=np.int64)
    for _ in range(parts):  # one part at a time; all parts at once would need gigabytes
        total += draw_from(table, count, dice)
    return total


@lru_cache(maxsize=16)
def _poisson_table(mean: Fraction) -> Table:
    return table_of(poisson_distribution(mean))


def poisson_distribution(mean: Fraction) -> Distribution:
    """Return the cumulative distribution P(X <= k) of a Poisson draw, for the sampling table."""
    return lambda bits: _thresholds(mean, bits)


def _thresholds(mean: Fraction, bits: int) -> Iterator[Interval]:
    """Yield bounds of P(X <= k) of a Poisson draw X for k = 0, 1, ..., for ever.

    They are the thresholds of the sampling table, in units of 2**-bits. Weights are relative to the
    weight of the most likely k, so that they fit at any precision. Weights that vanish at this
    precision still have bounds: by their number for small k, and by a geometric series for large k.
    """
    below, rest_below, above, rest_above = _weights(mean, bits)
    weights = [*reversed(below), *above]
    skipped = int(mean) - len(below) + 1  # the number of small k whose weights vanish
    whole = (
        sum(low for low, _ in weights),
        sum(high for _, high in weights) + rest_below + rest_above,
    )
    for _ in range(skipped):
        yield 0, ratio((0, rest_below), whole, bits)[1]
    low, high = 0, rest_below
    for weight in weights:
        low, high = low + weight[0], high + weight[1]
        yield _below_one(ratio((low, high), whole, bits), bits)
    while True:
        yield _below_one(ratio((low, whole[1]), whole, bits), bits)


def _weights(mean: Fraction, bits: int) -> tuple[list[Interval], int, list[Interval], int]:
    """Return bounds of the Poisson weights mean**k / k!, relative to the weight of k = int(mean).

    The result has four items. The first two are the weights for k <= int(mean), and a bound of the
    omitted smaller k. The others are the weights for k > int(mean), and a bound of the omitted
    larger k.
    """
    middle = int(mean)
    below = [(1 << bits, 1 << bits)]
    for k in range(middle, 0, -1):
        weight = _times(below[-1], k * mean.denominator, mean.numerator)
        if weight[0] == 0:
            break
        below.append(weight)
    left_out = middle + 1 - len(below)
    rest_below = left_out * below[-1][1]  # each omitted weight is at most the last one
    above, last, k = [], below[0], middle
    while last[0] > 0:
        k += 1
        last = _times(last, mean.numerator, k * mean.denominator)
        above.append(last)
    # each further weight is at most mean / (k + 1) < 1 of the one before it
    rest_above = -(-last[1] * mean.numerator // ((k + 1) * mean.denominator - mean.numerator))
    return below, rest_below, above, rest_above


def _times(weight: Interval, above: int, below: int) -> Interval:
    return weight[0] * above // below, -(-weight[1] * above // below)


def _below_one(bounds: Interval, bits: int) -> Interval:
    return bounds[0], min(bounds[1], 1 << bits)


@lru_cache(maxsize=4096)
def renyi(order: int, l1: int, l2_squared: int, variance: Fraction) -> Fraction:
    """Return a bound of the Rényi divergence of an integer vector released with Skellam noise.

    `order` is the Rényi order. Neighbouring data sets give vectors that differ by at most the norms
    `l1` and `l2_squared`. Each coordinate has noise of at least `variance`.
    """
    if order < MIN_ORDER or l1 < 0 or l2_squared < 0 or variance <= 0:
        raise Bug("the bound holds for whole orders from 2 on")
    narrow = Fraction((2 * order - 1) * l2_squared + 6 * l1) / (4 * variance**2)
    wide = Fraction(3 * l1) / (2 * variance)
    return Fraction(order * l2_squared) / (2 * variance) + min(narrow, wide)


def renyi_curve(
    l1: int, l2_squared: int, variance: Fraction, chance: Fraction = NO_SUBSAMPLING
) -> Curve:
    """Return the Rényi divergence curve of Skellam noise: a bound for each integer order.

    With `chance` below 1, Poisson subsampling takes each person with that probability.
    """
    own = partial(renyi, l1=l1, l2_squared=l2_squared, variance=variance)
    return own if chance == 1 else subsampled_renyi(own, chance)


def epsilon_of(  # noqa: PLR0913, PLR0917  # the price depends on all of these
    l1: int,
    l2_squared: int,
    variance: Fraction,
    delta: Fraction,
    rounds: int = 1,
    chance: Fraction = NO_SUBSAMPLING,
) -> Fraction:
    """Return the epsilon at delta that `rounds` releases with Skellam noise cost, rounded up.

    `chance` is the probability with which Poisson subsampling takes each person.
    """
    curve = renyi_curve(l1, l2_squared, variance, chance)
    return epsilon_at(lambda order: rounds * curve(order), delta)


def variance_for(  # noqa: PLR0913, PLR0917  # as above
    l1: int,
    l2_squared: int,
    epsilon: Fraction,
    delta: Fraction,
    rounds: int = 1,
    chance: Fraction = NO_SUBSAMPLING,
    max_variance: Fraction = MAX_VARIANCE,
) -> Fraction:
    """Return the smallest integer noise variance at which `rounds` releases cost at most epsilon.

    The result is at most `max_variance`, and at most 2**26, above which Skellam noise cannot be
    drawn. The function refuses if no such variance is large enough.
    """
    low, high = 0, int(min(max_variance, MAX_VARIANCE))
    if epsilon_of(l1, l2_squared, Fraction(high), delta, rounds, chance) > epsilon:
        check_variance(MAX_VARIANCE + 1)
    while high - low > 1:
        middle = (low + high) // 2
        is_enough = epsilon_of(l1, l2_squared, Fraction(middle), delta, rounds, chance) <= epsilon
        low, high = (low, middle) if is_enough else (middle, high)
    return Fraction(high)


def share_of(variance: Fraction, floor: int, colluders: int) -> Fraction:
    """Return the noise variance that each site must add, so that the honest sites' noise suffices.

    At least `floor` sites contribute, and at most `colluders` of them add no noise. The noise of
    the others sums to at least the full variance.
    """
    if not 0 <= colluders < floor:
        raise Bug("somebody honest must be left to draw noise")
    return variance / (floor - colluders)


@lru_cache(maxsize=64)
def noise_bound(variance: Fraction, failure: Fraction) -> int:
    """Return a tail bound of Skellam noise: an x with P(|noise| >= x) <= `failure`.

    The Chernoff bound is P(X >= x) <= exp(v (cosh s - 1) - s x) for every s, where v is the
    variance. The best s is asinh(x / v).
    """
    low, high = 0, 1
    while _tail(variance, high) > failure:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _tail(variance, middle) > failure else (low, middle)
    return high


def _tail(variance: Fraction, x: int) -> Fraction:
    """Return an upper bound of the tail probability P(|noise| >= x) of Skellam noise."""
    with localcontext(Context(prec=40)):
        v, far = Decimal(variance.numerator) / Decimal(variance.denominator), Decimal(x)
        root = (v * v + far * far).sqrt()
        exponent = root - v - far * ((far + root) / v).ln()
        return Fraction(2 * exponent.exp() * (1 + _MARGIN))
