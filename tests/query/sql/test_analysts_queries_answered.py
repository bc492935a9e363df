"""Questions as analysts write them, in SQL and by the builder, are answered and about the rows."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

import pytest

from sfumato import Refused, case, col
from sfumato.app.vault import OpenVault
from sfumato.client import Answer, Builder, DataSet
from sfumato.query.sql.select import read_sql
from support.small_vaults import open_with, write_csv

CARD = """
unit = "who"
budget = { epsilon = 1000, delta = 1e-3 }
max_groups = 6
max_rows = 30
[limits]
rows = 100000
rows_per_person = 30
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
[columns.sick]
type = "boolean"
"""
SURE = 60  # an epsilon at which the noise of thirty rows is a few


def rows() -> list[tuple[str, str, str, int, float, str]]:
    dice = Random(11)
    people = [(f"p{n}", dice.choice("fm"), dice.randrange(100)) for n in range(400)]
    return [
        (who, dice.choice(["10001", "10002", "20001"]), sex, age, dice.randrange(1001) / 2,
         dice.choice(["yes", "no", "no"]))
        for who, sex, age in (dice.choice(people) for _ in range(3000))
    ]  # fmt: skip


ROWS = rows()
WHO: Final = 0
ZIP: Final = 1
SEX: Final = 2
AGE: Final = 3
PAY: Final = 4
SICK: Final = 5
EACH: dict[str, list[float]] = defaultdict(list)
for row in ROWS:
    EACH[row[WHO]].append(row[PAY])
ILL = {row[WHO] for row in ROWS if row[SICK] == "yes"}
MANY = {who for who, pays in EACH.items() if len(pays) > 5}
RANGES = [max(pays) - min(pays) for pays in EACH.values()]


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("written")
    header = ("who", "zip", "sex", "age", "pay", "sick")
    with open_with(folder, "t", write_csv(folder / "t.csv", header, ROWS), CARD) as opened:
        yield opened


Built = Callable[[DataSet], Builder]
NUMBERS: list[tuple[str, Built, float, float]] = [
    ("SELECT COUNT_IF(sick) FROM t", lambda t: t.count(col("sick") == True),  # noqa: E712
     sum(row[SICK] == "yes" for row in ROWS), 30),
    ("SELECT COUNT_IF(age >= 65 AND sex = 'f') FROM t",
     lambda t: t.count((col("age") >= 65) & (col("sex") == "f")),
     sum(row[AGE] >= 65 and row[SEX] == "f" for row in ROWS), 30),
    ("SELECT COUNT(DISTINCT who) FILTER (WHERE sick) FROM t",
     lambda t: t.people(col("sick") == True), len(ILL), 2),  # noqa: E712
    ("SELECT COUNT(DISTINCT CASE WHEN sick THEN who END) FROM t",
     lambda t: t.people(col("sick") == True), len(ILL), 2),  # noqa: E712
    ("SELECT VAR_POP(pay) FROM t", lambda t: t.population_variance("pay"),
     statistics.pvariance(row[PAY] for row in ROWS), 900),
    ("SELECT STDDEV_POP(pay) FROM t", lambda t: t.population_deviation("pay"),
     statistics.pstdev(row[PAY] for row in ROWS), 4),
    ("SELECT COVAR_POP(pay, age) FROM t", lambda t: t.population_covariance("pay", "age"),
     statistics.covariance([r[PAY] for r in ROWS], [r[AGE] for r in ROWS]), 150),
    ("SELECT QUANTILE(pay, 0.9) FROM t", lambda t: t.quantile("pay", 0.9), 450, 15),
    ("SELECT APPROX_QUANTILE(pay, 0.9) FROM t", lambda t: t.quantile("pay", 0.9), 450, 15),
    ("SELECT QUANTILE_DISC(pay, 0.9) FROM t", lambda t: t.quantile("pay", 0.9), 450, 15),
    ("SELECT PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY pay) FROM t",
     lambda t: t.quantile("pay", 0.9), 450, 15),
    ("SELECT ABS(AVG(pay) - 400) AS g FROM t",
     lambda t: t.mean("pay", name="m").formula(g=abs(col("m") - 400)).show("g"),
     400 - statistics.mean(row[PAY] for row in ROWS), 4),
    ("SELECT SQRT(COUNT(*)) AS g FROM t",
     lambda t: t.count(name="n").formula(g=col("n").sqrt()).show("g"), 3000**0.5, 0.4),
    ("SELECT LN(SUM(pay)) AS g FROM t",
     lambda t: t.sum("pay", name="s").formula(g=col("s").ln()).show("g"),
     math.log(sum(row[PAY] for row in ROWS)), 0.05),
    ("SELECT POWER(AVG(pay) / 100, 2) AS g FROM t",
     lambda t: t.mean("pay", name="m").formula(g=(col("m") / 100) ** 2).show("g"),
     (statistics.mean(row[PAY] for row in ROWS) / 100) ** 2, 0.3),
    ("SELECT AVG(ABS(pay - 250)) FROM t", lambda t: t.mean(abs(col("pay") - 250)),
     statistics.mean(abs(row[PAY] - 250) for row in ROWS), 5),
    ("SELECT SUM(CAST(sick AS INT)) FROM t",
     lambda t: t.sum(case((col("sick") == True, 1), otherwise=0)),  # noqa: E712
     sum(row[SICK] == "yes" for row in ROWS), 30),
    ("WITH s AS (SELECT pay * 2 AS twice, sick FROM t WHERE age >= 50) "
     "SELECT AVG(twice) FROM s WHERE sick",
     lambda t: t.where(col("age") >= 50, sick=True).mean(col("pay") * 2),
     statistics.mean(2 * r[PAY] for r in ROWS if r[AGE] >= 50 and r[SICK] == "yes"), 25),
    ("SELECT COUNT(*) FROM t WHERE zip NOT LIKE '1%'",
     lambda t: t.where(~col("zip").starts_with("1")).count(),
     sum(row[ZIP] == "20001" for row in ROWS), 30),
    ("SELECT COUNT(*) FROM t WHERE starts_with(zip, '1')",
     lambda t: t.where(col("zip").starts_with("1")).count(),
     sum(row[ZIP] != "20001" for row in ROWS), 30),
    ("SELECT SUM(ROUND(pay, -2)) FROM t", lambda t: t.sum(col("pay").round(-2)),
     sum((row[PAY] + 50) // 100 * 100 for row in ROWS), 8000),
    ("SELECT AVG(m) FROM (SELECT who, AVG(pay) AS m FROM t GROUP BY who)",
     lambda t: t.each_person(m=("mean", "pay")).mean("m"),
     statistics.mean(statistics.mean(pays) for pays in EACH.values()), 2),
    ("SELECT AVG(h) FROM (SELECT who, AVG(pay) AS m, MAX(pay) AS h FROM t GROUP BY who)",
     lambda t: t.each_person(m=("mean", "pay"), h=("maximum", "pay")).mean("h"),
     statistics.mean(max(pays) for pays in EACH.values()), 3),
    ("SELECT COUNT(*) FROM (SELECT who FROM t GROUP BY who HAVING COUNT(*) > 5)",
     lambda t: t.each_person(n="count").where(col("n") > 5).count(), len(MANY), 2),
    ("SELECT AVG(r) FROM (SELECT who, MAX(pay) - MIN(pay) AS r FROM t GROUP BY who)",
     lambda t: t.each_person(high=("maximum", "pay"), low=("minimum", "pay"))
     .mean(col("high") - col("low")), statistics.mean(RANGES), 3),
    ("SELECT COUNT(*) FROM (SELECT DISTINCT who FROM t WHERE sick)",
     lambda t: t.where(sick=True).each_person(n="count").count(), len(ILL), 2),
    ("SELECT COUNT(*) FROM (SELECT who, AVG(pay) AS m FROM t GROUP BY who) WHERE m > 250",
     lambda t: t.each_person(m=("mean", "pay")).where(col("m") > 250).count(),
     sum(statistics.mean(pays) > 250 for pays in EACH.values()), 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "built", "truth", "off"), NUMBERS, ids=[number[0] for number in NUMBERS]
)
def test_a_number_is_asked_in_either_way_and_is_about_the_rows(
    vault: OpenVault, sql: str, built: Built, truth: float, off: float
) -> None:
    answer = vault["t"].ask(sql, epsilon=SURE / 2)
    assert float(str(answer.value)) == pytest.approx(truth, abs=off)
    same = built(vault["t"]).ask(epsilon=SURE / 2)
    assert float(str(same.value)) == pytest.approx(truth, abs=off)


GROUPS: list[tuple[str, Built, object]] = [
    ("SELECT age >= 65 AS old, COUNT(*) AS n FROM t GROUP BY old",
     lambda t: t.group_by(old=col("age") >= 65).count(name="n"),
     Counter(row[AGE] >= 65 for row in ROWS)),
    ("SELECT (sick AND age >= 65) AS x, COUNT(*) AS n FROM t GROUP BY 1",
     lambda t: t.group_by(x=(col("sick") == True) & (col("age") >= 65)).count(name="n"),  # noqa: E712
     Counter(row[AGE] >= 65 and row[SICK] == "yes" for row in ROWS)),
    ("SELECT sex, COUNT(*) AS n FROM t GROUP BY ALL", lambda t: t.group_by("sex").count(name="n"),
     Counter(row[SEX] for row in ROWS)),
    ("SELECT ROUND(pay / 100) AS h, COUNT(*) AS n FROM t GROUP BY h",
     lambda t: t.group_by(h=(col("pay") / 100).round()).count(name="n"),
     Counter((row[PAY] + 50) // 100 for row in ROWS)),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "built", "truth"), GROUPS, ids=[group[0] for group in GROUPS])
def test_a_grouping_is_asked_in_either_way_and_paid_once(
    vault: OpenVault, sql: str, built: Built, truth: Counter[object]
) -> None:
    answer = vault["t"].ask(sql, epsilon=SURE / 2)
    assert {row[0]: row[1] for row in answer.rows} == {
        key: pytest.approx(n, abs=100) for key, n in truth.items()
    }
    again = built(vault["t"]).ask(epsilon=SURE / 2)
    assert again.receipt["free"]
    assert again.rows == answer.rows


def test_people_with_a_condition_move_the_count_by_one_each(vault: OpenVault) -> None:
    price = vault["t"].price("SELECT COUNT(DISTINCT who) FILTER (WHERE sick) FROM t", epsilon=1)
    (part,) = price["split"]
    assert part["sensitivity"] == 1
    share = vault["t"].ask(
        "SELECT COUNT(DISTINCT who) FILTER (WHERE sick) / COUNT(DISTINCT who) AS s FROM t",
        epsilon=20,
    )
    assert float(str(share.value)) == pytest.approx(len(ILL) / len(EACH), abs=0.03)


def test_a_persons_mean_has_the_columns_own_bounds(vault: OpenVault) -> None:
    one = "SELECT SUM(m) FROM (SELECT who, {} AS m FROM t GROUP BY who)"
    price = {
        of: vault["t"].price(one.format(of), epsilon=1)["error"] for of in ("AVG(pay)", "MAX(pay)")
    }
    assert price["AVG(pay)"] == {"sum_m": pytest.approx(price["MAX(pay)"]["sum_m"], rel=0.01)}


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT COUNT(*) FROM (SELECT DISTINCT zip FROM t)", "not-in-language"),
        ("SELECT COUNT(*) FROM (SELECT DISTINCT who, zip FROM t)", "not-in-language"),
        ("SELECT COUNT(*) FROM (SELECT DISTINCT who FROM t GROUP BY who)", "not-in-language"),
        ("SELECT AVG(r) FROM (SELECT who, pay + 1 AS r FROM t GROUP BY who)", "not-in-language"),
        ("SELECT AVG(r) FROM (SELECT who, MEDIAN(pay) AS r FROM t GROUP BY who)",
         "not-in-language"),
        ("SELECT COUNT(*) FROM (SELECT who FROM t GROUP BY who HAVING MEDIAN(pay) > 1)",
         "not-in-language"),
        ("SELECT COUNT(*) FROM (SELECT who FROM t GROUP BY who HAVING pay > 1)", "unknown-column"),
        ("SELECT AVG(sick) FROM t", "type-mismatch"),
        ("SELECT COUNT(DISTINCT who) FILTER (WHERE MEDIAN(pay) > 1) FROM t", "not-in-language"),
        ("SELECT COUNT_IF(pay) FROM t", "type-mismatch"),
        ("SELECT ROUND(pay, 0.5), COUNT(*) FROM t GROUP BY 1", "not-in-language"),
        ("SELECT starts_with(zip, sex) AS s, COUNT(*) FROM t GROUP BY s", "not-in-language"),
    ],
)  # fmt: skip
def test_what_is_still_outside_is_refused_with_a_code(
    vault: OpenVault, sql: str, code: str
) -> None:
    with pytest.raises(Refused) as refused:
        vault["t"].price(sql, epsilon=1)
    assert refused.value.code == code


def test_arithmetic_of_an_inner_select_is_not_put_in_without_end() -> None:
    long = " + ".join(["MAX(pay)"] * 40)
    with pytest.raises(Refused, match="too long for an inner SELECT"):
        read_sql(f"SELECT AVG(r) FROM (SELECT who, {long} AS r FROM t GROUP BY who)", "t")


def test_a_case_of_the_builder_counts_people_as_sql_does(vault: OpenVault) -> None:
    first = vault["t"].people(col("age") < 18, name="n").ask(epsilon=2)
    young = case((col("age") < 18, col("who")))
    assert vault["t"].distinct(young, name="m").ask(epsilon=2).rows == first.rows


def numbers(answer: Answer, name: str) -> list[float]:
    return [float(str(number)) for number in answer.frame()[name]]


def test_shares_of_a_total_add_up_to_one_and_are_those_of_the_counts(vault: OpenVault) -> None:
    t = vault["t"]
    counts = t.group_by("sex").count(name="n")
    paid = numbers(counts.ask(epsilon=SURE / 4), "n")
    shares = counts.formula(share=col("n") / col("n").total()).show("sex", "share")
    found = numbers(shares.ask(epsilon=SURE / 4), "share")
    assert found == [n / sum(paid) for n in paid]
    women = sum(row[SEX] == "f" for row in ROWS) / len(ROWS)
    assert found[0] == pytest.approx(women, abs=0.02)
    sql = "SELECT sex, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () AS share FROM t GROUP BY sex"
    assert numbers(t.ask(sql, epsilon=SURE / 4), "share") == found
