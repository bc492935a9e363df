"""A question in the making shows what it would ask, and what comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from sfumato.client.column_expressions import case, col
from sfumato.client.query_builder import Builder
from sfumato.dp.refusal import Refused
from sfumato.query.expression import Ref
from sfumato.query.sql.select import read_sql

NOBODY = cast(Any, None)  # whom it would be asked of: nothing is asked here


def test_a_question_in_the_making_shows_itself_in_one_line() -> None:
    asked = Builder("town", NOBODY).group_by("zip").count(name="people").mean("salary")
    assert repr(asked) == (
        "<a question of 'town': people, avg_salary; .price(epsilon=1) or .ask(epsilon=1)>"
    )
    assert "nothing yet" in repr(Builder("town", NOBODY))


def asked() -> Builder:
    return Builder("town", NOBODY)


MISWRITTEN: dict[str, Callable[[Any], object]] = {  # Any: what no type checker would let pass
    "a number for a column": lambda asked: asked.mean(5),
    "nothing for a column": lambda asked: asked.group_by(None),
    "a condition for a number": lambda asked: asked.sum(col("pay") > 3),
    "a number for a pair": lambda asked: asked.covariance("pay", 5),
    "a number for a key": lambda asked: asked.group_by(key=5),
    "a number for a formula": lambda asked: asked.count().formula(x=5),
    "a text for a condition": lambda asked: asked.where("pay > 5"),
    "a truth for a condition": lambda asked: asked.where(True),
    "a text for whose": lambda asked: asked.people("sick"),
    "a number beside a condition": lambda asked: asked.where((col("pay") > 1) | cast(Any, 5)),
    "a text for released rows": lambda asked: asked.count().having("count > 5"),
    "a column for an order": lambda asked: asked.count().order_by(col("count")),
    "one bound for a sum": lambda asked: asked.sum("pay", within=5),
    "three bounds for a sum": lambda asked: asked.sum("pay", within=(1, 2, 3)),
    "a text for a share": lambda asked: asked.quantile("pay", "x"),
    "a number to be equal": lambda asked: asked.join("rides", also=5),
    "three columns to be equal": lambda asked: asked.join("rides", also=[("a", "b", "c")]),
    "half of a reduction": lambda asked: asked.each_person(n=("sum",)),
    "a number for a reduction": lambda asked: asked.each_person(n=5),
    "a case without a pair": lambda _: case(cast(Any, 5)),
    "a case without a condition": lambda _: case(cast(Any, (5, "a"))),
    "bins for no column": lambda asked: asked.histogram(None, bins=4, epsilon=1),
}


@pytest.mark.parametrize("write", MISWRITTEN.values(), ids=MISWRITTEN.keys())
def test_what_is_not_of_the_language_is_refused_as_it_is_written(
    write: Callable[[Any], object],
) -> None:
    with pytest.raises(Refused) as refused:
        write(asked())
    assert refused.value.code == "not-in-language"
    assert refused.value.next_step.startswith("Write ")


def test_bins_from_zero_on_are_those_of_sql() -> None:
    ages = asked().group_by(age_from=col("age").bins(10)).count(name="n")
    sql = "SELECT {0}, COUNT(*) AS n FROM town GROUP BY {0}"
    from_zero = read_sql(sql.format("FLOOR(age / 10) * 10"), "town")
    assert ages.question().group_by == from_zero.group_by
    from_five = read_sql(sql.format("FLOOR((age - 5) / 10) * 10 + 5"), "town")
    moved = asked().group_by(age_from=col("age").bins(10, start=5)).question()
    assert moved.group_by == from_five.group_by


def test_a_key_may_have_another_name() -> None:
    named = asked().group_by(place="zip").count().question()
    assert [output.name for output in named.outputs] == ["place", "count"]
    assert named.group_by == (Ref("zip"),)


def test_no_groups_and_no_rows_are_not_the_cards() -> None:
    bounded = asked().at_most(groups=0, rows=0).at_most(groups=None).question()
    assert (bounded.max_groups, bounded.max_rows) == (0, 0)  # which the question's reader refuses
