"""Vectorised, certified exp(-rate * gap) for integer gaps, in integer arithmetic.

The code splits a gap into digits of eight bits, and computes exp(-rate * gap) as the product of one
table entry per digit. The table entries are certified lower bounds, and every product is rounded
down. So the result is a lower bound, less than 24 units of 2**-63 (`MAX_ERROR`) too low
(dp/mechanisms/exponential.proof.md). If a draw needs more precision, the code multiplies the same
digits as intervals of any precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.ports import IntegerArray
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.certified_arithmetic import Interval, exp_minus, product

UintArray = NDArray[np.uint64]

UNIT_BITS: Final = 63  # a result is an integer in units of 2**-63, so that 1.0 fits in 64 bits
MAX_ERROR: Final = 24  # largest error in units: eight digits with an error below three each
DIGIT_BITS: Final = 8
DIGITS: Final = 1 << DIGIT_BITS
MAX_EXPONENT: Final = 46  # a rate * gap above this counts as zero: exp(-46) < 2**-66
_HALF: Final = np.uint64(32)
_LOW_HALF: Final = np.uint64((1 << 32) - 1)
_WORD: Final = 1 << 64


@dataclass(frozen=True, eq=False)
class Powers:
    """The lookup tables from which exp(-rate * gap) is multiplied together, for one rate.

    Entry d of table j is a lower bound of exp(-rate * d * 256**j). For gaps above `last`, the
    result counts as zero.
    """

    last: int
    tables: tuple[UintArray, ...]


@lru_cache(maxsize=64)
def powers_of(rate: Fraction) -> Powers:
    """Build and cache the lookup tables of exp(-rate * gap) for a rate."""
    if rate <= 0:
        raise Bug("a rate of choosing must be above zero")
    last = min(_WORD - 1, MAX_EXPONENT * rate.denominator // rate.numerator)
    return Powers(last, tuple(_table(rate, place) for place in range(_places(last))))


def _places(last: int) -> int:
    """Return how many 8-bit digits the largest gap `last` has, at least one.

    `Powers` needs one lookup table per digit.
    """
    return max(1, -(-last.bit_length() // DIGIT_BITS))


def _table(rate: Fraction, place: int) -> UintArray:
    """Return lower bounds of exp(-rate * digit * 256**place) for the 256 values of a digit.

    They are in units of 2**-63, and too low by little over one unit.
    """
    bits = UNIT_BITS + 64
    lows = [low >> 64 for low, _ in _fine_table(rate, place, bits)]
    return np.array(lows, dtype=np.uint64)


def _fine_table(rate: Fraction, place: int, bits: int) -> list[Interval]:
    step = rate * (1 << DIGIT_BITS * place)
    return [exp_minus(step * digit, bits) for digit in range(DIGITS)]


def gaps_to_best(utilities: IntegerArray) -> UintArray:
    """Return the gap of each utility: how far it is below the best utility of its row.

    The gaps are unsigned, so the subtraction cannot overflow.
    """
    best: UintArray = utilities.max(axis=-1, keepdims=True).view(np.uint64)
    return np.asarray(best - utilities.view(np.uint64))


def lower_powers(rate: Fraction, gaps: UintArray) -> UintArray:
    """Return lower bounds of 2**63 exp(-rate * gap), each less than 24 (`MAX_ERROR`) too low."""
    powers = powers_of(rate)
    inside = np.minimum(gaps, np.uint64(powers.last))
    found: UintArray = powers.tables[0][_digit(inside, 0)]
    for place, table in enumerate(powers.tables[1:], start=1):
        found = high_word(found, table[_digit(inside, place)]) << np.uint64(1)
    found[gaps > np.uint64(powers.last)] = 0
    return found


def _digit(gaps: UintArray, place: int) -> NDArray[np.intp]:
    return ((gaps >> np.uint64(DIGIT_BITS * place)) & np.uint64(DIGITS - 1)).astype(np.intp)


def high_word(a: UintArray, b: UintArray) -> UintArray:
    """Return the high half of each 128-bit product of two 64-bit numbers: floor(a * b / 2**64).

    The result is exact.
    """
    a_low, a_high = a & _LOW_HALF, a >> _HALF
    b_low, b_high = b & _LOW_HALF, b >> _HALF
    one, other = a_high * b_low, a_low * b_high
    middle = (a_low * b_low >> _HALF) + (one & _LOW_HALF) + (other & _LOW_HALF)
    carried: UintArray = (one >> _HALF) + (other >> _HALF) + (middle >> _HALF)
    return np.asarray(a_high * b_high + carried)


def fine_powers(rate: Fraction, gaps: list[int], bits: int) -> Iterator[Interval]:
    """Yield bounds of exp(-rate * gap) for each gap, in units of 2**-bits."""
    last = bits * rate.denominator // rate.numerator  # exp(-bits) < 2**-bits
    places = _places(min(last, max(gaps, default=0)))
    tables = [_fine_table(rate, place, bits) for place in range(places)]
    for gap in gaps:
        yield (0, 1) if gap > last else _fine_power(gap, tables, bits)


def _fine_power(gap: int, tables: list[list[Interval]], bits: int) -> Interval:
    found = tables[0][gap % DIGITS]
    for place, table in enumerate(tables[1:], start=1):
        found = product(found, table[gap >> DIGIT_BITS * place & DIGITS - 1], bits)
    return found
