"""The laws of choosing mechanisms: exact by another method, and measured from the code itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import localcontext
from fractions import Fraction
from functools import cache
from itertools import product as every

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sfumato.dp.ports import RandomSource
from support.noise_probabilities import decimal_exp

Integers = NDArray[np.int64]
CHOOSING_ALARM = 1e-6  # a p-value below this fails a test; seeds are fixed
STEPS = 40  # a measured chance is off by at most 2**-STEPS
ROUNDING = Fraction(4, 2**STEPS)


@cache
def weight(power: Fraction) -> Fraction:
    """exp(-power) to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return short(Fraction(decimal_exp(power)))


def short(number: Fraction) -> Fraction:
    """The number to 190 bits, so that sums and products of many stay small."""
    return Fraction(number.numerator * 2**190 // number.denominator, 2**190)


def softmax(
    utilities: Sequence[int], rate: Fraction, weights: Sequence[int] | None = None
) -> list[Fraction]:
    """The exponential mechanism's law: w_i exp(rate u_i), made to sum to one."""
    best = max(utilities)
    times = weights or [1] * len(utilities)
    parts = [w * weight(rate * (best - u)) for u, w in zip(utilities, times, strict=True)]
    whole = sum(parts)
    return [short(part / whole) for part in parts]


def flip_law(utilities: Sequence[int], rate: Fraction) -> list[Fraction]:
    """Permute-and-flip's law, summed over all sets of heads, each of them as likely to be taken."""
    best = max(utilities)
    coins = [weight(rate * (best - u)) for u in utilities]
    law = [Fraction(0)] * len(coins)
    for heads in every((0, 1), repeat=len(coins)):
        chance = Fraction(1)
        for coin, head in zip(coins, heads, strict=True):
            chance *= coin if head else 1 - coin
        for place in np.flatnonzero(heads):
            law[place] += chance / sum(heads)
    return [short(part) for part in law]


class HeadsDice:
    """Gives every row of a choice its own first 64 bits; all others are 0101..., never a tie."""

    def __init__(self, heads: NDArray[np.uint64]) -> None:
        self._heads = heads

    def draw(self, count: int) -> bytes:
        """Return the rows' bits if that many are wanted."""
        if count != 32 * self._heads.size:
            return b"\x55" * count
        rows = np.full((self._heads.size, 4), 0x5555555555555555, dtype="<u8")
        rows[:, 0] = self._heads
        return rows.tobytes()


def measured_laws(
    mechanism: Callable[[RandomSource], Integers], rows: int, candidates: int
) -> list[list[Fraction]]:
    """The law of each row, found by bisection of the uniform number that the code is given."""
    sums = [np.zeros(rows, dtype=np.uint64)]
    for place in range(candidates - 1):
        sums.append(_heads_up_to(mechanism, place, rows))
    whole = [int(2**STEPS)] * rows
    ends = [*([int(x) for x in part] for part in sums), whole]
    return [
        [Fraction(ends[i + 1][row] - ends[i][row], 2**STEPS) for i in range(candidates)]
        for row in range(rows)
    ]


def _heads_up_to(
    mechanism: Callable[[RandomSource], Integers], place: int, rows: int
) -> NDArray[np.uint64]:
    """How many of 2**STEPS equal parts of the uniform mean a candidate up to this place."""
    low = np.zeros(rows, dtype=np.uint64)
    for step in reversed(range(STEPS)):
        tried = low + np.uint64(1 << step)
        dice = HeadsDice((tried - np.uint64(1)) << np.uint64(64 - STEPS))
        low = np.where(mechanism(dice) <= place, tried, low)
    last = HeadsDice(low << np.uint64(64 - STEPS))
    return low + (mechanism(last) <= place).astype(np.uint64)


def is_private(law: Sequence[Fraction], other: Sequence[Fraction], epsilon: Fraction) -> bool:
    """Whether no outcome of either law is exp(epsilon) times as likely as in the other."""
    grow = 1 / weight(epsilon)
    return all(
        one <= grow * two + ROUNDING * grow and two <= grow * one + ROUNDING * grow
        for one, two in zip(law, other, strict=True)
    )


def law_p_value(places: Integers, law: Sequence[Fraction]) -> float:
    """The chi-square p-value that outcomes 0, 1, 2, ... come from the law; rare ones are pooled."""
    chances = np.array([float(part) for part in law])
    seen = np.bincount(places, minlength=chances.size).astype(np.float64)
    rare = chances * places.size < 5
    pooled = np.append(chances[~rare], chances[rare].sum())
    counts = np.append(seen[~rare], seen[rare].sum())
    if pooled[-1] * places.size < 1e-3:
        if counts[-1] > 0:
            return 0.0
        pooled, counts = pooled[:-1], counts[:-1]
    if pooled.size < 2:
        return 1.0
    return float(stats.chisquare(counts, pooled / pooled.sum() * places.size).pvalue)
