"""The least price for several errors: no split on a grid needs clearly less."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.refusal import Refused
from sfumato.query.model import Aggregate
from sfumato.query.plan import make_plan
from sfumato.query.price import Priced, price_for_errors
from sfumato.query.request import Request, priced_request
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card, read_card

CARD = """
unit = "who"
people = "p"
version = "1"
budget = { epsilon = 100, delta = 1e-6 }
max_groups = 2
max_rows = 10
[columns.sex]
type = "text"
keys = ["f", "m"]
[columns.cost]
type = "number"
lower = 0
upper = 1000
step = 1
[columns.age]
type = "integer"
lower = 0
upper = 100
"""
THREE = "SELECT sex, COUNT(*) AS n, SUM(cost) AS s, SUM(age) AS a FROM t GROUP BY sex"
TWO = "SELECT sex, COUNT(*) AS n, SUM(cost) AS s FROM t GROUP BY sex"


def card() -> Card:
    return read_card("t", tomllib.loads(CARD, parse_float=Decimal))


def request_of(sql: str, delta: Fraction | None = None, **margins: int | Fraction) -> Request:
    found = {name: Fraction(margin) for name, margin in margins.items()}
    return Request(read_sql(sql, "t"), margins=found, delta=delta)


def priced_for(request: Request) -> Priced:
    return priced_request(card(), request)


def by_hand(request: Request, split: dict[str, Fraction] | None) -> Priced:
    """Return the least price at just this split; None is the default one."""
    made = make_plan(card(), request.question, split)
    return price_for_errors(made, request.margins or {}, request.delta or Fraction(0), None)


def margins_of(priced: Priced) -> dict[str, float]:
    found = {}
    for output in priced.plan.question.outputs:
        if isinstance(output.of, Aggregate):
            found[output.name] = priced.margin(output.of, None) or 0.0
    return found


def test_two_errors_are_both_reached_and_neither_is_paid_for_twice() -> None:
    request = request_of(TWO, Fraction(0), n=5, s=1000)
    found, default = priced_for(request), by_hand(request, None)
    assert found.epsilon < default.epsilon * Fraction(7, 10)
    reached = margins_of(found)
    assert 4.9 < reached["n"] <= 5
    assert 980 < reached["s"] <= 1000


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
@given(n=st.integers(3, 60), s=st.integers(1000, 40_000), a=st.integers(200, 4000))
@settings(max_examples=12)
def test_no_split_on_a_grid_needs_clearly_less(delta: Fraction, n: int, s: int, a: int) -> None:
    request = request_of(THREE, delta, n=n, s=s, a=a)
    try:
        found = priced_for(request)
    except Refused:
        return
    assert all(margins_of(found)[name] <= margin for name, margin in (("n", n), ("s", s), ("a", a)))
    assert found.epsilon <= by_hand(request, None).epsilon
    shares = [Fraction(1, 27), Fraction(1, 9), Fraction(1, 3), Fraction(1)]
    for one, two, three in product(shares, repeat=3):
        if max(one, two, three) < 1:
            continue
        try:
            other = by_hand(request, {"n": one, "s": two, "a": three})
        except Refused:
            continue
        assert found.epsilon <= other.epsilon * Fraction(102, 100)


def test_a_split_that_was_asked_for_is_kept() -> None:
    split = {"n": Fraction(1), "s": Fraction(3)}
    request = request_of(TWO, Fraction(0), n=5, s=1000)
    asked = Request(request.question, margins=request.margins, delta=request.delta, split=split)
    assert priced_for(asked) == by_hand(request, split)


@pytest.mark.parametrize(
    ("sql", "margins"),
    [
        (TWO, {"n": 5}),  # of the sum nothing was said: it is not to pay for the count
        ("SELECT COUNT(*) AS n FROM t", {"n": 5}),
        ("SELECT COUNT(*) AS n, COUNT(*) AS m FROM t", {"n": 5, "m": 9}),
        ("SELECT COUNT(*) AS n, SUM(cost) AS s, s / n AS m FROM t", {"n": 5, "s": 1000, "m": 10}),
    ],
)
def test_elsewhere_the_default_split_stays(sql: str, margins: dict[str, int]) -> None:
    request = Request(
        read_sql(sql, "t"),
        margins={name: Fraction(margin) for name, margin in margins.items()},
        delta=Fraction(0),
        people=1000,
    )
    made = make_plan(card(), request.question)
    expected = price_for_errors(made, request.margins or {}, Fraction(0), 1000)
    assert priced_for(request) == expected


def asked_often(verb: str, times: int) -> Request:
    """Return a request for as many different aggregates, each with an error of its own."""
    one = 20_000 if verb == "SUM" else 10
    named = {f"a{place}": Fraction(one * (5 + place), 5) for place in range(times)}
    listed = ", ".join(f"{verb}(age + {place}) AS a{place}" for place in range(times))
    question = read_sql(f"SELECT {listed} FROM t", "t")
    return Request(question, margins=named, delta=Fraction(0), people=1000)


@pytest.mark.parametrize(("verb", "most"), [("SUM", 32), ("AVG", 4), ("VARIANCE", 1)])
def test_no_split_is_looked_for_where_that_would_take_long(verb: str, most: int) -> None:
    def is_split(times: int) -> bool:
        request = asked_often(verb, times)
        made = make_plan(card(), request.question)
        default = price_for_errors(made, request.margins or {}, Fraction(0), 1000)
        return priced_for(request) != default

    assert is_split(most) or most == 1
    assert not is_split(most + 1)


def test_the_same_request_has_the_same_price_and_noise() -> None:
    request = request_of(THREE, Fraction(0), n=7, s=5000, a=900)
    assert priced_for(request) == priced_for(request)
