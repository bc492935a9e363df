"""A plan's integers against a plain reading of the logical question, written apart from it."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import pytest

from sfumato.dp.refusal import Refused
from sfumato.query.expression import (
    canonical_json,
)
from sfumato.query.model import Aggregate, Order, Output, Query, query_json
from sfumato.query.plan import Plan, make_plan
from sfumato.query.postprocess.having_order_limit import Row, apply_having_order_limit
from sfumato.query.query_from_json import read_query
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card
from support.query_oracle import (
    KINDS,
    Cell,
    Person,
    Value,
    added_up,
    card,
    exact_value,
    planned,
    prepare,
    some_rows,
)
from support.random_queries import Asking, text_of
from support.random_tables import Dealt, Read, one_dealt, read_many

UNITS = ("who", "who", "row")


def read_one(seed: int, count: int) -> Read:
    """Read random questions of one table, of people or of rows."""
    rng = random.Random(seed)
    cards = {unit: card(unit, max_groups=1000, max_rows=1000) for unit in UNITS}
    return read_many(
        count, lambda: one_dealt(rng, cards[rng.choice(UNITS)], rng.randint(0, 6), 4), Dealt.of_one
    )


def test_a_plan_adds_up_what_the_question_plainly_says() -> None:
    tried = read_one(seed=1, count=1000)
    assert tried.refused < tried.answered


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_many_plans_add_up_what_their_questions_plainly_say(seed: int) -> None:
    started = time.monotonic()
    tried = read_one(seed, count=2500)
    print(f"seed {seed}: {tried} in {time.monotonic() - started:.0f} s")


def test_a_question_survives_its_own_json() -> None:
    rng = random.Random(7)
    for _ in range(1000):
        question = Asking(rng).question(is_by_person=True)
        assert read_query(query_json(question)) == question


def test_two_plans_of_one_canonical_form_add_up_the_same() -> None:
    """What has one canonical form is answered once, so another measure would get its answer."""
    rng, seen, again = random.Random(4), dict[str, str](), 0
    made = card(max_groups=3, max_rows=3)
    for _ in range(4000):
        asking = Asking(rng)
        plan = planned(made, small_question(asking))
        if plan is None:
            continue
        form = canonical_json(plan.canonical())
        measure = repr((plan.measure, [(b.part, b.l1, b.l2_squared) for b in plan.parts]))
        again += form in seen
        assert seen.setdefault(form, measure) == measure, form
    assert again > 300


def small_question(asking: Asking) -> Query:
    rng = asking.rng
    of = asking.aggregate(is_by_person=True)
    where = None if rng.random() < 0.5 else asking.simple(0)
    keys = (asking.key(),) if rng.random() < 0.3 else ()
    groups, rows = rng.choice((None, 1, 2, 3)), rng.choice((None, 1, 3))
    return Query("t", (Output("n", of),), where, keys, max_groups=groups, max_rows=rows)


# --- SQL text, against DuckDB's own reading of it on a clean logical table -----------------------


def clean_table(database: duckdb.DuckDBPyConnection, rows: Sequence[Person]) -> None:
    """Make the table that the asker imagines: numbers, texts and dates by their names."""
    kinds = {**KINDS, "number": "DOUBLE", "integer": "DOUBLE"}
    columns = [f"{c.name} {kinds[c.type]}" for c in card().columns]
    database.execute(f"CREATE TABLE t (who VARCHAR, {', '.join(columns)})")
    for row in rows:
        cells = [float(v) if isinstance(v, Fraction) else v for v in row.cells.values()]
        database.execute(f"INSERT INTO t VALUES (?{', ?' * len(cells)})", [row.who, *cells])


def duckdb_says(database: duckdb.DuckDBPyConnection, text: str) -> list[Cell]:
    return [tuple(map(_logical, row)) for row in database.execute(text).fetchall()]


def _logical(value: Any) -> Value:  # whatever DuckDB hands out
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return Fraction(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value if isinstance(value, datetime) else str(value)


def table_says(plan: Plan, found: Mapping[Cell, Sequence[int]]) -> dict[Cell, Cell]:
    """Return the plan's rows as SQL would show them: by key, the aggregates in their order."""
    places = [[key.of for key in plan.keys].index(of) for of in plan.question.group_by]
    aggregates = [o.of for o in plan.question.outputs if isinstance(o.of, Aggregate)]
    rows = {}
    for cell, numbers in found.items():
        values: list[Value] = []
        for aggregate in aggregates:
            value: Any = exact_value(plan, aggregate, numbers)  # a number, or a sum and a count
            if isinstance(value, tuple):
                value = value[0] / value[1] if value[1] else None
            values.append(value)
        rows[tuple(cell[p] for p in places)] = tuple(values)
    return rows


def agree(ours: Value, theirs: Value) -> bool:
    if theirs is None:  # SQL's sum of nothing is null, ours is 0
        return ours in (None, 0)
    if isinstance(ours, Fraction) and isinstance(theirs, Fraction):
        return abs(ours - theirs) <= max(Fraction(1), abs(theirs)) / 10**9
    return ours == theirs


def sane_rows(rng: random.Random) -> list[Person]:
    rows = some_rows(rng, 5, 4)
    return [
        replace(r, cells={**r.cells, "zip": r.cells["zip"] if r.cells["zip"] != "zz" else "b",
                          "grade": None if r.cells["grade"] in (4, 5) else r.cells["grade"]})
        for r in rows
    ]  # fmt: skip


def as_read(made: Card, text: str) -> Plan | None:
    try:
        return make_plan(made, read_sql(text, "t"))
    except Refused:  # a condition on a constant, say
        return None


def ask_in_sql(seed: int, count: int) -> int:
    rng, answered = random.Random(seed), 0
    made = card(max_groups=1000, max_rows=1000)
    while answered < count:
        with duckdb.connect(config={"threads": 1}) as database:
            rows = sane_rows(rng)
            clean_table(database, rows)
            table = prepare(database, made, rows)
            for _ in range(25):
                question = Asking(rng, is_tame=True).question(is_by_person=True)
                text = text_of(question, plain=False)
                plan = as_read(made, text)
                if plan is None:
                    continue
                answered += 1
                _compare(database, plan, table, question, text)
    return answered


def _compare(
    database: duckdb.DuckDBPyConnection, plan: Plan, table: str, question: Query, text: str
) -> None:
    ours = table_says(plan, added_up(database, plan, table))
    theirs = duckdb_says(database, text_of(question, plain=True))
    keys = len(question.group_by)
    for row in theirs:
        cell, values = row[:keys], row[keys:]
        if None not in cell:
            mine = ours.get(cell, (Fraction(0),) * len(values))
            assert all(map(agree, mine, values)), (text, cell, mine, values)
    met = {row[:keys] for row in theirs}
    assert all(cell in met or not any(values) for cell, values in ours.items()), text


def test_sql_means_what_duckdb_says_it_means() -> None:
    assert ask_in_sql(seed=11, count=250) >= 250


@pytest.mark.slow
def test_much_sql_means_what_duckdb_says_it_means() -> None:
    started = time.monotonic()
    count = ask_in_sql(seed=12, count=5000)
    print(f"seed 12: {count} texts in {time.monotonic() - started:.0f} s")


def test_the_text_of_a_question_is_read_as_that_question() -> None:
    rng, same = random.Random(5), 0
    made = card()
    for _ in range(600):
        question = Asking(rng, is_tame=True).question(is_by_person=True)
        plan = planned(made, question)
        read = plan and as_read(made, text_of(question, plain=False))
        if plan is None or read is None:
            continue
        assert read.measure.where == plan.measure.where, text_of(question, plain=False)
        assert [k.keys for k in read.keys] == [k.keys for k in plan.keys]
        same += 1
    assert same > 300


AFTERWARDS = [
    " HAVING n0 >= 2",
    " HAVING COUNT(*) > 1 AND NOT n0 = 3",
    " HAVING n0 BETWEEN 1 AND 3 OR g0 = 'a'",
    " HAVING g0 IN ('a', 'c')",
    " HAVING g0 LIKE 'a%' OR n0 < 1",
    " ORDER BY n0 DESC, g0",
    " ORDER BY g0 DESC LIMIT 2",
    " HAVING n0 <> 2 ORDER BY COUNT(*), g0 DESC LIMIT 1",
]


@pytest.mark.parametrize("rest", AFTERWARDS)
def test_what_comes_after_is_what_sql_does_with_the_same_values(rest: str) -> None:
    rng = random.Random(rest)
    made = card(max_groups=1000, max_rows=1000)
    for _ in range(20):
        with duckdb.connect(config={"threads": 1}) as database:
            rows = sane_rows(rng)
            clean_table(database, rows)
            text = "SELECT zip AS g0, COUNT(*) AS n0 FROM t WHERE zip IS NOT NULL GROUP BY zip"
            plan = make_plan(made, read_sql(text + rest, "t"))
            found = table_says(plan, added_up(database, plan, prepare(database, made, rows)))
            released = [
                Row((cell[0], *map(int, map(str, values))), (), ()) for cell, values in
                sorted(found.items())
            ]  # fmt: skip
            ours = [row.values[:2] for row in apply_having_order_limit(plan.question, released)]
            theirs = [tuple(r) for r in database.execute(text + rest).fetchall()]
            assert (ours if "ORDER" in rest else sorted(ours)) == (
                theirs if "ORDER" in rest else sorted(theirs)
            )


def test_orders_are_read_with_their_names() -> None:
    question = read_sql("SELECT zip, COUNT(*) FROM t GROUP BY zip ORDER BY 2 DESC, zip", "t")
    assert question.order == (Order("count", is_falling=True), Order("zip"))


@pytest.mark.parametrize(
    "text",
    [
        "LEAST(GREATEST(LEAST(age, 9), 2), 4)",
        "LEAST(LEAST(GREATEST(age, 2), 9), 4)",
    ],
)
def test_no_bound_of_three_is_forgotten(text: str) -> None:
    made = card("row")
    with duckdb.connect() as database:
        cells = {c.name: None for c in made.columns}
        rows = [Person(str(n), {**cells, "age": Fraction(n)}) for n in range(13)]
        clean_table(database, rows)
        sql = f"SELECT SUM({text}) FROM t"
        plan = make_plan(made, read_sql(sql, "t"))
        ours = table_says(plan, added_up(database, plan, prepare(database, made, rows)))
        assert [ours[()]] == duckdb_says(database, sql)
