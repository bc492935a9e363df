"""Arithmetic over aggregates, through the vault: free, charged once, shown with its error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sfumato import col
from sfumato.app.vault import OpenVault
from sfumato.client import Answer
from sfumato.dp.refusal import Refused
from support.small_vaults import open_with, write_csv

CARD = """
unit = "who"
budget = { epsilon = 50, delta = 1e-3 }
max_rows = 2
size = 400
[columns.sex]
type = "text"
keys = ["f", "m", "x"]
[columns.town]
type = "text"
[columns.cost]
type = "integer"
lower = 0
upper = 100
[columns.paid]
type = "integer"
lower = 0
upper = 100
"""
RATIO = "SELECT sex, SUM(cost) / COUNT(*) AS each FROM t GROUP BY sex"


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    rows = [(f"p{i}", "fm"[i % 2], f"town{i % 3}", 20 + i % 50, i % 20) for i in range(400)]
    source = write_csv(tmp_path / "t.csv", ("who", "sex", "town", "cost", "paid"), rows)
    with open_with(tmp_path, "t", source, CARD) as made:
        yield made


def by_key(answer: Answer) -> dict[object, tuple[object, ...]]:
    return {row[0]: row[1:] for row in answer.rows}


def left(vault: OpenVault) -> float:
    return float(vault["t"].budget["left"]["epsilon"])


def test_a_formula_is_of_the_very_numbers_that_are_released(vault: OpenVault) -> None:
    answer = vault["t"].ask(
        "SELECT sex, SUM(cost) AS s, COUNT(*) AS n, SUM(cost) / COUNT(*) AS each, s - n AS d "
        "FROM t GROUP BY sex",
        epsilon=4,
    )
    for s, n, each, difference in by_key(answer).values():
        assert isinstance(s, int)
        assert isinstance(n, int)
        assert each == (None if n == 0 else pytest.approx(s / n))
        assert difference == s - n


def test_asking_for_the_sum_and_the_count_has_paid_for_their_quotient(vault: OpenVault) -> None:
    parts = vault["t"].ask("SELECT sex, SUM(cost), COUNT(*) FROM t GROUP BY sex", epsilon=3)
    again = vault["t"].ask(RATIO, epsilon=3)
    assert again.receipt["free"]
    assert left(vault) == 47
    for sex, (s, n) in by_key(parts).items():
        each = None if n == 0 else pytest.approx(int(str(s)) / int(str(n)))
        assert by_key(again)[sex] == (each,)


def test_an_aggregate_that_stands_twice_is_one_part_of_the_price(vault: OpenVault) -> None:
    price = vault["t"].price("SELECT SUM(cost) / COUNT(*) + SUM(cost) AS r FROM t", epsilon=1)
    assert [part["part"] for part in price["split"]] == ["count of rows", "sum of cost"]


def test_what_is_only_reckoned_with_is_not_shown_but_is_on_the_receipt(vault: OpenVault) -> None:
    answer = vault["t"].ask(RATIO, epsilon=1)
    assert answer.columns == ("sex", "each")
    said: Any = answer.receipt
    assert [part["part"] for part in said["split"]] == ["count of rows", "sum of cost"]
    assert "then each = (sum_cost / count)" in said["says"]
    assert "Fieller" in said["interval"]


def test_a_divisor_that_may_be_zero_has_the_public_range_for_an_error_bar(vault: OpenVault) -> None:
    answer = vault["t"].ask(RATIO, epsilon=1)  # nobody has sex x
    places = [row[0] for row in answer.rows]
    (bar,), (std,) = answer.interval[places.index("x")][1:], answer.std[places.index("x")][1:]
    assert bar is not None
    assert std is not None or bar[1] - bar[0] > 20  # one count in forty is told apart
    (bar,), value = answer.interval[places.index("f")][1:], answer.rows[places.index("f")][1]
    assert bar is not None
    assert bar[0] < float(str(value)) < bar[1]


def test_the_builder_has_the_same_power(vault: OpenVault) -> None:
    answer = vault["t"].ask(RATIO, epsilon=2)
    built = (
        vault["t"]
        .group_by("sex")
        .sum("cost", name="s")
        .count(name="n")
        .formula(each=col("s") / col("n"))
        .show("sex", "each")
    )
    same = built.ask(epsilon=2)
    assert same.receipt["free"]
    assert (same.columns, same.rows) == (answer.columns, answer.rows)
    dear = built.having(col("s") / col("n") > 1000).ask(epsilon=2)
    assert dear.receipt["free"]
    assert dear.rows == ()
    with pytest.raises(Refused, match="unknown-column"):
        built.show("nobody").ask(epsilon=2)


def test_having_and_order_by_work_on_what_is_reckoned(vault: OpenVault) -> None:
    answer = vault["t"].ask(
        "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex "
        "HAVING SUM(cost) > 2 * SUM(paid) AND n > 100 ORDER BY SUM(cost) / n DESC LIMIT 2",
        epsilon=20,
    )
    assert {row[0] for row in answer.rows} == {"f", "m"}
    assert "not valid for rows that were chosen" in str(answer.receipt["interval"])


def test_private_keys_are_reckoned_with_like_any(vault: OpenVault) -> None:
    answer = vault["t"].ask(
        "SELECT town, SUM(cost) / COUNT(*) AS each FROM t GROUP BY town", epsilon=9, delta=1e-6
    )
    assert [row[0] for row in answer.rows] == ["town0", "town1", "town2"]
    assert all(30 < float(str(row[1])) < 60 for row in answer.rows)
    nobody = "SELECT town, SUM(cost) / COUNT(*) AS r FROM t WHERE cost > 99 GROUP BY town"
    assert len(vault["t"].ask(nobody, epsilon=1, delta=1e-6)) == 0


def test_a_raised_answer_is_reckoned_with_anew(vault: OpenVault) -> None:
    first = vault["t"].ask(RATIO, epsilon=6)
    raised = vault["t"].ask(RATIO, epsilon=8, top_up=first)
    wide, narrow = (dict(zip("fm", a.interval, strict=False)) for a in (first, raised))
    for sex in "fm":
        (before,), (after,) = wide[sex][1:], narrow[sex][1:]
        assert before is not None
        assert after is not None
        assert after[1] - after[0] < before[1] - before[0]


def test_the_error_that_is_wanted_of_a_formula_finds_its_price(vault: OpenVault) -> None:
    price = vault["t"].price(RATIO, error={"each": 5}, people=100)
    assert price["error"]["each"] == pytest.approx(5, rel=0.01)
    assert price["error"].keys() == {"each"}
    assert "each: ± 5" in str(price)
    few = vault["t"].price(RATIO, epsilon=0.01, people=5)
    assert few["error"]["each"] == 50  # half the public range
    assert "each: ± " in str(vault["t"].price(RATIO, epsilon=0.5))


def test_a_size_that_an_error_is_reckoned_with_is_said_to_be_assumed(vault: OpenVault) -> None:
    said = "errors that depend on a size are for {} people in each group (assumed)"
    for sql in ("SELECT AVG(cost) AS m FROM t", RATIO):
        assert said.format(400) in str(vault["t"].price(sql, epsilon=1))
        assert said.format(50) in str(vault["t"].price(sql, epsilon=1, people=50))
    exact = "SELECT COUNT(*), SUM(cost), MEDIAN(cost) FROM t"
    assert "assumed" not in str(vault["t"].price(exact, epsilon=1, people=50))


def test_a_count_that_was_released_says_the_size(vault: OpenVault) -> None:
    count = vault["t"].count().ask(epsilon=6)
    price = vault["t"].mean("cost").price(epsilon=1, people=count)
    assert price["assumed_people"] == round(float(str(count.value)))


def test_a_share_of_the_price_is_given_to_aggregates(vault: OpenVault) -> None:
    split = {"s": 3, "n": 1}
    price = vault["t"].price(
        "SELECT SUM(cost) AS s, COUNT(*) AS n, s / n AS r FROM t", epsilon=1, split=split
    )
    assert [part["share"] for part in price["split"]] == [0.25, 0.75]
    with pytest.raises(Refused, match="name a formula's aggregates by asking for them too"):
        vault["t"].price(RATIO, epsilon=1, split={"each": 2})


def test_what_is_done_with_an_answer_leaves_its_formulas_alone(vault: OpenVault) -> None:
    answer = vault["t"].ask(
        "SELECT sex, COUNT(*) AS n, 2 * COUNT(*) AS twice FROM t GROUP BY sex", epsilon=1
    )
    tidy = answer.tidy()
    assert [row[2] for row in tidy.rows] == [row[2] for row in answer.rows]
    assert "Formulas keep the numbers from before." in tidy.notes
    with pytest.raises(Refused, match="'twice' is neither a count of rows nor a sum"):
        answer.total()
    assert answer.plot(y="twice").summary


def test_a_stream_takes_no_formula(vault: OpenVault) -> None:
    sql = "SELECT date_trunc('day', day) AS day, 2 * RUNNING_COUNT(*) AS n FROM t GROUP BY day"
    with pytest.raises(Refused) as refused:
        vault.open_stream("t", "s", sql, start="2026-01-01", periods=3, rows=1, epsilon=1)
    assert refused.value.code == "stream-not-possible"


def test_a_picture_leaves_out_what_has_no_number_and_says_so(vault: OpenVault) -> None:
    answer = vault["t"].ask(
        "SELECT sex, SUM(cost) / COUNT(*) AS r, CASE WHEN SUM(cost) > 1000 THEN 1 END AS much "
        "FROM t GROUP BY sex",
        epsilon=20,
    )
    picture = answer.plot(y="much")
    assert "1 without a number is left out." in picture.summary
    assert len(picture.cells) == 2
    assert "null" in repr(answer)


def test_beside_a_price_for_errors_stands_what_other_epsilons_buy(vault: OpenVault) -> None:
    """The errors of an epsilon are those that asking for it has, whatever was asked for here."""
    sql = "SELECT sex, COUNT(*) AS n, SUM(cost) AS s FROM t GROUP BY sex"
    priced = vault["t"].price(sql, error={"n": 3, "s": 600}, delta=0)
    assert priced["epsilon"] < vault["t"].price(sql, error={"n": 3, "s": 600}, delta=0,
                                                split={"n": 1, "s": 1})["epsilon"]  # fmt: skip
    by_epsilon = {one["epsilon"]: one["error"] for one in priced["at"]}
    assert by_epsilon[priced["epsilon"]] == priced["error"]
    for epsilon in (0.5, 1.0):
        assert by_epsilon[epsilon] == vault["t"].price(sql, epsilon=epsilon, delta=0)["error"]
