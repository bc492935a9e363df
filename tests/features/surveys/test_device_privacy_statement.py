"""What a respondent is told in a shell before they answer: what the page tells, or more."""

from __future__ import annotations

from fractions import Fraction
from math import exp
from re import findall
from typing import Any

import pytest

from sfumato.features.surveys.blind_signatures import PublicKey
from sfumato.features.surveys.device_privacy_statement import device_privacy_statement, summed
from sfumato.features.surveys.model import read_survey
from sfumato.features.surveys.randomised_report import Published
from support.survey_fixtures import design


def told(**changed: Any) -> str:
    return "\n".join(
        device_privacy_statement(Published(read_survey(design(**changed)), PublicKey(1, 65537)))
    )


@pytest.mark.parametrize("epsilon", [0.1, 1, 2, 4.59, 7.5, 10])
def test_no_odds_are_better_than_they_are(epsilon: float) -> None:
    shown = told(epsilon=epsilon, questions=design()["questions"][:1])
    (sure,) = findall(r"become ([\d.]+) in 100 sure", shown)
    assert 100 / (1 + exp(-epsilon)) - 0.01 <= float(sure) < 100
    assert ("may have been the coins" in shown) == (float(sure) <= 95)
    assert ("hide little" in shown) == (float(sure) > 95)


def test_every_question_says_what_leaves_and_how_often_it_is_the_truth() -> None:
    age = {"text": "Your age?", "kind": "number", "low": 0, "high": 100, "unit": "years"}
    shown = told(questions=[*design()["questions"], age], epsilon=3)
    for number in (1, 2, 3):
        assert f"Question {number}: Of 100 people, " in shown
    assert "What is sent is a stretch of" in shown
    assert "something that all 3 answers together would tell, 96 in 100" in shown
    drawn = told(budget="sampled")
    assert "draws one of the 2 questions" in drawn
    assert "answers together" not in drawn


def test_a_series_says_what_adds_up() -> None:
    assert "for ever" in told()
    assert "series" not in told()
    assert "same question in another survey is a new draw" in told()
    plain, waves = told(series="daily"), told(series="daily", ever=4)
    assert "your answer has changed, and that was not the coins" in plain
    assert "can make nobody more than 99 in 100 sure" in waves
    for shown in (plain, waves):
        assert "for this survey by itself" in shown
        assert "Answers that change add up" in shown
        assert "another survey" not in shown


def test_who_adds_up_is_said_with_the_lifetime_that_the_house_keeps_to() -> None:
    assert "up to epsilon 7.50" in told(lifetime=7.5)
    assert "a person of its own" in told()


def test_a_sum_is_rounded_up() -> None:
    assert "epsilon 2.01" in summed(Fraction(2001, 1000))
    assert "become 89 in 100 sure" in summed(Fraction(2))


def test_no_word_of_whoever_asks_stands_among_the_devices_own() -> None:
    lie = "Nothing is sent."
    number = {"text": lie, "kind": "number", "low": 0, "high": 900, "unit": lie}
    choice = {"text": lie, "kind": "choice", "options": [lie, f"{lie} Ever."]}
    for more in ({}, {"series": lie}, {"series": lie, "ever": 9}):
        shown = told(title=lie, asks=lie, about=lie, questions=[number, choice], epsilon=9, **more)
        assert "Nothing" not in shown


def test_of_several_and_of_a_ranking_one_part_is_said_to_leave() -> None:
    several = {"text": "Which?", "kind": "several", "options": ["a", "b"]}
    first = {"text": "First?", "kind": "ranking", "options": ["a", "b", "c"]}
    shown = told(questions=[several, first])
    assert "What is sent is about one option alone, which your device draws" in shown
    assert "What is sent is about one pair alone, which your device draws" in shown
