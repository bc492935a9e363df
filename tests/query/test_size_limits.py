"""No text is so nested that reading it, or refusing it, takes longer than a long one may.

A part that stands in several others is one value in memory, so a short text can say very much. What
is counted here is calls, not time: they are the same on every machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from query.sql.test_hostile_queries import CLINIC
from sfumato.dp.refusal import Refused
from sfumato.query.expression import (
    Arithmetic,
    Case,
    Compare,
    Constant,
    Expr,
    FunctionCall,
    LiteralValue,
    Ref,
    walk,
)
from sfumato.query.model import Aggregate, Output, Query
from sfumato.query.plan import make_plan
from sfumato.query.size_limits import MAX_NODES, check_parts, count_up_to
from sfumato.query.sql.select import read_sql

MOST_CALLS = 2_000_000  # a second or two; of what was found here some texts took hours
ONE = LiteralValue(Constant.of(1))
NESTED: dict[str, Callable[[str], str]] = {
    "NULLIF": lambda x: f"NULLIF({x}, 7)",
    "CASE": lambda x: f"CASE {x} WHEN 1 THEN 2 WHEN 3 THEN 4 WHEN 5 THEN 6 ELSE 9 END",
    "BETWEEN": lambda x: f"CASE WHEN {x} BETWEEN 1 AND 3 THEN 2 END",
    "CAST": lambda x: f"CAST({x} = 1 AS INT)",
    "ABS": lambda x: f"ABS({x} - 1)",
}
FORMS = (
    "SELECT SUM({}) FROM t",
    "SELECT {} AS k, COUNT(*) FROM t GROUP BY {}",
    "SELECT COUNT(*) FROM t WHERE {} = 1",
    "SELECT SUM(x) FROM (SELECT {} AS x FROM t) s",
    "SELECT COUNT(*) FROM (SELECT who, MAX({}) AS x FROM t GROUP BY who) s WHERE x > 1",
    "SELECT COUNT(*) AS n FROM t HAVING {} > 1",
)


class TooManyCallsError(AssertionError):
    """More is called than anything that is planned or refused may call."""


@contextmanager
def few_calls() -> Iterator[None]:
    left = MOST_CALLS

    def count(_frame: FrameType, event: str, _of: object) -> None:
        nonlocal left
        left -= event == "call"
        if left < 0:
            raise TooManyCallsError

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


def nested(of: Callable[[str], str], depth: int, inner: str) -> str:
    for _ in range(depth):
        inner = of(inner)
    return inner


def is_planned(made: Callable[[], Query]) -> bool:
    try:
        with few_calls():
            make_plan(CLINIC, made())
    except Refused:
        return False
    return True


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NESTED)
def test_what_names_a_part_several_times_is_read_soon_however_deep(name: str, form: str) -> None:
    inner = "COUNT(*)" if "HAVING" in form else "age"
    for depth in (1, 6, 10, 18):
        text = form.replace("{}", nested(NESTED[name], depth, inner))
        is_planned(lambda t=text: read_sql(t, "t"))  # type: ignore[misc]  # a default


def test_nested_parts_are_planned_as_long_as_they_are_few() -> None:
    for name, of in NESTED.items():
        text = f"SELECT SUM({nested(of, 2, 'age')}) FROM t"
        assert is_planned(lambda t=text: read_sql(t, "t")), name  # type: ignore[misc]  # a default


def test_what_is_true_is_counted_too() -> None:
    value = nested(lambda x: f"NULLIF({x}, TRUE)", 8, "sick")
    value = nested(lambda x: f"CASE WHEN {x} IS TRUE THEN TRUE ELSE FALSE END", 6, value)
    text = f"SELECT {value} AS k, COUNT(*) FROM t GROUP BY k"
    assert not is_planned(lambda: read_sql(text, "t"))


def test_a_question_that_shares_its_parts_is_counted_before_it_is_gone_through() -> None:
    expr: Expr = Ref("age")
    for _ in range(60):
        expr = Arithmetic("+", expr, expr)
    assert not is_planned(lambda: summed(expr))


def summed(of: Expr) -> Query:
    return Query("t", (Output("s", Aggregate("sum", (of,))),))


def keyed(of: Expr) -> Query:
    return Query("t", (Output("k", of), Output("n", Aggregate("count"))), None, (of,))


def topped(of: Expr) -> Query:
    return Query("t", (Output("k", Aggregate("top", (of,), most=1)),))


def size(of: Expr, _place: int) -> Expr:
    return FunctionCall("abs", Arithmetic("-", of, ONE))


def quotient(of: Expr, _place: int) -> Expr:
    return Arithmetic("/", ONE, Arithmetic("+", of, ONE))


def another(of: Expr, place: int) -> Expr:
    key = LiteralValue(Constant.of(f"k{place}"))
    return Case(((Compare(Ref("age"), "=", Constant.of(place)), key),), of)


@pytest.mark.parametrize(
    ("of", "inner", "asked"),
    [(size, "age", summed), (quotient, "age", summed), (another, "zip", keyed),
     (another, "zip", topped)],
)  # fmt: skip
def test_what_becomes_long_on_physical_columns_is_refused_before_it_is_gone_through(
    of: Callable[[Expr, int], Expr], inner: str, asked: Callable[[Expr], Query]
) -> None:
    """As JSON has it, which may be deeper than a text."""
    expr: Expr = Ref(inner)
    planned = []
    for place in range(18):
        expr = of(expr, place)
        planned.append(is_planned(lambda e=expr: asked(e)))  # type: ignore[misc]  # a default
    assert planned[0]
    assert not planned[-1]


def test_parts_are_counted_no_further_than_they_may_be() -> None:
    expr: Expr = Ref("age")
    for _ in range(60):  # more parts than anybody can count
        expr = Arithmetic("+", expr, expr)
    assert count_up_to(10, [expr]) == 11
    assert count_up_to(10, [ONE, ONE]) == 2
    few = Arithmetic("+", ONE, ONE)
    assert count_up_to(10, [few]) == sum(1 for _ in walk(few)) == 3
    check_parts([few], besides=MAX_NODES - 3)
    with pytest.raises(Refused, match="more than 2000 columns"):
        check_parts([few], besides=MAX_NODES - 2)
