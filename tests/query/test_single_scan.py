"""The tables of a card are seen once, and nothing of one card is told of another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfumato.dp.refusal import Refused
from sfumato.query import join
from sfumato.query.join import joined_view
from sfumato.query.lru_cache import LruCacheByCard
from sfumato.query.plan import make_plan
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card, read_card

SQL = "SELECT SUM(age) AS s FROM t WHERE age > 30"


def card(oldest: int = 100, **columns: object) -> Card:
    declared = {"age": {"type": "integer", "lower": 0, "upper": oldest}, **columns}
    return read_card("t", {"budget": {"epsilon": 10}, "columns": declared})


def widest(of: Card, sql: str = SQL) -> int:
    return make_plan(of, read_sql(sql, "t")).parts[0].per_cell


def test_a_card_is_seen_once() -> None:
    one, question = card(), read_sql(SQL, "t")
    assert joined_view(one, question)[0] is joined_view(one, question)[0]
    assert joined_view(card(), question)[0] is not joined_view(one, question)[0]


def test_an_amended_card_is_seen_anew() -> None:
    one = card(100)
    assert widest(one) == 100
    assert widest(replace(one, columns=card(50).columns)) == 50
    assert widest(one) == 100
    several = range(1, 20)  # each may lie where one before it lay
    assert [widest(card(oldest)) for oldest in several] == list(several)


def test_a_card_that_takes_anothers_place_in_memory_finds_nothing_of_it() -> None:
    made: LruCacheByCard[str] = LruCacheByCard(1000 * 16)
    one, other = card(), card(50)
    assert made.of(one, "key", lambda: "of one", len) == "of one"
    assert made.of(one, "key", lambda: "made again", len) == "of one"
    ((key, held),) = made._made._held.items()
    assert isinstance(key.key, tuple)
    made._made._held[type(key)((id(other), *key.key[1:]))] = held
    assert made.of(other, "key", lambda: "of another", len) == "of another"


def test_what_a_column_is_hangs_on_the_card_and_not_on_how_it_is_spelled() -> None:
    one = card(100, Paid={"type": "number", "lower": 0, "upper": 5, "step": 1})
    for spelling in ("paid", "PAID", "Paid"):
        assert widest(one, f"SELECT SUM({spelling}) AS s FROM t") == 5
    assert widest(one) == 100
    view = joined_view(one, read_sql(SQL, "t"))[0]
    assert sorted(view.types) == ["Paid", "age"]
    for _ in range(2):
        with pytest.raises(Refused, match="no column 'wages'"):
            widest(one, "SELECT SUM(wages) AS s FROM t")
    assert sorted(view.types) == ["Paid", "age"]


def test_another_table_of_the_card_is_another_view() -> None:
    number = {"type": "integer", "lower": 0, "upper": 7}
    limits = {"rows": 100, "rows_per_person": 10}
    shape = {
        "unit": "who",
        "budget": {"epsilon": 10},
        "limits": limits,
        "columns": {"age": {"type": "integer", "lower": 0, "upper": 100}},
        "tables": {"visits": {"unit": "who", "limits": limits, "columns": {"age": number}}},
    }
    one = read_card("t", shape)
    joined = "SELECT SUM(visits.age) AS s FROM t JOIN visits ON visits.who = t.who"
    texts = (SQL, "SELECT SUM(age) AS s FROM visits", joined, SQL)
    assert [widest(one, text) for text in texts] == [100, 7, 7, 100]


def test_what_is_kept_is_bounded() -> None:
    wide = {f"c{n}": {"type": "integer", "lower": 0, "upper": 9} for n in range(200)}
    for _ in range(30):
        widest(card(100, **wide))
    assert join._VIEWS._made.size() <= 16 * 1024 * 1024
