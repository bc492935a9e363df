"""Coins and uniform draws from random 32-bit words, bit for bit the same as in JavaScript.

A probability is an integer T in units of 2**-32: the coin of word w is heads if w < T. A draw among
m outcomes is floor(w * m / 2**32). Here m is at most 2**21, so that JavaScript numbers hold the
product exactly. Such a draw is not exactly uniform: some outcomes have one word more than others.
This module counts the words of each outcome, and every epsilon and estimate uses those exact
counts.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.likelihood_ratio import epsilon_of
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug, Refused

Words = NDArray[np.uint32]  # row: one word of every report; column: all words of one report
Integers = NDArray[np.int64]
PARTS: Final = 1 << 32  # the denominator of all probabilities
MAX_OUTCOMES: Final = 1 << 21
_SHIFT: Final = np.uint64(32)
_EXACT: Final = Context(prec=60)
_HIGHEST: Final = Fraction(60)  # 32-bit words cannot resolve a larger epsilon


def drawn(dice: RandomSource, rows: int, reports: int) -> Words:
    """Draw fresh random words: `rows` words for each report, one column per report."""
    flat = np.frombuffer(dice.draw(4 * rows * reports), dtype="<u4")
    return flat.reshape(rows, reports)


def below(words: Words, chance: int) -> NDArray[np.bool_]:
    """Flip a coin with each random word: return True where the word is below `chance`.

    `chance` is the probability of heads, in parts of 2**32.
    """
    return np.asarray(words < np.uint32(chance))


def among(words: Words, outcomes: int) -> NDArray[np.uint64]:
    """Map each random word to an integer from 0 to outcomes - 1, nearly uniformly.

    `words_each` gives the exact distribution.
    """
    return np.asarray(np.multiply(words, np.uint64(outcomes), dtype=np.uint64) >> _SHIFT)


def among_64(high: Words, low: Words, outcomes: int) -> NDArray[np.uint64]:
    """Map each pair of words to an integer from 0 to outcomes - 1, uniformly up to 2**-64."""
    many = np.uint64(outcomes)
    carried = np.multiply(low, many, dtype=np.uint64) >> _SHIFT
    return np.asarray((np.multiply(high, many, dtype=np.uint64) + carried) >> _SHIFT)


def words_each(outcomes: int) -> Integers:
    """Return for each outcome of `among` how many of the 2**32 random words lead to it.

    These counts over 2**32 are the exact probabilities of the outcomes.
    """
    if not 1 <= outcomes <= MAX_OUTCOMES:
        raise Bug("a draw is among one to 2**21")
    first = -((-np.arange(outcomes + 1, dtype=np.int64) * PARTS) // outcomes)
    return np.diff(first)


def largest_probability_within(
    ratio: Callable[[int], Fraction], epsilon: Fraction, max_probability: int = PARTS - 1
) -> int:
    """Return the largest probability at which a randomiser's epsilon is at most `epsilon`.

    The probability is an integer from 1 to `max_probability`, in parts of 2**32. `ratio` gives the
    likelihood ratio of a probability, and must increase with it. The comparison uses the same
    epsilon that users see, which is rounded up to 1e-9.
    """
    if epsilon <= 0:
        raise Refused("bad-budget", "epsilon must be above zero.", "Write 1, for example.")
    if epsilon_of(ratio(1)) > epsilon:
        raise Refused(
            "bad-budget",
            "epsilon is so small that no randomiser can reach it.",
            "Give a larger epsilon.",
        )
    low, high = 1, max_probability
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if epsilon_of(ratio(middle)) <= epsilon else (low, middle - 1)
    return low


def odds_of(epsilon: Fraction) -> Fraction:
    """Return exp(epsilon) to 60 digits, only to choose the parameters of a randomiser.

    No guaranteed epsilon depends on the result.
    """
    if epsilon <= 0:
        raise Refused("bad-budget", "epsilon must be above zero.", "Write 1, for example.")
    capped = min(epsilon, _HIGHEST)
    quotient = _EXACT.divide(Decimal(capped.numerator), Decimal(capped.denominator))
    return Fraction(_EXACT.exp(quotient))
