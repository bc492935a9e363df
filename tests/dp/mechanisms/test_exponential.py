"""The exponential mechanism: its law to the last bit, its privacy, and what it draws."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate
from itertools import product as every

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.mechanisms.exponential import (
    exponential_mechanism,
    exponential_mechanism_rows,
    rate_for,
    rho_of,
)
from sfumato.dp.refusal import Bug
from support.choice_laws import (
    CHOOSING_ALARM,
    ROUNDING,
    Integers,
    is_private,
    law_p_value,
    measured_laws,
    softmax,
)
from support.seeded_dice import CountingDice, ScriptedDice, SeededDice

RATES = [Fraction(1, 2), Fraction(1, 300), Fraction(7, 3), Fraction(1, 10**9)]
SOME_RATES = st.fractions(min_value=Fraction(1, 1000), max_value=5, max_denominator=1000)
SOME_UTILITIES = st.lists(st.integers(-40, 40), min_size=1, max_size=8)


def array(*numbers: int) -> Integers:
    return np.array(numbers, dtype=np.int64)


def table(candidates: int, values: range) -> Integers:
    """Every row of so many candidates with these utilities."""
    return np.array(list(every(values, repeat=candidates)), dtype=np.int64)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("weights", [None, array(1, 1, 1, 1), array(3, 0, 1, 70_000)])
def test_choices_follow_the_law(rate: Fraction, weights: Integers | None) -> None:
    row = array(0, -1, 3, -500)
    rows = np.tile(row, (100_000, 1))
    law = softmax(row.tolist(), rate, None if weights is None else weights.tolist())
    chosen = exponential_mechanism_rows(rows, weights, rate, SeededDice(1))
    assert law_p_value(chosen, law) > CHOOSING_ALARM


@pytest.mark.parametrize("factor", [Fraction(9, 10), Fraction(11, 10), Fraction(2)])
def test_a_wrong_rate_does_not_pass_for_the_right_one(factor: Fraction) -> None:
    row = array(0, -1, 3, -2)
    chosen = exponential_mechanism_rows(np.tile(row, (100_000, 1)), None, factor / 2, SeededDice(2))
    assert law_p_value(chosen, softmax(row.tolist(), Fraction(1, 2))) < CHOOSING_ALARM


def last_bits_of(sums: list[Fraction], place: int) -> int:
    """The last 256-bit uniform below the end of a candidate's share, but for the last few bits."""
    return int(sums[place] * 2**150) << 106


@pytest.mark.parametrize("rate", [*RATES, Fraction(1, 10**15)])
@pytest.mark.parametrize("weights", [None, [1, 5, 1, 2**33, 7]])
def test_the_share_of_each_candidate_ends_where_the_law_says_to_150_bits(
    rate: Fraction, weights: list[int] | None
) -> None:
    row = [-12, 0, 5, -300, 4]
    sums = list(accumulate(softmax(row, rate, weights)))
    given_weights = None if weights is None else np.array(weights)
    for place in range(4):
        for offset in (-1, 1):
            uniform = last_bits_of(sums, place) + (offset << 107)
            chosen = exponential_mechanism(np.array(row), given_weights, rate, dice_of(uniform))
            assert chosen == next(i for i, end in enumerate(sums) if uniform < end * 2**256)


def dice_of(uniform: int) -> ScriptedDice:
    """Dice that give this 256-bit uniform number."""
    words = [(uniform >> 64 * place) & (2**64 - 1) for place in (3, 2, 1, 0)]
    return ScriptedDice(b"".join(word.to_bytes(8, "little") for word in words))


@settings(deadline=None, max_examples=25)
@given(SOME_UTILITIES, SOME_RATES)
def test_the_law_measured_from_the_code_is_the_exact_one(row: list[int], rate: Fraction) -> None:
    utilities = np.array([row], dtype=np.int64)
    law = measured_laws(
        lambda dice: exponential_mechanism_rows(utilities, None, rate, dice), 1, len(row)
    )[0]
    for measured, exact in zip(law, softmax(row, rate), strict=True):
        assert abs(measured - exact) < ROUNDING


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
def test_a_choice_is_private_when_every_utility_may_move_either_way(epsilon: Fraction) -> None:
    rows = table(3, range(4))
    rate = rate_for(epsilon, 2, monotone=False)
    laws = measured_laws(
        lambda dice: exponential_mechanism_rows(rows, None, rate, dice), len(rows), 3
    )
    for i, j in np.argwhere(np.abs(rows[:, np.newaxis] - rows).max(axis=2) <= 2):
        assert is_private(laws[i], laws[j], epsilon)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
def test_a_monotone_choice_is_private_when_all_utilities_move_one_way(epsilon: Fraction) -> None:
    rows = table(3, range(4))
    rate = rate_for(epsilon, 2, monotone=True)
    laws = measured_laws(
        lambda dice: exponential_mechanism_rows(rows, None, rate, dice), len(rows), 3
    )
    moves = rows[:, np.newaxis] - rows
    for i, j in np.argwhere((moves.min(axis=2) >= 0) & (moves.max(axis=2) <= 2)):
        assert is_private(laws[i], laws[j], epsilon)


def test_without_the_factor_two_one_up_and_the_rest_down_is_not_private() -> None:
    rows = np.array([[0] + [1] * 40, [1] + [0] * 40])
    for monotone, holds in ((False, True), (True, False)):
        rate = rate_for(Fraction(1), 1, monotone=monotone)
        one, other = (softmax(row, rate) for row in rows.tolist())
        assert is_private(one, other, Fraction(1)) == holds


def test_a_choice_spends_nearly_all_of_its_epsilon_on_the_worst_pair() -> None:
    rows = np.array([[0] + [1] * 1000, [1] + [0] * 1000])
    rate = rate_for(Fraction(1), 1, monotone=False)
    law, other = measured_laws(
        lambda dice: exponential_mechanism_rows(rows, None, rate, dice), 2, 101
    )
    assert 0.98 < math.log(other[0] / law[0]) < 1


def test_gaps_that_do_not_fit_into_a_signed_word_are_measured_right() -> None:
    row = array(2**63 - 1, -(2**63), 2**63 - 2)
    chosen = exponential_mechanism_rows(np.tile(row, (20_000, 1)), None, Fraction(1), SeededDice(3))
    assert law_p_value(chosen, softmax(row.tolist(), Fraction(1))) > CHOOSING_ALARM


def test_the_best_is_all_but_certain_at_a_high_rate() -> None:
    assert exponential_mechanism(array(-1, 0, -1), None, Fraction(1000), SeededDice(4)) == 1


@pytest.mark.parametrize("uniform", [0, 255])
def test_a_candidate_of_weight_zero_is_never_chosen(uniform: int) -> None:
    weights = array(0, 0, 1, 0, 1, 0, 0)
    dice = ScriptedDice(b"", then=uniform)
    chosen = exponential_mechanism(np.array([9, 9, 0, 9, 0, 9, 9]), weights, Fraction(1), dice)
    assert chosen == (4 if uniform else 2)


def test_rows_made_in_blocks_are_independent_of_how_they_are_cut() -> None:
    rows = np.random.default_rng(5).integers(-9, 9, (40, 30_000))
    together = exponential_mechanism_rows(rows, None, Fraction(1), SeededDice(6))
    dice = SeededDice(6)
    assert together.tolist() == [
        exponential_mechanism(row, None, Fraction(1), dice) for row in rows
    ]


def test_every_row_has_a_uniform_of_its_own() -> None:
    chosen = exponential_mechanism_rows(
        np.zeros((5000, 2), dtype=np.int64), None, Fraction(1), SeededDice(7)
    )
    assert abs(np.corrcoef(chosen[1:], chosen[:-1])[0, 1]) < 0.07


@pytest.mark.parametrize("spread", [0, 3, 10**6, 2**62])
def test_the_bytes_drawn_do_not_depend_on_the_utilities(spread: int) -> None:
    dice = CountingDice(8)
    rows = np.random.default_rng(9).integers(-spread, spread + 1, (50, 1000))
    exponential_mechanism_rows(rows, None, Fraction(1, 3), dice)
    assert dice.given == 50 * 32


def test_no_rows_ask_for_no_choice() -> None:
    assert (
        exponential_mechanism_rows(
            np.zeros((0, 3), dtype=np.int64), None, Fraction(1), SeededDice(1)
        ).size
        == 0
    )


@pytest.mark.parametrize("weights", [[0, 0], [1], [1, -1], [2**40, 1]])
def test_weights_that_cannot_be_used_are_our_own_fault(weights: list[int]) -> None:
    with pytest.raises(Bug):
        exponential_mechanism(array(1, 2), np.array(weights), Fraction(1), SeededDice(1))


def test_a_choice_without_a_price_or_a_candidate_is_our_own_fault() -> None:
    for epsilon, moved in ((Fraction(0), 1), (Fraction(1), 0)):
        with pytest.raises(Bug):
            rate_for(epsilon, moved, monotone=True)
    with pytest.raises(Bug):
        exponential_mechanism(array(1, 2), None, Fraction(0), SeededDice(1))
    with pytest.raises(Bug):
        exponential_mechanism(array(), None, Fraction(1), SeededDice(1))


def test_a_choice_costs_an_eighth_of_epsilon_squared() -> None:
    assert rho_of(Fraction(2)) == Fraction(1, 2)
    assert rate_for(Fraction(1), 3, monotone=False) == Fraction(1, 6)
    assert rate_for(Fraction(1), 3, monotone=True) == Fraction(1, 3)
