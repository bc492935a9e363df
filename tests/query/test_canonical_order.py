"""Stored answers are in the canonical order of version 0.1, whatever the classes are called."""

from __future__ import annotations

import pytest

from sfumato.query.expression import canonical_order
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
