"""Tables with one row for each person, joined by the person: a plain reading, and brute force.

Each is made of rows of its own before they meet, so that one person is one row of what is added up,
whatever stands beside; and whoever leaves takes that one row and moves nobody else's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace

import duckdb
import pytest

from query.test_joins import THERE as MANY_THERE
from query.test_joins import cells_of
from query.test_sensitivity import number
from sfumato.client.query_builder import Builder
from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.matching_rows import matching_rows
from sfumato.features.synthetic.seeded_numbers import Seeded
from sfumato.query.expression import Arithmetic, Coalesce, Compare, Constant, LiteralValue, Ref
from sfumato.query.model import (
    Aggregate,
    JoinedPersonTable,
    Output,
    PersonColumn,
    PersonTable,
    Query,
    query_json,
)
from sfumato.query.plan import Plan, make_plan
from sfumato.query.plan_text import plan_text
from sfumato.query.query_from_json import read_query
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card
from support.query_oracle import Person, added_up
from support.random_tables import Dealt, Read, prepared, read_many, tables_card, two_dealt
from support.sensitivity_oracle import Judged, changes, excess, judge_many, moved_by, tight

Rows = Sequence[Person]


def test_a_plan_adds_up_people_of_several_tables_as_they_are_plainly_read() -> None:
    read = read_people(seed=1, count=150)
    assert read.met > read.answered / 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_many_plans_add_up_people_of_several_tables_as_plainly_read(seed: int) -> None:
    started = time.monotonic()
    print(f"seed {seed}: {read_people(seed, 2500)} in {time.monotonic() - started:.0f} s")


def read_people(seed: int, count: int) -> Read:
    rng, made = random.Random(seed), tables_card(1000, 20)
    return read_many(count, lambda: two_dealt(rng, made, rng.randint(0, 5), 4), Dealt.of_people)


def judge_people(seed: int, removals: int) -> Judged:
    rng, made = random.Random(seed), tables_card(2, 2)
    return judge_many(
        removals,
        lambda: two_dealt(rng, made, 3, 5),
        lambda dealt: tight(rng, dealt.of_people().question, "who"),
    )


def test_nobody_moves_a_part_of_joined_people_further_than_the_plan_claims() -> None:
    judged = judge_people(seed=1, removals=250)
    assert judged.moved > judged.removals / 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_nobody_moves_a_part_of_many_joined_people_further_than_claimed(seed: int) -> None:
    started = time.monotonic()
    print(f"seed {seed}: {judge_people(seed, 5000)} in {time.monotonic() - started:.0f} s")


# --- the claims are attained ----------------------------------------------------------------------

HERE = [Person("one", cells_of(0, zip="a", pay="9")) for _ in range(4)]
N, M = Ref("n"), Ref("m")
EACH = PersonTable((PersonColumn("n", "count"), PersonColumn("s", "sum", Ref("pay"))), None, "who")
OTHER = PersonTable(
    (PersonColumn("m", "count"), PersonColumn("r", "sum", Ref("rate"))), None, "who"
)
NOTHING = Coalesce((M, LiteralValue(number(-20))))
ATTAINED: list[tuple[str, Aggregate, list[str]]] = [
    ("people", Aggregate("count"), ["1 of 1"]),
    ("rows here", Aggregate("sum", (N,)), ["3 of 3"]),
    ("rows there", Aggregate("sum", (M,)), ["3 of 3"]),
    ("sum here", Aggregate("sum", (Ref("s"),)), ["30 of 30"]),
    ("sum there", Aggregate("sum", (Ref("r"),)), ["30 of 30"]),
    ("both", Aggregate("sum", (Arithmetic("+", Ref("s"), Ref("r")),)), ["60 of 60"]),
    ("product", Aggregate("sum", (Arithmetic("*", N, M),)), ["9 of 9"]),
    ("mean", Aggregate("mean", (M,)), ["2 of 2", "1 of 1"]),
    ("different", Aggregate("count_distinct", (M,)), ["1 of 1"]),
    ("within", Aggregate("sum", (M,), person_sum_bounds=(number(0), number(2))), ["2 of 2"]),
]


def reach(plan: Plan, here: Rows, there: Rows) -> list[str]:
    """Return, part by part, how far somebody with all these rows moves it, and what is claimed."""
    made = tables_card(2, 2)
    others = [Person("other", cells_of(0, zip="a", pay="0"))]
    with duckdb.connect(config={"threads": 1}) as database:
        rows = {"t": [*others, *here], "more": there, "places": []}
        whole = added_up(database, plan, prepared(database, made, rows))
        rows = {"t": others, "more": [], "places": []}
        without = added_up(database, plan, prepared(database, made, rows))
    assert not excess(plan, whole, without)
    return [
        f"{moved_by(changes(whole, without, plan.tally_of(place)))} of {bounded.l1}"
        for place, bounded in enumerate(plan.parts)
    ]


def of_both(of: Aggregate, *, keeps_all: bool = False) -> Query:
    other = JoinedPersonTable(OTHER, "more", keeps_all=keeps_all)
    return Query("t", (Output("x", of),), max_rows=3, source=EACH, joined_person_tables=(other,))


@pytest.mark.parametrize("keeps_all", [False, True], ids=["join", "left"])
@pytest.mark.parametrize(("name", "of", "expected"), ATTAINED, ids=[name for name, *_ in ATTAINED])
def test_a_person_can_move_a_part_of_joined_people_as_far_as_claimed(
    name: str, of: Aggregate, expected: list[str], keeps_all: bool
) -> None:
    """Five rows here and five there, of which three each count: not their product."""
    plan = make_plan(tables_card(2, 2), of_both(of, keeps_all=keeps_all))
    assert reach(plan, HERE, MANY_THERE * 2) == expected, name


def test_who_has_no_row_there_is_left_out_or_stays_with_nothing() -> None:
    made = tables_card(2, 2)
    for keeps_all, count, filled in ((False, "0 of 1", "0 of 20"), (True, "1 of 1", "20 of 20")):
        plan = make_plan(made, of_both(Aggregate("count"), keeps_all=keeps_all))
        assert reach(plan, HERE, []) == [count]
        plan = make_plan(made, of_both(Aggregate("sum", (NOTHING,)), keeps_all=keeps_all))
        assert reach(plan, HERE, []) == [filled]


def test_what_stands_beside_lets_nobody_count_more() -> None:
    """Every claim over joined people is that over one table of them."""
    made = tables_card(2, 2)
    for of in (Aggregate("count"), Aggregate("sum", (N,)), Aggregate("mean", (Ref("s"),))):
        beside_another = of_both(of)
        alone = replace(beside_another, joined_person_tables=())
        claims = [
            [(b.part, b.cells, b.per_cell) for b in make_plan(made, q).parts]
            for q in (alone, beside_another)
        ]
        assert claims[0] == claims[1]


# --- one form, and what is refused ----------------------------------------------------------------

CARD = tables_card(2, 2)
V = "(SELECT who, COUNT(*) AS n, SUM(pay) AS s FROM t GROUP BY who) v"
D = "(SELECT who, COUNT(*) AS m, SUM(rate) AS r FROM more GROUP BY who) d"


def plan_of(text: str, card: Card = CARD) -> Plan:
    return make_plan(card, read_sql(text, "t"))


def built() -> Builder:
    return Builder("t", None)  # type: ignore[arg-type]  # nothing is asked of it


def test_the_builder_has_the_same_power() -> None:
    drugs = built().of_table("more").each_person(m="count", r=("sum", "rate"))
    visits = built().each_person(n="count", s=("sum", "pay"))
    texts = {
        f"SELECT AVG(s), CORR(n, m) FROM {V} JOIN {D} ON v.who = d.who WHERE m > 1": visits
        .join_people(drugs).where(m=(2, None)).mean("s").correlation("n", "m"),
        f"SELECT AVG(s), CORR(n, m) FROM {V} LEFT JOIN {D} USING (who)": visits
        .join_people(drugs, keep_all=True).mean("s").correlation("n", "m"),
    }  # fmt: skip
    for text, asked in texts.items():
        question = asked.question()
        if "> 1" in text:
            question = replace(question, where=Compare(M, ">", Constant("number", "1")))
        assert make_plan(CARD, question).digest() == plan_of(text).digest()


def test_the_builder_joins_tables_of_people_only() -> None:
    each = built().each_person(n="count")
    other = built().of_table("more").each_person(m="count")
    for one, two in (
        (built(), other),
        (each, built().of_table("more")),
        (each, other.where(m=3)),
        (each, other.count()),
        (each, replace(other, data_set="u")),
    ):
        with pytest.raises(Refused, match="not-in-language"):
            one.join_people(two)


def test_a_question_of_joined_people_survives_its_json() -> None:
    text = f"SELECT m, COUNT(*) FROM {V} LEFT JOIN {D} ON d.who = v.who WHERE n > 1 GROUP BY m"
    plan = plan_of(text)
    again = make_plan(CARD, read_query(query_json(plan.question)))
    assert again.canonical() == plan.canonical()
    assert again.measure == plan.measure
    assert "beside" not in query_json(plan_of(f"SELECT AVG(n) FROM {V}").question)
    assert "beside" not in plan_of(f"SELECT AVG(n) FROM {V}").canonical()


def test_what_decides_the_answer_decides_the_digest() -> None:
    texts = [
        f"SELECT AVG(n) FROM {V} JOIN {D} ON d.who = v.who",
        f"SELECT AVG(n) FROM {V} LEFT JOIN {D} ON d.who = v.who",
        f"SELECT AVG(n) FROM {V}",
        f"SELECT AVG(n) FROM {V} JOIN {D.replace('SUM(rate)', 'MIN(rate)')} ON d.who = v.who",
        f"SELECT AVG(n) FROM {V} JOIN {D.replace(' GROUP', ' WHERE ok GROUP')} ON d.who = v.who",
        f"SELECT AVG(n) FROM {V} JOIN {D.replace('FROM more', 'FROM t').replace('rate', 'pay')}"
        " ON d.who = v.who",
    ]
    assert len({plan_of(text).digest() for text in texts}) == len(texts)
    more, places = CARD.tables
    columns = tuple(replace(c, upper=20) if c.name == "rate" else c for c in more.columns)
    other = replace(CARD, tables=(replace(more, columns=columns), places))
    assert plan_of(texts[0], other).digest() != plan_of(texts[0]).digest()


def test_a_question_of_joined_people_is_told_in_words() -> None:
    said = plan_text(plan_of(f"SELECT AVG(n) FROM {V} LEFT JOIN {D} ON d.who = v.who"))
    assert "over one row for each person (n = count, s = sum of pay)" in said
    assert "beside their row, if any, from more (m = count, r = sum of rate)" in said


def test_tables_of_people_that_are_too_many_or_stand_alone_are_refused() -> None:
    other = JoinedPersonTable(OTHER, "more")
    outputs = (Output("x", Aggregate("count")),)
    for question, code in (
        (Query("t", outputs, source=EACH, joined_person_tables=(other,) * 9), "question-too-large"),
        (Query("t", outputs, joined_person_tables=(other,)), "not-in-language"),
        (Query("t", outputs, source=EACH, joined_person_tables=(other, other)), "not-in-language"),
        (
            Query("t", outputs, source=EACH, joined_person_tables=(replace(other, table="x"),)),
            "unknown-data-set",
        ),
        (
            Query(
                "t", outputs, source=EACH,
                joined_person_tables=(replace(other, each=replace(OTHER, by="drug")),),
            ),
            "not-in-language",
        ),
        (
            Query(
                "t", outputs, source=EACH,
                joined_person_tables=(replace(other, each=replace(OTHER, columns=())),),
            ),
            "not-in-language",
        ),
    ):  # fmt: skip
        with pytest.raises(Refused, match=code):
            make_plan(CARD, question)


def test_more_counts_of_a_person_than_anybody_writes_are_refused() -> None:
    """They have no expressions, so nothing else would bound them; each is read again and again."""

    def counts(name: str, count: int) -> PersonTable:
        return PersonTable(
            tuple(PersonColumn(f"{name}{i}", "count") for i in range(count)), None, "who"
        )

    outputs = (Output("x", Aggregate("count")),)
    alone = Query("t", outputs, source=counts("n", 2001))
    several = tuple(JoinedPersonTable(counts(name, 250), "more") for name in "abcdefgh")
    for question in (alone, replace(alone, source=counts("n", 1), joined_person_tables=several)):
        with pytest.raises(Refused, match="question-too-large"):
            make_plan(CARD, question)
    make_plan(CARD, replace(alone, source=counts("n", 2000)))


def test_a_twin_for_several_tables_of_people_is_refused_and_not_made_wrongly() -> None:
    question = of_both(Aggregate("count"))
    with pytest.raises(Refused, match="twin-not-possible"):
        matching_rows(CARD, question, Seeded("k"))
    assert matching_rows(CARD, replace(question, joined_person_tables=()), Seeded("k")).people
