"""A corpus of texts that try to get out of the language; each is refused before any engine."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sfumato.dp.refusal import CODES, Refused
from sfumato.query.expression import Constant
from sfumato.query.model import Aggregate, Output, Query
from sfumato.query.plan import Plan, make_plan
from sfumato.query.price import price_at
from sfumato.query.printing.statements import lower
from sfumato.query.query_from_json import read_query
from sfumato.query.sql.select import MAX_TEXT, read_sql
from sfumato.vault.card.data_card import Card, read_card

CORPUS = Path(__file__).with_name("attacks_sql.txt")
DEADLINE_S = 2.0
BUDGET = {"epsilon": 3, "delta": "1e-6"}


def card(**more: object) -> Card:
    number = {"type": "number", "lower": -3, "upper": 5, "step": 1}
    hidden = {"hidden": True}
    columns = {
        "zip": {"type": "text", "keys": ["a", "b", "c"]}, "town": {"type": "text"},
        "sick": {"type": "boolean"}, "pay": number, "free": {"type": "number"},
        "age": {"type": "integer", "lower": 0, "upper": 110},
        "big": {"type": "integer", "lower": 0, "upper": 4 * 10**15},
        "day": {"type": "date"}, "seen": {"type": "timestamp"},
        "name": hidden, "ssn": hidden, "salary": hidden,
    }  # fmt: skip
    return read_card("t", {"unit": "who", "budget": {"epsilon": 3}, "columns": columns, **more})


CLINIC = card()


def spelled(line: str) -> str:
    line = re.sub(
        r"\\u([0-9a-f]{4})", lambda m: chr(int(m[1], 16)), line.replace("\\\\", "\\u005c")
    )
    return line.replace("\\n", "\n")


def corpus(accepted: bool) -> list[str]:
    attacks, fine = CORPUS.read_text("utf-8").split("== accepted\n")
    lines = (fine if accepted else attacks).splitlines()
    return [spelled(line) for line in lines if line and not line.startswith("# ")]


def plan(text: str) -> Plan:
    return make_plan(CLINIC, read_sql(text, "t"))


def refused(act: Callable[[], object]) -> Refused | None:
    """Return the refusal, if that is what came; anything else than that or a plan is ours."""
    try:
        act()
    except Refused as refusal:
        return refusal
    return None


LONG = [
    "SELECT COUNT(*) FROM t WHERE " + " AND ".join(["sick"] * 900),
    "SELECT COUNT(*) FROM t WHERE " + "NOT " * 1900 + "sick",
    "SELECT COUNT(*) FROM t WHERE " + "(" * 5000 + "sick" + ")" * 5000,
    "SELECT COUNT(*) FROM t WHERE " + "- " * 1900 + "age > 1",
    "SELECT SUM(" + "+".join(["age"] * 900) + ") FROM t",
    "SELECT SUM(" + "*".join(["age"] * 15) + ") FROM t",
    "SELECT COUNT(*) FROM t WHERE " + "CASE WHEN sick THEN " * 300 + "1" + " END" * 300 + " = 1",
    "SELECT COUNT(*) FROM t WHERE age" + "::INT" * 600 + " = 1",
    "SELECT COUNT(*) FROM t WHERE zip IN (" + ", ".join(["'a'"] * 900) + ")",
    "SELECT COUNT(*) FROM t WHERE age > 1" + "0" * 5000,
    "SELECT COUNT(*) FROM t WHERE age > 1e" + "9" * 5000,
    "SELECT COUNT(*) FROM t LIMIT 1" + "0" * 5000,
    "SELECT COUNT(*) FROM t WHERE zip = '" + "x" * 5000 + "'",
    "SELECT COUNT(" + "x" * 15000 + ") FROM t",
    "SELECT " + ", ".join(["COUNT(*)"] * 200) + " FROM t",
    "SELECT COUNT(*) FROM t GROUP BY " + ", ".join(f"FLOOR(age / {n})" for n in range(2, 200)),
    "SELECT " * 900,
    "SELECT COUNT(*) FROM t " + "UNION SELECT COUNT(*) FROM t " * 200,
    "SELECT COUNT(*) FROM " + "(SELECT who, COUNT(*) AS n FROM " * 19 + "t" + ")" * 19,
    "WITH " + ", ".join(f"a{n} AS (SELECT 1)" for n in range(200)) + " SELECT COUNT(*) FROM a1",
    "SELECT COUNT(*) FROM t JOIN " * 300 + "t",
    "[" * 4000,
    "x" * (MAX_TEXT + 1),
    "\U0001f600" * MAX_TEXT,
]
LONG_BUT_FINE = (LONG[0],)


def test_the_corpus_is_large() -> None:
    assert len(set(corpus(accepted=False))) >= 300
    assert len(set(corpus(accepted=True))) >= 40


@pytest.mark.parametrize("text", corpus(accepted=False))
def test_an_attack_is_refused_with_a_code(text: str) -> None:
    refusal = refused(lambda: plan(text))
    assert refusal is not None
    assert refusal.code in CODES
    assert refusal.__cause__ is None


@pytest.mark.parametrize("text", [t for t in LONG if t not in LONG_BUT_FINE])
def test_a_text_that_would_keep_the_house_busy_is_refused_at_once(text: str) -> None:
    started = time.process_time()
    refusal = refused(lambda: plan(text))
    assert refusal is not None
    assert time.process_time() - started < DEADLINE_S


@pytest.mark.parametrize("text", [*corpus(accepted=False), *LONG])
def test_a_refusal_repeats_no_more_than_a_name_or_a_constant(text: str) -> None:
    refusal = refused(lambda: plan(text))
    said = "" if refusal is None else str(refusal)
    assert said.isprintable()
    assert len(said) < 1000 or max(map(len, text.split())) > 800
    words = re.findall(r"\w+", text)
    runs = {" ".join(words[i : i + 4]) for i in range(len(words) - 3)}
    assert not any(run in " ".join(re.findall(r"\w+", said)) for run in runs if len(run) > 20)


@pytest.mark.parametrize("text", corpus(accepted=True))
def test_an_honest_text_is_not_refused(text: str) -> None:
    made = plan(text)
    assert lower(made.measure, "duckdb")


@pytest.mark.parametrize("hidden", ["name", "ssn", "salary"])
@pytest.mark.parametrize(
    "shape", ["SELECT COUNT({}) FROM t", "SELECT COUNT(*) FROM t WHERE {} = 'x'",
              "SELECT {}, COUNT(*) FROM t GROUP BY 1", "SELECT COUNT(*) FROM t ORDER BY {}"]
)  # fmt: skip
def test_a_hidden_column_is_refused_like_one_that_is_not_there(hidden: str, shape: str) -> None:
    one = refused(lambda: plan(shape.format(hidden)))
    other = refused(lambda: plan(shape.format("nobody")))
    assert one is not None
    assert other is not None
    assert str(one).replace(repr(hidden), "'nobody'") == str(other)


# --- what was found ------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["GROUP BY", "ORDER BY"])
def test_a_place_of_five_thousand_digits_is_refused(where: str) -> None:
    assert refused(lambda: plan(f"SELECT COUNT(*) FROM t {where} {'1' * 5000}")) is not None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM t GROUP BY date_trunc('day', seen, 'UTC')",
        "SELECT QUANTILE_CONT(pay, 0.5, age) FROM t",
    ],
)
def test_an_argument_that_nobody_reads_is_refused(text: str) -> None:
    assert refused(lambda: read_sql(text, "t")) is not None


@pytest.mark.parametrize(
    "aggregate", ["QUANTILE_CONT(pay)", "QUANTILE_CONT(pay, )", "APPROX_TOP_K(zip)"]
)
def test_an_aggregate_without_all_its_arguments_is_refused(aggregate: str) -> None:
    assert refused(lambda: plan(f"SELECT {aggregate} FROM t")) is not None


@pytest.mark.parametrize(
    "share", ["NULL", "[NULL]", "age", "0.1 + 0.2", "'0.5'", "2", "-0.5", "TRUE", "[]"]
)
def test_a_share_that_is_none_is_told_as_one(share: str) -> None:
    text = f"SELECT QUANTILE_CONT(pay, {share}) FROM t"
    found = refused(lambda: plan(text))
    assert found is not None
    assert "A quantile is a number from 0 to 1" in found.cause


def test_a_list_of_nothing_is_refused() -> None:
    assert refused(lambda: plan("SELECT COUNT(*) FROM t WHERE zip IN ()")) is not None


def test_a_moment_may_be_written_as_a_timestamp() -> None:
    text = "SELECT COUNT(*) FROM t WHERE seen < TIMESTAMP '2026-01-01 12:00:00'"
    assert refused(lambda: plan(text)) is None


def nested(template: str, inner: str, depth: int) -> str:
    for level in range(depth):
        inner = template.format(inner, level)
    return inner


NESTED = [
    "SELECT SUM(" + nested("LEAST({}, 20{})", "age", 18) + ") FROM t",
    "SELECT SUM(" + nested("(age / LEAST(GREATEST({0}, 1), 5))", "age", 5) + ") FROM t",
    "SELECT COUNT(*) FROM t GROUP BY "
    + nested("COALESCE(CASE WHEN sick THEN 'x{1}' END, {0})", "zip", 8),
]


@pytest.mark.parametrize("text", NESTED)
def test_an_expression_that_cannot_be_printed_is_refused_before_it_is_charged(text: str) -> None:
    assert refused(lambda: price_at(plan(text), CLINIC.budget.epsilon, CLINIC.budget.delta))


def test_many_declared_keys_are_moved_quickly() -> None:
    columns = {"icd": {"type": "text", "keys": [f"k{n}" for n in range(20_000)]}}
    many = read_card("t", {"unit": "who", "budget": {"epsilon": 3}, "columns": columns})
    question = read_sql("SELECT COUNT(*) FROM t GROUP BY COALESCE(icd, 'none')", "t")
    started = time.process_time()
    make_plan(many, question)
    assert time.process_time() - started < DEADLINE_S


def number(text: str) -> dict[str, Any]:
    return {"is": "constant", "value": {"kind": "number", "text": text}}


def over_pay(factor: str) -> Query:
    top: dict[str, Any] = {"is": "column", "name": "age"}
    for _ in range(9):
        top = {"is": "arithmetic", "sign": "*", "of": [top, number(factor)]}
    of = {"is": "arithmetic", "sign": "/", "of": [top, {"is": "column", "name": "pay"}]}
    return read_query({"data_set": "t", "outputs": [{"name": "n", "verb": "sum", "of": [of]}]})


@pytest.mark.parametrize("factor", ["1" + "0" * 70, "1/1" + "0" * 70])
def test_a_quotient_of_absurd_numbers_is_refused(factor: str) -> None:
    assert refused(lambda: make_plan(CLINIC, over_pay(factor))) is not None


@pytest.mark.parametrize("verb", ["sum", "mean"])
def test_an_absurd_step_is_refused_before_it_is_charged(verb: str) -> None:
    of: dict[str, Any] = {"is": "column", "name": "age"}
    for _ in range(6):
        of = {"is": "arithmetic", "sign": "*", "of": [of, number("1" + "0" * 70)]}
    shape = {"data_set": "t", "outputs": [{"name": "n", "verb": verb, "of": [of]}]}

    def margin() -> None:
        made = make_plan(CLINIC, read_query(shape))
        price_at(made, Fraction(1), Fraction(0)).margin(made.question.aggregates[0], 100)

    assert refused(margin) is not None


def test_an_inner_count_of_an_expression_is_refused_or_counted() -> None:
    inner = {"name": "n", "verb": "count", "of": "age"}
    shape = {
        "data_set": "t", "outputs": [{"name": "n", "verb": "count"}],
        "source": {"columns": [inner], "by": "who"},
    }  # fmt: skip
    refused(lambda: lower(make_plan(CLINIC, read_query(shape)).measure, "duckdb"))


HAVING = [
    {"is": "compare", "of": {"is": "floor", "of": {"is": "column", "name": "zip"}}, "op": ">",
     "to": {"kind": "number", "text": "1"}},
    {"is": "compare", "of": {"is": "column", "name": "n"}, "op": ">",
     "to": {"kind": "text", "text": "x"}},
    {"is": "compare", "of": {"is": "column", "name": "zip"}, "op": "=",
     "to": {"kind": "number", "text": "1"}},
    {"is": "among", "of": {"is": "column", "name": "zip"},
     "list": [{"kind": "boolean", "text": "true"}]},
]  # fmt: skip


@pytest.mark.parametrize("having", HAVING)
def test_a_having_that_cannot_hold_is_refused_before_it_is_charged(having: dict[str, Any]) -> None:
    outputs = [{"name": "zip", "key": "zip"}, {"name": "n", "verb": "count"}]
    shape = {"data_set": "t", "outputs": outputs, "group_by": ["zip"], "having": having}
    assert refused(lambda: make_plan(CLINIC, read_query(shape))) is not None


def test_an_inner_sum_that_can_overflow_is_refused() -> None:
    text = "SELECT COUNT(*) FROM (SELECT who, SUM(big + 0.01) AS s FROM t GROUP BY who) WHERE s > 5"
    assert refused(lambda: plan(text)) is not None


def test_a_clamp_that_can_overflow_is_refused() -> None:
    ends = Constant.of(10**13), Constant.of(2 * 10**13)
    of = Aggregate("sum", (read_sql("SELECT age, COUNT(*) FROM t GROUP BY 1", "t").group_by[0],),
                   person_sum_bounds=ends)  # fmt: skip
    assert refused(lambda: make_plan(CLINIC, Query("t", (Output("s", of),)))) is not None


def test_how_many_rows_an_inner_select_takes_is_part_of_the_question() -> None:
    text = "SELECT COUNT(*) FROM (SELECT who, COUNT(*) AS n FROM t GROUP BY who) WHERE n > 3"
    few, many = (make_plan(CLINIC, read_sql(text, "t", max_rows=rows)) for rows in (2, 200))
    assert few.measure != many.measure
    assert few.canonical() != many.canonical()


def test_having_means_the_aggregate_that_it_names() -> None:
    text = 'SELECT COUNT(*) AS "SUM_PAY", SUM(pay) FROM t HAVING SUM(pay) > 5'
    refusal = refused(lambda: plan(text))
    if refusal is None:
        having, outputs = plan(text).question.having, plan(text).question.outputs
        assert having is not None
        names = [o.name for o in outputs if isinstance(o.of, Aggregate) and o.of.verb == "sum"]
        assert names[0] in repr(having)


def test_a_column_of_an_inner_select_may_be_called_like_the_person() -> None:
    text = "SELECT COUNT(DISTINCT who) FROM (SELECT SUM(pay) AS who FROM t GROUP BY who)"
    if refused(lambda: plan(text)) is None:
        assert plan(text).question.aggregates[0].verb == "count_distinct"


def test_having_on_a_decimal_key_finds_the_key_that_is_shown() -> None:
    from sfumato.query.postprocess.having_order_limit import Row, apply_having_order_limit

    text = "SELECT FLOOR(age / 10) / 10 AS b, COUNT(*) AS n FROM t GROUP BY b HAVING b <= 0.1"
    made = plan(text)
    (key,) = made.keys
    rows = [Row((key.shown(constant), 1), (), ()) for constant in key.keys or ()]
    assert [row.values[0] for row in apply_having_order_limit(made.question, rows)] == [0, 0.1]


def test_a_constant_is_said_as_it_was_typed() -> None:
    from sfumato.query.plan_text import plan_text

    assert "1234567" in plan_text(plan("SELECT COUNT(*) FROM t WHERE big > 1234567"))
