"""From numbers to integers: unbiased, never longer than the bound, nothing that is no number."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.secure_aggregation.stochastic_rounding import Grid, PeopleGrid, squared_norm
from support.seeded_dice import ScriptedDice, SeededDice

GRID = Grid(clip=Fraction(1), steps=100, size=4)


def test_a_number_between_two_steps_is_rounded_to_either_with_its_chance() -> None:
    dice = SeededDice(1)
    update = np.array([0.123, -0.456, 0.0, 0.5])
    found = np.array([GRID.rounded(update, dice) for _ in range(20_000)])
    assert set(np.unique(found[:, 0])) == {12, 13}
    assert set(np.unique(found[:, 1])) == {-46, -45}
    assert set(np.unique(found[:, 2])) == {0}
    assert np.abs(found.mean(axis=0) - 100 * update).max() < 0.02  # 5 deviations


def test_rounding_down_always_would_be_seen() -> None:
    update = np.array([0.123, -0.456, 0.0, 0.5])
    always = np.array([GRID.rounded(update, ScriptedDice(b"", then=255)) for _ in range(10)])
    assert np.abs(always.mean(axis=0) - 100 * update).max() > 0.2


def test_a_long_update_is_clipped_and_keeps_its_direction() -> None:
    found = GRID.rounded(np.array([300.0, -400.0, 0, 0]), SeededDice(2))
    assert np.abs(found - [60, -80, 0, 0]).max() <= 1


def test_a_short_update_is_not_stretched() -> None:
    assert GRID.rounded(np.array([0.2, 0, 0, 0]), SeededDice(3)).tolist() == [20, 0, 0, 0]


@given(
    arrays(np.float64, 6, elements=st.floats(-1e308, 1e308)),
    st.integers(1, 10**6),
    st.integers(0, 99),
)
def test_no_update_comes_out_longer_than_the_bound(
    update: np.ndarray, steps: int, seed: int
) -> None:
    grid = Grid(clip=Fraction(3, 2), steps=steps, size=6)
    found = grid.rounded(update, SeededDice(seed))
    assert squared_norm(found) <= grid.most_squared
    assert int(np.abs(found).sum()) <= grid.most_absolute
    assert int(np.abs(found).max()) <= grid.most_each


def test_dice_that_always_round_up_end_in_cutting_towards_zero() -> None:
    grid = Grid(clip=Fraction(1), steps=2, size=100)
    update = np.full(100, 0.0999)
    found = grid.rounded(update, ScriptedDice(b""))
    assert not found.any()
    assert squared_norm(grid.rounded(update, SeededDice(4))) > 0


@given(steps=st.integers(1, 2**40), size=st.integers(1, 10**6))
def test_the_bound_is_the_published_one_at_most_three_above(steps: int, size: int) -> None:
    """Kairouz, Liu and Steinke 2021, proposition 22, with beta = exp(-1/2)."""
    root = Fraction(math.isqrt(size << 80), 1 << 40)  # below, by less than 2**-40
    published = steps**2 + Fraction(size, 4) + steps + root / 2
    assert published <= Grid(Fraction(1), steps, size).most_squared <= published + 3


@pytest.mark.parametrize("size", [1, 10, 1000, 100_000])
def test_the_bound_is_passed_at_once_more_often_than_not_at_all(size: int) -> None:
    grid = Grid(clip=Fraction(1), steps=1000, size=size)
    update = np.full(size, size**-0.5)
    found = [grid.rounded(update, SeededDice(seed)) for seed in range(20)]
    assert all(part.any() for part in found) or size > 1000**2


@pytest.mark.parametrize(
    "update",
    [
        np.array([np.nan, 0, 0, 0]),
        np.array([np.inf, 0, 0, 0]),
        np.zeros(3),
        np.zeros((2, 2)),
        np.array(["1", "2", "3", "4"]),
        np.array([1, 2, 3, 4], dtype=object),
        np.zeros(4, dtype=np.complex128),
        [0.0, 0.0, 0.0, 0.0],
    ],
    ids=["nan", "inf", "short", "folded", "words", "objects", "complex", "a list"],
)
def test_what_is_no_update_is_refused(update: np.ndarray) -> None:
    with pytest.raises(Refused, match="update-refused"):
        GRID.rounded(update, SeededDice(5))


@pytest.mark.parametrize("terms", [(0, 1, 1), (1, 0, 1), (1, 2**41, 1), (1, 1, 0)])
def test_a_grid_that_makes_no_sense_is_a_bug(terms: tuple[int, int, int]) -> None:
    clip, steps, size = terms
    with pytest.raises(Bug):
        Grid(Fraction(clip), steps, size)


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5))
def test_a_squared_norm_is_exact(values: list[int]) -> None:
    assert squared_norm(np.array(values)) == sum(value * value for value in values)


def test_a_sum_of_steps_becomes_numbers_again() -> None:
    assert GRID.numbers(np.array([150, -25, 0, 1])).tolist() == [1.5, -0.25, 0, 0.01]


PEOPLE = PeopleGrid(clip=Fraction(1, 2), steps=20, size=4, people=30)


def test_one_person_moves_a_rounded_sum_by_no_more_than_the_bound() -> None:
    rng = np.random.default_rng(6)
    for _ in range(300):
        parts = rng.normal(size=(30, 4))
        parts *= 0.5 / np.linalg.norm(parts, axis=1, keepdims=True)  # each of the whole clip
        whole = PEOPLE.rounded(parts.sum(0), SeededDice(0))
        moved = whole - PEOPLE.rounded(parts[1:].sum(0), SeededDice(0))
        assert squared_norm(moved) <= PEOPLE.most_squared
        assert int(np.abs(moved).sum()) <= PEOPLE.most_absolute
        assert int(np.abs(whole).max()) <= PEOPLE.most_each


def test_rounding_can_move_a_person_beyond_the_clip() -> None:
    """So the bound has to count it: here the part is 20 steps long, and moves the sum by more."""
    others, part = np.full(4, 0.49 / 40), np.full(4, 0.25)
    moved = PEOPLE.rounded(others + part, SeededDice(0)) - PEOPLE.rounded(others, SeededDice(0))
    assert squared_norm(moved) == 400
    nudged = others + part + 0.02 / 40
    further = PEOPLE.rounded(nudged, SeededDice(0)) - PEOPLE.rounded(others, SeededDice(0))
    assert squared_norm(further) > 20**2


@given(
    gradient=arrays(np.float64, 4, elements=st.floats(-1e3, 1e3, width=32)),
    steps=st.integers(1, 2**20),
    clip=st.fractions(Fraction(1, 100), 100),
)
def test_a_persons_part_is_their_gradient_clipped_and_in_whole_steps(
    gradient: np.ndarray, steps: int, clip: Fraction
) -> None:
    grid = PeopleGrid(clip, steps, 4, 1)
    exact = [Fraction(float(one)) for one in gradient]
    norm = Fraction(math.isqrt(int(sum(one * one for one in exact) * 2**400)), 2**200)
    wanted = [float(steps * one / max(norm, clip)) for one in exact]
    found = grid.person(gradient)
    assert np.abs(found - np.array(wanted)).max() <= 0.5 + 1e-6
    assert squared_norm(found) <= grid.most_squared


@pytest.mark.parametrize("broken", [np.zeros(3), np.array([np.nan, 1, 1, 1])])
def test_a_gradient_that_is_none_moves_nothing(broken: np.ndarray) -> None:
    assert PEOPLE.person(broken).tolist() == [0, 0, 0, 0]


@given(each=st.integers(2**30, 2**32), count=st.integers(1, 40))
def test_a_squared_norm_that_passes_64_bits_is_exact(each: int, count: int) -> None:
    assert squared_norm(np.full(count, each, dtype=np.int64)) == count * each**2


def test_more_than_so_many_people_cannot_make_it_larger() -> None:
    found = PEOPLE.rounded(np.full(4, 1e6), SeededDice(0))
    assert found.tolist() == [PEOPLE.most_each] * 4


@pytest.mark.parametrize("update", [np.zeros(3), np.full(4, np.nan)], ids=["short", "nan"])
def test_what_is_no_sum_is_refused(update: np.ndarray) -> None:
    with pytest.raises(Refused, match="update-refused"):
        PEOPLE.rounded(update, SeededDice(0))


@pytest.mark.parametrize("terms", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 1, 0), (1, 2**30, 1, 2**20)])
def test_a_grid_of_people_that_makes_no_sense_is_a_bug(terms: tuple[int, int, int, int]) -> None:
    clip, steps, size, people = terms
    with pytest.raises(Bug):
        PeopleGrid(Fraction(clip), steps, size, people)


def test_the_least_grids_are_grids() -> None:
    assert Grid(Fraction(1), 1, 1).most_each == 2
    for clip in (Fraction(1, 10**30), Fraction(10**30)):
        assert PeopleGrid(clip, 1, 1, 1).most_each == 2
    for clip in (Fraction(1, 10**30) - Fraction(1, 10**40), Fraction(10**30 + 1)):
        with pytest.raises(Bug, match="1e-30 to 1e30"):
            PeopleGrid(clip, 1, 1, 1)
