"""SQL and the builder ask the same questions, and the answers are about the rows that are there."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from random import Random

import numpy as np
import pytest

from sfumato import Refused, case, col
from sfumato.app.vault import OpenVault
from sfumato.client import Answer, Builder, DataSet
from sfumato.client.conditions import of_column, value_of
from sfumato.query.sql.select import read_sql
from support.small_vaults import open_with, write_csv

CARD = """
unit = "who"
budget = { epsilon = 1000, delta = 1e-3 }
max_groups = 3
max_rows = 20
[limits]
rows = 100000
rows_per_person = 50
[columns.zip]
type = "text"
[columns.sex]
type = "text"
keys = ["f", "m"]
[columns.age]
type = "integer"
lower = 0
upper = 99
[columns.pay]
type = "number"
lower = 0
upper = 500
step = 0.5
[columns.day]
type = "date"
lower = 2026-01-01
upper = 2026-12-31
[columns.sick]
type = "boolean"
"""
SURE = 60  # an epsilon at which the noise of one row is nothing


def rows() -> list[tuple[str, str, str, int, float | str, str, str]]:
    dice = Random(7)
    return [
        (
            f"p{dice.randrange(200)}",
            dice.choice(["10001", "10002", "20001"]),
            dice.choice(["f", "m"]),
            dice.randrange(100),
            "" if dice.random() < 0.1 else dice.randrange(1000) / 2,
            f"2026-{dice.randrange(1, 13):02d}-{dice.randrange(1, 29):02d}",
            dice.choice(["yes", "no"]),
        )
        for _ in range(1000)
    ]


ROWS = rows()
PAY = [float(r[4]) for r in ROWS if r[4] != ""]


def counts(answer: Answer) -> dict[object, object]:
    pairs: list[tuple[object, object]] = [(row[0], row[1]) for row in answer.rows]
    return dict(pairs)


def opened(folder: Path, text: str) -> OpenVault:
    header = ("who", "zip", "sex", "age", "pay", "day", "sick")
    return open_with(folder, "town", write_csv(folder / "town.csv", header, ROWS), text)


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    """Return a vault in which people have many rows."""
    with opened(tmp_path_factory.mktemp("people"), CARD) as made:
        yield made


@pytest.fixture(scope="module")
def rowwise(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    """Return a vault in which each row is a person."""
    text = CARD.replace('unit = "who"', 'unit = "row"')
    with opened(tmp_path_factory.mktemp("rows"), text) as made:
        yield made


Build = Callable[[DataSet], Builder]
PAIRS: list[tuple[str, Build]] = [
    ("SELECT COUNT(*) AS count FROM town", lambda t: t.count()),
    (
        "SELECT floor(age / 10) * 10 AS decade, COUNT(*) AS count FROM town GROUP BY decade",
        lambda t: t.group_by(decade=(col("age") / 10).floor() * 10).count(),
    ),
    (
        "SELECT date_trunc('month', day) AS m, AVG(pay) AS avg_pay FROM town GROUP BY m",
        lambda t: t.group_by(m=col("day").trunc("month")).mean("pay"),
    ),
    (
        "SELECT SUM(least(greatest(pay, 10), 100)) AS s FROM town WHERE pay > age AND sick",
        lambda t: t.where(col("pay") > col("age"), col("sick")).sum(
            col("pay").clamp(10, 100), name="s"
        ),
    ),
    (
        "SELECT CASE WHEN age < 18 THEN 'young' ELSE 'old' END AS g, COUNT(pay) AS count_pay "
        "FROM town WHERE zip LIKE '100%' OR NOT sex = 'f' GROUP BY g",
        lambda t: (
            t.where(col("zip").starts_with("100") | ~(col("sex") == "f"))
            .group_by(g=case((col("age") < 18, "young"), otherwise="old"))
            .count("pay")
        ),
    ),
    (
        "SELECT AVG(n) AS avg_n FROM (SELECT who, COUNT(*) AS n, SUM(pay) AS s FROM town "
        "WHERE age >= 50 GROUP BY who) WHERE s > 100",
        lambda t: (
            t.where(age=(50, None))
            .each_person(n="count", s=("sum", "pay"))
            .where(col("s") > 100)
            .mean("n")
        ),
    ),
    (
        "SELECT zip, COUNT(*) AS n FROM town GROUP BY zip HAVING n > 100 ORDER BY n DESC LIMIT 2",
        lambda t: t.group_by("zip").count(name="n").having(col("n") > 100).order_by("-n").limit(2),
    ),
    (
        "SELECT MEDIAN(pay) AS m, QUANTILE_CONT(pay, 0.9) AS q, MIN(age) AS min_age, "
        "MAX(age) AS max_age, COUNT(DISTINCT zip) AS z, APPROX_TOP_K(sex, 2) AS top_sex FROM town",
        lambda t: (
            t.median("pay", name="m")
            .quantile("pay", 0.9, name="q")
            .minimum("age")
            .maximum("age")
            .distinct("zip", name="z")
            .top("sex", 2)
        ),
    ),
]


@pytest.mark.parametrize(("sql", "build"), PAIRS)
def test_sql_and_the_builder_ask_the_same_question(
    vault: OpenVault, sql: str, build: Build
) -> None:
    town = vault["town"]
    terms = {"epsilon": 1, "delta": 1e-9}
    one, other = town.price(sql, **terms), build(town).price(**terms)  # type: ignore[arg-type]
    assert one["says"] == other["says"]
    assert one["split"] == other["split"]
    asked = read_sql(sql, "town")
    built = build(town).question()
    assert asked.outputs == built.outputs
    assert asked.group_by == built.group_by
    assert (asked.having, asked.order, asked.limit) == (built.having, built.order, built.limit)


def test_bins_of_an_expression_are_all_answered(rowwise: OpenVault) -> None:
    answer = rowwise["town"].group_by(decade=col("age").bins(10)).count().ask(epsilon=SURE)
    true = Counter(row[3] // 10 * 10 for row in ROWS)
    assert counts(answer) == {decade: true[decade] for decade in range(0, 100, 10)}


def test_bins_may_begin_anywhere(rowwise: OpenVault) -> None:
    answer = rowwise["town"].group_by(b=col("age").bins(25, start=5)).count().ask(epsilon=SURE)
    true = Counter((row[3] - 5) // 25 * 25 + 5 for row in ROWS)
    assert counts(answer) == {start: true[start] for start in (-20, 5, 30, 55, 80)}


def test_months_of_a_date_with_bounds_are_all_answered(rowwise: OpenVault) -> None:
    answer = rowwise["town"].group_by(m=col("day").trunc("month")).count().ask(epsilon=SURE)
    true = Counter(row[5][:8] + "01" for row in ROWS)
    assert counts(answer) == {f"2026-{m:02d}-01": true[f"2026-{m:02d}-01"] for m in range(1, 13)}


def test_a_case_groups_by_its_own_words(rowwise: OpenVault) -> None:
    sql = (
        "SELECT CASE WHEN age < 18 THEN 'young' ELSE 'old' END AS g, COUNT(*) FROM town GROUP BY g"
    )
    answer = rowwise["town"].ask(sql, epsilon=SURE)
    young = sum(row[3] < 18 for row in ROWS)
    assert counts(answer) == {"young": young, "old": len(ROWS) - young}


def test_private_keys_are_shown_if_many_people_have_them(vault: OpenVault) -> None:
    answer = vault["town"].group_by("zip").people().ask(epsilon=SURE, delta=1e-6)
    true = {z: len({r[0] for r in ROWS if r[1] == z}) for z in {r[1] for r in ROWS}}
    assert counts(answer) == true
    assert answer.receipt["delta"] == 1e-6


def test_private_keys_need_a_delta(vault: OpenVault) -> None:
    with pytest.raises(Refused) as refused:
        vault["town"].group_by("zip").count().ask(epsilon=1)
    assert refused.value.code == "keys-needed"


def test_quantiles_are_near_the_true_ones(rowwise: OpenVault) -> None:
    built = rowwise["town"].median("pay").quantile("pay", 0.1).minimum("age").maximum("age")
    median, tenth, least, most = next(iter(built.ask(epsilon=SURE)))
    true = statistics.quantiles(PAY, n=10)
    assert median == pytest.approx(statistics.median(PAY), abs=2)
    assert tenth == pytest.approx(true[0], abs=2)
    assert (least, most) == (0, 99)


def test_the_most_frequent_are_named(rowwise: OpenVault) -> None:
    answer = rowwise["town"].top(col("age").bins(10), 3).ask(epsilon=SURE)
    true = Counter(row[3] // 10 * 10 for row in ROWS).most_common(3)
    assert set(answer.value) == {name for name, _ in true}  # type: ignore[call-overload]


def test_different_values_are_counted(rowwise: OpenVault) -> None:
    assert rowwise["town"].distinct("zip").ask(epsilon=SURE).value == 3


def test_a_persons_sum_is_clamped(vault: OpenVault) -> None:
    answer = vault["town"].sum("pay", within=(0, 300)).ask(epsilon=SURE)
    sums: dict[str, float] = {}
    for row in ROWS:
        if row[4] != "":
            sums[row[0]] = sums.get(row[0], 0.0) + float(row[4])
    true = sum(min(paid, 300.0) for paid in sums.values())
    assert answer.value == pytest.approx(true, abs=100)


def test_a_table_of_people_has_one_row_each(vault: OpenVault) -> None:
    people = vault["town"].where(age=(50, None)).each_person(n="count", oldest=("maximum", "age"))
    answer = people.mean("n").mean("oldest").people().ask(epsilon=SURE)
    mine: dict[str, list[int]] = {}
    for row in ROWS:
        if row[3] >= 50:
            mine.setdefault(row[0], []).append(row[3])
    n, oldest, count = next(iter(answer))
    assert n == pytest.approx(sum(map(len, mine.values())) / len(mine), abs=0.1)
    assert oldest == pytest.approx(sum(map(max, mine.values())) / len(mine), abs=0.1)
    assert count == len(mine)


def test_having_order_and_limit_are_free_once_the_values_are_there(vault: OpenVault) -> None:
    town = vault["town"]
    first = town.group_by("sex").count(name="n").ask(epsilon=1)
    spent = town.budget["spent"]["epsilon"]
    for built in (
        town.group_by("sex").count(name="n").having(col("n") > 0).order_by("-n"),
        town.group_by("sex").count(name="n").order_by("n").limit(1),
        town.group_by("sex").count(name="total").having(col("sex") == "f"),
    ):
        again = built.ask(epsilon=1)
        assert again.receipt["free"] is True
        assert set(again.rows) <= set(first.rows)
    assert town.budget["spent"]["epsilon"] == spent


def test_rows_chosen_by_their_noisy_values_say_so(vault: OpenVault) -> None:
    built = vault["town"].group_by("sex").count(name="n")
    assert "not valid" not in str(built.ask(epsilon=1).receipt["interval"])
    assert "not valid" in str(built.having(col("n") > 3).ask(epsilon=1).receipt["interval"])


NO_VALUES: list[Callable[[], object]] = [
    lambda: of_column("zip", ["10001", None]),
    lambda: of_column("zip", b"10001"),
    lambda: of_column("age", float("nan")),
    lambda: col("age") < float("inf"),
    lambda: col("age") == np.float64("nan"),
    lambda: of_column("zip", col("town")),
    lambda: of_column("zip", {"10001": 1}),
    lambda: of_column("zip", (["a"], None)),
    lambda: col("zip").is_in(["10001", None]),
    lambda: col("zip") == ["10001", "10002"],
    lambda: col("zip").or_else(None),
    lambda: case((col("age") < 18, "young"), (col("age") < 30, None), otherwise="old"),
]


@pytest.mark.parametrize("say", NO_VALUES, ids=range(len(NO_VALUES)))
def test_what_is_no_value_is_refused_and_not_compared_as_its_spelling(
    say: Callable[[], object],
) -> None:
    with pytest.raises(Refused, match="not a value that a question can contain") as refused:
        say()
    assert "is_null()" in refused.value.next_step


@pytest.mark.parametrize("given", [[], set(), frozenset()])
def test_a_list_of_nothing_says_what_it_lacks(given: object) -> None:
    for say in (lambda: of_column("zip", given), lambda: col("zip").is_in(given)):  # type: ignore[arg-type]  # any of them
        with pytest.raises(Refused, match="Give at least one value"):
            say()


@pytest.mark.parametrize("share", [1.5, -0.1, "0.5", True])
def test_a_share_that_is_none_says_how_one_is_written(vault: OpenVault, share: object) -> None:
    with pytest.raises(Refused, match="is not a share of the rows") as refused:
        vault["town"].quantile("age", share)  # type: ignore[arg-type]  # no share
    assert "quantile(" in refused.value.next_step


def test_a_value_is_one_whatever_library_made_it() -> None:
    given: list[object] = [np.int64(3), np.float64(0.5), np.True_, np.datetime64("2026-01-31"), 3]
    said = [value_of(value) for value in (*given, date(2026, 1, 31), datetime(2026, 1, 31, 5))]
    assert [(c.kind, c.text) for c in said] == [
        ("number", "3"), ("number", "1/2"), ("boolean", "true"), ("text", "2026-01-31"),
        ("number", "3"), ("text", "2026-01-31"), ("text", "2026-01-31 05:00:00"),
    ]  # fmt: skip


def test_a_column_is_no_truth_value() -> None:
    with pytest.raises(Refused):
        bool(col("age") > 3)
    with pytest.raises(Refused):
        bool(col("age"))


def test_a_text_is_no_list_of_its_letters() -> None:
    with pytest.raises(Refused, match="got a single text") as refused:
        col("city").is_in("Oslo")
    assert refused.value.next_step == "Write ['Oslo']."


def test_what_is_shown_tells_a_terminal_nothing(vault: OpenVault) -> None:
    """A question's words come from whoever asked it, and an answer's keys from wherever."""
    sneaky = "x\x1b]0;mine\x07\n\u202ey"
    data = next(iter(vault))
    price = data.count(col("zip") == sneaky).price(epsilon=0.1)
    answer = data.count().ask(epsilon=0.1)
    named = replace(answer, columns=(sneaky,), notes=(sneaky,))
    for shown in (repr(price), repr(named)):
        assert r"x\x1b]0;mine\x07\n\u202ey" in shown
        assert not set(shown) & set("\x1b\x07\u202e")


TWICE: list[tuple[str, Build, str]] = [
    (
        "SELECT COUNT(*) AS n FROM town WHERE sick",
        lambda t: t.where(sick=1).count(name="n"),
        "SELECT COUNT(*) AS n FROM town WHERE sick = 1",
    ),
    (
        "SELECT COUNT(*) AS n FROM town WHERE NOT sick",
        lambda t: t.where(col("sick") == 0).count(name="n"),
        "SELECT COUNT(*) AS n FROM town WHERE sick <> 1",
    ),
    (
        "SELECT sex, COUNT(*) AS n FROM town GROUP BY sex",
        lambda t: t.group_by("sex").count("who", name="n"),
        "SELECT sex, COUNT(who) AS n FROM town GROUP BY sex",
    ),
]


@pytest.mark.parametrize(("first", "build", "again"), TWICE, ids=[again for *_, again in TWICE])
def test_one_question_in_other_words_is_paid_once(
    vault: OpenVault, first: str, build: Build, again: str
) -> None:
    town = vault["town"]
    paid = town.ask(first, epsilon=1.5)
    spent = vault["town"].budget["spent"]["epsilon"]
    others = [build(town).ask(epsilon=1.5), town.ask(again, epsilon=1.5)]
    assert [other.rows for other in others] == [paid.rows, paid.rows]
    assert all(other.receipt["free"] for other in others)
    assert vault["town"].budget["spent"]["epsilon"] == spent


def test_rows_and_people_are_two_questions(vault: OpenVault) -> None:
    """COUNT(who) is rows, so it is many more than the people that COUNT(DISTINCT who) gives."""
    sql = "SELECT COUNT(who) AS n, COUNT(DISTINCT who) AS people FROM town"
    ((rows, people),) = vault["town"].ask(sql, epsilon=SURE).rows
    assert abs(int(str(rows)) - len(ROWS)) < 8  # a row more or less, by the noise of many rows
    assert abs(int(str(people)) - len({row[0] for row in ROWS})) < 2
