"""Stored answers are in the canonical order of version 0.1, whatever the classes are called."""

from __future__ import annotations

import pytest

from sfumato.query.canonical_conditions import canonical_condition
from sfumato.query.expression import All, AnyOf, Predicate, canonical_order
from sfumato.query.plan import make_plan
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import read_card

CARD = read_card(
    "t",
    {
        "unit": "who",
        "version": "1",
        "people": "all",
        "budget": {"epsilon": 3},
        "columns": {
            "a": {"type": "integer", "lower": 0, "upper": 9},
            "d": {"type": "date", "lower": "2024-01-01", "upper": "2024-01-09"},
            "sick": {"type": "boolean"},
            "town": {"type": "text", "keys": ["x", "y"]},
            "note": {"type": "text"},
        },
    },
)
# What version 0.1 printed: an answer that it stored has its cells in this order of the keys.
ORDERS = {
    "town, DATE_TRUNC('day', d)": ["Ref(column='town')", "Since("],
    "DATE_TRUNC('day', d), town": ["Ref(column='town')", "Since("],
    "town, EXTRACT(month FROM d)": ["Part(", "Ref(column='town')"],
    "town, ABS(a - 4)": ["Curve(name='abs'", "Ref(column='town')"],
    "town, a": ["Ref(column='a')", "Ref(column='town')"],
}


@pytest.mark.parametrize("keys", ORDERS)
def test_keys_are_in_the_order_of_version_0_1(keys: str) -> None:
    plan = make_plan(CARD, read_sql(f"SELECT COUNT(*) AS n FROM t GROUP BY {keys}", "t"))
    texts = [canonical_order(key.of) for key in plan.keys]
    assert texts == sorted(texts)
    for text, begins in zip(texts, ORDERS[keys], strict=True):
        assert text.startswith(begins), texts


# Texts of a question that look like the name of a class, today's and that of version 0.1.
ALIKE = (
    ("Literally(", "LiteralValue("), ("Since(", "DateTrunc("), ("Part(", "DateField("),
    ("Curve(", "FunctionCall("), ("it's Since(", "it's DateTrunc("), ('"Since(', '"DateTrunc('),
)  # fmt: skip


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_a_text_that_looks_like_a_class_stays_what_it_is(one: str, other: str) -> None:
    """Two questions that differ in such a text were one, and got each other's stored answer."""

    def canonical(condition: str) -> Predicate:
        where = read_sql(f"SELECT COUNT(*) AS n FROM t WHERE {condition}", "t").where
        assert where is not None
        return canonical_condition(where)

    likes = [f"note LIKE '{text.replace(chr(39), chr(39) * 2)}%'" for text in (one, other)]
    either = canonical(" OR ".join(likes))
    neither = canonical(" AND ".join(f"NOT {like}" for like in likes))
    assert isinstance(either, AnyOf)
    assert isinstance(neither, All)
    assert set(either.predicates) == {canonical(like) for like in likes}
    assert len(neither.predicates) == 2
