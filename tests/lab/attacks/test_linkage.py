"""A table without names still names people, to whoever knows a little of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from sfumato.dp.refusal import Refused
from sfumato.lab.attacks.linkage import Between, Knowledge, Row, in_bands, link, uniqueness
from sfumato.lab.sample_data import NEIGHBOUR_KNOWS, medical_rows, read_lines

PARTICIPANTS = Path(__file__).parents[4] / "shared" / "data" / "participants.tsv"

ROWS: tuple[Row, ...] = (
    {"age": 30, "zip": "00310", "salary": 50_000, "sick": True},
    {"age": 30, "zip": "00310", "salary": 60_000, "sick": True},
    {"age": 30, "zip": "00311", "salary": 60_000, "sick": False},
    {"age": 41, "zip": "00311", "salary": 60_000, "sick": False},
)


def test_a_neighbour_who_knows_age_zip_and_a_salary_range_finds_the_record() -> None:
    found = link(medical_rows(), NEIGHBOUR_KNOWS)
    assert (found.is_found, found.learnt) == (True, {"salary": 148_500, "has_rare_disease": True})


def test_age_and_zip_alone_leave_several_candidates() -> None:
    candidates = link(medical_rows(), {"age": 52, "zip": "00310"})
    assert (len(candidates.matches), candidates.is_found, candidates.learnt) == (4, False, {})


def test_someone_who_is_not_in_the_table_is_not_found() -> None:
    stranger: Knowledge = {**NEIGHBOUR_KNOWS, "salary": Between(190_000, 200_000)}
    nobody = link(medical_rows(), stranger)
    assert (nobody.is_found, nobody.matches, nobody.learnt) == (False, (), {})


def test_knowing_nothing_fits_everybody_and_teaches_nothing() -> None:
    everybody = link(ROWS, {})
    assert (len(everybody.matches), everybody.is_found, everybody.learnt) == (4, False, {})


def test_a_secret_that_all_who_fit_share_is_learnt_without_finding_anybody() -> None:
    pair = link(ROWS, {"age": 30, "zip": "00310"})
    assert (pair.is_found, pair.learnt) == (False, {"sick": True})


def test_what_the_attacker_knew_exactly_is_not_counted_as_learnt() -> None:
    assert link(ROWS, {"age": 41, "salary": 60_000}).learnt == {"zip": "00311", "sick": False}


@pytest.mark.parametrize(("low", "high"), [(50_000, 50_000), (0, 50_000), (50_000, 59_999)])
def test_both_ends_of_a_range_count(low: float, high: float) -> None:
    assert link(ROWS, {"salary": Between(low, high)}).matches == (ROWS[0],)


def test_a_range_holds_neither_texts_nor_truth_values() -> None:
    anything = Between(float("-inf"), float("inf"))
    assert [anything.holds(value) for value in ("n/a", True, 1, 1.5)] == [False, False, True, True]


def test_people_become_unique_as_columns_are_added() -> None:
    steps = uniqueness(ROWS, ["zip", "salary", "age"])
    assert [step.share for step in steps] == [0.0, 0.5, 1.0]


def test_the_smallest_group_is_told_with_its_columns() -> None:
    steps = uniqueness(ROWS[:3], ["age", "zip"])
    assert [(step.columns, step.smallest) for step in steps] == [(("age",), 3), (("age", "zip"), 1)]


def test_rows_that_are_all_the_same_are_never_unique() -> None:
    twins = [ROWS[0]] * 5
    assert [step.unique for step in uniqueness(twins, list(ROWS[0]))] == [0, 0, 0, 0]


def test_in_an_empty_table_nobody_is_unique() -> None:
    assert uniqueness([], ["age"])[0].share == 0.0


def test_the_town_becomes_unique_step_by_step() -> None:
    rows = in_bands(medical_rows(), "salary", 10_000)
    shares = [step.share for step in uniqueness(rows, ["zip", "age", "salary"])]
    assert shares == [0.0, 0.197, 0.528]


def test_bands_hide_the_numbers_within_them() -> None:
    assert [row["salary"] for row in in_bands(ROWS, "salary", 20_000)] == [40_000, *[60_000] * 3]


@pytest.mark.parametrize("attack", [link, lambda rows, known: uniqueness(rows, list(known))])
def test_a_column_that_is_not_there_is_refused(attack: object) -> None:
    assert callable(attack)
    with pytest.raises(Refused, match="no column 'shoe_size'"):
        attack(ROWS, {"shoe_size": 43})


@pytest.mark.parametrize(
    ("knowledge", "words"),
    [
        ({"age": 99}, "No row fits."),
        ({}, "4 rows fit, and they share no other value."),
        ({"age": 30, "zip": "00310"}, "2 rows fit, and all of them say: sick = yes."),
        (
            {"age": 41},
            "Found: exactly one row fits. Learnt: zip = 00311, salary = 60,000, sick = no.",
        ),
    ],
)
def test_the_finding_says_it_in_plain_words(knowledge: Knowledge, words: str) -> None:
    assert link(ROWS, knowledge).finding == words


def test_uniqueness_says_it_in_plain_words() -> None:
    assert uniqueness(ROWS, ["zip", "salary"])[1].finding == "50% of 4 are unique by zip + salary."


@pytest.mark.skipif(not PARTICIPANTS.exists(), reason="../shared/data/participants.tsv is absent")
def test_the_real_participants_are_as_unique_as_was_measured() -> None:
    steps = uniqueness(read_lines(PARTICIPANTS), ["age", "sex", "Height", "Weight"])
    assert [round(step.share, 2) for step in steps[1:]] == [0.05, 0.7, 1.0]


FRAME = pd.DataFrame(ROWS)


@pytest.mark.parametrize("table", [FRAME, pl.DataFrame(ROWS), FRAME.to_records(index=False)])
def test_frames_and_records_are_searched_like_rows(table: Any) -> None:
    known: Knowledge = {"age": 30, "salary": Between(55_000, 65_000), "zip": "00310"}
    assert link(table, known) == link(ROWS, known)
    assert uniqueness(table, ["zip", "salary"]) == uniqueness(ROWS, ["zip", "salary"])


def test_an_array_is_searched_by_the_places_of_its_columns() -> None:
    array = np.array([[30, 310], [41, 311]])
    found = link(array, {0: np.int64(41)})
    assert (found.is_found, found.learnt) == (True, {"1": 311})


def test_a_missing_value_is_in_no_range_and_is_learnt_as_missing() -> None:
    frame = pd.DataFrame({"age": [30, None, 50], "wage": [1.0, 2.0, None]})
    assert len(link(frame, {"age": Between(0, 99)}).matches) == 2
    assert link(frame, {"age": None}).learnt == {"wage": 2.0}
    assert "wage = missing" in link(frame, {"age": 50}).finding


def test_a_number_looked_for_among_texts_is_refused_and_finds_nobody_silently_no_more() -> None:
    for known in ({"zip": 310}, {"age": "30"}, {"zip": Between(300, 400)}):
        with pytest.raises(Refused) as refused:
            link(FRAME, known)
        assert refused.value.code == "type-mismatch"
