"""Brute force judges sensitivity: everybody is taken out in turn, and the integers compared.

Whoever is taken out, the tables are prepared anew, so that a dense person code that moves, or a row
that takes another's place, would show as a change in somebody else's cell.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import duckdb

from sfumato.query.expression import Constant, Expr
from sfumato.query.model import Aggregate, Formula, Query, query_json
from sfumato.query.plan import PEOPLE, Plan
from support.query_oracle import Cell, Person, added_up, planned
from support.random_queries import of_another_verb
from support.random_tables import Dealt, prepared

Cells = Mapping[Cell, tuple[Any, ...]]  # per tally a number, or a list for a histogram


def changes(one: Cells, other: Cells, tally: int) -> list[list[int]]:
    """Return by how much each cell of a tally differs, cells that do not differ left out."""
    every = [
        [
            a - b
            for a, b in zip_longest(_listed(one, c, tally), _listed(other, c, tally), fillvalue=0)
        ]
        for c in {*one, *other}
    ]
    return [change for change in every if any(change)]


def _listed(cells: Cells, cell: Cell, tally: int) -> list[int]:
    found = cells[cell][tally] if cell in cells else 0
    return found if isinstance(found, list) else [found]


def moved_by(changed: Sequence[Sequence[int]]) -> int:
    return sum(abs(number) for cell in changed for number in cell)


def excess(plan: Plan, whole: Cells, without: Cells) -> str:
    """Return how a removal moved more than the plan claims; empty if it did not."""
    for place, bounded in enumerate(plan.parts):
        moved = changes(whole, without, plan.tally_of(place))
        claims = (bounded.l1, bounded.l2_squared, bounded.cells, bounded.per_cell)
        seen = (
            moved_by(moved),
            sum(number**2 for cell in moved for number in cell),
            len(moved),
            max((moved_by([cell]) for cell in moved), default=0),
        )
        if any(s > c for s, c in zip(seen, claims, strict=True)):
            return f"{bounded.part.says}: {seen} over {claims}"
    if plan.selects_keys:
        people = changes(whole, without, plan.measure.tallies.index(PEOPLE))
        if len(people) > plan.measure.max_groups or any(moved_by([cell]) > 1 for cell in people):
            return f"people {people}"
    return ""


def tight(rng: random.Random, question: Query, unit: str) -> Query:
    """Return the question with bounds that bite."""
    outputs = tuple(replace(o, of=_tight(rng, o.of)) for o in question.outputs)
    if unit == "row":
        return replace(question, outputs=outputs)
    groups, rows = rng.randint(1, 3), rng.randint(1, 3)
    return replace(question, outputs=outputs, max_groups=groups, max_rows=rows)


def _tight(rng: random.Random, of: Aggregate | Expr | Formula) -> Aggregate | Expr | Formula:
    if not isinstance(of, Aggregate):
        return of
    if of.verb in ("sum", "mean") and rng.random() < 0.4:
        numbers = ("pay", "age", "m0", "m1")
        return of_another_verb(rng, of.operands[0], numbers, ("zip", "grade"))
    if of.verb == "count_distinct":
        return replace(of, most=rng.choice((None, 1, 2)))
    if of.verb == "sum" and rng.random() < 0.4:
        low, high = rng.choice((("-4", "2"), ("0", "1"), ("2", "6"), ("-6", "-2")))
        return replace(of, person_sum_bounds=(Constant("number", low), Constant("number", high)))
    return of


@dataclass
class Judged:
    """How many removals were judged, and how often something moved."""

    removals: int = 0
    moved: int = 0


def judge_many(removals: int, deal: Callable[[], Dealt], pose: Callable[[Dealt], Query]) -> Judged:
    """Take everybody out in turn, of all tables, and hold what moved to what is claimed."""
    judged = Judged()
    while judged.removals < removals:
        dealt = deal()
        with duckdb.connect(config={"threads": 1}) as database:
            whole = prepared(database, dealt.made, dealt.rows)
            people = {row.who for rows in dealt.rows.values() for row in rows} - {""}
            without = [prepared(database, dealt.made, _rest(dealt, who)) for who in sorted(people)]
            for _ in range(30):
                plan = planned(dealt.made, pose(dealt))
                if plan is not None:
                    _judge(database, plan, whole, without, judged)
    return judged


def _rest(dealt: Dealt, who: str) -> dict[str, list[Person]]:
    return {name: [row for row in rows if row.who != who] for name, rows in dealt.rows.items()}


def _judge(
    database: duckdb.DuckDBPyConnection,
    plan: Plan,
    whole: tuple[str, ...],
    without: Sequence[tuple[str, ...]],
    judged: Judged,
) -> None:
    before = added_up(database, plan, whole)
    for tables in without:
        after = added_up(database, plan, tables)
        wrong = excess(plan, before, after)
        assert not wrong, (wrong, query_json(plan.question))
        judged.removals += 1
        judged.moved += before != after
