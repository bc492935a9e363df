"""How long a reading of lists is waited for hangs on card and price, and on no key there is."""

from __future__ import annotations

from fractions import Fraction

import pytest

from sfumato.query.plan import make_plan
from sfumato.query.price import price_at
from sfumato.query.sql.select import read_sql
from sfumato.release.wait_limit import BASE_LIMIT_S, MAX_LIMIT_S, wait_limit
from sfumato.vault.card.data_card import read_card
from support.small_vaults import card as toml

CARD = """
unit = "who"
budget = {{ epsilon = 10, delta = 1e-3 }}
[limits]
rows = {rows}
rows_per_person = 10
[columns.town]
type = "text"
[columns.sex]
type = "text"
keys = ["f", "m"]
[columns.pay]
type = "integer"
lower = 0
upper = 100
"""


def patience(rows: int, select: str, key: str) -> int:
    card = read_card("t", toml(CARD.format(rows=rows)))
    plan = make_plan(card, read_sql(f"SELECT {key}, {select} AS x FROM t GROUP BY {key}", "t"))
    return wait_limit(price_at(plan, Fraction(1), Fraction(1, 10**6)))


@pytest.mark.parametrize("select", ["COUNT(*)", "MEDIAN(pay)"])
def test_what_is_read_once_is_waited_for_as_before(select: str) -> None:
    assert patience(10**6, select, "sex") == BASE_LIMIT_S
    assert patience(10**6, "COUNT(*)", "town") == BASE_LIMIT_S


def test_lists_by_private_keys_are_waited_for_longer_but_for_no_more_than_a_day() -> None:
    few, many = (patience(rows, "MEDIAN(pay)", "town") for rows in (10**6, 10**7))
    assert BASE_LIMIT_S < few < many <= MAX_LIMIT_S
    assert patience(5 * 10**8, "MEDIAN(pay)", "town") == MAX_LIMIT_S
