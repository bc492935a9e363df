"""What a randomiser makes of fresh 32-bit words; JavaScript does the same, bit by bit.

A chance is a whole number T of 2**-32: the word w says yes when w < T. A draw among m is the whole
part of w * m / 2**32, with m at most 2**21, so that a browser's numbers hold the product exactly.
Such a draw is not quite even: some outcomes have one word more than others. How many each has is
counted here, and every epsilon and every estimate is worked out from those counts.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.likelihood_ratio import epsilon_of
from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug, Refused

Words = NDArray[np.uint32]  # a row for each word of a report, a column for each report
Integers = NDArray[np.int64]
PARTS: Final = 1 << 32  # chances are counted in parts of this
MOST_OUTCOMES: Final = 1 << 21
_SHIFT: Final = np.uint64(32)
_EXACT: Final = Context(prec=60)
_HIGHEST: Final = Fraction(60)  # an epsilon above this asks for more than 32 bits can tell apart


def drawn(dice: Dice, rows: int, reports: int) -> Words:
    """Return fresh words: a column for each report."""
    flat = np.frombuffer(dice.draw(4 * rows * reports), dtype="<u4")
    return flat.reshape(rows, reports)


def below(words: Words, chance: int) -> NDArray[np.bool_]:
    """Say of each word whether it lies below that many parts."""
    return np.asarray(words < np.uint32(chance))


def among(words: Words, outcomes: int) -> NDArray[np.uint64]:
    """Return a draw from 0 to outcomes - 1 for each word."""
    return np.asarray(np.multiply(words, np.uint64(outcomes), dtype=np.uint64) >> _SHIFT)


def among_64(high: Words, low: Words, outcomes: int) -> NDArray[np.uint64]:
    """Return a draw of two words each: even to within 2**-64."""
    many = np.uint64(outcomes)
    carried = np.multiply(low, many, dtype=np.uint64) >> _SHIFT
    return np.asarray((np.multiply(high, many, dtype=np.uint64) + carried) >> _SHIFT)


def words_each(outcomes: int) -> Integers:
    """Return how many of the 2**32 words lead to each outcome of `among`."""
    if not 1 <= outcomes <= MOST_OUTCOMES:
        raise Bug("a draw is among one to 2**21")
    first = -((-np.arange(outcomes + 1, dtype=np.int64) * PARTS) // outcomes)
    return np.diff(first)


def boldest(ratio: Callable[[int], Fraction], epsilon: Fraction, most: int = PARTS - 1) -> int:
    """Return the largest part from 1 to `most` whose ratio of chances is within epsilon.

    The ratio grows with the part. What is compared is what is printed: its logarithm, rounded up.
    """
    if epsilon <= 0:
        raise Refused("bad-budget", "epsilon must be above zero.", "Write 1, for example.")
    if epsilon_of(ratio(1)) > epsilon:
        raise Refused(
            "bad-budget", "No coin is as unfair as this epsilon asks.", "Ask with a larger epsilon."
        )
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if epsilon_of(ratio(middle)) <= epsilon else (low, middle - 1)
    return low


def odds_of(epsilon: Fraction) -> Fraction:
    """Return exp(epsilon) to 60 digits, to choose a design by; no price hangs on it."""
    if epsilon <= 0:
        raise Refused("bad-budget", "epsilon must be above zero.", "Write 1, for example.")
    capped = min(epsilon, _HIGHEST)
    quotient = _EXACT.divide(Decimal(capped.numerator), Decimal(capped.denominator))
    return Fraction(_EXACT.exp(quotient))
