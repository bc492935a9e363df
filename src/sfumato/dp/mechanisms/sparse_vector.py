"""The sparse vector technique: which answers are above a threshold, up to the first few.

The mechanism adds noise to the threshold once. It adds noise to each answer that grows with the
allowed number of positives, and stops after that many. It is algorithm 7 of Lyu, Su, Li (2017),
without values; sparse_vector.proof.md names the broken variants. It releases only yes or no, never
a noisy answer.

With counts of disjoint rows, one person changes all answers by at most a bound in total. The noise
on the answers alone is then enough, and the threshold needs no noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.mechanisms import laplace
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.threshold_table import Integers

_THOUSAND: Final = 1000


@dataclass(frozen=True)
class SparseVector:
    """The settings of one run of the sparse vector technique: noise scales and epsilons.

    They are fixed before any data is read.
    """

    positives: int  # the mechanism stops after this many
    threshold_epsilon: Fraction
    answer_epsilon: Fraction
    threshold_scale: Fraction
    answer_scale: Fraction


def sparse_vector_for(
    epsilon: Fraction, positives: int, sensitivity: int, *, monotone: bool
) -> SparseVector:
    """Return the settings for a run whose answers each have the given sensitivity.

    The split of epsilon between threshold and answers makes the comparisons most accurate.
    `monotone` means that adding a person never raises one answer while another answer falls.
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
    """Return the settings for counts of disjoint rows, with noise on the answers only.

    One person has at most `rows` rows in all counts together.
    """
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
    """Return number**(2/3), to split epsilon between the threshold and the answers.

    It is rounded down to a multiple of 1/1000.
    """
    cube = number**2 * _THOUSAND**3
    root = 1 << -(-cube.bit_length() // 3)
    while (closer := (2 * root + cube // root**2) // 3) < root:
        root = closer
    return Fraction(root, _THOUSAND)


def first_above(
    answers: Integers, threshold: int, watch: SparseVector, dice: RandomSource
) -> NDArray[np.bool_]:
    """Return for each answer whether it reaches the noisy threshold, up to the last allowed yes.

    An answer counts as yes if its noisy value is at least the noisy threshold. The code draws noise
    for every answer, also after it stopped. So the number of random bytes does not reveal where the
    mechanism stopped.
    """
    limit = threshold + _of_threshold(watch, dice)
    noisy = answers + laplace.sample(watch.answer_scale, answers.size, dice)
    is_above = np.asarray(noisy >= limit)
    yes = np.flatnonzero(is_above)
    if yes.size < watch.positives:
        return is_above
    return is_above[: yes[watch.positives - 1] + 1]


def _of_threshold(watch: SparseVector, dice: RandomSource) -> int:
    """Draw the noise to add to the threshold, or return 0 if the threshold has no epsilon."""
    if not watch.threshold_scale:
        return 0
    return int(laplace.sample(watch.threshold_scale, 1, dice)[0])
