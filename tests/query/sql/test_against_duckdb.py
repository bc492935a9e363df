"""Random SQL beside DuckDB itself: what the house answers without noise is what DuckDB answers.

The tables are small enough that no bound on a person bites, so that every difference is one of
reading: which column a name is, what a star gives, which rows a join has. What only one of the two
answers is no difference; a wrong number is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any, Final

import duckdb
import pytest

from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.query.grouping_keys import PlanKey
from sfumato.query.model import Aggregate, Formula
from sfumato.query.plan import Plan, make_plan
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import read_card
from support.engine_rows import SALT, numbers, prepare, write_source
from support.random_sql import KEYS, TABLES, TOP, Writer

AT_ONCE: Final = 60  # texts of a test
Answer = dict[tuple[object, ...], tuple[Fraction, ...]]
Asked = tuple[duckdb.DuckDBPyConnection, DuckDBEngine, str]


def _column(name: str) -> dict[str, Any]:
    if name in KEYS:
        return {"type": "text", "keys": list(KEYS[name])}
    return {"type": "integer", "lower": 0, "upper": TOP[name]}


def _columns(table: str) -> dict[str, Any]:
    return {name: _column(name) for name, kind in TABLES[table].items() if kind != "person"}


LIMITS = {"rows": 10**5, "rows_per_person": 9}
CARD = read_card(
    "clinic",
    {
        "unit": "who",
        "budget": {"epsilon": 1},
        "max_groups": 90,
        "max_rows": 9,
        "limits": LIMITS,
        "columns": _columns("clinic"),
        "tables": {
            "visits": {
                "unit": "who",
                "max_rows": 9,
                "limits": LIMITS,
                "columns": _columns("visits"),
            },
            "zips": {"public": True, "key": "zip", "columns": _columns("zips")},
        },
    },
)


def _cell(draw: Random, name: str) -> object:
    if draw.random() < 0.15:
        return None
    return draw.choice(KEYS[name]) if name in KEYS else draw.randint(0, TOP[name])


def _rows(draw: Random, table: str) -> list[list[object]]:
    names = list(TABLES[table])
    if table == "zips":
        return [[place, *(_cell(draw, name) for name in names[1:])] for place in range(5)]
    people = [f"p{draw.randrange(5)}" for _ in range(13)]
    kept = [p for i, p in enumerate(people) if people[:i].count(p) < 8]
    return [[person, *(_cell(draw, name) for name in names[1:])] for person in kept]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Return the same rows as DuckDB's own tables and as a table of the house."""
    folder, draw = tmp_path_factory.mktemp("beside"), Random(7)
    sources: list[Path] = []
    engine = DuckDBEngine(SALT, memory_mb=1024, threads=1)
    with duckdb.connect() as connection:
        for name, columns in TABLES.items():
            rows = _rows(draw, name)
            kinds = [f"{c} {'BIGINT' if of == 'whole' else 'TEXT'}" for c, of in columns.items()]
            connection.execute(f"CREATE TABLE {name} ({', '.join(kinds)})")
            places = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {name} VALUES ({places})", rows)
            sources.append(write_source(folder / f"{name}.csv", list(columns), rows))
        yield connection, engine, prepare(engine, sources[0], CARD, others=sources[1:])[0]
    engine.close()


def planned(text: str) -> Plan | None:
    """Return the plan of a text; nothing if it is refused, or reckons with released numbers."""
    try:
        plan = make_plan(CARD, read_sql(text, "clinic", max_groups=90))
    except Refused:
        return None
    return None if any(isinstance(o.of, Formula) for o in plan.question.outputs) else plan


def ours(plan: Plan, engine: DuckDBEngine, table: str) -> Answer:
    """Return the house's numbers by key, before any noise."""
    measure = plan.measure if plan.measure.is_public else plan.measure.without_histograms
    shown = [o.of for o in plan.question.outputs if isinstance(o.of, Aggregate) and o.is_shown]
    keyed = [o.of for o in plan.question.outputs if not isinstance(o.of, Aggregate) and o.is_shown]
    found: Answer = {}
    for cell, tallies in numbers(engine, table, measure).items():
        known = {k.of: _key(k, v) for k, v in zip(plan.keys, cell, strict=True)}
        values = tuple(_number(plan, aggregate, tallies) for aggregate in shown)
        if any(values) and None not in known.values():
            key = tuple(known[of] for of in keyed if not isinstance(of, Aggregate | Formula))
            found[(*key, len(found))] = values
    return found


def _number(plan: Plan, aggregate: Aggregate, tallies: Sequence[Any]) -> Fraction:
    (part,) = plan.parts_of(aggregate)
    step = plan.asked_of(aggregate).operand.step if aggregate.verb == "sum" else 1
    return Fraction(tallies[plan.tally_of(part)]) * step


def _key(key: PlanKey, value: object) -> object:
    constant = key.read(value) if key.keys is None else key.keys[int(str(value))]
    return constant.number if constant.kind == "number" else constant.text


def _sorted(rows: Sequence[tuple[tuple[object, ...], tuple[Fraction, ...]]]) -> dict[Any, Any]:
    found: dict[Any, Counter[Any]] = defaultdict(Counter)
    for key, values in rows:
        found[key][values] += 1
    return dict(found)


def theirs(connection: duckdb.DuckDBPyConnection, text: str, keys: int) -> dict[Any, Any] | None:
    """Return DuckDB's own numbers by key; nothing where it does not read the text."""
    try:
        rows = connection.execute(text).fetchall()
    except duckdb.Error:
        return None
    split = [
        (
            tuple(Fraction(v) if isinstance(v, int | float) else v for v in row[:keys]),
            tuple(Fraction(v or 0) for v in row[keys:]),
        )
        for row in rows
    ]
    return _sorted([(key, values) for key, values in split if any(values) and None not in key])


def beside(asked: Asked, seed: int) -> str:
    """Return how one random text was taken; a difference is an error that quotes it."""
    text, keys = Writer(Random(seed)).question()
    plan = planned(text)
    if plan is None:
        return "refused"
    connection, engine, table = asked
    expected = theirs(connection, text, keys)
    if expected is None:
        return "ours alone"
    found = _sorted([(key[:-1], values) for key, values in ours(plan, engine, table).items()])
    assert found == expected, text
    return "same"


@pytest.mark.parametrize("place", range(5))
def test_random_questions_are_answered_as_duckdb_answers_them(asked: Asked, place: int) -> None:
    taken = Counter(beside(asked, seed) for seed in range(place * AT_ONCE, (place + 1) * AT_ONCE))
    assert taken["same"] > AT_ONCE // 10


@pytest.mark.slow
@pytest.mark.parametrize("place", range(100, 200))
def test_many_random_questions_are_answered_as_duckdb_answers_them(
    asked: Asked, place: int
) -> None:
    taken = Counter(beside(asked, seed) for seed in range(place * 200, (place + 1) * 200))
    assert taken["same"] > 20


GIVEN_TWICE = [
    "SELECT FLOOR(cost / 9) AS age, cost, COUNT(*) FROM visits GROUP BY age, cost",
    "SELECT CASE WHEN cost > 4 THEN 1 ELSE 0 END AS zip, cost, COUNT(*) FROM visits v"
    " GROUP BY zip, cost",
]


TAKEN = [
    "SELECT FLOOR(cost / 9) AS visits, cost, COUNT(*) FROM visits GROUP BY visits, cost",
    "SELECT FLOOR(cost / 9) AS v, COUNT(*) FROM visits v GROUP BY v",
    "SELECT FLOOR(cost / 9) AS x, COUNT(*) FROM (SELECT cost FROM visits) x GROUP BY x",
    "SELECT FLOOR(n / 2) AS who, COUNT(*) FROM (SELECT who, COUNT(*) AS n FROM visits GROUP BY who)"
    " GROUP BY who",
]


@pytest.mark.parametrize("text", TAKEN)
def test_a_name_of_something_computed_that_is_a_tables_or_a_persons_is_refused(text: str) -> None:
    """DuckDB groups by the whole row, or by the person."""
    with pytest.raises(Refused, match="a table or a person"):
        make_plan(CARD, read_sql(text, "clinic"))


@pytest.mark.parametrize("text", GIVEN_TWICE)
def test_a_name_of_something_computed_that_is_a_columns_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="a column has this name too") as refused:
        make_plan(CARD, read_sql(text, "clinic"))
    assert refused.value.facts["place"]


def test_grouping_by_names_that_are_given_crosswise_is_what_duckdb_groups_by(asked: Asked) -> None:
    """Names of plain columns never group otherwise: they are the same columns, in any order."""
    text = (
        "SELECT cost AS zip, zip AS age, age AS cost, COUNT(*) FROM visits GROUP BY cost, zip, age"
    )
    plan, (connection, engine, table) = planned(text), asked
    assert plan is not None
    found = _sorted([(key[:-1], values) for key, values in ours(plan, engine, table).items()])
    assert found == theirs(connection, text, 3)
