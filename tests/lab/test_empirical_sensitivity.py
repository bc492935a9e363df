"""Parallel databases, and the sensitivity that can be seen on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.dp.refusal import Refused
from sfumato.lab.attacks.linkage import Row
from sfumato.lab.empirical_sensitivity import empirical_sensitivity, parallel_databases


def table(values: Sequence[int]) -> list[Row]:
    return [{"x": value, "who": f"p{place % 3}"} for place, value in enumerate(values)]


def total(rows: Sequence[Row]) -> float:
    return float(sum(int(row["x"]) for row in rows))


def count(rows: Sequence[Row]) -> int:
    return len(rows)


def mean(rows: Sequence[Row]) -> float:
    return total(rows) / len(rows) if rows else 0.0


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30))
def test_each_person_is_missing_once(values: list[int]) -> None:
    databases = dict(parallel_databases(table(values)))
    assert len(databases) == len(values)
    for place, rows in databases.items():
        assert isinstance(place, int)
        assert [row["x"] for row in rows] == values[:place] + values[place + 1 :]


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30))
def test_a_sum_moves_by_the_largest_value_and_a_count_by_one(values: list[int]) -> None:
    rows = table(values)
    assert empirical_sensitivity(total, rows).largest == max(abs(value) for value in values)
    assert empirical_sensitivity(count, rows).largest == 1
    both = empirical_sensitivity(lambda r: [total(r), count(r)], rows)
    assert both.largest == max(abs(value) for value in values) + 1


def test_a_person_with_many_rows_takes_all_of_them_along() -> None:
    found = empirical_sensitivity(count, table([1, 2, 3, 4, 5, 6, 7]), person="who")
    assert (found.largest, found.person, found.people) == (3, "p0", 3)
    assert found.distances == (3, 2, 2)


def test_a_threshold_can_hide_its_sensitivity_on_these_rows() -> None:
    """Nobody's removal moves it here; on a table of eleven it would. A lower bound is no proof."""
    rows = table([1] * 20)
    found = empirical_sensitivity(lambda r: total(r) > 10, rows)
    assert found.largest == 0
    assert "at least" in found.finding
    assert empirical_sensitivity(lambda r: total(r) > 10, table([1] * 11)).largest == 1


def test_a_mean_moves_most_by_the_one_farthest_out() -> None:
    found = empirical_sensitivity(mean, table([160, 165, 170, 300]))
    assert found.person == 3
    assert abs(found.largest - (198.75 - 165)) < 1e-9


def test_nobody_and_an_unknown_column_are_refused() -> None:
    with pytest.raises(Refused):
        empirical_sensitivity(count, [])
    with pytest.raises(Refused):
        empirical_sensitivity(count, table([1]), person="name")


@pytest.mark.parametrize(
    "db",
    [
        np.array([160.0, 165, 170, 300]),
        pd.Series([160.0, 165, 170, 300], index=[7, 7, 8, 9]),
        pd.DataFrame({"x": [160.0, 165, 170, 300]}, index=[7, 7, 8, 9]),
        [160.0, 165, 170, 300],
    ],
)
def test_frames_and_arrays_lose_one_row_at_a_time(db: Any) -> None:
    assert [len(one) for _, one in parallel_databases(db)] == [3, 3, 3, 3]
    assert {type(one) for _, one in parallel_databases(db)} == {type(db)}
    found = empirical_sensitivity(lambda one: np.mean(np.asarray(one)), db)
    assert found.person == 3
    assert abs(found.largest - (198.75 - 165)) < 1e-9


@pytest.mark.parametrize(
    "make", [pd.DataFrame, pl.DataFrame, lambda rows: pd.DataFrame(rows).to_records()]
)
def test_a_person_of_a_frame_takes_all_rows_along(make: Any) -> None:
    found = empirical_sensitivity(len, make(table([1, 2, 3, 4, 5, 6, 7])), person="who")
    assert (found.largest, found.person, found.people) == (3, "p0", 3)
    with pytest.raises(Refused):
        empirical_sensitivity(len, make(table([1])), person="name")


def test_a_query_that_is_no_number_without_somebody_is_refused() -> None:
    """The mean of nobody was NaN, and whose removal moves most was then anybody's."""
    with pytest.raises(Refused):
        empirical_sensitivity(lambda db: db.sum() / len(db) if len(db) else np.nan, np.array([5.0]))
    gone = np.array([1.0, 2.0, 3.0])
    with pytest.raises(Refused):
        empirical_sensitivity(lambda db: np.nan if db[0] == 2 else db.sum(), gone)


def test_a_result_that_changes_its_shape_has_no_distance() -> None:
    """Of two people and one, numpy would have stretched one number over two."""
    for db in (np.array([1.0, 2.0]), np.array([1.0, 2.0, 3.0])):
        with pytest.raises(Refused):
            empirical_sensitivity(lambda one: one, db)


@pytest.mark.parametrize("db", ["people", 5, {"x": [1]}, {1, 2}, np.float64(1), None])
def test_nobody_is_removed_from_what_is_no_table(db: Any) -> None:
    with pytest.raises(Refused):
        empirical_sensitivity(lambda _db: 1, db)


def test_a_row_of_nobody_is_refused() -> None:
    frame = pd.DataFrame({"who": ["a", None], "x": [1, 2]})
    with pytest.raises(Refused):
        empirical_sensitivity(len, frame, person="who")
