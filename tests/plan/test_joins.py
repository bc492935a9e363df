"""Two tables in which a person may have many rows each: a plain reading, and brute force.

A person's rows in the join are all of theirs here beside all of theirs there that fit, so that the
product of both tables' bounds is what one person can bring, and what the plan has to claim.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

import duckdb
import pytest

from asking import Asking
from plain_reading import (
    Person,
    Value,
    added_up,
    card,
    disagreement,
    meaning,
    planned,
    prepare,
    some_rows,
)
from plan.test_sensitivity import changes, excess, literally, moved_by, number, tight
from sfumato.core.card import Card
from sfumato.core.expression import Arithmetic, Case, Compare, Constant, Ref
from sfumato.core.question import (
    Aggregate,
    EachPerson,
    Joined,
    Output,
    Question,
    Reduce,
    question_json,
)
from sfumato.core.twins.seeded import Seeded
from sfumato.plan.plan import make_plan
from sfumato.plan.planted import planted

COLUMNS = {
    "drug": {"type": "text", "keys": ["x", "y"]},
    "dose": {"type": "integer", "lower": 0, "upper": 12},
    "rate": {"type": "number", "lower": -3, "upper": 5, "step": Decimal("0.5")},
    "given": {"type": "date"},
    "ok": {"type": "boolean"},
}
CELLS: Mapping[str, Sequence[str]] = {
    "drug": ("x", "x", "y", "xy", "other", ""),
    "dose": ("0", "1", "3", "7", "12", "40", ""),
    "rate": ("-99", "0", "0.24", "1.5", "4.75", "9", ""),
    "given": ("2026-01-01", "2026-02-15", "1969-12-29", ""),
    "ok": ("true", "f", ""),
}
EQUAL = (("town", "drug"), ("age", "dose"), ("pay", "rate"), ("day", "given"), ("sick", "ok"))
LIMITS = {"rows": 10**5, "rows_per_person": 20}


def two_tables(bound: int, rows: int, *, there: int | None = None) -> Card:
    more = {"max_rows": there or rows, "limits": LIMITS, "columns": COLUMNS}
    return card("who", max_groups=bound, max_rows=rows, limits=LIMITS, tables={"more": more})


def rows_there(rng: random.Random, people: int, most: int) -> list[Person]:
    """Return rows of the other table; some people have none, and some are only there."""
    columns = two_tables(1, 1).every_table[1].columns
    return [
        Person(f"p{p}", {c.name: meaning(c, rng.choice(CELLS[c.name])) for c in columns})
        for p in rng.sample(range(people + 1), people)
        for _ in range(rng.randint(1, most))
    ]


def prepared(
    database: duckdb.DuckDBPyConnection, made: Card, here: Sequence[Person], there: Sequence[Person]
) -> tuple[str, str]:
    other = replace(made, columns=made.every_table[1].columns, tables=())
    return prepare(database, made, here, there), prepare(database, other, there, here)


def a_join(rng: random.Random, question: Question) -> Question:
    """Return the question of both tables, from either side, held equal by chance in more."""
    pairs = tuple(rng.sample(EQUAL, rng.choice((0, 0, 0, 1, 1, 2))))
    first, other = rng.choice((("t", "more"), ("more", "t")))
    also = tuple(
        (f"t.{here}", f"more.{there}") if other == "more" else (f"more.{there}", f"t.{here}")
        for here, there in pairs
    )
    made = Joined(other, keeps_all=rng.random() < 0.5, also=also)
    return replace(question, table=first, joins=(made,))


def beside(question: Question, here: Sequence[Person], there: Sequence[Person]) -> list[Person]:
    """Return the rows of the join as SQL has them."""
    (join,) = question.joins
    first, others = (there, here) if question.table == "more" else (here, there)
    return [made for row in first for made in _partners(join, row, others)]


def _partners(join: Joined, row: Person, others: Sequence[Person]) -> Iterator[Person]:
    pairs = [(before.partition(".")[2], own.partition(".")[2]) for before, own in join.also]
    found = [
        other.cells
        for other in others
        if other.who == row.who
        and all(row.cells[b] is not None and row.cells[b] == other.cells[o] for b, o in pairs)
    ]
    if not found and join.keeps_all:
        columns = two_tables(1, 1).every_table[join.table == "more"].columns
        found = [dict.fromkeys(column.name for column in columns)]
    for cells in found:
        yield Person(row.who, {**row.cells, **cells})


def asking(rng: random.Random) -> Asking:
    return Asking(
        rng,
        numbers=("pay", "age", "grade", "dose", "rate"),
        texts=("zip", "town", "drug"),
        truths=("sick", "ok"),
    )


# --- what the plan adds up ------------------------------------------------------------------------


def read_many(seed: int, count: int) -> tuple[int, int]:
    """Return how many questions were answered, and how many of them of joined rows."""
    rng, answered, met = random.Random(seed), 0, 0
    made = two_tables(1000, 20)
    while answered < count:
        with duckdb.connect(config={"threads": 1}) as database:
            here = some_rows(rng, rng.randint(0, 5), 4)
            there = rows_there(rng, rng.randint(0, 5), 4)
            tables = prepared(database, made, here, there)
            for _ in range(25):
                plan = planned(made, a_join(rng, asking(rng).question(is_by_person=True)))
                if plan is None:
                    continue
                rows = beside(plan.question, here, there)
                wrong = disagreement(database, plan, tables, rows)
                assert not wrong, (wrong, question_json(plan.question))
                answered, met = answered + 1, met + bool(rows)
    return answered, met


def test_a_plan_adds_up_the_rows_of_a_join_as_they_are_plainly_read() -> None:
    answered, met = read_many(seed=1, count=200)
    assert met > answered / 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_many_plans_add_up_the_rows_of_a_join_as_they_are_plainly_read(seed: int) -> None:
    started = time.monotonic()
    print(f"seed {seed}: {read_many(seed, 2500)} in {time.monotonic() - started:.0f} s")


# --- how far one person moves it ------------------------------------------------------------------


@dataclass
class Judged:
    removals: int = 0
    moved: int = 0


def judge_many(seed: int, removals: int) -> Judged:
    """Take everybody out in turn, of both tables, and hold what moved to what is claimed."""
    rng, judged = random.Random(seed), Judged()
    made = two_tables(2, 2)
    while judged.removals < removals:
        with duckdb.connect(config={"threads": 1}) as database:
            here, there = some_rows(rng, 3, 5), rows_there(rng, 3, 5)
            whole = prepared(database, made, here, there)
            without = [
                prepared(
                    database,
                    made,
                    [row for row in here if row.who != who],
                    [row for row in there if row.who != who],
                )
                for who in sorted({row.who for row in (*here, *there)})
            ]
            for _ in range(30):
                question = asking(rng).question(is_by_person=True)
                question = a_join(rng, tight(rng, question, "who"))
                if rng.random() < 0.3:  # the product of the tables' bounds
                    question = replace(question, max_rows=None)
                plan = planned(made, question)
                if plan is None:
                    continue
                before = added_up(database, plan, whole)
                for tables in without:
                    after = added_up(database, plan, tables)
                    wrong = excess(plan, before, after)
                    assert not wrong, (wrong, question_json(plan.question))
                    judged.removals += 1
                    judged.moved += before != after
    return judged


def test_nobody_moves_a_part_of_a_join_further_than_the_plan_claims() -> None:
    judged = judge_many(seed=1, removals=300)
    assert judged.moved > judged.removals / 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_nobody_moves_a_part_of_many_joins_further_than_claimed(seed: int) -> None:
    started = time.monotonic()
    print(f"seed {seed}: {judge_many(seed, 5000)} in {time.monotonic() - started:.0f} s")


# --- the claims are attained ----------------------------------------------------------------------


def cells_of(place: int, **values: str) -> dict[str, Value]:
    columns = two_tables(1, 1).every_table[place].columns
    return {c.name: meaning(c, values.get(c.name, "")) for c in columns}


ZIP, PAY, RATE = Ref("zip"), Ref("pay"), Ref("rate")
BOTH = Arithmetic("+", PAY, RATE)
DOSED = Case(((Compare(Ref("dose"), ">", Constant("number", "5")), literally(1)),), None)
HERE = [Person("one", cells_of(0, zip=z, pay="9", town="x")) for z in "ab" for _ in range(2)]
THERE = [Person("one", cells_of(1, drug="x", rate="9", dose=str(d))) for d in (7, 8, 9)]
ATTAINED: list[tuple[str, Aggregate, list[str]]] = [
    ("rows", Aggregate("count"), ["12 of 12"]),
    ("people", Aggregate("count_people"), ["2 of 2"]),
    ("values", Aggregate("count_values", (RATE,)), ["12 of 12"]),
    ("rows that fit", Aggregate("count_values", (DOSED,)), ["12 of 12"]),
    ("sum here", Aggregate("sum", (PAY,)), ["120 of 120"]),
    ("sum there", Aggregate("sum", (RATE,)), ["120 of 120"]),
    ("sum of both", Aggregate("sum", (BOTH,)), ["240 of 240"]),
    ("product", Aggregate("sum", (Arithmetic("*", PAY, RATE),)), ["1200 of 1200"]),
    ("mean", Aggregate("mean", (RATE,)), ["192 of 192", "12 of 12"]),
    ("within", Aggregate("sum", (BOTH,), within=(number(-1), number(9))), ["36 of 36"]),
    ("distinct", Aggregate("count_distinct", (Ref("dose"),), most=3), ["6 of 6"]),
]


def reach(made: Card, question: Question) -> list[str]:
    """Return, part by part, how far somebody with all these rows moves it, and what is claimed."""
    plan = make_plan(made, question)
    other = [Person("other", cells_of(0, zip="a", pay="0", town="x"))]
    with duckdb.connect(config={"threads": 1}) as database:
        whole = added_up(database, plan, prepared(database, made, [*other, *HERE * 2], THERE * 2))
        without = added_up(database, plan, prepared(database, made, other, []))
    assert not excess(plan, whole, without)
    return [
        f"{moved_by(changes(whole, without, plan.tally_of(place)))} of {bounded.l1}"
        for place, bounded in enumerate(plan.parts)
    ]


@pytest.mark.parametrize(
    "also", [(), (("town", "more.drug"),), (("t.pay", "more.rate"),)], ids=["-", "town", "pay"]
)
@pytest.mark.parametrize(("name", "of", "expected"), ATTAINED, ids=[name for name, *_ in ATTAINED])
def test_a_person_can_move_a_part_of_a_join_as_far_as_claimed(
    name: str, of: Aggregate, expected: list[str], also: tuple[tuple[str, str], ...]
) -> None:
    """Two rows of a group here, three there: six; what else is equal may be so in all of them."""
    made = two_tables(2, 2, there=3)
    outputs = (Output("zip", ZIP), Output(name, of))
    question = Question("t", outputs, None, (ZIP,), joins=(Joined("more", also=also),))
    assert reach(made, question) == expected


def test_a_person_moves_a_table_of_people_over_a_join_by_one_row_of_it() -> None:
    """Every row there beside every row here, 400 at most by the card's limits."""
    made = two_tables(2, 2)
    source = EachPerson((Reduce("n", "count"), Reduce("s", "sum", RATE)), None, "who")
    outputs = (
        Output("n", Aggregate("sum", (Ref("n"),))),
        Output("s", Aggregate("sum", (Ref("s"),))),
    )
    question = Question("t", outputs, source=source, joins=(Joined("more"),))
    assert sorted(reach(made, question)) == ["48 of 400", "480 of 4000"]
    few = replace(question, max_rows=40)
    assert sorted(reach(made, few)) == ["40 of 40", "400 of 400"]


def test_what_is_claimed_is_a_function_of_the_card_alone() -> None:
    """No further column lowers the bound: nothing on a card says that it is different in each."""
    made = two_tables(1, 2, there=3)
    outputs = (Output("n", Aggregate("count")),)
    claims = {
        make_plan(made, Question("t", outputs, joins=(Joined("more", also=also),))).parts[0].l1
        for also in ((), (("day", "more.given"),), (("sick", "more.ok"), ("town", "more.drug")))
    }
    assert claims == {6}
    assert Fraction(6) == made.max_rows * made.every_table[1].max_rows


def test_made_up_people_have_rows_in_both_tables_that_meet() -> None:
    """A twin's question is answered there by more than nothing, whatever the join holds equal."""
    made = two_tables(2, 2)
    also = (("town", "more.drug"), ("pay", "more.rate"), ("sick", "more.ok"))
    outputs = (Output("zip", ZIP), Output("n", Aggregate("count")))
    where = Compare(RATE, ">", Constant("number", "2"))
    question = Question("t", outputs, where, (ZIP,), joins=(Joined("more", also=also),))
    people = planted(made, question, Seeded("k")).people
    assert len(people) > 3
    for person in people:
        ((here,), (there,)) = person["t"], person["more"]
        assert here["pay"] == there["rate"]
        assert (here["town"], here["sick"]) == (there["drug"], there["ok"])
        assert here["town"] is not None
