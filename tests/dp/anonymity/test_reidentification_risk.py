"""Chances of being found, held against populations that are known whole."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.anonymity.coded_table import table_of
from sfumato.dp.anonymity.recoded_table import class_sizes
from sfumato.dp.anonymity.reidentification_risk import (
    expected_chances,
    population_uniques,
    risks_of,
)
from sfumato.dp.anonymity.special_uniques import special_uniques
from sfumato.dp.refusal import Refused
from sfumato.lab.census_like_table import adult_like


def test_the_prosecutors_chance_is_one_over_the_class() -> None:
    found = risks_of(np.array([1, 4, 5]))
    assert (found.prosecutor.highest, found.marketer, found.sample_uniques) == (1.0, 0.3, 0.1)
    assert found.prosecutor.mean == pytest.approx(0.3)
    assert found.prosecutor.above == pytest.approx(0.5)  # 1/1 and 1/4 are above 0.2, 1/5 is not
    assert (found.journalist, found.population_uniques) == (None, None)


def test_one_of_a_kind_has_the_chance_of_the_formula() -> None:
    (one,) = expected_chances(np.array([1]), 0.1)
    assert one == pytest.approx(0.1 * math.log(10) / 0.9)


@pytest.mark.parametrize("f", [1, 2, 5, 40])
@pytest.mark.parametrize("p", [0.03, 0.3, 0.9])
def test_expected_chances_are_those_of_drawn_populations(f: int, p: float) -> None:
    drawn = f + np.random.default_rng(1).negative_binomial(f, p, 400_000)
    (chance,) = expected_chances(np.array([f]), p)
    assert chance == pytest.approx(float((1 / drawn).mean()), rel=0.02)


@pytest.mark.parametrize("p", [1e-6, 0.1, 0.999])
@pytest.mark.parametrize("f", [10_000, 10**8])
def test_a_large_class_still_has_a_chance(f: int, p: float) -> None:
    """1/F is about p/f there, and p q / f**2 more: the next term is of the third order."""
    (chance,) = expected_chances(np.array([f]), p)
    assert chance == pytest.approx(p / f + p * (1 - p) / f**2, rel=1e-6)


@pytest.mark.parametrize("p", [1e-12, 1e-4, 0.3, 0.999])
def test_a_small_class_has_the_chance_of_its_closed_form(p: float) -> None:
    q = 1 - p
    one, two = expected_chances(np.array([1, 2]), p)
    assert one == pytest.approx(-p * math.log(p) / q, rel=1e-12)
    if p < 0.9:  # elsewhere the difference cancels
        assert two == pytest.approx(p / q * (1 + p * math.log(p) / q), rel=1e-9)


def test_a_table_that_is_the_population_has_its_own_uniques() -> None:
    found = risks_of(np.array([1, 1, 2]), 1.0)
    assert found.population_uniques == 0.5
    assert found.journalist is not None
    assert found.journalist.highest == 1.0


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.3])
def test_population_uniques_are_estimated_from_a_sample(fraction: float) -> None:
    quasi = ("sex", "age", "race", "marital", "education", "workclass")
    everybody = adult_like(200_000)
    truth = float((class_sizes(everybody, quasi) == 1).sum()) / 200_000
    rows = np.flatnonzero(np.random.default_rng(3).random(200_000) < fraction)
    found = population_uniques(class_sizes(everybody.at(rows), quasi), fraction)
    assert found == pytest.approx(truth, rel=0.5)


def test_nobody_is_estimated_from_nobody() -> None:
    assert risks_of(np.zeros(0, np.int64), 0.5).marketer == 0.0
    assert population_uniques(np.array([3, 3]), 0.5) == 0.0
    assert population_uniques(np.array([1, 1, 3]), 0.5) is None
    with pytest.raises(Refused, match="above 0 and at most 1"):
        risks_of(np.array([1]), 1.5)


ROWS = st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_scores_are_those_of_all_minimal_choices(rows: list[tuple[int, ...]]) -> None:
    table = table_of({name: [row[i] for row in rows] for i, name in enumerate("abcd")})
    found = special_uniques(table, "abcd", 3)
    weights = {1: 3 * 2, 2: 2, 3: 1}  # (4 - i) multiplied from the size to below 3
    for place, row in enumerate(rows):
        minimal = [c for c in choices() if alone(rows, row, c) and not any(
            alone(rows, row, part) for part in combinations(c, len(c) - 1)
        )]  # fmt: skip
        assert found.scores[place] * 4 * 6 == pytest.approx(sum(weights[len(c)] for c in minimal))
        assert found.fewest[place] == min((len(c) for c in minimal), default=0)
    if found.scores.any():
        assert sum(found.by_column.values()) > 1 - 1e-9


def choices() -> list[tuple[int, ...]]:
    return [c for size in (1, 2, 3) for c in combinations(range(4), size)]


def alone(rows: list[tuple[int, ...]], row: tuple[int, ...], choice: tuple[int, ...]) -> bool:
    if not choice:
        return False
    return sum(all(other[i] == row[i] for i in choice) for other in rows) == 1
