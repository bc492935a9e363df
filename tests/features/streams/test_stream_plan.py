"""Streams as plans: which rows a period is of, by the card alone, and what stands in the ledger."""

from __future__ import annotations

from fractions import Fraction

import pytest

from sfumato.dp.refusal import Refused
from sfumato.features.streams.stream_plan import (
    Stream,
    Terms,
    make_stream,
    plan_of_period,
    stream_of,
)
from sfumato.query.expression import All, Compare, Constant, Ref
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card
from support.engine_rows import card_of

MIDNIGHT = " 00:00:00.000000"


def card(kind: str) -> Card:
    return card_of("who", {"At": {"type": kind}, "Sick": {"type": "boolean"}}, version="1")


def made(kind: str, unit: str = "day", start: str = "2026-01-01", where: str = "") -> Stream:
    sql = (
        f"SELECT date_trunc('{unit}', at) AS d, RUNNING_COUNT(*) AS n FROM some {where} GROUP BY d"
    )
    return make_stream(card(kind), read_sql(sql, "some"), Terms("s", start, 5, 2, Fraction(1)))


@pytest.mark.parametrize(
    ("kind", "unit", "start", "ends"),
    [
        ("date", "day", "2026-01-01", ("2026-01-05", "2026-01-06")),
        ("date", "week", "2026-01-05", ("2026-02-02", "2026-02-09")),
        ("timestamp", "month", "2026-01-01", ("2026-05-01" + MIDNIGHT, "2026-06-01" + MIDNIGHT)),
    ],
)
def test_a_period_has_the_rows_from_its_first_moment_to_that_of_the_next(
    kind: str, unit: str, start: str, ends: tuple[str, str]
) -> None:
    where = plan_of_period(card(kind), made(kind, unit, start), 5).measure.where
    first, after = (Constant("date" if kind == "date" else "timestamp", end) for end in ends)
    day = Ref("v0")
    assert isinstance(where, All)
    assert set(where.predicates) == {Compare(day, ">=", first), Compare(day, "<", after)}


@pytest.mark.parametrize("kind", ["text", "integer", "boolean"])
def test_what_is_no_date_has_no_periods(kind: str) -> None:
    with pytest.raises(Refused) as refused:
        made(kind)
    assert refused.value.code == "type-mismatch"


@pytest.mark.parametrize(("unit", "start"), [("week", "2026-01-06"), ("month", "2026-01-02")])
def test_a_stream_starts_where_a_period_does(unit: str, start: str) -> None:
    with pytest.raises(Refused) as refused:
        made("date", unit, start)
    assert refused.value.code == "stream-not-possible"


@pytest.mark.parametrize("where", ["", "WHERE sick", "WHERE NOT SICK AND at > '2026-01-03'"])
def test_what_stands_in_the_ledger_is_the_stream_again(where: str) -> None:
    stream = made("date", where=where)
    assert stream_of(stream.as_json()) == stream
    again = make_stream(card("date"), stream.question, Terms("s", stream.start, 5, 2, Fraction(1)))
    assert again == stream  # the card's own spelling, once and for all
