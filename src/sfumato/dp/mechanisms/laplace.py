"""The discrete Laplace mechanism, sampled exactly: P(k) = (1-a)/(1+a) a**|k|, a = exp(-1/scale).

The scale is sensitivity / epsilon, an exact fraction. An integer with that sensitivity plus this
noise is an epsilon-DP release (laplace.proof.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from sfumato.dp.ports import RandomSource
from sfumato.dp.sampling.certified_arithmetic import (
    Interval,
    exp_minus,
    is_at_most,
    one_minus,
    ratio,
)
from sfumato.dp.sampling.geometric import bits_below, check_scale, draw_geometric, falling
from sfumato.dp.sampling.threshold_table import (
    Distribution,
    Integers,
    Table,
    draw_from,
    in_chunks,
    signed,
    signs,
    table_of,
)


def scale_for(sensitivity: int, epsilon: Fraction) -> Fraction:
    """Return the exact scale at which the mechanism is epsilon-DP: sensitivity / epsilon."""
    return Fraction(sensitivity) / epsilon


def sample(scale: Fraction, count: int, dice: RandomSource) -> Integers:
    """Draw `count` independent discrete Laplace numbers of this scale, exactly."""
    check_scale(scale)
    draw = _draw_wide if bits_below(scale) else _draw_narrow
    return in_chunks(lambda size: draw(scale, size, dice), count)


def _draw_narrow(scale: Fraction, count: int, dice: RandomSource) -> Integers:
    """Draw numbers at a small scale: a magnitude from one table, then a random sign.

    The sign has no effect on a magnitude of 0.
    """
    magnitudes = draw_from(_magnitude_table(scale), count, dice)
    return signed(magnitudes, signs(count, dice))


def _draw_wide(scale: Fraction, count: int, dice: RandomSource) -> Integers:
    """Draw numbers at a large scale: 0 with its probability, else plus or minus (1 + geometric)."""
    is_other = draw_from(_zero_table(scale), count, dice)
    magnitudes = (draw_geometric(scale, count, dice) + 1) * is_other
    return signed(magnitudes, signs(count, dice))


@lru_cache(maxsize=64)
def _magnitude_table(scale: Fraction) -> Table:
    return table_of(magnitude_law(scale))


@lru_cache(maxsize=64)
def _zero_table(scale: Fraction) -> Table:
    return table_of(zero_law(scale))


def magnitude_law(scale: Fraction) -> Distribution:
    """Return the cumulative distribution of the magnitude: P(|X| <= k) = 1 - 2 a**(k+1) / (1+a).

    Here X is discrete Laplace noise, and a = exp(-1/scale).
    """

    def law(bits: int) -> Iterator[Interval]:
        start = _tail_bounds(scale, 0, bits)
        return falling(start, exp_minus(1 / scale, bits), bits)

    return law


def zero_law(scale: Fraction) -> Distribution:
    """Return the distribution of one yes-no draw: whether a Laplace draw X is 0.

    P(X = 0) = (1-a)/(1+a). Here X is discrete Laplace noise, and a = exp(-1/scale). For large
    scales, X is drawn in two steps, of which this is the first.
    """

    def law(bits: int) -> Iterator[Interval]:
        yield one_minus(_tail_bounds(scale, 0, bits), bits)

    return law


def _tail_bounds(scale: Fraction, t: int, bits: int) -> Interval:
    """Return certified bounds of the probability of noise above t in size, P(|X| > t).

    They are in units of 2**-bits. The exact probability is 2 a**(t+1) / (1+a). Here X is discrete
    Laplace noise, and a = exp(-1/scale).
    """
    a = exp_minus(1 / scale, bits)
    power = exp_minus((t + 1) / scale, bits)
    one = 1 << bits
    return ratio((2 * power[0], 2 * power[1]), (one + a[0], one + a[1]), bits)


def tail(scale: Fraction, t: int) -> Fraction:
    """Return the tail probability P(|X| > t) of discrete Laplace noise X, rounded up.

    The error is less than one part in 2**64. For extreme t, the error is larger.
    """
    if t < 0:
        return Fraction(1)
    magnitude = min(1 << 12, 2 * math.ceil((t + 1) / scale))  # exp(-x) > 2**(-2x)
    bits = 96 + magnitude
    return Fraction(_tail_bounds(scale, t, bits)[1], 1 << bits)


def std(scale: Fraction) -> float:
    """Return the standard deviation of discrete Laplace noise, as a float for display."""
    half_step = float(1 / (2 * scale))
    if half_step > 700:
        return 0.0
    return 1 / (math.sqrt(2) * math.sinh(half_step))


def interval(scale: Fraction, confidence: Fraction) -> int:
    """Return the least t with P(|X| <= t) >= confidence: the half-width of the interval."""
    miss = 1 - confidence
    a = math.exp(-float(1 / scale))
    guess = float(scale) * math.log(2 / (float(miss) * (1 + a)))
    t = max(0, round(guess) - 1)
    while not _is_tail_within(scale, t, miss):
        t += 1
    while t > 0 and _is_tail_within(scale, t - 1, miss):
        t -= 1
    return t


def _is_tail_within(scale: Fraction, t: int, miss: Fraction) -> bool:
    return is_at_most(lambda bits: _tail_bounds(scale, t, bits), miss)
