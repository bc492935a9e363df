"""Interval arithmetic on integers: certified bounds of exp(-x), products, ratios, comparisons.

An interval (low, high) of integers represents a number: it encloses 2**bits times the value. All
rounding is outwards, so the bounds hold at every precision, and more bits only narrow them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sfumato.dp.ports import RandomSource

Interval = tuple[int, int]
Bounds = Callable[[int], Interval]  # maps a number of bits to the interval at that precision
SLACK_BITS: Final = 64  # bounds have this many more bits than the uniform compared with them


def exp_minus(x: Fraction, bits: int) -> Interval:
    """Return bounds of exp(-x) for x >= 0, in units of 2**-bits; at x = 0 they are exact."""
    if x == 0:
        return 1 << bits, 1 << bits
    if x > bits:  # exp(-x) < 2**-x < 2**-bits
        return 0, 1
    halvings = (x.numerator // x.denominator).bit_length() + 8
    extra = halvings + 16
    work = bits + extra
    low, high = _exp_minus_small(x, halvings, work)
    for _ in range(halvings):
        low, high = product((low, high), (low, high), work)
    return low >> extra, -(-high >> extra)


def _exp_minus_small(x: Fraction, halvings: int, bits: int) -> Interval:
    """Return bounds of exp(-y) for a small y = x / 2**halvings, in units of 2**-bits.

    `exp_minus` squares the result `halvings` times. The argument x must be below 2**(halvings - 8).
    """
    y = (x.numerator << bits) // (x.denominator << halvings)
    one_squared = 1 << (2 * bits)
    return one_squared // _exp_above(y + 1, bits), -(-one_squared // _exp_below(y, bits))


def _exp_below(y: int, bits: int) -> int:
    """Return a lower bound of exp(y): the Taylor series with each term rounded down.

    The argument y and the result are in units of 2**-bits.
    """
    term = total = 1 << bits
    order = 0
    while term:
        order += 1
        term = term * y // order >> bits
        total += term
    return total


def _exp_above(y: int, bits: int) -> int:
    """Return an upper bound of exp(y) for y < 1/64: its Taylor terms, each rounded up.

    A bound of the omitted terms is added. The argument y and the result are in units of 2**-bits.
    """
    term = total = 1 << bits
    order = 0
    while term > 1:
        order += 1
        term = -(-term * y // order >> bits)
        total += term
    return total + 1  # the remaining terms sum to less than the last term, which is 1


def product(a: Interval, b: Interval, bits: int) -> Interval:
    """Return bounds of the product a*b of two numbers given as intervals, for a and b >= 0."""
    return a[0] * b[0] >> bits, -(-a[1] * b[1] >> bits)


def ratio(a: Interval, b: Interval, bits: int) -> Interval:
    """Return bounds of the quotient a/b of two numbers given as intervals, for a >= 0 and b > 0."""
    return (a[0] << bits) // b[1], -(-(a[1] << bits) // b[0])


def one_minus(a: Interval, bits: int) -> Interval:
    """Return bounds of 1 - a, for a number a given as an interval."""
    one = 1 << bits
    return one - a[1], one - a[0]


def is_at_most(bounds: Bounds, limit: Fraction) -> bool:
    """Return whether a number is at most the limit, with as many bits of precision as that needs.

    `bounds` gives the interval of the number at each precision. The number must not equal the
    limit, because the loop could then run for ever.
    """
    bits = 96
    while True:
        low, high = bounds(bits)
        scaled = limit * (1 << bits)
        if high <= scaled:
            return True
        if low > scaled:
            return False
        bits *= 2


@dataclass(frozen=True)
class Uniform:
    """A uniform random number in [0, 1) of which only the first bits are drawn yet.

    The rest are drawn on demand.
    """

    prefix: int
    bits: int

    def longer(self, dice: RandomSource) -> Uniform:
        """Draw as many random bits again; return the same uniform number with all of them."""
        fresh = int.from_bytes(dice.draw(self.bits // 8), "little")
        return Uniform(self.prefix << self.bits | fresh, 2 * self.bits)

    def is_below(self, number: Interval) -> bool | None:
        """Return whether this uniform number is below a number given by bounds at `fine_bits`.

        The result is None if only more random bits can decide.
        """
        if self.prefix + 1 << SLACK_BITS <= number[0]:
            return True
        if self.prefix << SLACK_BITS >= number[1]:
            return False
        return None

    @property
    def fine_bits(self) -> int:
        """Return the number of bits to which a limit must be known, to be compared with this one.

        `is_below` compares; it gets the limit as a lower and an upper bound.
        """
        return self.bits + SLACK_BITS


def is_uniform_below(uniform: Uniform, bounds: Bounds, dice: RandomSource) -> bool:
    """Return whether the uniform number is below the number that `bounds` gives.

    More random bits are drawn until the comparison is certain.
    """
    while True:
        verdict = uniform.is_below(bounds(uniform.fine_bits))
        if verdict is not None:
            return verdict
        uniform = uniform.longer(dice)
