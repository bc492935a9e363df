"""The most frequent are found by peeling, privately, and only their places are told."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from itertools import product as every

import numpy as np
import pytest
from scipy import stats

from sfumato.dp.mechanisms.top_k import most_frequent, noisy_max, rho_of
from sfumato.dp.refusal import Bug
from support.choice_laws import (
    CHOOSING_ALARM,
    Integers,
    is_private,
    law_p_value,
    softmax,
)
from support.seeded_dice import CountingDice, SeededDice

DRAWS = 1_500
ONE = Fraction(1)


def peel_law(counts: tuple[int, ...], k: int, rate: Fraction) -> list[Fraction]:
    """The chance of every ordered k of the candidates: each among those not yet taken."""
    return [_order_chance(counts, order, rate) for order in permutations(range(len(counts)), k)]


def _order_chance(counts: tuple[int, ...], order: tuple[int, ...], rate: Fraction) -> Fraction:
    chance, left = Fraction(1), list(range(len(counts)))
    for place in order:
        law = softmax([counts[i] for i in left], rate)
        chance *= law[left.index(place)]
        left.remove(place)
    return chance


def peels(counts: list[int], k: int, epsilon: Fraction, values: int, seed: int) -> Integers:
    """The orders found, as places in the list of all orders."""
    orders = {order: i for i, order in enumerate(permutations(range(len(counts)), k))}
    dice, array = SeededDice(seed), np.array(counts)
    found = [
        most_frequent(array, k, epsilon=epsilon, values=values, dice=dice) for _ in range(DRAWS)
    ]
    return np.array([orders[order] for order in found])


@pytest.mark.parametrize(("k", "values"), [(1, 1), (2, 1), (2, 3), (3, 1)])
def test_peels_follow_the_law(k: int, values: int) -> None:
    law = peel_law((4, 2, 0), k, ONE / (k * values))
    assert law_p_value(peels([4, 2, 0], k, ONE, values, 1), law) > CHOOSING_ALARM


@pytest.mark.parametrize("wrong_rate", [ONE, ONE / 5])
def test_another_rate_does_not_pass_for_half_of_epsilon_a_peel(wrong_rate: Fraction) -> None:
    law = peel_law((8, 4, 0), 2, wrong_rate)
    assert law_p_value(peels([8, 4, 0], 2, ONE, 1, 2), law) < CHOOSING_ALARM


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("values", [1, 2])
def test_peeling_is_private_for_a_person_with_so_many_values(k: int, values: int) -> None:
    rows = list(every(range(4), repeat=3))
    laws = {row: peel_law(row, k, ONE / (k * values)) for row in rows}
    for with_them, without in every(rows, rows):
        added = [a - b for a, b in zip(with_them, without, strict=True)]
        if min(added) >= 0 and sum(added) <= values:
            assert is_private(laws[with_them], laws[without], ONE)


def test_the_order_is_the_released_one_and_no_place_comes_twice() -> None:
    counts = np.array([10, 4000, 30, 2000, 3000])
    assert most_frequent(counts, 5, epsilon=ONE * 50, values=1, dice=SeededDice(3)) == (
        *(1, 4, 3),
        *(2, 0),
    )


def laplace_law(counts: list[int], scale: float) -> list[Fraction]:
    """The law of the first largest noisy count, summed over the value of the largest."""
    reach = np.arange(-int(40 * scale), int(40 * scale) + max(counts))
    law = []
    for i, count in enumerate(counts):
        chance = stats.dlaplace.pmf(reach - count, 1 / scale)
        for j, other in enumerate(counts):
            if j != i:
                chance *= stats.dlaplace.cdf(reach - other - (j < i), 1 / scale)
        law.append(Fraction(float(chance.sum())))
    return law


@pytest.mark.parametrize("values", [1, 3])
def test_the_noisy_largest_follows_the_law(values: int) -> None:
    dice, counts = SeededDice(4), np.array([2, 3, 3, 0])
    found = [noisy_max(counts, epsilon=ONE, values=values, dice=dice) for _ in range(DRAWS)]
    right, narrow = laplace_law([2, 3, 3, 0], values), laplace_law([2, 3, 3, 0], values / 2)
    assert law_p_value(np.array(found), right) > CHOOSING_ALARM
    assert law_p_value(np.array(found), narrow) < CHOOSING_ALARM


@pytest.mark.parametrize("epsilon", [ONE / 10, ONE, ONE * 3])
def test_the_noisy_largest_is_private_when_counts_only_rise(epsilon: Fraction) -> None:
    rows = list(every(range(3), repeat=3))
    laws = {row: laplace_law(list(row), float(1 / epsilon)) for row in rows}
    for with_them, without in every(rows, rows):
        added = [a - b for a, b in zip(with_them, without, strict=True)]
        if min(added) >= 0 and max(added) <= 1:
            assert is_private(laws[with_them], laws[without], epsilon)


def test_only_a_place_is_told_and_neither_a_count_nor_a_score() -> None:
    counts = np.array([500, 10**6])
    found = noisy_max(counts, epsilon=ONE, values=1, dice=SeededDice(6))
    assert (type(found), found) == (int, 1)
    assert most_frequent(counts, 2, epsilon=ONE, values=1, dice=SeededDice(6)) == (1, 0)


@pytest.mark.parametrize("top", [0, 5, 10**9])
def test_the_bytes_drawn_do_not_depend_on_the_counts(top: int) -> None:
    dice = CountingDice(5)
    most_frequent(np.array([top, 0, 3, top]), 3, epsilon=ONE, values=1, dice=dice)
    assert dice.given == 3 * 32


@pytest.mark.parametrize("k", [0, 3])
def test_more_than_there_are_is_our_own_fault(k: int) -> None:
    with pytest.raises(Bug):
        most_frequent(np.array([1, 2]), k, epsilon=ONE, values=1, dice=SeededDice(1))


def test_no_candidate_is_our_own_fault() -> None:
    with pytest.raises(Bug):
        noisy_max(np.zeros(0, dtype=np.int64), epsilon=ONE, values=1, dice=SeededDice(1))


def test_peels_cost_an_eighth_of_epsilon_squared_over_k() -> None:
    assert rho_of(Fraction(2), 4) == Fraction(1, 8)
