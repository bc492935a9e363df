"""The search for bounds: its bins, its threshold, its law and its privacy."""

from __future__ import annotations

from fractions import Fraction
from itertools import product as every

import numpy as np
import pytest
from scipy import stats

from sfumato.dp.mechanisms.bounds_search import bin_count, edges, search_bounds, threshold
from sfumato.dp.refusal import Bug
from support.choice_laws import CHOOSING_ALARM, is_private, law_p_value
from support.seeded_dice import CountingDice, SeededDice
from support.value_bins import bins_of

ONE = Fraction(1)
FALSE_POSITIVE = Fraction(1, 20)
Found = tuple[int, int] | None


@pytest.mark.parametrize("exponents", [1, 5, 62])
def test_every_value_lies_between_the_edges_of_its_bin(exponents: int) -> None:
    powers = [2**j for j in range(exponents)]
    values = [0, *(sign * (x + d) for x in powers for d in (-1, 0, 1) for sign in (1, -1))]
    inside = [x for x in values if abs(x) < 2**exponents]
    for value, place in zip(inside, bins_of(np.array(inside), exponents), strict=True):
        lower, upper = edges(int(place), exponents)
        assert lower <= value <= upper
        assert (value == 0) == (place == exponents)


def test_values_beyond_the_last_edge_belong_to_the_outermost_bins() -> None:
    assert bins_of(np.array([-(2**62), 2**62, -8, 8]), 3).tolist() == [0, 6, 0, 6]


def test_the_edges_are_public_powers_of_two() -> None:
    assert [edges(place, 3) for place in range(bin_count(3))] == [
        *((-8, -4), (-4, -2), (-2, -1), (0, 0)),
        *((1, 2), (2, 4), (4, 8)),
    ]


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("epsilon", [ONE / 10, ONE])
def test_empty_bins_pass_no_more_often_than_was_asked(epsilon: Fraction, rows: int) -> None:
    limit = threshold(epsilon, rows, 101, FALSE_POSITIVE)
    beyond = stats.dlaplace.sf([limit, limit - 1], float(epsilon / rows)) * 101
    assert beyond[0] <= FALSE_POSITIVE < beyond[1]


def exact_law(counts: tuple[int, ...], rows: int) -> dict[Found, float]:
    """The chance of every pair of edges, from the chance of each bin to pass."""
    limit = threshold(ONE, rows, len(counts), FALSE_POSITIVE)
    passing = stats.dlaplace.sf(limit - np.array(counts), 1 / rows)
    law: dict[Found, float] = {}
    for pattern in every((False, True), repeat=len(counts)):
        chance = float(np.prod(np.where(pattern, passing, 1 - passing)))
        found = between(pattern)
        law[found] = law.get(found, 0.0) + chance
    return law


def between(pattern: tuple[bool, ...]) -> Found:
    places = np.flatnonzero(pattern)
    if places.size == 0:
        return None
    exponents = len(pattern) // 2
    return edges(int(places[0]), exponents)[0], edges(int(places[-1]), exponents)[1]


@pytest.mark.parametrize("rows", [1, 3])
def test_the_edges_found_follow_the_law(rows: int) -> None:
    counts, dice = (2, 0, 5, 9, 1), SeededDice(1)
    law = exact_law(counts, rows)
    places = {found: i for i, found in enumerate(law)}
    drawn = [
        places[
            search_bounds(
                np.array(counts),
                epsilon=ONE,
                rows=rows,
                false_positive=FALSE_POSITIVE,
                dice=dice,
            )
        ]
        for _ in range(3_000)
    ]
    assert law_p_value(np.array(drawn), [Fraction(x) for x in law.values()]) > CHOOSING_ALARM
    other = exact_law(counts, rows + 1)
    assert law_p_value(np.array(drawn), [Fraction(x) for x in other.values()]) < CHOOSING_ALARM


@pytest.mark.parametrize("rows", [1, 2])
def test_the_law_is_private_for_a_person_of_so_many_rows(rows: int) -> None:
    data = list(every((0, 3, 4, 5), repeat=3))
    for counts in data:
        law = [Fraction(x) for x in exact_law(counts, rows).values()]
        for added in every(range(rows + 1), repeat=3):
            if 0 < sum(added) <= rows:
                joined = tuple(a + b for a, b in zip(counts, added, strict=True))
                other = [Fraction(x) for x in exact_law(joined, rows).values()]
                assert is_private(law, other, ONE)


def test_most_of_the_rows_are_between_the_edges_that_are_found() -> None:
    values = np.random.default_rng(2).integers(-900, 5000, 20_000)
    counts = np.bincount(bins_of(values, 40), minlength=bin_count(40))
    found = search_bounds(
        counts, epsilon=ONE, rows=1, false_positive=FALSE_POSITIVE, dice=SeededDice(3)
    )
    assert found == (-1024, 8192)


def test_without_rows_nothing_is_found_as_often_as_was_asked() -> None:
    dice, counts = SeededDice(4), np.zeros(81, dtype=np.int64)
    found = [
        search_bounds(counts, epsilon=ONE, rows=1, false_positive=FALSE_POSITIVE, dice=dice)
        for _ in range(3000)
    ]
    share = sum(one is not None for one in found) / 3000
    assert 0.01 < share < 0.07


@pytest.mark.parametrize("level", [0, 10, 10**9])
def test_the_bytes_drawn_do_not_depend_on_the_counts(level: int) -> None:
    asked, silent = CountingDice(5), CountingDice(5)
    for dice, counts in ((asked, np.full(81, level)), (silent, np.zeros(81, dtype=np.int64))):
        search_bounds(counts, epsilon=ONE, rows=2, false_positive=FALSE_POSITIVE, dice=dice)
    assert asked.given == silent.given


def test_bins_or_chances_that_are_none_are_our_own_fault() -> None:
    with pytest.raises(Bug):
        bin_count(63)
    with pytest.raises(Bug):
        threshold(ONE, 1, 5, Fraction(0))
    with pytest.raises(Bug):
        search_bounds(
            np.zeros(4, dtype=np.int64),
            epsilon=ONE,
            rows=1,
            false_positive=FALSE_POSITIVE,
            dice=SeededDice(1),
        )
