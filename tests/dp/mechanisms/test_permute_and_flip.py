"""Permute-and-flip: its law, its coins to the last bit, its privacy, and what it draws."""

from __future__ import annotations

from fractions import Fraction
from itertools import product as every

import numpy as np
import pytest

from sfumato.dp.mechanisms.exponential import rate_for
from sfumato.dp.mechanisms.permute_and_flip import permute_and_flip, rho_of
from sfumato.dp.refusal import Bug
from support.choice_laws import (
    CHOOSING_ALARM,
    Integers,
    flip_law,
    is_private,
    law_p_value,
    softmax,
    weight,
)
from support.seeded_dice import CountingDice, ScriptedDice, SeededDice

HALF = Fraction(1, 2)
DRAWS = 6_000


def draws_of(row: list[int], rate: Fraction, seed: int) -> Integers:
    dice, utilities = SeededDice(seed), np.array(row)
    return np.array([permute_and_flip(utilities, rate, dice) for _ in range(DRAWS)])


@pytest.mark.parametrize("row", [[0, -1, -2, -3], [5, 5, 5], [0, 0, -700], [2, 0]])
def test_choices_follow_the_law(row: list[int]) -> None:
    assert law_p_value(draws_of(row, HALF, 1), flip_law(row, HALF)) > CHOOSING_ALARM


@pytest.mark.parametrize("factor", [Fraction(3, 4), Fraction(5, 4), Fraction(2)])
def test_a_wrong_rate_does_not_pass_for_the_right_one(factor: Fraction) -> None:
    row = [0, -1, -1, -3]
    assert law_p_value(draws_of(row, HALF * factor, 2), flip_law(row, HALF)) < CHOOSING_ALARM


def test_it_is_not_the_exponential_mechanism() -> None:
    row = [0, -1, -1, -3]
    assert law_p_value(draws_of(row, HALF, 3), softmax(row, HALF)) < CHOOSING_ALARM


def test_the_law_is_that_of_the_largest_of_scores_with_exponential_noise() -> None:
    row = np.array([0, -1, -2, -3])
    noise = np.random.default_rng(4).exponential(2.0, (200_000, 4))
    largest = np.argmax(row + noise, axis=1)
    assert law_p_value(largest, flip_law(row.tolist(), HALF)) > CHOOSING_ALARM


def head_and_rest(coin: int) -> bytes:
    """The 64 bits that are drawn first of a uniform of 120 bits, and the 64 drawn when in doubt."""
    return (coin >> 56).to_bytes(8, "little") + ((coin << 8) & (2**64 - 1)).to_bytes(8, "little")


@pytest.mark.parametrize("rate", [HALF, Fraction(1, 10**6), Fraction(1)])
@pytest.mark.parametrize("gap", [1, 2, 60])
def test_a_coin_is_decided_exactly_where_its_chance_ends(rate: Fraction, gap: int) -> None:
    end = int(weight(rate * gap) * 2**120)
    for coin in (end - 1, end + 1):
        dice = ScriptedDice(bytes(8) + head_and_rest(coin), then=255)
        assert permute_and_flip(np.array([0, -gap]), rate, dice) == int(coin < end)


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
def test_the_law_is_private_at_its_rate(epsilon: Fraction, monotone: bool) -> None:
    rate = rate_for(epsilon, 1, monotone=monotone)
    rows = list(every(range(3), repeat=3))
    laws = {row: flip_law(row, rate) for row in rows}
    for one, other in every(rows, rows):
        moves = [a - b for a, b in zip(one, other, strict=True)]
        if max(moves) <= 1 and min(moves) >= (0 if monotone else -1):
            assert is_private(laws[one], laws[other], epsilon)


def test_without_the_factor_two_one_up_and_the_rest_down_is_not_private() -> None:
    one, other = [0, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]
    for monotone, holds in ((False, True), (True, False)):
        rate = rate_for(Fraction(1), 1, monotone=monotone)
        assert is_private(flip_law(one, rate), flip_law(other, rate), Fraction(1)) == holds


@pytest.mark.parametrize("spread", [0, 3, 10**6, 2**62])
def test_the_bytes_drawn_do_not_depend_on_the_utilities(spread: int) -> None:
    dice = CountingDice(5)
    row = np.random.default_rng(6).integers(-spread, spread + 1, 1000)
    permute_and_flip(row, Fraction(1, 3), dice)
    assert dice.given == 1000 * 8 + 32


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_ends_of_the_uniform_pick_the_first_and_the_last_head(count: int) -> None:
    row = np.zeros(count, dtype=np.int64)
    assert permute_and_flip(row, HALF, ScriptedDice(b"", then=0)) == 0
    lucky = ScriptedDice(bytes(8 * count) + b"\xff" * 32)
    assert permute_and_flip(row, HALF, lucky) == count - 1


def test_gaps_that_do_not_fit_into_a_signed_word_are_measured_right() -> None:
    row = np.array([2**63 - 1, -(2**63)])
    assert permute_and_flip(row, Fraction(1), SeededDice(7)) == 0


def test_a_hundred_thousand_candidates_are_chosen_from() -> None:
    row = -np.arange(100_000)
    assert permute_and_flip(row, Fraction(1), SeededDice(8)) < 40


def test_no_candidate_is_our_own_fault() -> None:
    with pytest.raises(Bug):
        permute_and_flip(np.zeros(0, dtype=np.int64), HALF, SeededDice(1))


def test_a_choice_costs_half_of_epsilon_squared() -> None:
    assert rho_of(Fraction(2)) == 2
