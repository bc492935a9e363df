"""Quantiles and most frequent values by keys that nobody declared: of selected keys alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

import pytest

from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.query.measure import Cells, Measure
from sfumato.query.request import Request
from sfumato.query.sql.select import read_sql
from sfumato.release.guarded_release import release
from sfumato.release.release_order import Asker, Order
from sfumato.vault.engine_port import Engine, EngineStopped
from sfumato.vault.sealed import Sealed
from support.small_vaults import open_with, write_csv

HEADER = ("who", "town", "day", "zip", "pay")
CARD = """
unit = "who"
people = "towns"
budget = { epsilon = 1000, delta = 1e-2 }
max_groups = 2
max_rows = 2
[columns.town]
type = "text"
[columns.day]
type = "date"
[columns.zip]
type = "text"
keys = ["a", "b"]
[columns.pay]
type = "integer"
lower = 0
upper = 100
"""
TOWNS = ("Zwolle", "Aachen", "Metz", "Ülm", "o'Town")
MIDDLE = dict(zip(TOWNS, (10, 30, 50, 70, 90), strict=True))
SURE: dict[str, Any] = {"epsilon": 60, "delta": 1e-5}
CHOICES = "SELECT town, MEDIAN(pay) AS m, MODE(zip) AS z, COUNT(*) AS n FROM t GROUP BY town"


def rows() -> list[Sequence[object]]:
    """Return 300 people a town, and a town of one person who has two rows in it."""
    made: list[Sequence[object]] = []
    for place, town in enumerate(TOWNS):
        for n in range(300):
            pay = MIDDLE[town] + n % 9 - 4
            made.append((f"{town}{n}", town, f"2026-01-0{place + 1}", "aab"[n % 3], pay))
    return [*made, ("hermit", "Nowhere", "2026-02-01", "b", 77)]


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("choices")
    with open_with(folder, "t", write_csv(folder / "rows.csv", HEADER, rows()), CARD) as opened:
        yield opened


def test_each_selected_key_gets_its_own_choice_and_others_leave_no_trace(vault: OpenVault) -> None:
    answer = vault["t"].ask(CHOICES, **SURE)
    assert [row[0] for row in answer.rows] == sorted(TOWNS)
    for town, middle, modes, n in answer.rows:
        assert abs(int(str(middle)) - MIDDLE[str(town)]) <= 2
        assert modes == ["a"]
        assert abs(int(str(n)) - 300) <= 5
    assert "hermit" not in repr(answer)
    assert "Nowhere" not in repr(answer.receipt)
    assert "partition selection" in str(answer.receipt["mechanism"])


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_readings_of_a_few_keys_each_give_every_key_its_own(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(sys.modules["sfumato.release.noisy_answers"], "KEYS_AT_ONCE", at_once)
    answer = vault["t"].ask(CHOICES, **SURE, fresh=True)
    found = {str(row[0]): int(str(row[1])) for row in answer.rows}
    assert found == {town: pytest.approx(middle, abs=2) for town, middle in MIDDLE.items()}


def test_keys_of_every_type_are_looked_up(vault: OpenVault) -> None:
    by_day = vault["t"].ask("SELECT day, MEDIAN(pay) AS m FROM t GROUP BY day", **SURE)
    assert [(row[0], round(int(str(row[1])), -1)) for row in by_day.rows] == [
        (f"2026-01-0{place + 1}", middle) for place, middle in enumerate(MIDDLE.values())
    ]
    both = vault["t"].ask("SELECT zip, town, MAX(pay) AS m FROM t GROUP BY zip, town", **SURE)
    assert [row[:2] for row in both.rows] == [(z, t) for z in "ab" for t in sorted(TOWNS)]
    each = vault["t"].ask(
        "SELECT n, MEDIAN(p) AS m FROM (SELECT who, COUNT(*) AS n, SUM(pay) AS p FROM t "
        "GROUP BY who) GROUP BY n HAVING n = 1",
        **SURE,
    )
    assert 30 < int(str(each.rows[0][1])) < 70


def test_where_no_key_is_selected_nothing_is_chosen(vault: OpenVault) -> None:
    sql = "SELECT town, MEDIAN(pay), APPROX_TOP_K(zip, 2) FROM t WHERE pay > 99 GROUP BY town"
    answer = vault["t"].ask(sql, epsilon=1, delta=1e-6)
    assert len(answer.rows) == 0
    assert len(answer.columns) == 3


def test_the_rank_error_is_told_before(vault: OpenVault) -> None:
    price = vault["t"].price(CHOICES, epsilon=2, delta=1e-6)
    assert price["rank_error"]["m"] > 0
    assert "its rank is within" in str(price)
    assert price["split"][0]["part"] == "choice of keys"


def test_a_formula_and_having_work_on_what_was_chosen(vault: OpenVault) -> None:
    answer = vault["t"].ask(
        "SELECT town, MAX(pay) - MIN(pay) AS span FROM t GROUP BY town "
        "HAVING MEDIAN(pay) > 40 ORDER BY MEDIAN(pay)",
        **SURE,
    )
    assert [row[0] for row in answer.rows] == ["Metz", "Ülm", "o'Town"]
    assert all(5 <= int(str(row[1])) <= 100 for row in answer.rows)


@dataclass(frozen=True)
class Stopping:
    """The real engine, but for the second reading of the rows, which stops."""

    engine: Engine

    def measure(self, table: str, measure: Measure) -> Sealed[Cells]:
        if measure.selected_keys is not None:
            raise EngineStopped
        return self.engine.measure(table, measure)


def test_a_further_reading_that_fails_has_paid_and_says_one_code(vault: OpenVault) -> None:
    listing, before = vault.house.catalogue.find("t"), spent(vault)
    assert listing is not None
    question = read_sql("SELECT town, MAX(pay) FROM t GROUP BY town", "t")
    request = Request(question, epsilon=Fraction(3), delta=Fraction(1, 10**6))
    order = Order(
        listing.card, listing.table, request, Asker("owner"), "op", lambda _: listing.card
    )
    door = vault.house.queries.door
    stopping = replace(door, engine=cast("Engine", Stopping(door.engine)))
    with pytest.raises(Refused) as refused:
        release(stopping, order)
    assert refused.value.code == "question-failed"
    assert spent(vault) == before + 3


def spent(vault: OpenVault) -> float:
    return float(vault["t"].budget["spent"]["epsilon"])


def test_what_was_chosen_is_asked_again_for_nothing_and_cannot_be_raised(vault: OpenVault) -> None:
    first = vault["t"].ask(CHOICES, epsilon=5, delta=1e-6)
    again = vault["t"].ask(CHOICES, epsilon=5, delta=1e-6)
    assert again.receipt["free"]
    assert again.rows == first.rows
    with pytest.raises(Refused, match="top-up-impossible"):
        vault["t"].ask(CHOICES, epsilon=9, top_up=first)
