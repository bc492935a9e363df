"""The median of blocks: the law of every grid point, its sensitivity by brute force, its error."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sfumato.dp.mechanisms.median_of_blocks import (
    MAX_STEPS,
    SENSITIVITY,
    _stretches,
    choose_median,
    ranks_off,
)
from support.seeded_dice import CountingDice, SeededDice

TOP = 4  # of a grid small enough to try everything
ONE = Fraction(1)


def plain_utility(values: tuple[int, ...], point: int) -> int:
    """Minus the distance of the middle rank from the ranks of a point, in half ranks."""
    below = sum(value < point for value in values)
    up_to = sum(value <= point for value in values)
    return -max(0, 2 * below - len(values), len(values) - 2 * up_to)


def by_point(values: tuple[int, ...], top: int = TOP) -> dict[int, int]:
    """Return the utility of every point as the stretches have it; each point is in one."""
    found: dict[int, int] = {}
    for start, length, utility in zip(*_stretches(np.sort(values), top), strict=True):
        for point in range(int(start), int(start + length)):
            assert point not in found
            found[point] = int(utility)
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_stretches_are_the_grid_and_know_the_utility_of_each_point(count: int) -> None:
    for values in product(range(TOP + 1), repeat=count):
        expected = {point: plain_utility(values, point) for point in range(TOP + 1)}
        assert by_point(values) == expected
        assert max(expected.values()) == 0


def test_one_block_moves_a_utility_by_one_rank_and_does_so() -> None:
    moved = 0
    for values in product(range(TOP + 1), repeat=3):
        for place, other in product(range(3), range(TOP + 1)):
            changed = (*values[:place], other, *values[place + 1 :])
            ours, theirs = by_point(values), by_point(changed)
            moved = max(moved, *(abs(ours[point] - theirs[point]) for point in ours))
    assert moved == SENSITIVITY == 2


def law(values: tuple[int, ...], epsilon: float) -> list[float]:
    weights = [math.exp(epsilon / 4 * plain_utility(values, point)) for point in range(TOP + 1)]
    return [weight / sum(weights) for weight in weights]


def test_what_is_chosen_has_the_law_of_the_whole_grid() -> None:
    values, dice, tries = (0, 0, 3), SeededDice(7), 20_000
    chosen = [choose_median(np.array(values), TOP, Fraction(2), dice) for _ in range(tries)]
    found = np.bincount(chosen, minlength=TOP + 1) / tries
    assert np.allclose(found, law(values, 2.0), atol=5 * math.sqrt(0.25 / tries))


def test_neighbours_are_as_close_as_the_price_says() -> None:
    for values in product(range(TOP + 1), repeat=2):
        for other in range(TOP + 1):
            pairs = zip(law(values, 1.0), law((values[0], other), 1.0), strict=True)
            assert max(abs(math.log(p / q)) for p, q in pairs) <= 1 + 1e-12


def test_a_wide_grid_is_drawn_from_with_the_same_bytes_whatever_the_values() -> None:
    for values in ([5] * 20, list(range(0, 20_000, 1000)), [0] * 10 + [MAX_STEPS] * 10):
        dice = CountingDice(1)
        assert 0 <= choose_median(np.array(values), MAX_STEPS, ONE, dice) <= MAX_STEPS
        assert dice.given == 64


def test_the_chosen_point_is_in_the_middle_as_often_as_is_said() -> None:
    values, top, dice = np.arange(0, 2000, 20), 2000, SeededDice(3)
    off = ranks_off(Fraction(2), top, Fraction(95, 100))
    assert off == math.ceil(math.log(20 * (top + 1)))
    far = 0
    for _ in range(500):
        below = int(np.searchsorted(values, choose_median(values, top, Fraction(2), dice)))
        far += abs(below - 50) > off + 1
    assert far <= 500 * 0.05


@given(epsilon=st.fractions(Fraction(1, 10), 2), off=st.integers(1, 30), more=st.booleans())
def test_the_ranks_off_count_every_step_of_the_grid(
    epsilon: Fraction, off: int, more: bool
) -> None:
    rate = float(epsilon) / SENSITIVITY
    points = math.floor(math.exp(rate * off) / 20) + more  # where one point more makes it worse
    assume(points > 0)
    exact = math.log(20 * points) / rate
    assume(abs(exact - round(exact)) > 1e-9)
    assert ranks_off(epsilon, points - 1, Fraction(19, 20)) == math.ceil(exact)
