"""Public tables looked up by a column of tables of people: a plain reading, and brute force.

A public key is unique, so that a person's one row meets one public row or none; whoever leaves
takes that one row and moves nobody else's, whatever the public table says.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb
import pytest

from query.test_joined_person_tables import HERE
from sfumato.client.column_expressions import col
from sfumato.client.query_builder import Builder
from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.matching_rows import matching_rows
from sfumato.features.synthetic.seeded_numbers import Seeded
from sfumato.query.expression import Arithmetic, Compare, Constant, Ref
from sfumato.query.model import (
    Aggregate,
    Joined,
    JoinedPersonTable,
    Output,
    PersonColumn,
    PersonTable,
    Query,
    Reduction,
    query_json,
)
from sfumato.query.plan import Plan, make_plan
from sfumato.query.plan_text import plan_text
from sfumato.query.query_from_json import read_query
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card
from support.query_oracle import LogicalRow, Person, Public, added_up, card, meaning, some_rows
from support.random_queries import Asking
from support.random_tables import (
    LIMITS,
    MORE,
    Dealt,
    Posed,
    Read,
    Rows,
    prepared,
    read_many,
    rows_of,
    rows_there,
)
from support.sensitivity_oracle import Judged, changes, excess, judge_many, moved_by, tight

PUBLIC = {
    "zips": {
        "public": True,
        "key": "code",
        "columns": {
            "code": {"type": "text"},
            "region": {"type": "text", "keys": ["n", "s"]},
            "size": {"type": "integer", "lower": -2, "upper": 7},
            "decade": {"type": "integer", "lower": 0, "upper": 12},
        },
    },
    "ages": {
        "public": True,
        "key": "years",
        "columns": {
            "years": {"type": "integer", "lower": 0, "upper": 12},
            "band": {"type": "text"},
            "rank": {"type": "integer", "lower": 0, "upper": 3},
        },
    },
}
ROWS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "zips": (
        ("a", "n", "7", "3"), ("b", "s", "-2", "7"), ("x", "n", "", ""), ("xy", "", "1", "12"),
        ("y", "zz", "99", "5"), ("", "s", "3", "1"), ("gone", "s", "4", "2"),
    ),
    "ages": (
        ("0", "young", "0"), ("3", "young", "1"), ("7", "", "3"), ("12", "old", ""),
        ("", "old", "2"),
    ),
}  # fmt: skip
NAMES = {
    "zips": ("code", "region", "size", "decade"),
    "ages": ("years", "band", "rank"),
}


def four_tables(bound: int, rows: int) -> Card:
    more = {"max_rows": rows, "limits": LIMITS, "columns": MORE}
    tables = {"more": more, **PUBLIC}
    return card("who", max_groups=bound, max_rows=rows, limits=LIMITS, tables=tables)


def public_rows(made: Card, name: str) -> list[LogicalRow]:
    """Return the public rows, each value under its column's name."""
    table = next(table for table in made.every_table if table.name == name)
    return [
        {c.name: meaning(c, text) for c, text in zip(table.columns, row, strict=True)}
        for row in ROWS[name]
    ]


def dealt(rng: random.Random, made: Card, people: int, most: int) -> Dealt:
    """Deal rows to so many people; the public ones are the same whoever is in the others."""
    here, there = some_rows(rng, people, most), rows_there(rng, people, most)
    return Dealt(made, with_public(made, here, there), rng)


def with_public(made: Card, here: Rows, there: Rows) -> dict[str, Rows]:
    public = {name: [Person("", row) for row in public_rows(made, name)] for name in ROWS}
    return {"t": here, "more": there, **public}


# --- random questions -----------------------------------------------------------------------------


def some_question(of: Dealt) -> Posed:
    """Return a question of one table of people or of two, and public ones that they look up."""
    rng = of.rng
    made = [of.some_table() for _ in range(rng.choice((1, 1, 2)))]
    sources = [
        _source(rng, of.asking(table, *(join.table for join in joins)), "mno"[i])
        for i, (table, joins) in enumerate(made)
    ]
    lookups = _lookups(rng, sources)
    names = [c.name for source in sources for c in source.columns if c.name[0] != "z"]
    texts = [c.name for source in sources for c in source.columns if c.name[0] == "z"]
    for one in lookups:
        names += [f"{one.table}.{name}" for name in NAMES[one.table] if name in _NUMBERS]
        texts += [f"{one.table}.{name}" for name in NAMES[one.table] if name not in _NUMBERS]
    if rng.random() < 0.5:  # without their tables
        names, texts = ([name.rpartition(".")[2] for name in some] for some in (names, texts))
    outer = Asking(rng, numbers=names, texts=texts, times=(), truths=())
    (table, joins), *_ = made
    question = replace(
        outer.of_rows(is_by_person=True),
        source=sources[0],
        table=table,
        joins=joins,
        joined_person_tables=tuple(
            JoinedPersonTable(source, table, joins, rng.random() < 0.5)
            for source, (table, joins) in zip(sources[1:], made[1:], strict=True)
        ),
        lookups=lookups,
    )
    if rng.random() < 0.6:  # else hardly anybody is left
        question = replace(question, where=None)
    first, *others = (rows_of(of.rows, table, joins) for table, joins in made)
    public: Public = {one.table: public_rows(of.made, one.table) for one in lookups}
    return Posed(question, first, tuple(others), public)


_NUMBERS = ("size", "decade", "years", "rank")


def _source(rng: random.Random, asking: Asking, called: str) -> PersonTable:
    """Return what a table of people says of each: among it a text, and a number like a key."""
    text, number = Ref(rng.choice(asking.texts)), Ref("age" if "age" in asking.numbers else "dose")
    ends: tuple[Reduction, ...] = ("minimum", "maximum")
    extremes = [rng.choice(ends) for _ in range(2)]
    more = (
        PersonColumn(f"z{called}", extremes[0], text),
        PersonColumn(f"y{called}", extremes[1], number),
    )
    source = asking.source(called)
    where = source.where if rng.random() < 0.3 else None
    return PersonTable((*source.columns, *more), where, "who")


def _lookups(rng: random.Random, sources: Sequence[PersonTable]) -> tuple[Joined, ...]:
    texts = [c.name for s in sources for c in s.columns if c.name[0] == "z"]
    numbers = [c.name for s in sources for c in s.columns if c.name[0] == "y"]
    zips = Joined("zips", (rng.choice(texts),), rng.random() < 0.5)
    ages = Joined("ages", (rng.choice(numbers), "years"), rng.random() < 0.5)
    after = Joined("ages", ("zips.decade",), rng.random() < 0.5)
    return rng.choice(((zips,), (zips,), (ages,), (zips, ages), (ages, zips), (zips, after)))


# --- what the plan adds up ------------------------------------------------------------------------


def read_lookups(seed: int, count: int) -> Read:
    rng, made = random.Random(seed), four_tables(1000, 20)
    return read_many(count, lambda: dealt(rng, made, rng.randint(0, 5), 4), some_question)


def test_a_plan_adds_up_people_with_what_they_look_up_as_plainly_read() -> None:
    read = read_lookups(seed=1, count=80)
    assert read.met > read.answered / 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_many_plans_add_up_people_with_what_they_look_up_as_plainly_read(seed: int) -> None:
    started = time.monotonic()
    print(f"seed {seed}: {read_lookups(seed, 2500)} in {time.monotonic() - started:.0f} s")


# --- how far one person moves it ------------------------------------------------------------------


def judge_lookups(seed: int, removals: int) -> Judged:
    rng, made = random.Random(seed), four_tables(2, 2)
    return judge_many(
        removals,
        lambda: dealt(rng, made, 3, 5),
        lambda of: tight(rng, some_question(of).question, "who"),
    )


def test_nobody_moves_a_part_of_people_with_what_they_look_up_further_than_claimed() -> None:
    judged = judge_lookups(seed=1, removals=150)
    assert judged.moved > judged.removals / 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_nobody_moves_many_parts_of_what_people_look_up_further_than_claimed(seed: int) -> None:
    started = time.monotonic()
    print(f"seed {seed}: {judge_lookups(seed, 5000)} in {time.monotonic() - started:.0f} s")


# --- the claims are attained ----------------------------------------------------------------------

N, SIZE = Ref("n"), Ref("zips.size")
EACH = PersonTable(
    (PersonColumn("n", "count"), PersonColumn("z", "maximum", Ref("zip"))), None, "who"
)
OTHER = PersonTable(
    (PersonColumn("m", "count"), PersonColumn("y", "minimum", Ref("dose"))), None, "who"
)
ZIPS, AGES = Joined("zips", ("z",)), Joined("ages", ("y",))
ATTAINED: list[tuple[str, Aggregate, list[str]]] = [
    ("people", Aggregate("count"), ["1 of 1"]),
    ("rows", Aggregate("sum", (N,)), ["3 of 3"]),
    ("values there", Aggregate("count_values", (SIZE,)), ["1 of 1"]),
    ("sum there", Aggregate("sum", (SIZE,)), ["7 of 7"]),
    ("both", Aggregate("sum", (Arithmetic("+", N, SIZE),)), ["10 of 10"]),
    ("product", Aggregate("sum", (Arithmetic("*", N, SIZE),)), ["21 of 21"]),
    ("mean", Aggregate("mean", (SIZE,)), ["9 of 9", "1 of 1"]),
    ("different texts", Aggregate("count_distinct", (Ref("z"),)), ["1 of 1"]),
    ("different regions", Aggregate("count_distinct", (Ref("zips.region"),)), ["1 of 1"]),
    (
        "within",
        Aggregate("sum", (SIZE,), person_sum_bounds=(Constant.of(0), Constant.of(5))),
        ["5 of 5"],
    ),
    ("most frequent", Aggregate("top", (Ref("zips.region"),), most=1), ["1 of 1"]),
]


def reach(plan: Plan, here: Rows, there: Rows) -> list[str]:
    """Return, part by part, how far somebody with all these rows moves it, and what is claimed."""
    made = four_tables(2, 2)
    with duckdb.connect(config={"threads": 1}) as database:
        whole = added_up(database, plan, prepared(database, made, with_public(made, here, there)))
        without = added_up(database, plan, prepared(database, made, with_public(made, [], [])))
    assert not excess(plan, whole, without)
    return [
        f"{moved_by(changes(whole, without, plan.tally_of(place)))} of {bounded.l1}"
        for place, bounded in enumerate(plan.parts)
    ]


@pytest.mark.parametrize("keeps_all", [False, True], ids=["join", "left"])
@pytest.mark.parametrize("by", ["", "zips.region", "z"], ids=["-", "region", "zip"])
@pytest.mark.parametrize(("name", "of", "expected"), ATTAINED, ids=[name for name, *_ in ATTAINED])
def test_a_person_can_move_a_part_of_what_is_looked_up_as_far_as_claimed(
    name: str, of: Aggregate, expected: list[str], by: str, keeps_all: bool
) -> None:
    """Four rows here, of which three count: one row of people, one of the public table."""
    keys = (Ref(by),) if by else ()
    outputs = (*(Output("k", key) for key in keys), Output(name, of))
    lookups = (replace(ZIPS, keeps_all=keeps_all),)
    question = Query("t", outputs, None, keys, max_rows=3, source=EACH, lookups=lookups)
    here = [replace(row, cells={**row.cells, "zip": "a"}) for row in HERE]
    assert reach(make_plan(four_tables(2, 2), question), here, []) == expected, name


def test_what_is_looked_up_lets_nobody_count_more() -> None:
    """Every claim is that over the tables of people alone."""
    made = four_tables(2, 2)
    for of in (Aggregate("count"), Aggregate("sum", (N,)), Aggregate("mean", (Ref("m"),))):
        beside = (JoinedPersonTable(OTHER, "more"),)
        alone = Query("t", (Output("x", of),), source=EACH, joined_person_tables=beside)
        claims = [
            [(b.part, b.cells, b.per_cell) for b in make_plan(made, q).parts]
            for q in (alone, replace(alone, lookups=(ZIPS, AGES)))
        ]
        assert claims[0] == claims[1]


def test_who_meets_no_public_row_is_left_out_or_stays_with_nothing() -> None:
    made = four_tables(2, 2)
    here = [replace(row, cells={**row.cells, "zip": "zz"}) for row in HERE]
    for keeps_all, count in ((False, "0 of 1"), (True, "1 of 1")):
        lookups = (replace(ZIPS, keeps_all=keeps_all),)
        question = Query("t", (Output("x", Aggregate("count")),), source=EACH, lookups=lookups)
        assert reach(make_plan(made, question), here, []) == [count]


def test_a_persons_own_text_has_the_keys_that_were_declared() -> None:
    """Every declared one is answered, zeros included; a value that is none of them is nobody's."""
    made = four_tables(2, 2)
    outputs = (Output("z", Ref("z")), Output("n", Aggregate("count")))
    plan = make_plan(made, Query("t", outputs, None, (Ref("z"),), source=EACH))
    assert plan.keys[0].keys == tuple(Constant("text", key) for key in ("a", "b", "c"))
    for zip_, expected in (("c", "1 of 1"), ("zz", "0 of 1")):
        here = [replace(row, cells={**row.cells, "zip": zip_}) for row in HERE]
        assert reach(plan, here, []) == [expected]


# --- one form, and what is refused ----------------------------------------------------------------

CARD = four_tables(2, 2)
P = "(SELECT who, COUNT(*) AS n, MAX(town) AS code, MIN(age) AS y FROM t GROUP BY who) p"
D = "(SELECT who, COUNT(*) AS m, MAX(drug) AS drug FROM more GROUP BY who) d"


def plan_of(text: str, card: Card = CARD) -> Plan:
    return make_plan(card, read_sql(text, "t"))


def built() -> Builder:
    return Builder("t", None).each_person(  # type: ignore[arg-type]  # nothing is asked of it
        n="count", code=("maximum", "town"), y=("minimum", "age")
    )


def test_the_builder_has_the_same_power() -> None:
    drugs = Builder("t", None).of_table("more")  # type: ignore[arg-type]  # as above
    drugs = drugs.each_person(m="count", drug=("maximum", "drug"))
    texts = {
        f"SELECT z.region, AVG(p.n) FROM {P} JOIN zips z ON z.code = p.code GROUP BY z.region":
        built().look_up("zips", "code").group_by("region").mean("n"),
        f"SELECT region, AVG(n) FROM {P} LEFT JOIN zips USING (code) GROUP BY region":
        built().look_up("zips", keep_all=True).group_by("zips.region").mean("n"),
        f"SELECT band, SUM(size) FROM {P} JOIN zips z USING (code) JOIN ages a ON a.years = "
        "z.decade GROUP BY band":
        built().look_up("zips").look_up("ages", "zips.decade").group_by("band").sum("size"),
        f"SELECT AVG(m * rank) FROM {P} JOIN {D} USING (who) JOIN ages ON p.y = ages.years":
        built().join_people(drugs).look_up("ages", on="y").mean(
            col("m") * col("rank")
        ),
        f"SELECT COUNT(*) FROM {P} JOIN zips z ON z.code = d.drug JOIN {D} ON d.who = p.who":
        None,
    }  # fmt: skip
    for text, asked in texts.items():
        if asked is None:  # a table has to stand before what is looked up in it is named
            with pytest.raises(Refused, match="needs the table's name"):
                plan_of(text)
        else:
            assert make_plan(CARD, asked.question()).digest() == plan_of(text).digest(), text


def test_the_builder_looks_up_beside_a_table_of_people_only() -> None:
    with pytest.raises(Refused, match="not-in-language"):
        Builder("t", None).look_up("zips", "town")  # type: ignore[arg-type]  # as above
    wanted = Query("t", (Output("n", Aggregate("count")),), lookups=(ZIPS,))
    with pytest.raises(Refused, match="not-in-language"):
        make_plan(CARD, wanted)


def test_a_question_with_a_public_table_beside_people_survives_its_json() -> None:
    text = f"SELECT region, COUNT(*) FROM {P} LEFT JOIN zips USING (code) WHERE n > 1 GROUP BY 1"
    plan = plan_of(text)
    again = make_plan(CARD, read_query(query_json(plan.question)))
    assert again.canonical() == plan.canonical()
    assert again.measure == plan.measure
    for old in (query_json(plan_of(f"SELECT AVG(n) FROM {P}").question),
                plan_of(f"SELECT AVG(n) FROM {P}").canonical()):  # fmt: skip
        assert "lookups" not in old


def test_what_decides_the_answer_decides_the_digest() -> None:
    texts = [
        f"SELECT AVG(n) FROM {P}",
        f"SELECT AVG(n) FROM {P} JOIN zips USING (code)",
        f"SELECT AVG(n) FROM {P} LEFT JOIN zips USING (code)",
        f"SELECT AVG(n) FROM {P} JOIN ages ON ages.years = p.y",
        f"SELECT AVG(n) FROM {P} JOIN ages ON ages.years = p.n",
        f"SELECT AVG(n) FROM {P.replace('MAX(town)', 'MIN(town)')} JOIN zips USING (code)",
    ]
    assert len({plan_of(text).digest() for text in texts}) == len(texts)
    zips = next(table for table in CARD.tables if table.name == "zips")
    wider = tuple(replace(c, upper=20) if c.name == "size" else c for c in zips.columns)
    tables = tuple(replace(t, columns=wider) if t.name == "zips" else t for t in CARD.tables)
    text = f"SELECT SUM(size) FROM {P} JOIN zips USING (code)"
    assert plan_of(text, replace(CARD, tables=tables)).digest() != plan_of(text).digest()


def test_a_question_with_a_public_table_beside_people_is_told_in_words() -> None:
    said = plan_text(plan_of(f"SELECT AVG(n) FROM {P} LEFT JOIN zips USING (code)"))
    assert said.endswith("looked up in zips by code, if any")


REFUSED = [
    ("SELECT COUNT(*) FROM {P} JOIN zips z ON z.code = p.n", "declares like the key"),
    ("SELECT COUNT(*) FROM {P} JOIN ages a ON a.years = p.code", "declares like the key"),
    ("SELECT COUNT(*) FROM (SELECT who, AVG(age) AS y FROM t GROUP BY who) p JOIN ages a "
     "ON a.years = p.y", "declares like the key"),
    ("SELECT COUNT(*) FROM (SELECT who, MAX(age) + 1 AS y FROM t GROUP BY who) p JOIN ages a "
     "ON a.years = p.y", "a plain aggregate of the inner SELECT"),
    ("SELECT COUNT(*) FROM {P} JOIN zips z ON z.region = p.code", "must be joined by its key"),
    ("SELECT COUNT(*) FROM {P} JOIN zips z ON z.code = p.code AND z.size = p.n", "into WHERE"),
    ("SELECT COUNT(*) FROM {P} JOIN zips z ON z.code = z.code", "before each column"),
    ("SELECT COUNT(*) FROM {P} JOIN zips z ON p.code = p.code", "before each column"),
    ("SELECT COUNT(*) FROM {P} JOIN zips z ON z.code = p.who", "one row for each person too"),
    ("SELECT COUNT(*) FROM {P} JOIN zips z ON z.code = p.x", "a plain aggregate"),
    ("SELECT COUNT(*) FROM {P} JOIN zips z USING (y)", "must be joined by its key"),
    ("SELECT COUNT(*) FROM {P} JOIN zips z USING (size)", "ON a.x = b.x"),
    ("SELECT COUNT(*) FROM {P} RIGHT JOIN zips z USING (code)", "LEFT JOIN"),
    ("SELECT COUNT(*) FROM {P}, zips z", "ON a.x = b.x"),
    ("SELECT COUNT(*) FROM {P} JOIN zips z USING (code) JOIN zips w USING (code)", "twice"),
    ("SELECT COUNT(*) FROM {P} JOIN zips p USING (code)", "Give each its own"),
    ("SELECT COUNT(*) FROM {P} JOIN nowhere z USING (code)", "no table"),
    ("SELECT COUNT(*) FROM {P} JOIN more d ON d.drug = p.code", "one row for each person too"),
    ("SELECT COUNT(*) FROM zips z JOIN {P} ON z.code = p.code", "comes first"),
    ("SELECT COUNT(*) FROM {P} JOIN (SELECT code FROM zips) z USING (code)", "unchanged"),
    ("SELECT SUM(z.n) FROM {P} JOIN zips z USING (code)", "no column"),
    ("SELECT SUM(w.n) FROM {P} JOIN zips z USING (code)", "that FROM gives"),
    ("SELECT code, COUNT(*) FROM {P} JOIN zips z ON z.code = p.code GROUP BY code",
     "Write the table's name before it"),
    ("SELECT FLOOR(p.n / 2) AS region, COUNT(*) FROM {P} JOIN zips z USING (code) GROUP BY region",
     "another name"),
    ("SELECT FLOOR(p.n / 2) AS z, COUNT(*) FROM {P} JOIN zips z USING (code) GROUP BY z",
     "another name"),
    ("SELECT COUNT(DISTINCT who) FROM (SELECT COUNT(*) AS n, MAX(town) AS code FROM t "
     "GROUP BY who) p JOIN zips z USING (code)", "gives no column 'who'"),
    ("SELECT z.*, COUNT(*) FROM {P} JOIN zips z USING (code)", "Name a column"),
    ('SELECT COUNT(*) FROM (SELECT who, MAX(town) AS code, COUNT(*) AS "zips.size" FROM t '
     "GROUP BY who) p JOIN zips z USING (code)", "different full names"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "instead"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_is_looked_up_otherwise_is_refused_with_what_to_write(text: str, instead: str) -> None:
    with pytest.raises(Refused) as refused:
        plan_of(text.format(P=P))
    assert instead in str(refused.value)
    assert refused.value.facts["place"]


def test_a_public_column_that_is_called_as_the_person_is_counts_nobody() -> None:
    """COUNT(DISTINCT who) counts people, whatever a public table calls `who`."""
    zips = next(table for table in CARD.tables if table.name == "zips")
    named = tuple(replace(c, name="who") if c.name == "size" else c for c in zips.columns)
    tables = tuple(replace(t, columns=named) if t.name == "zips" else t for t in CARD.tables)
    other = replace(CARD, tables=tables)
    text = "SELECT COUNT(DISTINCT {}who) AS x FROM " + P + " JOIN zips z USING (code)"
    counted = {of: plan_of(text.format(of), other) for of in ("p.", "z.")}
    assert [a.verb for a in counted["p."].aggregates] == ["count_people"]
    assert [a.verb for a in counted["z."].aggregates] == ["count_distinct"]
    with pytest.raises(Refused, match="More than one"):
        plan_of(text.format(""), other)


def test_more_public_tables_than_anybody_joins_are_refused() -> None:
    outputs = (Output("x", Aggregate("count")),)
    with pytest.raises(Refused, match="question-too-large"):
        make_plan(CARD, Query("t", outputs, source=EACH, lookups=(ZIPS,) * 9))


def test_texts_that_are_cut_otherwise_are_not_looked_up() -> None:
    (short,) = (table for table in CARD.tables if table.name == "zips")
    cut = replace(short, limits=replace(short.limits, text_length=5))
    tables = tuple(cut if table.name == "zips" else table for table in CARD.tables)
    with pytest.raises(Refused, match="text_length"):
        plan_of(f"SELECT AVG(n) FROM {P} JOIN zips USING (code)", replace(CARD, tables=tables))


def test_texts_of_a_table_joined_within_are_not_looked_up_if_cut_otherwise() -> None:
    text = (
        "SELECT AVG(n) FROM (SELECT who, COUNT(*) AS n, MAX(drug) AS code FROM t JOIN more "
        "USING (who) GROUP BY who) p JOIN zips USING (code)"
    )
    assert plan_of(text).measure.lookups
    (more,) = (table for table in CARD.tables if table.name == "more")
    cut = replace(more, limits=replace(more.limits, text_length=5))
    tables = tuple(cut if table.name == "more" else table for table in CARD.tables)
    with pytest.raises(Refused, match="text_length"):
        plan_of(text, replace(CARD, tables=tables))


def test_a_twin_for_a_public_table_beside_people_is_refused_and_not_made_wrongly() -> None:
    outputs = (Output("x", Aggregate("count")),)
    question = Query("t", outputs, source=EACH, lookups=(ZIPS,))
    with pytest.raises(Refused, match="twin-not-possible"):
        matching_rows(CARD, question, Seeded("k"))
    where = Compare(Ref("z"), "=", Constant("text", "a"))
    assert matching_rows(CARD, replace(question, lookups=(), where=where), Seeded("k")).people
