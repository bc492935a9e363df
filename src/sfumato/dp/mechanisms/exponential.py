"""The exponential mechanism over integer utilities: P(i) proportional to w_i exp(rate u_i), exact.

One uniform number of 256 bits is drawn for each choice, and falls between two partial sums of the
weights (inversion). The sums are bounded from both sides in 64-bit integers; where the bounds
leave the choice open, it is made again with intervals as fine as it takes (exponential.proof.md).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Final

import numpy as np

from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.certified_arithmetic import Interval, Uniform
from sfumato.dp.sampling.exponential_powers import (
    UNIT_BITS,
    Words,
    fine_powers,
    high_word,
    lower_powers,
)
from sfumato.dp.sampling.threshold_table import Integers

UNIFORM_BITS: Final = 256  # of each choice, always drawn
BLOCK: Final = 1 << 19  # candidates handled at once, so that memory stays small
MAX_WEIGHT: Final = 1 << 40  # of all candidates together
_OFF: Final = 2  # units by which a rounded weight may be too low
_WORDS: Final = UNIFORM_BITS // 64


def rate_for(epsilon: Fraction, sensitivity: int, monotone: bool) -> Fraction:
    """Return the rate that makes a choice epsilon-DP: exact, so nothing is rounded.

    Monotone: adding a person never raises one utility while it lowers another.
    """
    if epsilon <= 0 or sensitivity < 1:
        raise Bug("a choice needs an epsilon and a sensitivity above zero")
    return Fraction(epsilon) / (sensitivity if monotone else 2 * sensitivity)


def rho_of(epsilon: Fraction) -> Fraction:
    """Return what one choice by the exponential mechanism costs: epsilon**2 / 8, bounded range."""
    return Fraction(epsilon) ** 2 / 8


def exponential_mechanism(
    utilities: Integers, weights: Integers | None, rate: Fraction, dice: Dice
) -> int:
    """Return one index, drawn with probability proportional to weight * exp(rate * utility)."""
    return int(exponential_mechanism_rows(utilities.reshape(1, -1), weights, rate, dice)[0])


def exponential_mechanism_rows(
    utilities: Integers, weights: Integers | None, rate: Fraction, dice: Dice
) -> Integers:
    """Return one index for each row [cells, candidates], drawn independently; weights are public.

    A candidate of weight zero is never chosen; without weights each counts once.
    """
    weighed = _weighed(utilities.shape[1], weights)
    possible = np.flatnonzero(weighed)
    scale = _scale(weighed[possible], rate)
    blocks = -(-utilities.size // BLOCK)
    chosen = [
        _choose_block(np.ascontiguousarray(block[:, possible]), scale, dice)
        for block in np.array_split(utilities, max(1, min(blocks, utilities.shape[0])))
    ]
    return possible[np.concatenate(chosen)]


def _weighed(candidates: int, weights: Integers | None) -> Integers:
    """Return the weights, checked; they are public, and so is a complaint."""
    if weights is None:
        weights = np.ones(candidates, dtype=np.int64)
    if weights.shape != (candidates,) or candidates == 0 or int(weights.min()) < 0:
        raise Bug("a choice needs one weight, zero or more, for each candidate")
    if not 0 < sum(weights.tolist()) < MAX_WEIGHT:
        raise Bug("the weights of a choice must sum to something, and to less than 2**40")
    return weights


@dataclass(frozen=True, eq=False)
class _Scale:
    """What is the same for every row: rate, weights, and the unit 2**-bits of the sums."""

    rate: Fraction
    weights: Words
    slack: Words  # by how much each partial sum may be too low
    bits: int


def _scale(weights: Integers, rate: Fraction) -> _Scale:
    """Return the finest unit in which the sum of all weights fits into a word."""
    words = weights.astype(np.uint64)
    slack = np.cumsum(words) * np.uint64(_OFF)
    return _Scale(rate, words, slack, min(56, 62 - int(slack[-1]).bit_length()))


def _choose_block(utilities: Integers, scale: _Scale, dice: Dice) -> Integers:
    """Return the choices of some rows: 32 random bytes each, and more if they do not decide."""
    size = 8 * _WORDS * utilities.shape[0]
    uniforms = np.frombuffer(dice.draw(size), dtype="<u8").reshape(-1, _WORDS)
    gaps = _gaps(utilities)
    first, last = _bracket(gaps, scale, uniforms[:, 0])
    for row in np.flatnonzero(first != last):
        first[row] = _choose_finely(gaps[row], scale, _uniform(uniforms[row]), dice)
    return first


def _gaps(utilities: Integers) -> Words:
    """Return by how much each utility is below the best of its row; no 64-bit pair overflows."""
    best: Words = utilities.max(axis=1).view(np.uint64)
    return best[:, np.newaxis] - utilities.view(np.uint64)


def _bracket(gaps: Words, scale: _Scale, heads: Words) -> tuple[Integers, Integers]:
    """Return for each row the first and the last candidate that the uniform may mean."""
    powers = lower_powers(scale.rate, gaps) >> np.uint64(UNIT_BITS - scale.bits)
    lows = np.cumsum(powers * scale.weights, axis=1, dtype=np.uint64)
    highs = lows + scale.slack
    mark_low = high_word(heads, lows[:, -1])
    mark_high = high_word(heads, highs[:, -1]) + np.uint64(2)
    first = np.count_nonzero(highs <= mark_low[:, np.newaxis], axis=1)
    last = np.count_nonzero(lows < mark_high[:, np.newaxis], axis=1)
    return first.astype(np.int64), np.minimum(last, gaps.shape[1] - 1).astype(np.int64)


def _uniform(words: Words) -> Uniform:
    """Return the uniform number whose first bits are those of the first word."""
    return Uniform(int.from_bytes(words.astype(">u8").tobytes(), "big"), UNIFORM_BITS)


def _choose_finely(gaps: Words, scale: _Scale, uniform: Uniform, dice: Dice) -> int:
    """Return the candidate that ever more bits of the uniform and finer sums decide."""
    first, last = _bracket_finely(gaps, scale, uniform)
    while first != last:
        uniform = uniform.longer(dice)
        first, last = _bracket_finely(gaps, scale, uniform)
    return first


def _bracket_finely(gaps: Words, scale: _Scale, uniform: Uniform) -> tuple[int, int]:
    """Return the first and the last candidate that the uniform may mean."""
    powers = list(fine_powers(scale.rate, gaps.tolist(), uniform.fine_bits))
    lows, highs = _partial_sums(powers, scale.weights.tolist())
    mark_low = uniform.prefix * lows[-1] >> uniform.bits
    mark_high = -(-(uniform.prefix + 1) * highs[-1] >> uniform.bits)
    return bisect_right(highs, mark_low), min(bisect_left(lows, mark_high), len(lows) - 1)


def _partial_sums(powers: list[Interval], weights: list[int]) -> tuple[list[int], list[int]]:
    lows = accumulate(w * low for w, (low, _) in zip(weights, powers, strict=True))
    highs = accumulate(w * high for w, (_, high) in zip(weights, powers, strict=True))
    return list(lows), list(highs)
