"""Every choice of columns is counted as a plain count would, in seconds for a large table."""

from __future__ import annotations

import time
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.anonymity.uniqueness import Uniqueness, all_subsets, best_of_each_size
from sfumato.dp.refusal import Refused

ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(-1, 9), st.floats(0, 1)),
    max_size=40,
)


def plainly(table: dict[str, list[object]], columns: tuple[str, ...]) -> Uniqueness:
    rows = list(zip(*(table[name] for name in columns), strict=True))
    sizes = Counter(rows).values()
    return Uniqueness(columns, len(rows), sum(s == 1 for s in sizes), min(sizes, default=0))


@settings(deadline=None)
@given(ROWS)
def test_every_choice_is_counted_as_a_plain_count_would(rows: list[tuple[object, ...]]) -> None:
    table = {name: [row[place] for row in rows] for place, name in enumerate("wxyz")}
    choices = [c for size in range(1, 5) for c in combinations("wxyz", size)]
    found = all_subsets(table)  # type: ignore[arg-type]  # of numbers and texts
    assert set(found) == {plainly(table, choice) for choice in choices}


@settings(deadline=None)
@given(ROWS)
def test_rows_that_are_alike_may_come_once_with_their_number(
    rows: list[tuple[object, ...]],
) -> None:
    table = {name: [row[place] for row in rows] for place, name in enumerate("wxyz")}
    once = Counter(rows)
    grouped = {name: [row[place] for row in once] for place, name in enumerate("wxyz")}
    weights = np.array(list(once.values()), np.int64)
    found = all_subsets(grouped, weights=weights)  # type: ignore[arg-type]  # numbers and texts
    assert found == all_subsets(table)  # type: ignore[arg-type]


def test_the_most_telling_choice_comes_first_and_of_equals_the_smaller() -> None:
    table = {"sex": [1, 1, 2, 2], "name": [1, 2, 3, 4], "zip": [1, 1, 1, 2]}
    ranked = all_subsets(table)
    assert [one.columns for one in ranked[:2]] == [("name",), ("name", "zip")]
    assert [one.unique for one in ranked] == sorted((one.unique for one in ranked), reverse=True)
    assert best_of_each_size(ranked)[0].columns == ("name",)


def test_adding_a_column_makes_nobody_less_alone() -> None:
    dice = np.random.default_rng(3)
    found = {
        frozenset(one.columns): one.unique
        for one in all_subsets({name: dice.integers(0, 40, 500) for name in "abcde"})
    }
    for columns, unique in found.items():
        assert all(unique <= found[columns | {more}] for more in "abcde")


def test_a_table_of_a_hundred_thousand_rows_takes_seconds() -> None:
    dice = np.random.default_rng(4)
    table = {f"c{n}": dice.integers(0, 2 + 7 * n, 100_000) for n in range(8)}
    started = time.process_time()
    assert len(all_subsets(table)) == 255
    assert time.process_time() - started < 10


def test_in_an_empty_table_nobody_is_alone() -> None:
    assert [one.unique for one in all_subsets({"a": [], "b": []})] == [0, 0, 0]


def test_more_columns_than_can_be_looked_at_are_refused() -> None:
    with pytest.raises(Refused, match="8,191 combinations"):
        all_subsets({f"c{n}": [1] for n in range(13)})
