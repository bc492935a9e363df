"""What is typed into a terminal is the answer that was meant, or none."""

from __future__ import annotations

from unicodedata import east_asian_width

import pytest

from sfumato.features.surveys.model import Kind, Question
from sfumato.features.surveys.questionnaire import WRONG, theirs, truth_of


def question(kind: Kind, *options: str) -> Question:
    return Question("q", "What?", kind, options, low=-5, high=2000)


WAY = question("choice", "on foot", "by bus", "by car")
HAS = question("several", "flu, or like it", "measles", "mumps")
FIRST = question("ranking", "quiet", "light", "air")
NUMBERS = question("choice", "2", "1", "more")


TYPED: list[tuple[Question, str, object]] = [
    (question("yes-no"), "Yes", True),
    (question("yes-no"), "no", False),
    (question("yes-no"), "Y", True),
    (question("yes-no"), "n", False),
    (question("yes-no"), "", None),
    (question("yes-no"), "1", WRONG),
    (WAY, "by bus", "by bus"),
    (WAY, "2", "by bus"),
    (WAY, "0", WRONG),
    (WAY, "4", WRONG),
    (WAY, "-1", WRONG),
    (WAY, "9" * 5000, WRONG),
    (NUMBERS, "1", "1"),  # the option, and not the first one
    (NUMBERS, "3", WRONG),
    (HAS, "1, 3", ["flu, or like it", "mumps"]),  # no words lead to one that has a comma
    (HAS, "mumps,measles", ["mumps", "measles"]),
    (HAS, "3,mumps", WRONG),
    (HAS, "4", WRONG),
    (FIRST, "3,1,2", ["air", "quiet", "light"]),
    (FIRST, "air, quiet, light", ["air", "quiet", "light"]),
    (FIRST, "3,1", WRONG),
    (FIRST, "3,1,1", WRONG),
    (question("number"), "-5", -5),
    (question("number"), "2000", 2000),
    (question("number"), "2001", WRONG),
    (question("number"), "--5", WRONG),
    (question("number"), "9" * 5000, WRONG),
]


@pytest.mark.parametrize("number", range(len(TYPED)))
def test_what_is_typed_is_what_is_meant(number: int) -> None:
    asked, typed, meant = TYPED[number]
    read = truth_of(asked, typed)
    assert read is meant if meant is WRONG else read == meant


def columns(line: str) -> int:
    return sum(1 + (east_asian_width(letter) in "WF") for letter in line)


TEXTS = ("word " * 90, "w" * 500, "\u5b57" * 300, "\u5b57 w " * 90, "a\n\nb", "")


@pytest.mark.parametrize("text", TEXTS, ids=("words", "one", "wide", "mixed", "lines", "nothing"))
def test_every_line_of_theirs_is_marked_and_fits(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    for wide in (20, 40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(wide))
        lines = theirs(text, text)
        assert {line[:4] for line in lines} == {"  | "}
        assert all(columns(line) <= max(wide, 26) for line in lines)
        said = "".join(line[4:] for line in lines).replace(" ", "")
        assert said == (text + text).replace(" ", "").replace("\n", "")
