"""Ends cut, numbers rounded and averaged, names replaced; and what a look-alike has kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.crowd.blunted import averaged, averaged_together, cut_ends, pseudonyms, rounded
from sfumato.core.crowd.coded import table_of
from sfumato.core.crowd.goal import Goal
from sfumato.core.crowd.leaks import leaks
from sfumato.core.crowd.recoded import Way, recode_by_class
from sfumato.core.crowd.utility import learnt, utility_of
from sfumato.core.refusal import Refused
from sfumato.lab.adult_like import QUASI, SENSITIVE, adult_like, hierarchies


def test_ends_are_cut() -> None:
    assert cut_ends([17, 30, 90, None, "x"], 20, 80) == ["<20", 30, ">80", None, "x"]


def test_numbers_are_rounded_without_floats_slipping() -> None:
    assert rounded([14, 15, 16.5, None, "x"], 10) == [10, 20, 20, None, "x"]
    assert rounded([0.15, 0.25], 0.1) == [0.2, 0.3]


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40), st.integers(1, 6))
def test_every_mean_stands_for_k_neighbours(values: list[int], k: int) -> None:
    made = averaged(values, k)
    assert sum(float(str(v)) for v in made) == pytest.approx(sum(values))
    counts = [made.count(value) for value in made]
    assert min(counts) >= min(k, len(values))
    order = np.argsort(values, kind="stable")
    assert [made[i] for i in order] == sorted(float(str(v)) for v in made)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30),
    st.integers(1, 5),
)
def test_groups_in_several_columns_have_k_rows(rows: list[tuple[int, int]], k: int) -> None:
    group = averaged_together(rows, k)
    assert np.bincount(group).min() >= min(k, len(rows))


def test_a_name_is_the_same_for_the_same_key_and_no_other() -> None:
    key, other = bytes(32), bytes([1]) * 32
    names = pseudonyms(["ann", "bob", "ann", ""], key, "name")
    assert names[0] == names[2]
    assert len({names[0], names[1]}) == 2
    assert names[3] == ""
    assert pseudonyms(["ann"], other, "name")[0] != names[0]
    assert pseudonyms(["ann"], key, "friend")[0] != names[0]
    with pytest.raises(Refused, match="32 bytes"):
        pseudonyms(["ann"], b"short", "name")


def test_whole_and_partial_copies_are_found_wherever_they_stand() -> None:
    real = table_of({"a": [1, 2, 3, 3], "b": ["x", "y", "z", "z"]})
    made = table_of({"a": [3, 1, 2, 9], "b": ["z", "q", "y", "q"]})
    found = leaks(real, made)
    assert (found.whole, found.whole_alone, found.partial, found.same_place) == (2, 1, 3, 0)
    assert (found.kept["a"].unique, found.kept["a"].unique_kept) == (2, 2)
    assert (found.kept["a"].low_kept, found.kept["a"].high_kept) == (True, True)
    assert (found.kept["b"].unique_kept, found.kept["b"].low_kept) == (1, False)


def test_a_copy_is_nearer_than_rows_held_back_and_fresh_rows_are_not() -> None:
    people = adult_like(900)
    original, rest, fresh = (people.at(np.arange(i * 300, (i + 1) * 300)) for i in range(3))
    copied, independent = leaks(original, original, rest), leaks(original, fresh, rest)
    assert copied.distance == 0
    assert copied.nearer_than_held_back is not None
    assert copied.nearer_than_held_back > 0.9
    assert independent.nearer_than_held_back is not None
    assert 0.25 < independent.nearer_than_held_back < 0.6
    assert independent.distance_of_held_back is not None
    assert independent.distance == pytest.approx(independent.distance_of_held_back, abs=0.05)


def test_permuted_columns_keep_every_single_value() -> None:
    real = table_of({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    made = table_of({"a": [2, 3, 1], "b": ["x", "y", "z"]})
    assert leaks(real, made).kept["a"].unique_kept == 3


def test_tables_of_no_common_column_are_refused() -> None:
    with pytest.raises(Refused, match="no column in common"):
        leaks(table_of({"a": [1]}), table_of({"b": [1]}))


def test_empty_tables_leak_nothing() -> None:
    found = leaks(table_of({"a": []}), table_of({"a": []}), table_of({"a": []}))
    assert (found.rows, found.whole, found.distance) == (0, 0, 1.0)


def test_utility_is_counted_as_defined() -> None:
    table = adult_like(800)
    found = recode_by_class(table, Way(hierarchies(table), Goal(5), [SENSITIVE]))
    figures = utility_of(table, found, QUASI)
    assert (figures.loss, figures.suppressed) == (found.loss, 0)
    assert figures.mean_class == pytest.approx(800 / figures.classes)
    assert 800 * 5 <= figures.discernibility <= 800 * 800


def test_a_model_learns_less_from_a_recoded_table_but_more_than_nothing() -> None:
    table = adult_like(4000)
    way = Way(hierarchies(table), Goal(5), [SENSITIVE])
    found = learnt(table, recode_by_class(table, way), QUASI, SENSITIVE)
    assert found.guessing + 0.01 < found.after <= found.before + 0.02
    top = learnt(
        table, recode_by_class(table, Way(hierarchies(table), Goal(4000))), QUASI, SENSITIVE
    )
    assert top.after == pytest.approx(top.guessing)
