"""Brute force (support/sensitivity_oracle.py) judges how far one person moves a part."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction

import duckdb
import pytest

from sfumato.query.expression import (
    Arithmetic,
    Case,
    Clamp,
    Coalesce,
    Constant,
    Expr,
    Floor,
    IsNull,
    LiteralValue,
    Not,
    Ref,
)
from sfumato.query.model import Aggregate, Output, PersonColumn, PersonTable, Query
from sfumato.query.plan import make_plan
from sfumato.vault.card.data_card import Card
from support.query_oracle import Person, Value, added_up, card, meaning, prepare
from support.random_tables import Dealt, one_dealt
from support.sensitivity_oracle import Judged, changes, excess, judge_many, moved_by, tight

UNITS = ("who", "who", "who", "row")


def judge_one(seed: int, removals: int) -> Judged:
    """Judge questions of one table, of people with many rows or of single rows."""
    rng = random.Random(seed)
    cards = {unit: card(unit, max_groups=2, max_rows=2) for unit in UNITS}

    def deal() -> Dealt:
        unit = rng.choice(UNITS)
        return one_dealt(rng, cards[unit], rng.randint(1, 5), 6 if unit == "who" else 1)

    return judge_many(removals, deal, lambda d: tight(rng, d.of_one().question, d.made.unit))


def test_nobody_moves_a_part_further_than_the_plan_claims() -> None:
    judged = judge_one(seed=1, removals=300)
    assert judged.moved > judged.removals / 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_nobody_moves_a_part_of_many_questions_further_than_claimed(seed: int) -> None:
    started = time.monotonic()
    judged = judge_one(seed, removals=5000)
    print(f"seed {seed}: {judged} in {time.monotonic() - started:.0f} s")


# --- the claims are attained ----------------------------------------------------------------------


def cells(**values: str) -> dict[str, Value]:
    columns = card().columns
    return {c.name: meaning(c, values.get(c.name, "")) for c in columns}


def reach(made: Card, question: Query, theirs: Sequence[Mapping[str, Value]]) -> list[str]:
    """Return, part by part, how far the rows of one person move it, and what the plan claims."""
    plan = make_plan(made, question)
    others = [Person("other", cells(zip="a", pay="0", town="x"))]
    with duckdb.connect(config={"threads": 1}) as database:
        whole = prepare(database, made, [*others, *(Person("one", row) for row in theirs)])
        without = prepare(database, made, others)
        pair = added_up(database, plan, whole), added_up(database, plan, without)
    assert not excess(plan, *pair)
    return [
        f"{moved_by(changes(*pair, plan.tally_of(place)))} of {bounded.l1}"
        for place, bounded in enumerate(plan.parts)
    ]


PAY, ZIP, TOWN = Ref("pay"), Ref("zip"), Ref("town")


def number(value: int) -> Constant:
    return Constant.of(value)


def literally(value: int) -> Expr:
    return LiteralValue(number(value))


SPREAD = [cells(zip=z, pay=p, town=t) for z in "ab" for p, t in (("9", "x"), ("9", "y"))]
LOW = [cells(zip=z, pay="-9") for z in "ab" for _ in range(3)]
TALL = Clamp(PAY, number(0), number(5))
ATTAINED: list[tuple[str, Aggregate, list[dict[str, Value]], list[str]]] = [
    ("rows", Aggregate("count"), SPREAD, ["4 of 4"]),
    ("people", Aggregate("count_people"), SPREAD, ["2 of 2"]),
    ("values", Aggregate("count_values", (PAY,)), SPREAD, ["4 of 4"]),
    ("sum above", Aggregate("sum", (PAY,)), SPREAD, ["40 of 40"]),
    ("product", Aggregate("sum", (Arithmetic("*", PAY, PAY),)), SPREAD, ["400 of 400"]),
    ("difference", Aggregate("sum", (Arithmetic("-", PAY, literally(8)),)), LOW, ["88 of 88"]),
    ("floor", Aggregate("sum", (Floor(Arithmetic("/", PAY, literally(2))),)), SPREAD, ["8 of 8"]),
    ("clamp", Aggregate("sum", (Clamp(PAY, number(-1), number(2)),)), SPREAD, ["16 of 16"]),
    (
        "coalesce",
        Aggregate("sum", (Coalesce((Ref("age"), literally(-20))),)),
        SPREAD,
        ["80 of 80"],
    ),
    (
        "case",
        Aggregate("sum", (Case(((IsNull(Ref("age")), PAY),), literally(1)),)),
        SPREAD,
        ["40 of 40"],
    ),
    (
        "filter",
        Aggregate("count_values", (Case(((Not(IsNull(PAY)), literally(1)),), None),)),
        SPREAD,
        ["4 of 4"],
    ),
    ("mean", Aggregate("mean", (PAY,)), LOW, ["64 of 64", "4 of 4"]),
    ("mean above", Aggregate("mean", (TALL,)), SPREAD, ["40 of 40", "4 of 4"]),
    ("within", Aggregate("sum", (PAY,), person_sum_bounds=(number(-1), number(6))), SPREAD,
     ["24 of 24"]),
    ("within below", Aggregate("sum", (PAY,), person_sum_bounds=(number(-4), number(3))), LOW,
     ["16 of 16"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "of", "theirs", "expected"), ATTAINED)
def test_a_person_can_move_a_part_as_far_as_claimed(
    name: str, of: Aggregate, theirs: list[dict[str, Value]], expected: list[str]
) -> None:
    made = card(max_groups=2, max_rows=2)
    outputs = (Output("zip", ZIP), Output(name, of))
    assert reach(made, Query("t", outputs, None, (ZIP,)), theirs) == expected


def test_a_person_can_bring_as_many_different_values_as_count() -> None:
    made = card(max_groups=2, max_rows=1)
    of = Aggregate("count_distinct", (TOWN,), most=2)
    theirs = [cells(zip=z, town=f"{z}{t}", pay="1") for z in "ab" for t in "pqr"]
    question = Query("t", (Output("n", of),), None, (ZIP,))
    assert reach(made, question, theirs) == ["4 of 4"]


def test_a_person_can_be_in_as_many_private_keys_as_count() -> None:
    made = card(max_groups=2, max_rows=1)
    theirs = [cells(town=t) for t in ("p", "q", "r", "s")]
    outputs = (Output("town", TOWN), Output("n", Aggregate("count_people")))
    assert reach(made, Query("t", outputs, None, (TOWN,)), theirs) == ["2 of 2"]
    both = Query("t", (Output("n", Aggregate("count")),), None, (ZIP, TOWN))
    theirs = [cells(town=t, zip="b") for t in ("p", "q", "r", "s")]
    assert reach(made, both, theirs) == ["2 of 2"]


def test_a_row_can_move_a_part_as_far_as_claimed() -> None:
    made = card("row")
    question = Query("t", (Output("s", Aggregate("sum", (PAY,))),))
    assert reach(made, question, [cells(pay="99")]) == ["10 of 10"]
    within = Aggregate("sum", (PAY,), person_sum_bounds=(number(-2), number(1)))
    assert reach(made, Query("t", (Output("s", within),)), [cells(pay="-9")]) == ["4 of 4"]


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        (PersonColumn("m", "count"), "0", "3 of 3"),
        (PersonColumn("m", "count_values", PAY), "0", "3 of 3"),
        (PersonColumn("m", "sum", PAY), "99", "30 of 30"),
        (PersonColumn("m", "sum", Clamp(PAY, number(-3), number(0))), "-99", "18 of 18"),
        (PersonColumn("m", "minimum", PAY), "99", "10 of 10"),
        (PersonColumn("m", "maximum", Clamp(PAY, number(-3), number(0))), "-9", "6 of 6"),
    ],
)
def test_a_person_moves_a_table_of_people_by_one_row_of_it(
    column: PersonColumn, cell: str, expected: str
) -> None:
    source = PersonTable((column,), None, "who")
    outputs = (Output("s", Aggregate("sum", (Ref("m"),))),)
    question = Query("t", outputs, source=source, max_rows=3)
    assert reach(card(), question, [cells(pay=cell)] * 5) == [expected]


def test_the_least_of_numbers_that_may_be_negative_is_bounded_by_the_lower_end() -> None:
    of = Arithmetic("/", literally(1), PAY)
    question = Query("t", (Output("s", Aggregate("sum", (of,))),))
    made = card("row")
    plan = make_plan(made, question)
    (bounded,) = plan.parts
    assert Fraction(bounded.l1) * plan.asked[0].operand.step >= 2  # 1 / 0.5, half a step of pay
    (seen,) = reach(made, question, [cells(pay="0.5")])
    attained, claimed = map(int, seen.split(" of "))
    assert claimed - attained <= 1
