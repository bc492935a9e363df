"""The discrete Gaussian mechanism: P(k) proportional to exp(-k**2 / (2 variance)), exact.

Narrow noise comes from one table of certified thresholds. Wide noise is m*Q + R with m a power of
two, kept with a probability that is compared exactly (gaussian.proof.md). The variance that buys
rho is D2**2 / (2 rho) (Canonne, Kamath, Steinke 2020), an exact fraction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.noise.certified import (
    Interval,
    Uniform,
    exp_minus,
    is_uniform_below,
    product,
    ratio,
)
from sfumato.core.noise.reach import smallest_step
from sfumato.core.noise.table import (
    Integers,
    Law,
    Table,
    draw_from,
    in_chunks,
    signed,
    signs,
    table_of,
)
from sfumato.core.ports import Dice
from sfumato.core.refusal import Bug, Refused

MAX_VARIANCE: Final = Fraction(1 << 100)
NARROW: Final = 16  # up to this sigma one table holds the whole law
SUMMED: Final = 64  # up to this sigma an interval is found by summing
RHO_GRID: Final = 10**9  # a rho found for an error is a multiple of 1/this
MAX_RHO: Final = 10**6 // 2  # what MAX_EPSILON costs as epsilon**2 / 2
COIN_BITS: Final = 32
COIN_MARGIN: Final = 2.0**-6  # in units of 2**-32: what the float estimate may be off by


def variance_for(sensitivity_squared: int, rho: Fraction) -> Fraction:
    """Return the variance that makes the noise rho-zCDP: exact, so nothing is rounded."""
    return Fraction(sensitivity_squared) / (2 * rho)


def sample(variance: Fraction, count: int, dice: Dice) -> Integers:
    """Return that many independent discrete Gaussian draws."""
    _check_variance(variance)
    draw = _draw_narrow if variance < NARROW**2 else _draw_wide
    return in_chunks(lambda size: draw(variance, size, dice), count)


def _check_variance(variance: Fraction) -> None:
    if variance <= 0:
        raise Bug("noise must have a variance above zero")
    if variance > MAX_VARIANCE:
        raise Refused(
            "noise-out-of-range",
            "The noise would be wider than can be drawn exactly.",
            "Ask with a larger epsilon, narrower bounds or a coarser step.",
        )


def _draw_narrow(variance: Fraction, count: int, dice: Dice) -> Integers:
    """Return a magnitude from one table, and a sign (which zero ignores)."""
    magnitudes = draw_from(_magnitude_table(variance), count, dice)
    return signed(magnitudes, signs(count, dice))


def _draw_wide(variance: Fraction, count: int, dice: Dice) -> Integers:
    """Return the first `count` of attempts that were kept."""
    kept: list[Integers] = []
    missing = count
    while missing > 0:
        kept.append(_attempt(variance, missing + missing // 12 + 8, dice))
        missing -= kept[-1].size
    return np.concatenate([*kept, np.zeros(0, dtype=np.int64)])[:count]


def _attempt(variance: Fraction, count: int, dice: Dice) -> Integers:
    """Return those of that many proposals m*Q + R that are kept: 19 of 20, or more."""
    low_bits = bits_below(variance)
    top = draw_from(_half_table(variance / (1 << 2 * low_bits)), count, dice)
    rest = _bits(low_bits, count, dice)
    minus = signs(count, dice)
    kept = _coins(_Odds(variance, low_bits), top, rest, dice)
    magnitudes = (top << low_bits) | rest
    kept &= (magnitudes | ~minus) != 0  # zero has one sign only
    return signed(magnitudes, minus)[kept]


def bits_below(variance: Fraction) -> int:
    """Return s such that sigma / 2**s lies in [8, 16), for a variance of at least 8**2."""
    return (int(variance).bit_length() - 7) // 2


def _bits(width: int, count: int, dice: Dice) -> Integers:
    """Return uniform integers of that many bits."""
    size = next(size for size in (2, 4, 8) if width <= 8 * size)
    words = np.frombuffer(dice.draw(size * count), dtype=f"<u{size}")
    return words.astype(np.int64) & ((1 << width) - 1)


@dataclass(frozen=True)
class _Odds:
    """The chance exp(-(2mQR + R**2) / (2 variance)) that a proposal is kept; m = 2**low_bits."""

    variance: Fraction
    low_bits: int

    def power(self, top: Integers, rest: Integers) -> NDArray[np.float64]:
        """Return minus the logarithm of the chance, each of its four steps rounded once."""
        part = rest * 2.0**-self.low_bits  # exact: at most 47 bits
        power = top * 2.0
        power += part
        power *= part
        power *= float((1 << 2 * self.low_bits) / (2 * self.variance))
        return np.asarray(power)

    def estimate(self, top: Integers, rest: Integers) -> NDArray[np.float64]:
        """Return 2**32 times the chance, closer to it than COIN_MARGIN."""
        return np.asarray(np.exp(-self.power(top, rest)) * 2.0**COIN_BITS)

    def at_least(self, top: Integers, rest: Integers) -> NDArray[np.float64]:
        """Return what 2**32 times the chance is not below by COIN_MARGIN: exp(-x) >= 1 - x."""
        least = self.power(top, rest)
        np.subtract(1.0, least, out=least)
        least *= 2.0**COIN_BITS
        return least

    def bounds(self, top: int, rest: int, bits: int) -> Interval:
        """Return certified bounds of the chance."""
        power = ((top << (self.low_bits + 1)) + rest) * rest
        return exp_minus(power / (2 * self.variance), bits)


def _coins(odds: _Odds, top: Integers, rest: Integers, dice: Dice) -> NDArray[np.bool_]:
    """Return for each proposal whether a fresh uniform lies below its chance; exact.

    About one proposal in 16 needs the chance itself; the others are below what it is at least.
    """
    heads = np.frombuffer(dice.draw(4 * top.size), dtype="<u4")
    kept = np.asarray(heads <= odds.at_least(top, rest) - (1 + COIN_MARGIN))
    left = np.flatnonzero(~kept)
    chances = odds.estimate(top[left], rest[left])
    kept[left] = heads[left] <= chances - (1 + COIN_MARGIN)
    for place in left[~kept[left] & (heads[left] < chances + COIN_MARGIN)]:
        kept[place] = _exact_coin(odds, int(top[place]), int(rest[place]), int(heads[place]), dice)
    return kept


def _exact_coin(odds: _Odds, top: int, rest: int, head: int, dice: Dice) -> bool:
    uniform = Uniform(head, COIN_BITS)
    return is_uniform_below(uniform, lambda bits: odds.bounds(top, rest, bits), dice)


@lru_cache(maxsize=64)
def _magnitude_table(variance: Fraction) -> Table:
    return table_of(magnitude_law(variance))


@lru_cache(maxsize=64)
def _half_table(variance: Fraction) -> Table:
    return table_of(half_law(variance))


def magnitude_law(variance: Fraction) -> Law:
    """Return the thresholds P(|X| <= k): every k > 0 counts twice."""
    return lambda bits: _thresholds(variance, 2, bits)


def half_law(variance: Fraction) -> Law:
    """Return the thresholds of the law on k >= 0 with weights exp(-k**2 / (2 variance))."""
    return lambda bits: _thresholds(variance, 1, bits)


def _thresholds(variance: Fraction, times: int, bits: int) -> Iterator[Interval]:
    """Yield bounds of P(X <= k), all k > 0 weighing `times` their weight; without end."""
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


def _weights(variance: Fraction, bits: int) -> tuple[list[Interval], int]:
    """Return bounds of exp(-k**2 / (2 variance)) until they vanish, and a bound of all the rest.

    From one weight to the next the factor itself falls by exp(-1 / variance) each time; so the
    weights after the last are below a geometric series.
    """
    one = 1 << bits
    weight, factor = (one, one), exp_minus(1 / (2 * variance), bits)
    step = exp_minus(1 / variance, bits)
    weights: list[Interval] = []
    while weight[0] > 0:
        weights.append(weight)
        weight, factor = product(weight, factor, bits), product(factor, step, bits)
    return weights, -(-weight[1] * one // (one - factor[1]))


def std(variance: Fraction) -> float:
    """Return the standard deviation of the discrete noise, for people to read."""
    if variance >= 16:  # from here on the two differ by less than a float can show
        return math.sqrt(variance)
    squares = np.arange(200, dtype=np.float64) ** 2
    weights = np.exp(-squares * float(1 / (2 * variance)))
    return math.sqrt(2 * float(weights @ squares) / (2 * float(weights.sum()) - 1))


def interval(variance: Fraction, confidence: Fraction) -> int:
    """Return the smallest t with P(|X| <= t) >= confidence; from sigma 64 on, rarely one more."""
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
    """Return a t that is enough: the smallest t that the bounds in gaussian.proof.md show to be."""
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
    """Return an upper bound of P(|X| > t), but for float rounding."""
    sigma = math.sqrt(variance)
    from_where = t + 0.5 if t + 0.5 >= sigma else float(t)  # convex from sigma on
    return math.erfc(from_where / (sigma * math.sqrt(2)))


def rho_for(sensitivity_squared: int, margin: Fraction, confidence: Fraction) -> Fraction:
    """Return the smallest rho, in billionths, whose `interval` is within the margin."""

    def is_enough(steps: int) -> bool:
        variance = variance_for(sensitivity_squared, Fraction(steps, RHO_GRID))
        return margin >= 0 and interval(variance, confidence) <= margin

    return Fraction(smallest_step(is_enough, MAX_RHO * RHO_GRID), RHO_GRID)


def analytic_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the least sigma of the *continuous* Gaussian (Balle, Wang 2018). An oracle only.

    No mechanism here may be calibrated with it: the discrete noise has its own proof.
    """
    low, high = 0.0, 1.0
    while _analytic_delta(high, epsilon) > delta:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _analytic_delta(middle, epsilon) > delta else (low, middle)
    return high * sensitivity


def _analytic_delta(sigma: float, epsilon: float) -> float:
    """Return the delta of sensitivity 1: Phi(1/2s - es) - exp(e) Phi(-1/2s - es)."""
    half, shift = 1 / (2 * sigma), epsilon * sigma
    return _normal_below(half - shift) - math.exp(epsilon + _log_normal_below(-half - shift))


def _normal_below(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def _log_normal_below(x: float) -> float:
    if x > -30:
        return math.log(_normal_below(x))
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi))
