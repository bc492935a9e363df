"""The discrete Gaussian mechanism, exact: P(k) proportional to exp(-k**2 / (2 variance)).

For small sigma, the sampler draws from one table of certified thresholds. For large sigma, the
sampler chooses a block of m = 2**low_bits consecutive numbers, then a number in it. The table
covers the weight that all numbers of a block share. Rejection sampling covers the weight above
that, and compares its acceptance probability exactly (gaussian.proof.md). The variance for rho-zCDP
is D2**2 / (2 rho), an exact fraction; D2 is the L2 sensitivity (Canonne, Kamath, Steinke 2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.sampling.certified_arithmetic import (
    Interval,
    Uniform,
    exp_minus,
    is_uniform_below,
    one_minus,
    product,
    ratio,
)
from sfumato.dp.sampling.threshold_table import (
    Distribution,
    Integers,
    Table,
    draw_from,
    draw_from_int16,
    in_chunks,
    signed,
    signs,
    table_of,
)

Whole = NDArray[np.signedinteger[Any]]  # Any: of 16, 32 or 64 bits
MAX_VARIANCE: Final = Fraction(1 << 100)
NARROW: Final = 16  # below this sigma, one table holds the whole distribution
NARROW_BITS: Final = 16  # up to this many low bits, plus 15 of the table, a draw fits in 32 bits
SUMMED: Final = 64  # below this sigma, `interval` sums the probabilities
MANY: Final = 1 << 14  # from this many draws of one variance, a longer table is faster
COIN_BITS: Final = 32
COIN_MARGIN: Final = 2.0**-6  # bound of the error of the float estimate, in units of 2**-32


def variance_for(sensitivity_squared: int, rho: Fraction) -> Fraction:
    """Return the exact variance at which the mechanism is rho-zCDP: sensitivity_squared / (2 rho).

    `sensitivity_squared` is the squared L2 sensitivity.
    """
    return Fraction(sensitivity_squared) / (2 * rho)


def sample(variance: Fraction, count: int, dice: RandomSource) -> Integers:
    """Draw `count` independent discrete Gaussian numbers of this variance, exactly."""
    _check_variance(variance)
    if variance < NARROW**2:
        return in_chunks(lambda size: _draw_narrow(variance, size, dice), count)
    low_bits = bits_below(variance, count)
    return in_chunks(lambda size: _draw_wide(variance, low_bits, size, dice), count)


def _check_variance(variance: Fraction) -> None:
    if variance <= 0:
        raise Bug("noise must have a variance above zero")
    if variance > MAX_VARIANCE:
        raise Refused(
            "noise-out-of-range",
            "The noise would be wider than can be drawn exactly.",
            "Ask with a larger epsilon, narrower bounds or a coarser step.",
        )


def _draw_narrow(variance: Fraction, count: int, dice: RandomSource) -> Integers:
    """Draw numbers at a small sigma: a magnitude from one table, then a random sign.

    The sign has no effect on a magnitude of 0.
    """
    magnitudes = draw_from(_magnitude_table(variance), count, dice)
    return signed(magnitudes, signs(count, dice))


def _draw_wide(variance: Fraction, low_bits: int, count: int, dice: RandomSource) -> Whole:
    """Draw numbers at a large sigma by rejection sampling.

    The code makes a few spare attempts, and repeats if too few are accepted.
    """
    # blocks in one sigma; about one attempt in 2.5 * blocks fails
    blocks = math.isqrt(int(variance)) >> low_bits
    drawn, failed = _attempts(variance, low_bits, count + count // blocks // 2 + 8, dice)
    holes = _filled(drawn, failed, count)
    if holes.size:
        drawn[holes] = _draw_wide(variance, low_bits, holes.size, dice)
    return drawn[:count]


def _filled(drawn: Whole, failed: Integers, count: int) -> Integers:
    """Replace rejected draws among the first `count` by spare accepted draws, in place.

    Return the indices that are still without an accepted draw. `failed` has the indices of the
    rejected draws.
    """
    split = int(np.searchsorted(failed, count))
    holes, spare = failed[:split], np.delete(drawn[count:], failed[split:] - count)
    filled = min(holes.size, spare.size)
    drawn[holes[:filled]] = spare[:filled]
    return holes[filled:]


def _attempts(
    variance: Fraction, low_bits: int, count: int, dice: RandomSource
) -> tuple[Whole, Integers]:
    """Attempt `count` draws at a large sigma; return the numbers, and which of them are rejected.

    The rejected ones are given by their sorted indices. At most 1 attempt in 20 fails. Table
    outcome k > 0 means block k - 1, in which all m numbers are equally likely. Outcome 0 means the
    weight between the blocks and the Gaussian curve. There, `_above` draws the number.
    """
    tops = draw_from_int16(_half_table(variance / (1 << 2 * low_bits)), count, dice)
    words = _words(low_bits, count, dice)
    numbers: Whole = tops.astype(np.int32 if low_bits <= NARROW_BITS else np.int64)
    numbers <<= low_bits
    numbers += words | -(1 << low_bits)  # add the low bits and subtract m: outcome k is block k - 1
    numbers ^= words >> (8 * words.itemsize - 1)  # sign: the first negative block starts at -1
    above = np.flatnonzero(tops == 0)
    numbers[above], kept = _above(variance, low_bits, above.size, dice)
    return numbers, above[~kept]


def _above(
    variance: Fraction, low_bits: int, count: int, dice: RandomSource
) -> tuple[Integers, NDArray[np.bool_]]:
    """Draw numbers from the weight between the flat blocks and the Gaussian curve above them.

    Return the numbers, and a mask of those that rejection sampling accepts.
    """
    blocks = draw_from(_above_table(variance / (1 << 2 * low_bits)), count, dice)
    words: Integers = _words(low_bits, count, dice).astype(np.int64)
    rest, minus = words & ((1 << low_bits) - 1), words >> 63
    numbers: Integers = ((blocks << low_bits) | rest) ^ minus
    return numbers, _coins(_Odds(variance, low_bits), blocks, rest - minus, dice)


def bits_below(variance: Fraction, count: int) -> int:
    """Return how many low bits of a Gaussian draw are sampled apart from the table.

    It is for a sigma from 16 on. Sigma / 2**bits is in [8, 16). From MANY (16,384) draws on, sigma
    / 2**bits is in [32, 64), or the result is 1. The table is then longer, and fewer draws are in
    the weight above the blocks.
    """
    usual = (int(variance).bit_length() - 7) // 2
    return usual if count < MANY else max(1, usual - 2)


def _words(low_bits: int, count: int, dice: RandomSource) -> Whole:
    """Draw random bits for each number: its sign and its `low_bits` low bits, in one word.

    The word has the fewest bytes that hold these bits: 2, 4 or 8.
    """
    size = next(size for size in (2, 4, 8) if low_bits < 8 * size)
    return np.frombuffer(dice.draw(size * count), dtype=f"<i{size}")


@dataclass(frozen=True)
class _Odds:
    """The probability with which rejection sampling accepts a number above a flat block.

    It is (exp(-a) - exp(-b)) / (1 - exp(-b)). Here exp(-a) is the weight of the number, and exp(-b)
    the weight at the end of the block. Both are divided by the weight at the start of the block.
    """

    variance: Fraction
    low_bits: int

    def power(self, block: Integers, rest: Integers | float) -> NDArray[np.float64]:
        """Return a, where exp(-a) is the Gaussian weight of a number relative to its block's start.

        The result is a float. `rest` is how far the number's magnitude is from the start of the
        block. With `rest` equal to the block length, the result is the exponent at the end of the
        block.
        """
        part = rest * 2.0**-self.low_bits  # exact: at most 47 bits
        power = block * 2.0
        power += part
        power *= part
        power *= float((1 << 2 * self.low_bits) / (2 * self.variance))
        return np.asarray(power)

    def estimate(self, block: Integers, rest: Integers) -> NDArray[np.float64]:
        """Estimate 2**32 times the acceptance probability of each number, in float arithmetic.

        The error is less than half of COIN_MARGIN, which is 2**-6.
        """
        ends = -self.power(np.arange(block.max(initial=0) + 1), 2.0**self.low_bits)
        fallen = np.expm1(-self.power(block, rest))
        fallen /= np.expm1(ends)[block]
        return np.asarray((1.0 - fallen) * 2.0**COIN_BITS)

    def bounds(self, block: int, rest: int, bits: int) -> Interval:
        """Return certified bounds of the probability to accept a number, in units of 2**-bits."""
        one, m = 1 << bits, 1 << self.low_bits
        if rest in {0, m}:
            return (one, one) if rest == 0 else (0, 0)
        here, end = self._weight(block, rest, bits), self._weight(block, m, bits)
        over = max(0, here[0] - end[1]), here[1] - end[0]
        return ratio(over, one_minus(end, bits), bits)

    def _weight(self, block: int, rest: int, bits: int) -> Interval:
        power = ((block << (self.low_bits + 1)) + rest) * rest
        return exp_minus(power / (2 * self.variance), bits)


def _coins(odds: _Odds, blocks: Integers, rest: Integers, dice: RandomSource) -> NDArray[np.bool_]:
    """Return a mask of the numbers that rejection sampling accepts, with exact probabilities.

    `rest` is how far each number's magnitude is from the start of its block.
    """
    heads = np.frombuffer(dice.draw(4 * blocks.size), dtype="<u4")
    chances = odds.estimate(blocks, rest)
    kept = np.asarray(heads <= chances - (1 + COIN_MARGIN))
    for place in np.flatnonzero(~kept & (heads < chances + COIN_MARGIN)):
        at = int(blocks[place]), int(rest[place])
        kept[place] = _exact_coin(odds, *at, int(heads[place]), dice)
    return kept


def _exact_coin(odds: _Odds, block: int, rest: int, head: int, dice: RandomSource) -> bool:
    uniform = Uniform(head, COIN_BITS)
    return is_uniform_below(uniform, lambda bits: odds.bounds(block, rest, bits), dice)


@lru_cache(maxsize=64)
def _magnitude_table(variance: Fraction) -> Table:
    return table_of(magnitude_law(variance))


@lru_cache(maxsize=64)
def _half_table(variance: Fraction) -> Table:
    return table_of(half_law(variance))


@lru_cache(maxsize=64)
def _above_table(variance: Fraction) -> Table:
    return table_of(above_law(variance))


def magnitude_law(variance: Fraction) -> Distribution:
    """Return the cumulative distribution P(|X| <= k) of the magnitude of a Gaussian draw X."""
    return lambda bits: _thresholds(variance, 2, bits)


def half_law(variance: Fraction) -> Distribution:
    """Return the cumulative distribution of the half Gaussian, to draw the block of a wide draw.

    The half Gaussian has only the numbers k >= 0, with the weights exp(-k**2 / (2 variance)).
    """
    return lambda bits: _thresholds(variance, 1, bits)


def above_law(variance: Fraction) -> Distribution:
    """Return the cumulative distribution of the block, for numbers from above the flat blocks.

    The flat blocks cover most of the Gaussian curve, and this distribution serves the weight above
    them. Threshold k is 1 - w(k + 1), where w(k) is the Gaussian weight at the start of block k.
    """
    return lambda bits: _falls(variance, bits)


def _falls(variance: Fraction, bits: int) -> Iterator[Interval]:
    """Yield the thresholds of `above_law`: bounds of one minus each Gaussian weight, for ever.

    Threshold k = 0, 1, ... is 1 - exp(-(k + 1)**2 / (2 variance)), in units of 2**-bits.
    """
    weights, _ = _weights(variance, bits)
    for weight in weights[1:]:
        yield one_minus(weight, bits)
    while True:
        yield one_minus((0, weights[-1][1]), bits)


def _thresholds(variance: Fraction, times: int, bits: int) -> Iterator[Interval]:
    """Yield bounds of the cumulative probability P(X <= k) for k = 0, 1, ..., for ever.

    They are the thresholds of the sampling table, in units of 2**-bits. The weight of each k > 0
    counts `times` times: twice for a magnitude, once for the half Gaussian.
    """
    weights, beyond = _weights(variance, bits)
    low = high = 1 << bits
    sums = [(low, high)]
    for weight in weights[1:]:
        low, high = low + times * weight[0], high + times * weight[1]
        sums.append((low, high))
    whole = (low, high + times * beyond)
    for part in sums:
        yield _below_one(ratio(part, whole, bits), bits)
    while True:
        yield _below_one(ratio((low, whole[1]), whole, bits), bits)


def _below_one(bounds: Interval, bits: int) -> Interval:
    return bounds[0], min(bounds[1], 1 << bits)


@lru_cache(maxsize=8)
def _weights(variance: Fraction, bits: int) -> tuple[tuple[Interval, ...], int]:
    """Return bounds of the Gaussian weights exp(-k**2 / (2 variance)), and of the omitted rest.

    The list ends where the lower bound of a weight vanishes at this precision. The ratio of
    successive weights itself falls by exp(-1 / variance) at each step. So a geometric series bounds
    the weights after the last one.
    """
    one = 1 << bits
    weight, factor = (one, one), exp_minus(1 / (2 * variance), bits)
    step = exp_minus(1 / variance, bits)
    weights: list[Interval] = []
    while weight[0] > 0:
        weights.append(weight)
        weight, factor = product(weight, factor, bits), product(factor, step, bits)
    return tuple(weights), -(-weight[1] * one // (one - factor[1]))


def std(variance: Fraction) -> float:
    """Return the standard deviation of discrete Gaussian noise, as a float for display."""
    if variance >= 16:  # here it differs from sqrt(variance) by less than float precision
        return math.sqrt(variance)
    squares = np.arange(200, dtype=np.float64) ** 2
    weights = np.exp(-squares * float(1 / (2 * variance)))
    return math.sqrt(2 * float(weights @ squares) / (2 * float(weights.sum()) - 1))


def interval(variance: Fraction, confidence: Fraction) -> int:
    """Return the half-width of the confidence interval: the least t with P(|X| <= t) >= confidence.

    From sigma 64 on, the result is in rare cases one larger.
    """
    if variance < SUMMED**2:
        return _interval_exact(variance, confidence)
    return _interval_safe(variance, confidence)


def _interval_exact(variance: Fraction, confidence: Fraction) -> int:
    bits = 96
    while True:
        scaled = confidence * (1 << bits)
        for t, (low, high) in enumerate(_thresholds(variance, 2, bits)):
            if low >= scaled:
                return t
            if high > scaled:
                break
        bits *= 2


def _interval_safe(variance: Fraction, confidence: Fraction) -> int:
    """Return a t with P(|X| <= t) >= confidence, for Gaussian noise X, from bounds of its tail.

    The bounds are proved in gaussian.proof.md.
    """
    miss = float(1 - confidence) * (1 - 2.0**-40)
    low, high = -1, math.isqrt(int(variance)) * 64
    while high - low > 1:
        middle = (low + high) // 2
        if _tail_above(variance, middle) <= miss:
            high = middle
        else:
            low = middle
    return high


def _tail_above(variance: Fraction, t: int) -> float:
    """Return an upper bound of the tail probability P(|X| > t), up to float rounding."""
    sigma = math.sqrt(variance)
    from_where = t + 0.5 if t + 0.5 >= sigma else float(t)  # the density is convex from sigma on
    return math.erfc(from_where / (sigma * math.sqrt(2)))
