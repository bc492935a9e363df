"""The sparse vector technique in its correct variant, and how the broken ones differ."""

from __future__ import annotations

from fractions import Fraction
from itertools import product as every

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from sfumato.dp.mechanisms.sparse_vector import (
    SparseVector,
    first_above,
    sparse_vector_for,
    sparse_vector_for_rows,
)
from sfumato.dp.refusal import Bug
from support.choice_laws import CHOOSING_ALARM, is_private, law_p_value
from support.seeded_dice import CountingDice, ScriptedDice, SeededDice

ONE = Fraction(1)
DRAWS = 3_000
Outcome = tuple[bool, ...]


def outcomes(length: int, positives: int) -> list[Outcome]:
    """Every output that is possible: it ends with the last allowed yes, or with the answers."""
    found = {stopped(full, positives) for full in every((False, True), repeat=length)}
    return sorted(found, key=lambda outcome: (len(outcome), outcome))


def stopped(full: Outcome, positives: int) -> Outcome:
    yes = [place for place, is_above in enumerate(full) if is_above]
    return full if len(yes) < positives else full[: yes[positives - 1] + 1]


def exact_law(answers: tuple[int, ...], watch: SparseVector) -> list[Fraction]:
    """The law of all outcomes for threshold 0, summed over the threshold's noise."""
    reach = np.arange(-int(40 * watch.threshold_scale), int(40 * watch.threshold_scale) + 1)
    limits = stats.dlaplace.pmf(reach, float(1 / watch.threshold_scale))
    no = [chance_of_no(reach, answer, watch.answer_scale) for answer in answers]
    return [
        Fraction(float((limits * likelihood(no, outcome)).sum()))
        for outcome in outcomes(len(answers), watch.positives)
    ]


def chance_of_no(limits: NDArray[np.int64], answer: int, scale: Fraction) -> NDArray[np.float64]:
    return np.asarray(stats.dlaplace.cdf(limits - 1 - answer, float(1 / scale)))


def likelihood(no: list[NDArray[np.float64]], outcome: Outcome) -> NDArray[np.float64]:
    chance = np.ones_like(no[0])
    for part, is_above in zip(no, outcome, strict=False):
        chance = chance * ((1 - part) if is_above else part)
    return chance


def p_value_of(
    answers: tuple[int, ...], watch: SparseVector, law: list[Fraction], seed: int
) -> float:
    places = {outcome: i for i, outcome in enumerate(outcomes(len(answers), watch.positives))}
    dice, array = SeededDice(seed), np.array(answers)
    drawn = [tuple(bool(x) for x in first_above(array, 0, watch, dice)) for _ in range(DRAWS)]
    return law_p_value(np.array([places[outcome] for outcome in drawn]), law)


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("positives", [1, 2])
def test_the_joint_law_of_all_answers_is_the_exact_one(positives: int, monotone: bool) -> None:
    watch = sparse_vector_for(ONE * 4, positives, 1, monotone=monotone)
    answers = (0, 1, -1, 2)
    assert p_value_of(answers, watch, exact_law(answers, watch), 1) > CHOOSING_ALARM


def test_the_joint_law_tells_a_threshold_without_noise_or_answers_without_noise() -> None:
    right = sparse_vector_for(ONE, 2, 1, monotone=False)
    answers = (0, 1, -1, 2)
    tiny = Fraction(1, 1000)
    bare_threshold = SparseVector(2, ONE, ONE, tiny, right.answer_scale)
    bare_answers = SparseVector(2, ONE, ONE, right.threshold_scale, tiny)
    narrow_answers = SparseVector(2, ONE, ONE, right.threshold_scale, right.answer_scale / 2)
    for wrong in (bare_threshold, bare_answers, narrow_answers):
        assert p_value_of(answers, wrong, exact_law(answers, right), 2) < CHOOSING_ALARM


def is_private_everywhere(watch: SparseVector, epsilon: Fraction, lowest: int, length: int) -> bool:
    """Whether the law of every pair of answers that moves by lowest..1 is within epsilon."""
    rows = list(every((-1, 0, 1), repeat=length))
    laws = {row: exact_law(row, watch) for row in rows}
    return all(
        is_private(laws[one], laws[other], epsilon)
        for one, other in every(rows, rows)
        if all(lowest <= a - b <= 1 for a, b in zip(one, other, strict=True))
    )


@pytest.mark.parametrize("positives", [1, 2])
@pytest.mark.parametrize("epsilon", [ONE / 2, ONE * 3])
def test_it_is_private_when_answers_move_either_way(epsilon: Fraction, positives: int) -> None:
    watch = sparse_vector_for(epsilon, positives, 1, monotone=False)
    assert is_private_everywhere(watch, epsilon, -1, 3)


@pytest.mark.parametrize("positives", [1, 2])
@pytest.mark.parametrize("epsilon", [ONE / 2, ONE * 3])
def test_it_is_private_when_answers_move_one_way(epsilon: Fraction, positives: int) -> None:
    watch = sparse_vector_for(epsilon, positives, 1, monotone=True)
    assert is_private_everywhere(watch, epsilon, 0, 3)


def exact_law_of_rows(counts: tuple[int, ...], watch: SparseVector) -> list[Fraction]:
    """The law of all outcomes for threshold 0 itself, which has no noise."""
    no = [chance_of_no(np.zeros(1, np.int64), count, watch.answer_scale) for count in counts]
    return [
        Fraction(float(likelihood(no, outcome)[0]))
        for outcome in outcomes(len(counts), watch.positives)
    ]


@pytest.mark.parametrize("positives", [1, 2])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("epsilon", [ONE / 2, ONE * 3])
def test_counts_of_rows_pay_by_themselves_and_a_row_more_would_not_be_paid(
    epsilon: Fraction, rows: int, positives: int
) -> None:
    watch = sparse_vector_for_rows(epsilon, positives, rows)
    steps = [one for one in every(range(rows + 1), repeat=3) if sum(one) == rows]
    for one, step in every(((0, 0, 0), (-1, 0, -2)), steps):
        more = exact_law_of_rows(tuple(np.add(one, step).tolist()), watch)
        assert is_private(exact_law_of_rows(one, watch), more, epsilon)
    moved = exact_law_of_rows((rows - 1, -9, -9), watch)  # one count by rows: all of the price
    still, past = (exact_law_of_rows((n, -9, -9), watch) for n in (-1, rows))
    assert is_private(moved, still, epsilon)
    assert not is_private(moved, still, epsilon * 99 / 100)
    assert not is_private(past, still, epsilon)


def test_the_joint_law_of_counts_of_rows_is_the_exact_one() -> None:
    watch, counts = sparse_vector_for_rows(ONE * 2, 2, 3), (0, 1, -1, 2)
    assert p_value_of(counts, watch, exact_law_of_rows(counts, watch), 7) > CHOOSING_ALARM
    narrow = sparse_vector_for_rows(ONE * 4, 2, 3)
    assert p_value_of(counts, narrow, exact_law_of_rows(counts, watch), 7) < CHOOSING_ALARM


def test_answer_noise_that_does_not_grow_with_the_positives_is_not_private() -> None:
    right = sparse_vector_for(ONE, 4, 1, monotone=False)
    wrong = SparseVector(4, ONE, ONE, right.threshold_scale, right.answer_scale / 4)
    one, other = (0, 0, 0, 1, 1, 1, 1), (1, 1, 1, 0, 0, 0, 0)
    assert is_private(exact_law(one, right), exact_law(other, right), ONE)
    assert not is_private(exact_law(one, wrong), exact_law(other, wrong), ONE)


@pytest.mark.parametrize("positives", [1, 3, 10])
def test_it_ends_with_the_last_allowed_yes(positives: int) -> None:
    watch = sparse_vector_for(ONE, positives, 1, monotone=False)
    found = first_above(np.full(50, 10**6), 0, watch, SeededDice(3))
    assert found.tolist() == [True] * positives


def test_fewer_yes_than_allowed_tell_of_every_answer() -> None:
    watch = sparse_vector_for(ONE, 2, 1, monotone=False)
    answers = np.array([-(10**6), 10**6, -(10**6)])
    assert first_above(answers, 0, watch, SeededDice(4)).tolist() == [False, True, False]


def test_only_yes_and_no_are_told() -> None:
    found = first_above(
        np.arange(5), 2, sparse_vector_for(ONE, 2, 1, monotone=False), SeededDice(5)
    )
    assert found.dtype == np.bool_


def test_an_answer_that_reaches_the_threshold_is_above_it() -> None:
    watch = SparseVector(9, ONE, ONE, Fraction(1, 1000), Fraction(1, 1000))
    answers = np.array([6, 7, 8])
    assert first_above(answers, 7, watch, ScriptedDice(b"")).tolist() == [False, True, True]


@pytest.mark.parametrize("level", [-(10**6), 0, 10**6])
def test_the_bytes_drawn_do_not_depend_on_the_answers(level: int) -> None:
    watch = sparse_vector_for(ONE, 1, 1, monotone=False)
    asked, silent = CountingDice(6), CountingDice(6)
    first_above(np.full(100, level), 0, watch, asked)
    first_above(np.zeros(100, dtype=np.int64), 10**9, watch, silent)
    assert asked.given == silent.given


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("positives", [1, 4, 32])
def test_the_split_is_exact_and_the_one_that_is_sharpest(positives: int, monotone: bool) -> None:
    watch = sparse_vector_for(Fraction(7, 10), positives, 3, monotone=monotone)
    weight = positives * (1 if monotone else 2)
    assert watch.threshold_epsilon + watch.answer_epsilon == Fraction(7, 10)
    assert watch.threshold_scale == 3 / watch.threshold_epsilon
    assert watch.answer_scale == weight * 3 / watch.answer_epsilon
    share = watch.answer_epsilon / watch.threshold_epsilon
    assert float(share) == pytest.approx(weight ** (2 / 3), abs=0.001)


def test_watching_without_a_price_is_our_own_fault() -> None:
    for epsilon, positives, moved in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        with pytest.raises(Bug):
            sparse_vector_for(Fraction(epsilon), positives, moved, monotone=False)
        with pytest.raises(Bug):
            sparse_vector_for_rows(Fraction(epsilon), positives, moved)
