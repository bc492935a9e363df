"""Quantiles on a grid: the utility, its sensitivity by brute force, privacy, price and error."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations_with_replacement
from random import Random

import numpy as np
import pytest

from sfumato.dp.mechanisms import quantile
from sfumato.dp.mechanisms.quantile import (
    MAX_DENOMINATOR,
    choose_quantiles,
    epsilon_of,
    is_monotone,
    rank_error,
    rank_sensitivity,
    rho_of,
    sensitivity,
    utilities,
)
from sfumato.dp.refusal import Bug
from support.choice_laws import Integers, is_private, measured_laws, softmax
from support.seeded_dice import CountingDice, SeededDice

GRID = 4
PS = [Fraction(0), Fraction(1), Fraction(1, 2), Fraction(1, 3), Fraction(9, 10)]
NEAR = [Fraction(1, 10**6), Fraction(999_999, 10**6), Fraction(1, 50), Fraction(999, 1000)]
ONE = Fraction(1)


def multisets(largest: int, smallest: int = 0, grid: int = GRID) -> Integers:
    """The histogram of every collection of so many rows on the grid, ties and all."""
    rows = [
        np.bincount(points, minlength=grid)
        for size in range(smallest, largest + 1)
        for points in combinations_with_replacement(range(grid), size)
    ]
    return np.array([np.zeros(grid) if not row.size else row for row in rows]).astype(np.int64)


def plain_utility(histogram: Integers, p: Fraction, point: int) -> Fraction:
    """Minus the distance of p*n from the ranks of a point, from the rows one by one."""
    rows = [g for g, count in enumerate(histogram.tolist()) for _ in range(count)]
    below = sum(1 for row in rows if row < point)
    up_to = sum(1 for row in rows if row <= point)
    wanted = p * len(rows)
    return -max(Fraction(0), below - wanted, wanted - up_to)


@pytest.mark.parametrize("p", PS)
def test_the_utility_is_the_distance_in_ranks(p: Fraction) -> None:
    for histogram in multisets(5):
        expected = [plain_utility(histogram, p, g) * p.denominator for g in range(GRID)]
        assert utilities(histogram, p).tolist() == expected


@pytest.mark.parametrize("p", PS)
def test_some_point_is_always_right(p: Fraction) -> None:
    assert (utilities(multisets(6), p).max(axis=1) == 0).all()


def moves(p: Fraction, rows: int, grid: int = GRID, most: int = 5) -> Integers:
    """How much a person of 1 to `rows` rows moves each utility, over all small data sets."""
    others, person = multisets(most, grid=grid), multisets(rows, smallest=1, grid=grid)
    both = others[:, np.newaxis] + person
    return np.asarray(utilities(both, p) - utilities(others, p)[:, np.newaxis])


@pytest.mark.parametrize("p", PS + NEAR)
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_sensitivity_is_never_exceeded_and_attained(p: Fraction, rows: int) -> None:
    assert np.abs(moves(p, rows)).max() == sensitivity(p, rows)


@pytest.mark.parametrize("p", PS + NEAR)
def test_only_of_min_and_max_a_joining_person_lowers_every_utility(p: Fraction) -> None:
    assert (moves(p, 2).max() <= 0) == is_monotone(p)


def probability(rng: Random) -> Fraction:
    """Any probability that may be asked, most of them beside 0 or 1, or one of them."""
    unit = rng.choice((10, 1000, MAX_DENOMINATOR))
    part = rng.choice((0, 1, 2, rng.randint(0, unit)))
    return Fraction(rng.choice((part, unit - part)), unit)


def drawn_rate(p: Fraction, epsilon: Fraction, rows: int, grid: int) -> Fraction:
    """The rate that a choice is really drawn at."""
    rates: list[Fraction] = []

    def choose_rows(_u: Integers, _w: None, rate: Fraction, _dice: object) -> Integers:
        rates.append(rate)
        return np.zeros(1, dtype=np.int64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantile, "exponential_mechanism_rows", choose_rows)
        histogram = np.zeros((1, grid), dtype=np.int64)
        choose_quantiles(histogram, p, epsilon=epsilon, rows=rows, dice=SeededDice(1))
    (rate,) = rates
    return rate


def test_at_no_probability_rows_or_grid_a_choice_ranges_over_more_than_its_epsilon() -> None:
    """The log-ratio of two laws lies in an interval as long as rate * (largest - least move)."""
    rng, longest = Random(7), Fraction(0)
    for _ in range(300):
        p, rows, grid = probability(rng), rng.randint(1, 4), rng.randint(2, 5)
        epsilon = Fraction(rng.randint(1, 400), 100)
        moved = moves(p, rows, grid, most=rng.randint(2, 4))
        furthest = np.maximum(moved.max(axis=-1) - moved.min(axis=-1), np.abs(moved).max(axis=-1))
        length = drawn_rate(p, epsilon, rows, grid) * int(furthest.max())
        assert length <= epsilon, (p, rows, grid)
        longest = max(longest, length / epsilon)
    assert longest == 1


@pytest.mark.parametrize("p", PS)
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("epsilon", [ONE])
def test_the_law_measured_from_the_code_is_private(
    p: Fraction, rows: int, epsilon: Fraction
) -> None:
    cells = multisets(4 + rows)
    laws = measured_laws(
        lambda dice: choose_quantiles(cells, p, epsilon=epsilon, rows=rows, dice=dice),
        *cells.shape,
    )
    law_of = {tuple(cell): law for cell, law in zip(cells.tolist(), laws, strict=True)}
    for others in multisets(4):
        for person in multisets(rows, smallest=1):
            joined = tuple((others + person).tolist())
            assert is_private(law_of[joined], law_of[tuple(others.tolist())], epsilon)


@pytest.mark.parametrize(("p", "doubled"), [(ONE / 2, 2), (ONE / 3, 2), (Fraction(0), 1)])
def test_quantiles_follow_the_exponential_law_of_their_rate(p: Fraction, doubled: int) -> None:
    cells = multisets(3)
    rate = ONE / (doubled * sensitivity(p, 2))
    laws = measured_laws(
        lambda dice: choose_quantiles(cells, p, epsilon=ONE, rows=2, dice=dice), *cells.shape
    )
    for cell, law in zip(cells, laws, strict=True):
        exact = softmax(utilities(cell, p).tolist(), rate)
        assert [float(x) for x in law] == pytest.approx([float(x) for x in exact], abs=1e-10)


def test_the_pair_that_spends_the_whole_of_epsilon() -> None:
    """A maximum of equal rows: one more at the top is as bad as the price allows."""
    cells = np.array([[0] * 400 + [1], [0] * 400 + [0]])
    law, other = (softmax(utilities(cell, ONE).tolist(), ONE) for cell in cells)
    assert 0.99 < math.log(law[400] / other[400]) <= 1


def test_rows_at_one_point_are_all_of_its_ranks() -> None:
    histogram = np.array([1, 0, 8, 0, 1])
    assert utilities(histogram, ONE / 2).tolist() == [-8, -8, 0, -8, -8]


def test_a_cell_without_rows_is_chosen_from_uniformly() -> None:
    assert utilities(np.zeros(4, dtype=np.int64), ONE / 2).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(("p", "near"), [(ONE / 2, 500), (ONE / 4, 250), (Fraction(1), 999)])
def test_a_quantile_of_many_rows_is_near_the_true_one(p: Fraction, near: int) -> None:
    cells = np.full((200, 1000), 50)
    chosen = choose_quantiles(cells, p, epsilon=ONE, rows=1, dice=SeededDice(1))
    assert np.abs(chosen - near).max() <= 2


def test_min_is_pulled_to_the_lower_end_as_the_proof_warns() -> None:
    cells = np.zeros((500, 1000), dtype=np.int64)
    cells[:, 800] = 1000
    chosen = choose_quantiles(cells, Fraction(0), epsilon=ONE, rows=1, dice=SeededDice(2))
    assert 300 < chosen.mean() < 500


@pytest.mark.parametrize("p", PS)
def test_the_rank_error_holds_as_often_as_it_says(p: Fraction) -> None:
    generator = np.random.default_rng(3)
    cells = generator.integers(0, 3, (2000, 100))
    chosen = choose_quantiles(cells, p, epsilon=ONE, rows=2, dice=SeededDice(4))
    off = -utilities(cells, p)[np.arange(2000), chosen] / p.denominator
    margin = rank_error(ONE, rank_sensitivity(p, 2), 100, Fraction(95, 100))
    assert (off <= margin).mean() >= 0.95


def test_the_rank_error_is_the_smallest_that_the_bound_allows() -> None:
    exact = 2 * Fraction(3, 2) / ONE * Fraction(math.log(1000 / 0.05))
    assert rank_error(ONE, Fraction(3, 2), 1000, Fraction(95, 100)) == math.ceil(exact)
    assert rank_error(ONE, ONE / 2, 65536, Fraction(95, 100)) == 15


@pytest.mark.parametrize("level", [0, 1, 10**9])
def test_the_bytes_drawn_do_not_depend_on_the_rows(level: int) -> None:
    dice = CountingDice(5)
    choose_quantiles(np.full((7, 100), level), ONE / 3, epsilon=ONE, rows=1, dice=dice)
    assert dice.given == 7 * 32


def test_prices_add_over_groups_and_quantiles() -> None:
    assert epsilon_of(ONE / 10, groups=3, quantiles=2) == Fraction(6, 10)
    assert rho_of(ONE / 10, groups=3, quantiles=2) == Fraction(6, 800)


def test_the_sensitivity_in_ranks() -> None:
    assert rank_sensitivity(ONE / 2, 3) == Fraction(3, 2)
    assert rank_sensitivity(Fraction(9, 10), 1) == Fraction(9, 10)
    assert sensitivity(Fraction(9, 10), 2) == 18


@pytest.mark.parametrize("p", [Fraction(-1, 2), Fraction(3, 2), Fraction(1, 10**7)])
def test_a_probability_that_is_none_is_our_own_fault(p: Fraction) -> None:
    with pytest.raises(Bug):
        sensitivity(p, 1)


def test_a_person_without_rows_is_our_own_fault() -> None:
    with pytest.raises(Bug):
        sensitivity(ONE / 2, 0)
