"""Two tables in which a person may have many rows each: a plain reading, and brute force.

A person's rows in the join are all of theirs here beside all of theirs there that fit, so that the
product of both tables' bounds is what one person can bring, and what the plan has to claim.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import duckdb
import pytest

from query.test_sensitivity import literally, number
from sfumato.features.synthetic.matching_rows import matching_rows
from sfumato.features.synthetic.seeded_numbers import Seeded
from sfumato.query.expression import Arithmetic, Case, Compare, Constant, Ref
from sfumato.query.model import Aggregate, Joined, Output, PersonColumn, PersonTable, Query
from sfumato.query.plan import make_plan
from sfumato.vault.card.data_card import Card
from support.query_oracle import (
    Person,
    Value,
    added_up,
    meaning,
)
from support.random_tables import Dealt, Posed, Read, prepared, read_many, tables_card, two_dealt
from support.sensitivity_oracle import Judged, changes, excess, judge_many, moved_by, tight

# --- what the plan adds up ------------------------------------------------------------------------


def read_joined(seed: int, count: int, pose: Callable[[Dealt], Posed] = Dealt.of_joined) -> Read:
    rng, made = random.Random(seed), tables_card(1000, 20)
    return read_many(count, lambda: two_dealt(rng, made, rng.randint(0, 5), 4), pose)


def test_a_plan_adds_up_the_rows_of_a_join_as_they_are_plainly_read() -> None:
    read = read_joined(seed=1, count=200)
    assert read.met > read.answered / 4


def test_a_plan_adds_up_what_is_looked_up_as_it_is_plainly_read() -> None:
    read = read_joined(seed=1, count=100, pose=Dealt.of_public)
    assert read.met > read.answered / 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_many_plans_add_up_the_rows_of_a_join_as_they_are_plainly_read(seed: int) -> None:
    started = time.monotonic()
    print(f"seed {seed}: {read_joined(seed, 2500)} in {time.monotonic() - started:.0f} s")


# --- how far one person moves it ------------------------------------------------------------------


def judge_joined(seed: int, removals: int) -> Judged:
    rng, made = random.Random(seed), tables_card(2, 2)

    def pose(dealt: Dealt) -> Query:
        posed = dealt.of_joined() if rng.random() < 0.8 else dealt.of_public()
        question = tight(rng, posed.question, "who")
        if rng.random() < 0.3:  # the product of the tables' bounds
            question = replace(question, max_rows=None)
        return question

    return judge_many(removals, lambda: two_dealt(rng, made, 3, 5), pose)


def test_nobody_moves_a_part_of_a_join_further_than_the_plan_claims() -> None:
    judged = judge_joined(seed=1, removals=300)
    assert judged.moved > judged.removals / 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_nobody_moves_a_part_of_many_joins_further_than_claimed(seed: int) -> None:
    started = time.monotonic()
    print(f"seed {seed}: {judge_joined(seed, 5000)} in {time.monotonic() - started:.0f} s")


# --- the claims are attained ----------------------------------------------------------------------


def cells_of(place: int, **values: str) -> dict[str, Value]:
    columns = tables_card(1, 1).every_table[place].columns
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
    ("within", Aggregate("sum", (BOTH,), person_sum_bounds=(number(-1), number(9))), ["36 of 36"]),
    ("distinct", Aggregate("count_distinct", (Ref("dose"),), most=3), ["6 of 6"]),
]


def reach(made: Card, question: Query) -> list[str]:
    """Return, part by part, how far somebody with all these rows moves it, and what is claimed."""
    plan = make_plan(made, question)
    other = [Person("other", cells_of(0, zip="a", pay="0", town="x"))]
    with duckdb.connect(config={"threads": 1}) as database:
        rows = {"t": [*other, *HERE * 2], "more": THERE * 2, "places": []}
        whole = added_up(database, plan, prepared(database, made, rows))
        rows = {"t": other, "more": [], "places": []}
        without = added_up(database, plan, prepared(database, made, rows))
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
    made = tables_card(2, 2, there=3)
    outputs = (Output("zip", ZIP), Output(name, of))
    question = Query("t", outputs, None, (ZIP,), joins=(Joined("more", also=also),))
    assert reach(made, question) == expected


def test_a_person_moves_a_table_of_people_over_a_join_by_one_row_of_it() -> None:
    """Every row there beside every row here, 400 at most by the card's limits."""
    made = tables_card(2, 2)
    source = PersonTable((PersonColumn("n", "count"), PersonColumn("s", "sum", RATE)), None, "who")
    outputs = (
        Output("n", Aggregate("sum", (Ref("n"),))),
        Output("s", Aggregate("sum", (Ref("s"),))),
    )
    question = Query("t", outputs, source=source, joins=(Joined("more"),))
    assert sorted(reach(made, question)) == ["48 of 400", "480 of 4000"]
    few = replace(question, max_rows=40)
    assert sorted(reach(made, few)) == ["40 of 40", "400 of 400"]


def test_what_is_claimed_is_a_function_of_the_card_alone() -> None:
    """No further column lowers the bound: nothing on a card says that it is different in each."""
    made = tables_card(1, 2, there=3)
    outputs = (Output("n", Aggregate("count")),)
    claims = {
        make_plan(made, Query("t", outputs, joins=(Joined("more", also=also),))).parts[0].l1
        for also in ((), (("day", "more.given"),), (("sick", "more.ok"), ("town", "more.drug")))
    }
    assert claims == {6}
    assert Fraction(6) == made.max_rows * made.every_table[1].max_rows


def test_made_up_people_have_rows_in_both_tables_that_meet() -> None:
    """A twin's question is answered there by more than nothing, whatever the join holds equal."""
    made = tables_card(2, 2)
    also = (("town", "more.drug"), ("pay", "more.rate"), ("sick", "more.ok"))
    outputs = (Output("zip", ZIP), Output("n", Aggregate("count")))
    where = Compare(RATE, ">", Constant("number", "2"))
    question = Query("t", outputs, where, (ZIP,), joins=(Joined("more", also=also),))
    people = matching_rows(made, question, Seeded("k")).people
    assert len(people) > 3
    for person in people:
        ((here,), (there,)) = person["t"], person["more"]
        assert here["pay"] == there["rate"]
        assert (here["town"], here["sick"]) == (there["drug"], there["ok"])
        assert here["town"] is not None
