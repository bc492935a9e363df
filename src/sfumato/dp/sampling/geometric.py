"""Exact sampling of the geometric distribution P(k) = (1-a) a**k, k >= 0, with a = exp(-1/scale).

At a large scale, a draw consists of independent groups of binary digits (geometric.proof.md). The
high digits are a geometric draw of small scale. The lower digits are truncated geometric draws of
at most seven bits each. So a new scale needs only hundreds of thresholds, not thousands.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Final

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.sampling.certified_arithmetic import Interval, exp_minus, one_minus, ratio
from sfumato.dp.sampling.threshold_table import (
    Distribution,
    Integers,
    Table,
    draw_from,
    in_chunks,
    table_of,
)

MAX_SCALE: Final = Fraction(1 << 50)
TOP_SCALE: Final = 8  # from this scale on, the low digits are drawn separately
DIGIT_BITS: Final = 7  # most bits in one group of low digits


def sample(scale: Fraction, count: int, dice: RandomSource) -> Integers:
    """Draw `count` independent geometric numbers of this scale, exactly."""
    check_scale(scale)
    return in_chunks(lambda size: draw_geometric(scale, size, dice), count)


def draw_geometric(scale: Fraction, count: int, dice: RandomSource) -> Integers:
    """Draw `count` geometric numbers: the high digits first, then each group of low digits."""
    low_bits = bits_below(scale)
    numbers = draw_from(_top_table(scale / (1 << low_bits)), count, dice)
    for width in digit_widths(low_bits):
        low_bits -= width
        digits = draw_from(_digit_table(scale / (1 << low_bits), width), count, dice)
        numbers = (numbers << width) | digits
    return numbers


def bits_below(scale: Fraction) -> int:
    """Return how many low bits of a geometric draw are sampled separately from its high part.

    The remaining high part then has a scale below 8, so that its table is short.
    """
    return (int(scale) // TOP_SCALE).bit_length()


def digit_widths(low_bits: int) -> list[int]:
    """Split the low bits of a draw into the fewest groups of at most seven; return their widths."""
    count = -(-low_bits // DIGIT_BITS)
    return [(low_bits + place) // count for place in range(count)]


def check_scale(scale: Fraction) -> None:
    """Refuse a scale so large that a draw might not fit in 64 bits."""
    if scale <= 0:
        raise Bug("noise must have a scale above zero")
    if scale > MAX_SCALE:
        raise Refused(
            "noise-out-of-range",
            "The noise would be wider than can be drawn exactly.",
            "Ask with a larger epsilon, narrower bounds or a coarser step.",
        )


def falling(start: Interval, factor: Interval, bits: int) -> Iterator[Interval]:
    """Yield bounds of 1 - start, 1 - start*factor, 1 - start*factor**2, ... for ever.

    They are the cumulative probabilities of a geometric distribution. `start` and `factor` are
    intervals, and all numbers are in units of 2**-bits.
    """
    one, (low, high), (least, most) = 1 << bits, start, factor
    while True:
        yield one - high, one - low
        low, high = low * least >> bits, -(-high * most >> bits)


@lru_cache(maxsize=64)
def _top_table(scale: Fraction) -> Table:
    return table_of(geometric_law(scale))


@lru_cache(maxsize=64)
def _digit_table(scale: Fraction, width: int) -> Table:
    return table_of(digit_law(scale, width))


def geometric_law(scale: Fraction) -> Distribution:
    """Return the cumulative distribution P(X <= k) = 1 - a**(k+1) of a geometric draw X.

    Here a = exp(-1/scale).
    """

    def law(bits: int) -> Iterator[Interval]:
        a = exp_minus(1 / scale, bits)
        return falling(a, a, bits)

    return law


def digit_law(scale: Fraction, width: int) -> Distribution:
    """Return the cumulative distribution of a geometric draw truncated below m = 2**width.

    It is P(X <= k) = (1 - a**(k+1)) / (1 - a**m), with a = exp(-1/scale).
    """

    def law(bits: int) -> Iterator[Interval]:
        a = exp_minus(1 / scale, bits)
        whole = one_minus(exp_minus((1 << width) / scale, bits), bits)
        below = falling(a, a, bits)
        for _ in range((1 << width) - 1):
            yield ratio(next(below), whole, bits)

    return law
