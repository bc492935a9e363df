"""Several tables on one card: what may be joined, how it is named, and what one person can move."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.query.expression import Ref, columns_of
from sfumato.query.model import Joined, query_json
from sfumato.query.plan import Plan, make_plan
from sfumato.query.plan_text import plan_text
from sfumato.query.query_from_json import read_query
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card
from support.engine_rows import SALT, Numbers, card_of, numbers, prepare, write_source

SMALL = {"rows": 10**5, "rows_per_person": 20}
CLINIC: dict[str, Any] = {
    "zip": {"type": "integer", "lower": 0, "upper": 99},
    "age": {"type": "integer", "lower": 0, "upper": 100},
}
TABLES: dict[str, Any] = {
    "visits": {
        "unit": "pid",
        "max_rows": 3,
        "limits": {"rows": 10**5, "rows_per_person": 20},
        "columns": {
            "ward": {"type": "text", "keys": ["a", "b"]},
            "cost": {"type": "integer", "lower": 0, "upper": 1000},
            "age": {"type": "integer", "lower": 0, "upper": 100},
        },
    },
    "zips": {
        "public": True,
        "key": "zip",
        "columns": {
            "zip": {"type": "integer", "lower": 0, "upper": 99},
            "region": {"type": "text", "keys": ["n", "s"]},
        },
    },
}
TWIN = {
    "again": {"max_rows": 2, "limits": {"rows": 10**5, "rows_per_person": 20}, "columns": CLINIC}
}
CARD = card_of("who", CLINIC, max_groups=2, max_rows=2, limits=SMALL, tables=TABLES)


def plan(text: str, card: Card = CARD) -> Plan:
    return make_plan(card, read_sql(text, "some"))


# --- what may be joined, and how -----------------------------------------------------------------

SAME = [
    "SELECT v.ward, SUM(c.age) FROM visits v JOIN some c ON v.pid = c.who GROUP BY v.ward",
    "SELECT Ward, SUM(some.age) FROM Visits JOIN SOME ON some.who = visits.PID GROUP BY 1",
    'SELECT ward, SUM("some".age) FROM visits AS x INNER JOIN some ON some.who = x.pid'
    " GROUP BY x.ward",
]


def test_one_join_has_one_canonical_form() -> None:
    first, *others = (plan(text).canonical() for text in SAME)
    assert all(other == first for other in others)
    assert plan(SAME[0]).question.joins == (Joined("some"),)


def test_a_question_says_what_it_joins() -> None:
    told = plan_text(plan(SAME[0]))
    assert told.endswith("from visits with some by the person")
    text = "SELECT region, COUNT(*) FROM some c LEFT JOIN zips z ON c.zip = z.zip GROUP BY region"
    assert plan_text(plan(text)).endswith("from some with zips by some.zip, if any")


DIFFERENT = [
    "SELECT COUNT(*) FROM some",
    "SELECT COUNT(*) FROM again",
    "SELECT COUNT(*) FROM visits",
    "SELECT COUNT(*) FROM visits v JOIN some c ON v.pid = c.who",
    "SELECT COUNT(*) FROM visits v JOIN some c ON v.pid = c.who AND v.age = c.age",
    "SELECT COUNT(*) FROM visits v JOIN some c ON v.pid = c.who AND v.cost = c.age",
    "SELECT COUNT(*) FROM visits v JOIN some c ON v.pid = c.who AND v.age = c.zip",
    "SELECT COUNT(*) FROM visits v JOIN some c ON v.pid = c.who AND v.age = c.zip"
    " AND v.age = c.age",
    "SELECT COUNT(*) FROM visits v LEFT JOIN some c ON v.pid = c.who AND v.age = c.age",
    "SELECT COUNT(*) FROM visits v LEFT JOIN some c ON v.pid = c.who",
    "SELECT COUNT(*) FROM some c JOIN zips z ON c.zip = z.zip",
    "SELECT COUNT(*) FROM some c JOIN zips z ON c.age = z.zip",
]


def test_other_tables_are_other_questions() -> None:
    card = card_of("who", CLINIC, max_groups=2, max_rows=2, limits=SMALL, tables={**TABLES, **TWIN})
    assert len({repr(plan(text, card).canonical()) for text in DIFFERENT}) == len(DIFFERENT)
    assert len({repr(plan(text, card).shape()) for text in DIFFERENT}) >= 5


def test_the_person_is_counted_under_any_of_their_names() -> None:
    for name in ("c.who", "v.pid", "who", "pid"):
        text = f"SELECT COUNT(DISTINCT {name}) FROM visits v JOIN some c ON v.pid = c.who"
        assert [a.verb for a in plan(text).question.aggregates] == ["count_people"]


LEFT = "FROM some c LEFT JOIN visits v ON v.pid = c.who"
LACKING = [
    (f"SELECT COUNT(DISTINCT {{}}) {LEFT}", "v.pid"),
    (f"SELECT COUNT(DISTINCT {{}}) {LEFT}", "pid"),
    (f"SELECT COUNT(DISTINCT CASE WHEN v.cost > 9 THEN {{}} END) {LEFT}", "v.pid"),
    (f"SELECT AVG(n) FROM (SELECT {{0}}, COUNT(*) AS n {LEFT} GROUP BY {{0}})", "v.pid"),
    (f"SELECT COUNT(*) {LEFT} JOIN again a ON a.who = {{}}", "v.pid"),
]


@pytest.mark.parametrize(("text", "name"), LACKING)
def test_a_person_is_not_named_by_a_table_in_which_they_may_have_no_row(
    text: str, name: str
) -> None:
    card = card_of("who", CLINIC, max_groups=2, max_rows=2, limits=SMALL, tables={**TABLES, **TWIN})
    with pytest.raises(Refused, match="not-in-language"):
        plan(text.format(name), card)
    plan(text.format("c.who"), card)
    plan(text.format(name).replace("LEFT JOIN", "JOIN"), card)


BOTH = "FROM visits v JOIN some c ON v.pid = c.who"


def test_a_table_named_in_an_inner_select_is_that_table() -> None:
    """Both tables have an age; only one of them has a cost."""
    inner = f"SELECT AVG(n) FROM (SELECT v.pid, MAX({{}}.age) AS n {BOTH} GROUP BY v.pid)"
    visits, some = (plan(inner.format(alias)).question.source for alias in "vc")
    assert visits is not None
    assert visits.columns[0].of == Ref("visits.age")
    assert some is not None
    assert some.columns[0].of == Ref("some.age")
    with pytest.raises(Refused, match="unknown-column"):
        plan(f"SELECT AVG(n) FROM (SELECT v.pid, SUM(c.cost) AS n {BOTH} GROUP BY v.pid)")
    where = (
        f"SELECT AVG(n) FROM (SELECT v.pid, COUNT(*) AS n {BOTH} WHERE c.age > 3 GROUP BY v.pid)"
    )
    source = plan(where).question.source
    assert source is not None
    assert source.where is not None
    assert columns_of(source.where) == {"some.age"}


def test_an_inner_select_may_join() -> None:
    text = (
        "SELECT AVG(n) FROM (SELECT v.pid, COUNT(*) AS n FROM visits v JOIN some c ON v.pid = c.who"
        " WHERE c.age > 30 GROUP BY v.pid) AS t"
    )
    made = plan(text)
    assert made.measure.joins
    assert made.measure.table == 1
    assert made.measure.source is not None
    assert made.measure.source.max_rows == 400  # every row of a person beside every other


def test_columns_of_an_answer_are_called_as_in_their_table() -> None:
    text = "SELECT v.ward, AVG(v.age), SUM(c.age) FROM visits v JOIN some c ON v.pid = c.who"
    made = plan(text + " GROUP BY v.ward ORDER BY ward")
    assert [o.name for o in made.question.outputs] == ["ward", "avg_age", "sum_age"]
    assert made.question.outputs[0].of == Ref("ward")


def test_names_that_would_fit_two_columns_keep_their_table() -> None:
    text = (
        "SELECT v.age, c.age, SUM(v.age), SUM(c.age), COUNT(*) FROM visits v"
        " JOIN some c ON v.pid = c.who GROUP BY 1, 2"
    )
    names = [o.name for o in plan(text).question.outputs]
    assert names[:4] == ["visits.age", "some.age", "sum_visits.age", "sum_some.age"]
    for rest in (" HAVING age > 3", " ORDER BY sum_age"):
        with pytest.raises(Refused):
            plan(text + rest)


def test_an_alias_cannot_stand_for_another_tables_column() -> None:
    text = 'SELECT c.age AS "visits.age", COUNT(*) FROM visits v JOIN some c ON v.pid = c.who'
    with pytest.raises(Refused, match="not-in-language"):
        plan(text + " GROUP BY v.age")


def test_a_person_here_and_a_column_there_are_told_apart() -> None:
    more = {"diary": {"unit": "writer", "limits": SMALL, "columns": {"who": {"type": "text"}}}}
    card = card_of("who", CLINIC, limits=SMALL, tables=more)
    join = "FROM some c JOIN diary d ON d.writer = c.who"
    for text in ("SELECT COUNT(DISTINCT who)", "SELECT who, COUNT(*)"):
        with pytest.raises(Refused, match="unknown-column"):
            plan(f"{text} {join}" + (" GROUP BY who" if "who," in text else ""), card)
    people = plan(f"SELECT COUNT(DISTINCT c.who), COUNT(DISTINCT d.who) {join}", card)
    verbs = sorted(a.verb for a in people.question.aggregates)
    assert verbs == ["count_distinct", "count_people"]


def test_the_builders_joins_are_those_of_sql() -> None:
    text = "SELECT COUNT(*) FROM visits v JOIN some c ON v.pid = c.who JOIN zips z ON c.zip = z.zip"
    shape = {
        "data_set": "some",
        "table": "visits",
        "joins": [{"table": "some"}, {"table": "zips", "on": ["some.zip"]}],
        "outputs": [{"name": "count", "verb": "count", "of": []}],
    }
    assert make_plan(CARD, read_query(shape)).canonical() == plan(text).canonical()


def test_a_join_by_more_than_the_person_has_one_form_that_survives_its_json() -> None:
    texts = [
        "SELECT COUNT(*) FROM visits v JOIN some c ON v.pid = c.who AND v.age = c.age"
        " AND v.cost = c.zip",
        "SELECT COUNT(*) FROM visits v JOIN some c ON c.zip = v.cost AND (c.age = v.age AND"
        " (v.pid = c.who AND c.who = v.pid)) AND v.age = c.age",
    ]
    first, other = (plan(text) for text in texts)
    assert first.canonical() == other.canonical()
    assert first.question.joins[0].on == ()
    assert first.question.joins[0].also == (
        ("visits.cost", "some.zip"),
        ("visits.age", "some.age"),
    )
    again = make_plan(CARD, read_query(query_json(first.question)))
    assert again.canonical() == first.canonical()
    assert again.measure == first.measure


@pytest.mark.parametrize("also", [["age"], [["a", "b", "c"]], "age", [[1, 2]], [["age", None]], {}])
def test_pairs_that_are_none_are_refused(also: object) -> None:
    shape = {
        "data_set": "some",
        "joins": [{"table": "visits", "also": also}],
        "outputs": [{"name": "count", "verb": "count", "of": []}],
    }
    with pytest.raises(Refused):
        read_query(shape)


REFUSED = {
    "SELECT COUNT(*) FROM zips": "not-in-language",
    "SELECT COUNT(*) FROM other": "unknown-data-set",
    "SELECT AVG(n) FROM (SELECT who, COUNT(*) AS n FROM other GROUP BY who)": "unknown-data-set",
    "SELECT COUNT(*) FROM some JOIN other ON some.who = other.who": "unknown-data-set",
    "SELECT COUNT(*) FROM some a JOIN some b ON a.who = b.who": "not-in-language",
    "SELECT COUNT(*) FROM some a JOIN visits a ON a.who = a.pid": "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.age = v.age": "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.who = v.ward": "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.zip = v.pid": "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON v.pid = v.pid": "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.who <> v.pid": "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.who = v.pid OR TRUE": "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.who = v.pid AND c.age > v.age":
        "not-in-language",
    "SELECT COUNT(*) FROM some c LEFT JOIN visits v ON c.who = v.pid AND v.ward = 'a'":
        "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.who = v.pid AND (c.age = v.age OR TRUE)":
        "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.who = v.pid AND NOT c.age = v.age":
        "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.age = v.age AND c.zip = v.cost":
        "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN zips z ON c.age = z.region AND c.zip = z.region":
        "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.who = v.pid AND c.age = c.zip":
        "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.who = v.pid AND v.age = v.cost":
        "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.who = v.pid AND c.zip = v.ward":
        "type-mismatch",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.who = v.pid AND c.who = v.ward":
        "unknown-column",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.who = v.pid AND c.zip = v.pid":
        "unknown-column",
    "SELECT COUNT(*) FROM some c JOIN visits v ON c.who = v.pid AND other.age = v.age":
        "not-in-language",
    "SELECT COUNT(*) FROM some JOIN visits USING (who, age)": "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v ON v.pid = c.who"
    + " AND c.age = v.age AND c.age = v.cost AND c.zip = v.cost" * 3: "question-too-large",
    "SELECT COUNT(*) FROM some c JOIN visits v ON TRUE": "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN visits v": "not-in-language",
    "SELECT COUNT(*) FROM some c, visits v WHERE c.who = v.pid": "not-in-language",
    "SELECT COUNT(*) FROM some c RIGHT JOIN visits v ON c.who = v.pid": "not-in-language",
    "SELECT COUNT(*) FROM some c FULL JOIN visits v ON c.who = v.pid": "not-in-language",
    "SELECT COUNT(*) FROM some c CROSS JOIN zips z": "not-in-language",
    "SELECT COUNT(*) FROM some NATURAL JOIN zips": "not-in-language",
    "SELECT COUNT(*) FROM some c LEFT SEMI JOIN visits v ON c.who = v.pid": "not-in-language",
    "SELECT COUNT(*) FROM some c LEFT ANTI JOIN visits v ON c.who = v.pid": "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN zips z ON c.zip = z.region": "not-in-language",
    "SELECT COUNT(*) FROM some c JOIN zips z ON c.who = z.zip": "unknown-column",
    "SELECT COUNT(*) FROM visits v JOIN zips z ON v.ward = z.zip": "type-mismatch",
    "SELECT COUNT(*) FROM some JOIN (SELECT 1 AS who) t ON some.who = t.who": "not-in-language",
    "SELECT SUM(age) FROM visits v JOIN some c ON v.pid = c.who": "unknown-column",
    "SELECT SUM(z.age) FROM visits v JOIN some c ON v.pid = c.who": "not-in-language",
    "SELECT SUM(c.cost) FROM visits v JOIN some c ON v.pid = c.who": "unknown-column",
    "SELECT SUM(cost) FROM some": "unknown-column",
    "SELECT COUNT(*) FROM some c JOIN zips z ON c.zip = z.zip JOIN visits v ON z.zip = v.pid":
        "not-in-language",
    "SELECT AVG(n) FROM (SELECT who, COUNT(*) AS n FROM some GROUP BY who) t"
    " JOIN zips z ON t.n = z.region": "not-in-language",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_would_mix_people_or_is_not_read_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        plan(text)
    assert refused.value.code == REFUSED[text], refused.value.cause


@pytest.mark.parametrize("table", ["some", "visits", "zips"])
def test_no_table_stands_twice(table: str) -> None:
    shape = {
        "data_set": "some",
        "joins": [{"table": "visits"}, {"table": "zips"}, {"table": table}],
        "outputs": [{"name": "count", "verb": "count", "of": []}],
    }
    with pytest.raises(Refused, match=r"joins .* twice"):
        make_plan(CARD, read_query(shape))


def test_a_row_unit_joins_public_tables_only() -> None:
    card = card_of("row", CLINIC, tables={"zips": TABLES["zips"]})
    made = plan("SELECT region, COUNT(*) FROM some JOIN zips USING (zip) GROUP BY region", card)
    assert not made.measure.by_person
    assert made.parts[0].l1 == 1
    with pytest.raises(Refused, match="bad-card"):
        card_of("row", CLINIC, tables={"visits": TABLES["visits"]})


def test_a_column_may_be_called_none() -> None:
    zips = {**TABLES["zips"], "columns": {**TABLES["zips"]["columns"], "None": {"type": "boolean"}}}
    card = card_of("row", CLINIC, tables={"zips": zips})
    made = plan("SELECT None, COUNT(*) FROM some JOIN zips USING (zip) GROUP BY None", card)
    assert made.question.group_by == (Ref("None"),)


def test_tables_that_make_too_many_rows_are_refused_before_they_are_joined() -> None:
    tables = {**TABLES, "visits": {**TABLES["visits"], "limits": {}}}
    card = card_of("who", CLINIC, tables=tables)
    with pytest.raises(Refused, match="question-too-large"):
        plan(SAME[0], card)


@pytest.mark.parametrize(
    "tables",
    [
        {"some": TABLES["visits"]},
        {"Visits": TABLES["visits"], "visits": TABLES["visits"]},
        {"v w": TABLES["visits"]},
        {"zips": {**TABLES["zips"], "unit": "who"}},
        {"zips": {**TABLES["zips"], "key": "town"}},
        {"zips": {**TABLES["zips"], "public": "yes"}},
        {"visits": {**TABLES["visits"], "key": "ward"}},
        {"visits": {**TABLES["visits"], "budget": {}}},
        {"visits": {"columns": {"a.b": {"type": "text"}}}},
        {f"t{i}": {"columns": {}} for i in range(21)},
    ],
)
def test_a_card_with_a_bad_table_is_refused(tables: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="bad-card"):
        card_of("who", CLINIC, tables=tables)


# --- what one person can move --------------------------------------------------------------------

HEADERS = (["who", "zip", "age"], ["pid", "ward", "cost", "age"], ["zip", "region"])
Table = list[list[str]]


@pytest.fixture(scope="module")
def engine() -> Any:
    made = DuckDBEngine(SALT, memory_mb=1024, threads=1)
    yield made
    made.close()


def some_tables(dice: random.Random) -> tuple[Table, Table, Table]:
    people = [f"p{i}" for i in range(5)]
    clinic = [
        [dice.choice(people), dice.choice("123"), str(dice.randint(0, 100))] for _ in range(9)
    ]
    visits = [
        [dice.choice(people), dice.choice("abz"), str(dice.randint(0, 1200)), "7"]
        for _ in range(25)
    ]
    return clinic, visits, [["1", "n"], ["2", "s"], ["4", "n"]]


def prepared(engine: DuckDBEngine, folder: Path, tables: Sequence[Table]) -> str:
    folder.mkdir(exist_ok=True)
    pairs = zip(HEADERS, tables, strict=True)
    paths = [write_source(folder / f"{i}.csv", h, rows) for i, (h, rows) in enumerate(pairs)]
    return prepare(engine, paths[0], CARD, others=paths[1:])[0]


JOINS = (
    "visits v JOIN some c ON v.pid = c.who",
    "some c LEFT JOIN visits v ON c.who = v.pid",
    "some c JOIN zips z ON c.zip = z.zip JOIN visits v ON v.pid = c.who",
    "visits v LEFT JOIN some c ON v.pid = c.who LEFT JOIN zips z ON z.zip = c.zip",
)
ASKED = (
    "COUNT(*), SUM(v.cost), COUNT(c.age)",
    "COUNT(DISTINCT {person}), SUM(c.age + v.cost)",
    "COUNT(DISTINCT c.age), AVG(v.cost)",
)
ENDS = ("", " WHERE c.age > 40", " GROUP BY v.ward", " WHERE v.cost < 900 GROUP BY v.ward")


@pytest.mark.parametrize("join", JOINS)
def test_nobody_moves_a_part_of_joined_tables_further_than_the_plan_claims(
    engine: DuckDBEngine, tmp_path: Path, join: str
) -> None:
    dice = random.Random(join)
    person = {"v": "v.pid", "c": "c.who"}[join.split()[1]]
    asks = [text.format(person=person) for text in ASKED]
    for turn in range(2):
        tables = some_tables(dice)
        plans = [plan(f"SELECT {asked} FROM {join}{end}") for asked in asks for end in ENDS]
        table = prepared(engine, tmp_path / f"{turn}", tables)
        whole = [numbers(engine, table, made.measure) for made in plans]
        for person in ("p0", "p1", "p3"):
            rest = [[r for r in t if r[0] != person] for t in tables[:2]]
            table = prepared(engine, tmp_path / f"{turn}{person}", [*rest, tables[2]])
            for made, all_of_them in zip(plans, whole, strict=True):
                check_moves(made, all_of_them, numbers(engine, table, made.measure))


def check_moves(made: Plan, whole: Numbers, others: Numbers) -> None:
    for bounded in made.parts:
        place = made.measure.tallies.index(bounded.part.tally)
        moved = [
            abs(_at(whole, cell, place) - _at(others, cell, place)) for cell in {*whole, *others}
        ]
        assert sum(moved) <= bounded.l1, plan_text(made)
        assert sum(m > 0 for m in moved) <= bounded.cells, plan_text(made)


def _at(found: Any, cell: object, place: int) -> int:
    return int(found[cell][place]) if cell in found else 0


def test_a_person_with_many_rows_in_both_tables_moves_it_as_far_as_claimed(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    """Three costs of one person beside two ages of theirs are six rows; as many count as said."""
    made = plan("SELECT v.ward, SUM(v.cost) FROM visits v JOIN some c ON v.pid = c.who GROUP BY 1")
    assert made.measure.max_rows == 6
    (part,) = made.parts
    clinic = [["p", "1", "5"], ["p", "2", "6"]]
    visits = [["p", ward, "1000", "1"] for ward in "ab" for _ in range(3)]
    table = prepared(engine, tmp_path / "a", [clinic, visits, [["1", "n"]]])
    found: Any = numbers(engine, table, made.measure)
    assert sum(parts[0] for parts in found.values()) == part.l1 == 2 * 6 * 1000


def test_a_join_is_what_another_database_makes_of_it(engine: DuckDBEngine, tmp_path: Path) -> None:
    """SQLite reads the same text over the same rows; no bound bites."""
    clinic, visits, zips = some_tables(random.Random(5))
    visits = [[*row[:2], str(min(int(row[2]), 1000)), row[3]] for row in visits]
    with sqlite3.connect(":memory:") as lite:
        pairs = zip(("some", "visits", "zips"), HEADERS, (clinic, visits, zips), strict=True)
        for name, header, rows in pairs:
            lite.execute(f"CREATE TABLE {name} ({', '.join(c + ' NUMERIC' for c in header)})")
            holes = ", ".join("?" * len(header))
            lite.executemany(f"INSERT INTO {name} VALUES ({holes})", rows)
    table = prepared(engine, tmp_path / "t", (clinic, visits, zips))
    for join in JOINS:
        text = f"SELECT COUNT(*), SUM(v.cost), COUNT(c.age) FROM {join} WHERE c.age < 90"
        made = make_plan(CARD, read_sql(text, "some", max_groups=2, max_rows=400))
        (found,) = numbers(engine, table, made.measure).values()
        named = {o.of: o.name for o in made.question.outputs}
        theirs = dict(
            zip(("count", "sum_cost", "count_age"), next(lite.execute(text)), strict=True)
        )
        for aggregate in made.question.aggregates:
            (part,) = made.parts_of(aggregate)
            assert found[made.tally_of(part)] == theirs[named[aggregate]]
    lite.close()
