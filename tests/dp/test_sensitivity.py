"""Sensitivity, judged by brute force: never less than the worst pair, and one pair attains it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product

import pytest

from sfumato.dp import sensitivity
from sfumato.dp.refusal import Bug

Rows = tuple[int, ...]
Query = Callable[[Rows], Fraction]
BOUNDS = [(0, 3), (-2, 1), (-3, -1), (1, 4)]


def clamped(rows: Rows, lower: int, upper: int) -> Rows:
    return tuple(min(max(x, lower), upper) for x in rows)


def data_sets(lower: int, upper: int, most: int = 3) -> Iterator[Rows]:
    for size in range(most + 1):
        yield from product(range(lower - 1, upper + 2), repeat=size)


def added(query: Query, lower: int, upper: int) -> Fraction:
    return max(
        abs(query((*rows, x)) - query(rows))
        for rows in data_sets(lower, upper)
        for x in range(lower - 1, upper + 2)
    )


@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
def test_a_sum_moves_by_exactly_what_is_claimed(lower: int, upper: int) -> None:
    def query(rows: Rows) -> Fraction:
        return Fraction(sum(clamped(rows, lower, upper)))

    assert added(query, lower, upper) == sensitivity.of_sum(lower, upper)


@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
def test_a_centred_sum_moves_by_exactly_what_is_claimed(lower: int, upper: int) -> None:
    def query(rows: Rows) -> Fraction:
        return Fraction(sum(2 * x - (lower + upper) for x in clamped(rows, lower, upper)))

    assert added(query, lower, upper) == sensitivity.of_centred_sum(lower, upper)


@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
def test_a_count_moves_by_exactly_one(lower: int, upper: int) -> None:
    assert added(lambda rows: Fraction(len(rows)), lower, upper) == sensitivity.of_count()


def test_bounds_that_are_none_are_our_own_mistake() -> None:
    for wrong in ((1, 1), (2, 1)):
        with pytest.raises(Bug):
            sensitivity.of_sum(*wrong)
