"""Ends cut, numbers rounded and averaged, names replaced; and what a look-alike has kept."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.anonymity.coarsening import (
    mdav_groups,
    microaggregate,
    microaggregate_rows,
    pseudonyms,
    rounded,
    top_and_bottom_code,
)
from sfumato.dp.anonymity.coded_table import Codes, Column, Table, table_of
from sfumato.dp.anonymity.leakage_check import leaks
from sfumato.dp.anonymity.privacy_criteria import Goal
from sfumato.dp.anonymity.recoded_table import Recoded, RecodingSettings, recode_by_class
from sfumato.dp.anonymity.table_utility import learnt, utility_of
from sfumato.dp.refusal import Refused
from sfumato.lab.census_like_table import QUASI, SENSITIVE, adult_like, hierarchies


def test_ends_are_cut() -> None:
    assert top_and_bottom_code([17, 30, 90, None, "x"], 20, 80) == ["<20", 30, ">80", None, "x"]


def test_numbers_are_rounded_without_floats_slipping() -> None:
    assert rounded([14, 15, 16.5, None, "x"], 10) == [10, 20, 20, None, "x"]
    assert rounded([0.15, 0.25], 0.1) == [0.2, 0.3]


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40), st.integers(1, 6))
def test_every_mean_stands_for_k_neighbours(values: list[int], k: int) -> None:
    made = microaggregate(values, k)
    assert sum(float(str(v)) for v in made) == pytest.approx(sum(values))
    counts = [made.count(value) for value in made]
    assert min(counts) >= min(k, len(values))
    order = np.argsort(values, kind="stable")
    assert [made[i] for i in order] == sorted(float(str(v)) for v in made)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30),
    st.integers(1, 5),
)
def test_groups_in_several_columns_have_k_rows(rows: list[tuple[int, int]], k: int) -> None:
    group = mdav_groups(np.array(rows, np.float64), k)
    assert np.bincount(group).min() >= min(k, len(rows))
    both = microaggregate_rows([*zip(*rows, strict=True)], k)
    for made, values in zip(both, zip(*rows, strict=True), strict=True):
        for number in set(group.tolist()):
            inside = np.flatnonzero(group == number)
            mean = sum(values[place] for place in inside) / len(inside)
            assert {made[place] for place in inside} == {mean}


def test_near_rows_are_the_same_however_they_lie_in_memory() -> None:
    """Many are equally near: sums rounded in another order would choose others."""
    for seed in range(40):
        rows = np.random.default_rng(seed).integers(0, 10, (30, 3)).astype(np.float64)
        assert mdav_groups(rows, 3).tolist() == mdav_groups(np.asfortranarray(rows), 3).tolist()


def test_near_rows_are_near_in_all_columns() -> None:
    low, high = [(n, 100 * n) for n in range(5)], [(50 + n, 9_000 + n) for n in range(5)]
    group = mdav_groups(np.array([*low, *high], np.float64), 5).tolist()
    assert len(set(group[:5])) == len(set(group[5:])) == 1
    assert group[0] != group[9]
    with pytest.raises(Refused, match="a number in each"):
        microaggregate_rows([[1, 2], [1, None]], 1)
    with pytest.raises(Refused, match="At most 50,000"):
        microaggregate_rows([range(50_001), range(50_001)], 3)


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
    assert independent.nearer_than_held_back == pytest.approx(0.5, abs=0.15)
    assert independent.nearer_by_chance == 0.5
    assert independent.distance_of_held_back is not None
    assert independent.distance == pytest.approx(independent.distance_of_held_back, abs=0.05)


def test_new_rows_are_as_near_as_chance_has_it_when_few_are_held_back() -> None:
    people = adult_like(1200)
    original, rest, fresh = (
        people.at(np.arange(*ends)) for ends in ((0, 800), (800, 900), (900, 1200))
    )
    found = leaks(original, fresh, rest)
    assert found.nearer_by_chance == pytest.approx(8 / 9)
    assert found.nearer_than_held_back == pytest.approx(8 / 9, abs=0.12)


def test_a_copy_is_a_copy_however_its_numbers_are_written() -> None:
    """Another program writes 17 as 17.0, and one stray word turns a column of numbers to text."""
    real = table_of({"age": [17, 30, 41], "zip": ["x", "y", "z"]})
    made = table_of({"age": ["17.0", "30", "unknown"], "zip": ["x", "y", "z"]})
    found = leaks(real, made)
    assert (found.whole, found.partial, found.distance) == (2, 3, 0.0)
    assert (found.kept["age"].unique_kept, found.kept["age"].low_kept) == (2, True)


def test_one_missing_value_does_not_make_all_numbers_equally_far() -> None:
    real = table_of({"n": [0, 100, None]})
    made = table_of({"n": [1, 99, 101]})
    assert leaks(real, made).distance == pytest.approx(0.01)
    assert leaks(table_of({"n": [0, 100]}), table_of({"n": [None]})).distance == 1.0


def test_a_far_value_of_the_look_alike_does_not_make_all_others_near() -> None:
    real, rest = table_of({"n": [0, 100]}), table_of({"n": [50]})
    made = table_of({"n": [40, 40, 10**9]})
    found = leaks(real, made, rest)
    assert found.distance == pytest.approx(0.4)
    assert found.nearer_than_held_back == pytest.approx(2 / 9)  # of three one is far from both


def test_every_original_row_is_looked_at_in_a_large_table() -> None:
    """The look-alike's rows hide between the places that a thinned original would keep."""
    count = 30_001
    original = table_of({"a": list(range(0, 2 * count, 2)), "b": ["x"] * count})
    copied = original.at(np.arange(1, count, 300))
    assert leaks(original, copied).distance == 0


def test_with_one_column_a_whole_copy_is_no_less_than_a_partial_one() -> None:
    found = leaks(table_of({"a": [1, 2]}), table_of({"a": [1, 9]}))
    assert (found.whole, found.partial) == (1, 1)


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
    found = recode_by_class(table, RecodingSettings(hierarchies(table), Goal(5), [SENSITIVE]))
    figures = utility_of(table, found, QUASI)
    assert (figures.loss, figures.suppressed) == (found.loss, 0)
    assert figures.mean_class == pytest.approx(800 / figures.classes)
    assert 800 * 5 <= figures.discernibility <= 800 * 800


def test_the_model_takes_little_memory_for_a_million_answers() -> None:
    """A table of answers by rows would have 3.6 billion cells."""
    rows = 60_000
    texts = Column("s", np.arange(rows), tuple(f"text {n}" for n in range(rows)))
    numbers = Column("n", np.arange(rows), tuple(range(rows)))
    half = Column("q", np.arange(rows) * 2 // rows, ("low", "high"))
    table = Table({"s": texts, "n": numbers, "q": half}, rows)
    same = Recoded(table, np.arange(rows), "local", Goal(1), 0.0)
    tracemalloc.start()
    assert learnt(table, same, ["q"], "s").before == pytest.approx(1, abs=1e-3)  # all are "others"
    halves = learnt(table, same, ["q"], "n")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 100 << 20
    assert halves.before == pytest.approx(0.04, abs=0.01)
    assert halves.guessing == pytest.approx(0.02, abs=0.01)


def test_the_model_is_a_naive_bayes_as_counted_by_hand() -> None:
    """Ten rows x/p, x/p, y/r, y/r, y/p, twice over: by x it says p, by y it says r: 8 of 10."""
    rows = [("x", "p"), ("x", "p"), ("y", "r"), ("y", "r"), ("y", "p")]
    both = [pair for pair in rows for _ in range(10)]
    table = table_of({"q": [q for q, _ in both], "s": [s for _, s in both]})
    found = learnt(table, Recoded(table, np.arange(50), "local", Goal(1), 0.0), ["q"], "s")
    assert (found.before, found.after, found.guessing) == (0.8, 0.8, 0.6)
    alike = table_of({"q": ["x"] * 50, "s": ["p"] * 10 + ["r"] * 40})  # r by its share alone
    same = Recoded(alike, np.arange(50), "local", Goal(1), 0.0)
    assert learnt(alike, same, ["q"], "s").before == 0.8


def test_a_model_learns_less_from_a_recoded_table_but_more_than_nothing() -> None:
    table = adult_like(4000)
    way = RecodingSettings(hierarchies(table), Goal(5), [SENSITIVE])
    found = learnt(table, recode_by_class(table, way), QUASI, SENSITIVE)
    assert found.guessing + 0.01 < found.after <= found.before + 0.02
    top = learnt(
        table,
        recode_by_class(table, RecodingSettings(hierarchies(table), Goal(4000))),
        QUASI,
        SENSITIVE,
    )
    assert top.after == pytest.approx(top.guessing)


def test_ties_are_ties_however_shares_are_rounded() -> None:
    """A look-alike as near to the original as to rows held back, in columns of awkward ranges."""
    dice = np.random.default_rng(4)
    spans = (70, 5, 37, 11)

    def drawn() -> Codes:
        return np.stack([dice.integers(0, span, 200) for span in spans], axis=1)

    def as_table(rows: Codes) -> Table:
        return table_of({f"c{i}": rows[:, i].tolist() for i in range(len(spans))})

    real, rest, made = drawn(), drawn(), drawn()
    ranges = np.ptp(np.vstack([real, rest]), axis=0)
    whole = int(np.lcm.reduce(ranges))

    def closest(among: Codes) -> Codes:
        gaps = np.abs(made[:, None] - among[None]) * (whole // ranges)
        return np.asarray(np.minimum(gaps, whole).sum(axis=2).min(axis=1))

    near, far = closest(real), closest(rest)
    exact = (near < far).mean() + (near == far).mean() / 2
    assert leaks(as_table(real), as_table(made), as_table(rest)).nearer_than_held_back == exact
