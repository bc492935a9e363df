"""Exact sums on a coarser grid: unbiased, and nobody moves them farther than is charged."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.secure_aggregation.dithered_rounding import DitheredGrid
from sfumato.dp.secure_aggregation.stochastic_rounding import squared_norm
from support.seeded_dice import SeededDice

SIZE = 400
GRID = DitheredGrid(Fraction(1), 26, SIZE, 1000, Fraction(1, 10**6))  # 16 steps to the clip


def test_rounding_is_right_on_average_and_off_by_less_than_a_step() -> None:
    update = np.full(SIZE, 12345678901, dtype=np.int64)
    found = np.array([GRID.rounded(update, SeededDice(seed)) for seed in range(100)])
    steps = 12345678901 / 2**26
    assert set(np.unique(found)) == {int(steps), int(steps) + 1}
    assert abs(found.mean() - steps) < 0.015  # 5 deviations of 40,000 coins
    assert np.abs(GRID.numbers(found[0]) - update * 2.0**-30).max() <= 2.0**-4


def a_part(spread: int, seed: int) -> np.ndarray:
    """A person's part of norm 1: in few numbers, or in all of them."""
    drawn = np.random.default_rng(seed).normal(size=SIZE)
    drawn[spread:] = 0
    return np.asarray(drawn / np.linalg.norm(drawn) * 2**30).astype(np.int64)


@pytest.mark.parametrize("spread", [1, 20, SIZE])
def test_a_person_moves_the_rounded_sum_by_no_more_than_is_charged(spread: int) -> None:
    others = np.random.default_rng(0).integers(-(2**38), 2**38, SIZE)
    for seed in range(300):
        part = a_part(spread, seed)
        with_, without = (
            GRID.rounded(total, SeededDice(seed)) for total in (others + part, others)
        )
        assert squared_norm(with_ - without) <= GRID.most_squared


def test_the_bound_is_tighter_than_a_whole_step_in_each_number() -> None:
    assert float(GRID.steps) ** 2 < GRID.most_squared < (float(GRID.steps) + SIZE**0.5) ** 2 / 2
    rarer = DitheredGrid(Fraction(1), 26, SIZE, 1000, Fraction(1, 10**60))
    assert GRID.most_squared < rarer.most_squared <= (16 + SIZE**0.5) ** 2 + 2


def test_a_grid_that_could_overflow_is_none() -> None:
    assert DitheredGrid(Fraction(4), 20, SIZE, 2**30 - 1, Fraction(1, 10**6)).steps == 2**12
    with pytest.raises(Bug, match="62 bits"):
        DitheredGrid(Fraction(4), 20, SIZE, 2**30, Fraction(1, 10**6))
    with pytest.raises(Refused, match="update-refused"):
        GRID.rounded(np.zeros(SIZE), SeededDice(1))  # type: ignore[arg-type]  # of floats


def test_the_least_and_the_coarsest_grid_are_grids() -> None:
    assert DitheredGrid(Fraction(1), 0, 1, 1, Fraction(1, 2)).steps == 2**30
    assert DitheredGrid(Fraction(1), 30, 1, 1, Fraction(1, 2)).steps == 1


@pytest.mark.parametrize(
    "broken", [{"clip": 0}, {"shift": -1}, {"shift": 31}, {"size": 0}, {"people": 0},
               {"chance": 0}, {"chance": 1}],
)  # fmt: skip
def test_a_grid_that_makes_no_sense_is_a_bug(broken: dict[str, int]) -> None:
    terms = {"clip": 1, "shift": 20, "size": 1, "people": 1, "chance": Fraction(1, 2), **broken}
    with pytest.raises(Bug):
        DitheredGrid(**terms)  # type: ignore[arg-type]  # whole numbers are fractions
