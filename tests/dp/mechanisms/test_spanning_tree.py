"""A tree is chosen edge by edge, each by the exponential mechanism over what is not joined yet."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, permutations

import numpy as np
import pytest

from sfumato.dp.mechanisms.spanning_tree import choose_highest_utility, choose_tree
from support.choice_laws import CHOOSING_ALARM, law_p_value, softmax
from support.seeded_dice import SeededDice

DRAWS = 1_500
PAIRS = tuple(combinations(range(4), 2))
UTILITIES = (6, 4, 0, 3, 1, 2)


def tree_law(rate: Fraction) -> dict[tuple[int, ...], Fraction]:
    """Return the chance of each order of edges, by walking every order."""
    law: dict[tuple[int, ...], Fraction] = {}
    for order in permutations(range(len(PAIRS)), 3):
        chance, group = Fraction(1), list(range(4))
        for place in order:
            left = [i for i, (a, b) in enumerate(PAIRS) if group[a] != group[b]]
            if place not in left:
                chance = Fraction(0)
                break
            chance *= softmax([UTILITIES[i] for i in left], rate)[left.index(place)]
            one, other = (group[end] for end in PAIRS[place])
            group = [one if held == other else held for held in group]
        if chance:
            law[order] = chance
    return law


def p_value(rate: Fraction, claimed: Fraction) -> float:
    law, dice = tree_law(claimed), SeededDice(1)
    places = {order: i for i, order in enumerate(law)}
    utilities = np.array(UTILITIES)
    drawn = [places[choose_tree(utilities, PAIRS, rate, dice)] for _ in range(DRAWS)]
    return law_p_value(np.array(drawn), list(law.values()))


def test_trees_follow_the_law() -> None:
    assert p_value(Fraction(1, 2), Fraction(1, 2)) > CHOOSING_ALARM


@pytest.mark.parametrize("wrong", [Fraction(1), Fraction(1, 4)])
def test_another_rate_does_not_pass(wrong: Fraction) -> None:
    assert p_value(wrong, Fraction(1, 2)) < CHOOSING_ALARM


def test_a_tree_joins_everything_with_no_ring() -> None:
    dice = SeededDice(2)
    for _ in range(50):
        found = choose_tree(np.zeros(6, dtype=np.int64), PAIRS, Fraction(1), dice)
        assert len(set(found)) == 3
        group = list(range(4))
        for place in found:
            one, other = (group[end] for end in PAIRS[place])
            assert one != other
            group = [one if held == other else held for held in group]


def test_the_worst_is_likelier() -> None:
    dice = SeededDice(3)
    found = [choose_highest_utility(np.array([0, 9]), Fraction(1), dice) for _ in range(200)]
    assert np.mean(found) > 0.95
