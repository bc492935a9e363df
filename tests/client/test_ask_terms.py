"""What is typed wrong in Python is told there, in Python's words; a price says what is left."""

from __future__ import annotations

import pytest

from sfumato import Refused
from sfumato.client.ask_terms import Json, question_body
from sfumato.client.display import Price

SQL = "SELECT COUNT(*) AS n FROM clinic"


def test_a_term_that_there_is_not_is_named_with_those_that_there_are() -> None:
    with pytest.raises(Refused, match=r"no argument 'eps'.*epsilon, error"):
        question_body("clinic", SQL, {"eps": 1})


@pytest.mark.parametrize("term", ["error", "split"])
def test_what_is_given_by_name_says_how(term: str) -> None:
    with pytest.raises(Refused, match=term + r'={"n": 5}'):
        question_body("clinic", SQL, {term: 20})
    assert question_body("clinic", SQL, {term: {"n": 20}})[term] == {"n": 20}


def price(left: float, fits: bool) -> str:
    shape: Json = {
        "says": "", "epsilon": 0.5, "error": {}, "split": [], "bounding": "", "odds": "", "at": [],
        "left": {"next_epsilon": left}, "fits": fits,
    }  # fmt: skip
    return Price(shape).lines()[-1]


def test_a_price_says_whether_it_fits_what_all_who_pay_have_left() -> None:
    assert price(1.5, fits=True) == "it fits what is left (epsilon 1.5 at most)"
    assert price(0.4, fits=False) == "it does NOT fit what is left (epsilon 0.4 at most)"
    assert price(0, fits=False) == "it does NOT fit: nothing is left"
