"""Which answers are above a threshold, until the first few: the sparse vector technique.

The threshold gets its noise once, each answer gets noise that grows with the number of positives
allowed, and it ends after so many (Lyu, Su, Li 2017, algorithm 7 without values; the broken
variants are named in sparse_vector.proof.md). Only yes and no leave, never a noisy answer. Where
all that one person moves adds up to no more than a bound, as with rows that are counted, the noisy
answers are paid by themselves, and the threshold needs no noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.mechanisms import laplace
from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.threshold_table import Integers

_THOUSAND: Final = 1000


@dataclass(frozen=True)
class SparseVector:
    """What is fixed before anything is read: the noise of the threshold and of each answer."""

    positives: int  # it ends after so many
    threshold_epsilon: Fraction
    answer_epsilon: Fraction
    threshold_scale: Fraction
    answer_scale: Fraction


def sparse_vector_for(
    epsilon: Fraction, positives: int, sensitivity: int, *, monotone: bool
) -> SparseVector:
    """Return the split of epsilon that makes comparisons sharpest, and the scales it buys.

    Monotone: as a person joins, no answer rises while another falls.
    """
    if epsilon <= 0 or positives < 1 or sensitivity < 1:
        raise Bug("watching needs an epsilon, a number of positives and a sensitivity")
    weight = positives if monotone else 2 * positives
    first = Fraction(epsilon) / (1 + _two_thirds_power(weight))
    second = Fraction(epsilon) - first
    return SparseVector(
        positives,
        threshold_epsilon=first,
        answer_epsilon=second,
        threshold_scale=laplace.scale_for(sensitivity, first),
        answer_scale=laplace.scale_for(weight * sensitivity, second),
    )


def sparse_vector_for_rows(epsilon: Fraction, positives: int, rows: int) -> SparseVector:
    """Return the scales for counts of rows, if one person has at most so many in all of them."""
    if epsilon <= 0 or positives < 1 or rows < 1:
        raise Bug("watching needs an epsilon, a number of positives and a number of rows")
    return SparseVector(
        positives,
        threshold_epsilon=Fraction(0),
        answer_epsilon=Fraction(epsilon),
        threshold_scale=Fraction(0),
        answer_scale=laplace.scale_for(rows, Fraction(epsilon)),
    )


def _two_thirds_power(number: int) -> Fraction:
    """Return number**(2/3) in whole thousandths, rounded down."""
    cube = number**2 * _THOUSAND**3
    root = 1 << -(-cube.bit_length() // 3)
    while (closer := (2 * root + cube // root**2) // 3) < root:
        root = closer
    return Fraction(root, _THOUSAND)


def first_above(
    answers: Integers, threshold: int, watch: SparseVector, dice: Dice
) -> NDArray[np.bool_]:
    """Return for each answer whether it seems to reach the threshold, up to the last allowed yes.

    Noise is drawn for every answer, asked or not, so that the bytes do not tell where it ended.
    """
    limit = threshold + _of_threshold(watch, dice)
    noisy = answers + laplace.sample(watch.answer_scale, answers.size, dice)
    is_above = np.asarray(noisy >= limit)
    yes = np.flatnonzero(is_above)
    if yes.size < watch.positives:
        return is_above
    return is_above[: yes[watch.positives - 1] + 1]


def _of_threshold(watch: SparseVector, dice: Dice) -> int:
    """Return the noise of the threshold: none if nothing is paid for it."""
    if not watch.threshold_scale:
        return 0
    return int(laplace.sample(watch.threshold_scale, 1, dice)[0])
