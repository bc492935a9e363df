"""The exponential mechanism over integer utilities, exact: P(i) proportional to w_i exp(rate u_i).

Inversion draws each choice: a 256-bit uniform number falls between two partial sums of the weights
w_i exp(rate u_i). The sums have lower and upper bounds in 64-bit integers. If the bounds cannot
decide a choice, the code repeats it with narrower intervals of higher precision, until it is
certain (exponential.proof.md).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Final

import numpy as np

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.certified_arithmetic import Interval, Uniform
from sfumato.dp.sampling.exponential_powers import (
    UNIT_BITS,
    UintArray,
    fine_powers,
    gaps_to_best,
    high_word,
    lower_powers,
)
from sfumato.dp.sampling.threshold_table import Integers

UNIFORM_BITS: Final = 256  # random bits drawn for every choice
BLOCK: Final = 1 << 19  # candidates (rows times columns) per block, so that memory stays small
MAX_WEIGHT: Final = 1 << 40  # upper limit for the sum of the weights of all candidates
_OFF: Final = 2  # largest error of a weight, in units; weights are rounded down
_WORDS: Final = UNIFORM_BITS // 64


def rate_for(epsilon: Fraction, sensitivity: int, monotone: bool) -> Fraction:
    """Return the exact rate, the factor of the utilities, at which one choice is epsilon-DP.

    The rate is epsilon / sensitivity for monotone utilities, and half of that otherwise. Utilities
    are monotone if adding a person never raises one utility while another falls.
    """
    if epsilon <= 0 or sensitivity < 1:
        raise Bug("a choice needs an epsilon and a sensitivity above zero")
    return Fraction(epsilon) / (sensitivity if monotone else 2 * sensitivity)


def rho_of(epsilon: Fraction) -> Fraction:
    """Return the zCDP cost of one exponential mechanism of this epsilon: rho = epsilon**2 / 8.

    This is less than epsilon**2 / 2, because the privacy loss is in an interval of width epsilon.
    """
    return Fraction(epsilon) ** 2 / 8


def exponential_mechanism(
    utilities: Integers, weights: Integers | None, rate: Fraction, dice: RandomSource
) -> int:
    """Draw one candidate index, with probability proportional to weight * exp(rate * utility)."""
    return int(exponential_mechanism_rows(utilities.reshape(1, -1), weights, rate, dice)[0])


def exponential_mechanism_rows(
    utilities: Integers, weights: Integers | None, rate: Fraction, dice: RandomSource
) -> Integers:
    """Draw one candidate index for each row of `utilities`, by the exponential mechanism.

    `utilities` has the shape [groups, candidates], and the draws are independent. The weights are
    public. A candidate of weight zero is never chosen. Without weights, every candidate has weight
    one.
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
    """Check the public weights of the candidates and return them; without weights, return ones.

    The weights are public, so an error message may mention them.
    """
    if weights is None:
        weights = np.ones(candidates, dtype=np.int64)
    if weights.shape != (candidates,) or candidates == 0 or int(weights.min()) < 0:
        raise Bug("a choice needs one weight, zero or more, for each candidate")
    if not 0 < sum(weights.tolist()) < MAX_WEIGHT:
        raise Bug("the weights of a choice must sum to something, and to less than 2**40")
    return weights


@dataclass(frozen=True, eq=False)
class _Scale:
    """The settings with which all rows of one call are sampled: rate, weights, and precision.

    The partial sums of the weights are integers in units of 2**-bits, and `slack` bounds their
    errors.
    """

    rate: Fraction
    weights: UintArray
    slack: UintArray  # largest error of each partial sum; sums are rounded down
    bits: int


def _scale(weights: Integers, rate: Fraction) -> _Scale:
    """Return the sampler settings for these weights and this rate, with the finest possible unit.

    The sum of all weights must fit in 64 bits. The settings include the errors of the partial sums.
    """
    words = weights.astype(np.uint64)
    slack = np.cumsum(words) * np.uint64(_OFF)
    return _Scale(rate, words, slack, min(56, 62 - int(slack[-1]).bit_length()))


def _choose_block(utilities: Integers, scale: _Scale, dice: RandomSource) -> Integers:
    """Choose one candidate for each row of utilities; the rows are few enough for the memory.

    Each row uses 32 random bytes, and more if those cannot decide.
    """
    size = 8 * _WORDS * utilities.shape[0]
    uniforms = np.frombuffer(dice.draw(size), dtype="<u8").reshape(-1, _WORDS)
    gaps = gaps_to_best(utilities)
    first, last = _bracket(gaps, scale, uniforms[:, 0])
    for row in np.flatnonzero(first != last):
        first[row] = _choose_finely(gaps[row], scale, _uniform(uniforms[row]), dice)
    return first


def _bracket(gaps: UintArray, scale: _Scale, heads: UintArray) -> tuple[Integers, Integers]:
    """Return the first and last candidate of each row that its first 64 random bits still allow.

    If the two are the same candidate, it is the choice. Otherwise, the row needs more random bits.
    """
    powers = lower_powers(scale.rate, gaps) >> np.uint64(UNIT_BITS - scale.bits)
    lows = np.cumsum(powers * scale.weights, axis=1, dtype=np.uint64)
    highs = lows + scale.slack
    mark_low = high_word(heads, lows[:, -1])
    mark_high = high_word(heads, highs[:, -1]) + np.uint64(2)
    first = np.count_nonzero(highs <= mark_low[:, np.newaxis], axis=1)
    last = np.count_nonzero(lows < mark_high[:, np.newaxis], axis=1)
    return first.astype(np.int64), np.minimum(last, gaps.shape[1] - 1).astype(np.int64)


def _uniform(words: UintArray) -> Uniform:
    """Join 64-bit random words to one long uniform number; the first word has its highest bits."""
    return Uniform(int.from_bytes(words.astype(">u8").tobytes(), "big"), UNIFORM_BITS)


def _choose_finely(gaps: UintArray, scale: _Scale, uniform: Uniform, dice: RandomSource) -> int:
    """Choose one candidate for a row: draw more random bits until only one candidate is possible.

    The partial sums of the weights are computed ever finer.
    """
    first, last = _bracket_finely(gaps, scale, uniform)
    while first != last:
        uniform = uniform.longer(dice)
        first, last = _bracket_finely(gaps, scale, uniform)
    return first


def _bracket_finely(gaps: UintArray, scale: _Scale, uniform: Uniform) -> tuple[int, int]:
    """Return the first and last candidate that the random bits drawn so far still allow.

    If the two are the same candidate, it is the choice. Otherwise, more bits must be drawn.
    """
    powers = list(fine_powers(scale.rate, gaps.tolist(), uniform.fine_bits))
    lows, highs = _partial_sums(powers, scale.weights.tolist())
    mark_low = uniform.prefix * lows[-1] >> uniform.bits
    mark_high = -(-(uniform.prefix + 1) * highs[-1] >> uniform.bits)
    return bisect_right(highs, mark_low), min(bisect_left(lows, mark_high), len(lows) - 1)


def _partial_sums(powers: list[Interval], weights: list[int]) -> tuple[list[int], list[int]]:
    lows = accumulate(w * low for w, (low, _) in zip(weights, powers, strict=True))
    highs = accumulate(w * high for w, (_, high) in zip(weights, powers, strict=True))
    return list(lows), list(highs)
