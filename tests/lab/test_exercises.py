"""Exercises answer back: right answers are right, wrong ones get a hint, honest ones no verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sfumato.dp.refusal import Refused
from sfumato.lab.attacks.linkage import Row, link
from sfumato.lab.exercises import (
    BreakTheMechanism,
    check_quasi_identifiers,
    find_the_person,
)
from sfumato.lab.platform_noise import private_sums
from sfumato.lab.sample_data import medical_rows


@pytest.mark.parametrize("seed", range(20))
def test_the_person_can_be_found_by_what_was_heard(seed: int) -> None:
    person = find_the_person(seed)
    found = [place for place, row in enumerate(person.rows) if link([row], person.knows).is_found]
    assert found == [person.place]
    assert person.check(found[0]).is_right
    assert str(person.knows["zip"]) in person.heard


def test_a_wrong_row_gets_a_hint_and_no_secret() -> None:
    person = find_the_person(3)
    wrong = next(p for p, row in enumerate(person.rows) if row["zip"] != person.knows["zip"] and p)
    verdict = person.check(wrong)
    assert not verdict.is_right
    assert "zip" in verdict.says
    assert "disease" not in verdict.says
    assert not person.check(-1).is_right
    assert not person.check(10**6).is_right


@pytest.mark.parametrize("place", ["923", "Anna", 3.0, None])
def test_what_is_no_rows_number_gets_a_hint(place: Any) -> None:
    verdict = find_the_person(3).check(place)
    assert not verdict.is_right
    assert "the number of the row" in verdict.says


def test_a_row_may_be_said_as_numpy_says_it() -> None:
    person = find_the_person(3)
    assert person.check(np.int64(person.place)).is_right


def test_looking_at_the_exercise_gives_neither_the_rows_nor_the_answer() -> None:
    person = find_the_person(5)
    assert person.heard in repr(person)
    assert len(repr(person)) < 300
    assert str(person.place) not in repr(person)


def rows() -> list[Row]:
    return [{"a": n % 2, "b": n // 2, "c": 0} for n in range(8)]


@pytest.mark.parametrize(
    ("columns", "is_right", "hint"),
    [
        (["a", "b"], True, "fewer columns make fewer"),
        (["a"], False, "Add a column"),
        (["a", "b", "c"], False, "Leave one out"),
        ([], False, "at least one"),
        ("a", False, "unique by a. "),
    ],
)
def test_the_fewest_columns_are_right(columns: list[str] | str, is_right: bool, hint: str) -> None:
    verdict = check_quasi_identifiers(rows(), columns)
    assert verdict.is_right == is_right
    assert hint in verdict.says


def test_the_town_has_an_answer() -> None:
    town, known = medical_rows(), ("age", "zip", "salary")
    answers = [
        columns
        for columns in (["salary"], ["age", "salary"], ["zip", "salary"], ["age", "zip", "salary"])
        if check_quasi_identifiers(town, columns, of=known).is_right
    ]
    assert answers == [["age", "zip", "salary"]]


def naked(data: int, runs: int, dice: np.random.Generator) -> Any:
    return data + 0.5 * dice.laplace(size=runs)


def ours(data: int, runs: int, dice: np.random.Generator) -> Any:
    whole = np.full(runs, data, dtype=np.int64)
    return private_sums(whole, sensitivity=1, epsilon=1.0, dice=dice)


def test_too_little_noise_is_seen_through() -> None:
    exercise = BreakTheMechanism((0, 1), naked, epsilon=1.0)
    assert len(exercise.sample(1, 5, seed=1)) == 5
    verdict = exercise.check(lambda x: int(x > 0.5), seed=1, trials=20_000)
    assert verdict.is_right
    assert "broken" in verdict.says


def tailed(data: list[float], runs: int, dice: np.random.Generator) -> Any:
    return np.mean(data) + dice.laplace(scale=1 / len(data), size=runs)


def test_only_outputs_that_are_guessed_from_count() -> None:
    exercise = BreakTheMechanism(([0.0], [0.0, 1.0]), tailed, epsilon=1.0)
    assert exercise.check(lambda x: 0 if abs(x) > 4 else None, seed=3, trials=20_000).is_right
    assert not exercise.check(lambda _: None, seed=3).is_right
    lenient = BreakTheMechanism(([0.0], [0.0, 1.0]), tailed, epsilon=1.0, delta=0.05)
    assert not lenient.check(lambda x: 0 if abs(x) > 4 else None, seed=3, trials=20_000).is_right


def test_a_bad_guess_proves_nothing() -> None:
    exercise = BreakTheMechanism((0, 1), naked, epsilon=1.0)
    assert not exercise.check(lambda x: int(x > 40), seed=2).is_right


def test_what_keeps_its_promise_is_not_called_broken() -> None:
    exercise = BreakTheMechanism((0, 1), ours, epsilon=1.0)
    called = [exercise.check(lambda x: int(x >= 1), seed=seed).is_right for seed in range(200)]
    called += [
        exercise.check(lambda x: 1 if x > 3 else None, seed=seed).is_right for seed in range(200)
    ]
    assert sum(called) <= 4


def test_who_remembers_earlier_outputs_is_not_told_in_which_order_they_come() -> None:
    exercise = BreakTheMechanism((0, 1), ours, epsilon=1.0)
    for seed in range(20):
        seen: list[float] = []

        def guess(one: float, seen: list[float] = seen) -> int | None:
            """Return the side that the last two hundred outputs lean to."""
            seen.append(one)
            return int(np.mean(seen[-200:]) > 0.5) if len(seen) > 50 else None

        assert not exercise.check(guess, seed=seed).is_right


def test_who_has_it_the_wrong_way_round_is_told_so() -> None:
    exercise = BreakTheMechanism((0, 1), naked, epsilon=1.0)
    verdict = exercise.check(lambda x: int(x < 0.5), seed=1)
    assert not verdict.is_right
    assert "the opposite" in verdict.says
    fair = BreakTheMechanism((0, 1), ours, epsilon=1.0)
    assert "the opposite" not in fair.check(lambda x: int(x < 1), seed=1).says


def test_columns_named_twice_or_not_among_the_known_are_no_answer() -> None:
    twice = check_quasi_identifiers(medical_rows(), ["age", "age"], of=["age", "zip"])
    assert not twice.is_right
    assert "once" in twice.says
    other = check_quasi_identifiers(medical_rows(), ["age"], of=["zip"])
    assert not other.is_right
    assert "age is not among the columns zip" in other.says


def test_a_guess_that_is_none_gets_a_hint() -> None:
    exercise = BreakTheMechanism((0, 1), ours, epsilon=1)
    assert "0, 1, or None" in exercise.check(lambda _: "yes", seed=1).says  # type: ignore[arg-type, return-value]  # as typed


def test_a_claim_that_is_none_and_a_third_data_set_are_refused() -> None:
    with pytest.raises(Refused, match="epsilon of at least 0"):
        BreakTheMechanism((0, 1), ours, epsilon=-1)
    exercise = BreakTheMechanism((0, 1), ours, epsilon=1)
    with pytest.raises(Refused, match="two data sets"):
        exercise.sample(2)
