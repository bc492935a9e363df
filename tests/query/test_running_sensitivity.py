"""Brute force judges running counts from rows on: everybody is taken out, and the blocks compared.

The blocks are those of the mechanism that the plan is priced with, over what the SQL adds up.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import duckdb
import numpy as np
from numpy.typing import NDArray

from sfumato.dp.mechanisms.binary_tree import Tree
from sfumato.dp.mechanisms.running_count import TreeMechanism
from sfumato.engines.shared.cell_assembly import Assembly, Layout
from sfumato.query.plan import Plan, make_plan
from sfumato.query.price import Priced, price_at
from sfumato.query.printing.expressions import Secret
from sfumato.query.printing.statements import lower
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card, read_card
from support.query_oracle import Person, prepare

Integers = NDArray[np.int64]
DAYS = 50
CARD = """
unit = "who"
people = "p"
version = "1"
budget = { epsilon = 3, delta = 1e-6 }
max_groups = 5
max_rows = 2
[columns.zip]
type = "text"
keys = ["a", "b"]
[columns.day]
type = "date"
lower = 2026-01-01
upper = 2026-02-19
"""
DAY = "date_trunc('day', day)"
SQL = f"SELECT RUNNING_COUNT(*) FROM t GROUP BY zip, {DAY}"


def card() -> Card:
    return read_card("t", tomllib.loads(CARD, parse_float=Decimal))


def row(who: str, place: str, day: int) -> Person:
    return Person(who, {"zip": place, "day": datetime(2026, 1, 1) + timedelta(days=day)})


def counts(plan: Plan, rows: Sequence[Person]) -> Integers:
    """Return the exact cells, people bounded, as the engine hands them to the door."""
    with duckdb.connect(config={"threads": 1}) as database:
        table = prepare(database, plan.card, rows)
        assembly = Assembly(Layout.of(plan.measure))
        for statement in lower(plan.measure, "duckdb", (table,)):
            bound = ["salt" if b is Secret.SALT else b for b in statement.parameters]
            assembly.add(statement.tallies, database.execute(statement.sql, bound).fetchnumpy())
        (part,) = assembly.cells().parts
        return part


def moved(priced: Priced, rows: Sequence[Person], who: str) -> tuple[int, int]:
    """Return the sums of changes, and of squared changes, of the blocks when somebody is gone."""
    (running,) = priced.noises
    assert isinstance(running, TreeMechanism)
    without = [r for r in rows if r.who != who]
    change = running.blocks(counts(priced.plan, rows)) - running.blocks(
        counts(priced.plan, without)
    )
    return int(np.abs(change).sum()), int((change**2).sum())


def priced(groups: int, rows: int) -> Priced:
    plan = make_plan(card(), read_sql(SQL, "t", max_groups=groups, max_rows=rows))
    return price_at(plan, Fraction(1), Fraction(0))


def test_nobody_moves_the_blocks_by_more_than_is_claimed() -> None:
    rng = random.Random(2)
    for groups, most in [(1, 1), (2, 1), (3, 2), (5, 2)]:
        made = priced(groups, most)
        (bounded,) = made.plan.parts
        early = [rng.choice((0, 1, 2, 7, 8, rng.randrange(DAYS))) for _ in range(60)]
        rows = [row(f"p{n % 6}", rng.choice("ab"), day) for n, day in enumerate(early)]
        for who in {r.who for r in rows}:
            l1, l2_squared = moved(made, rows, who)
            assert l1 <= bounded.l1
            assert l2_squared <= _whole(made, bounded.cells, bounded.per_cell)


def _whole(made: Priced, cells: int, per_cell: int) -> int:
    (running,) = made.noises
    assert isinstance(running, TreeMechanism)
    return running.tree.l2_squared(cells, per_cell)


def test_somebody_in_the_first_days_moves_the_blocks_by_all_that_is_claimed() -> None:
    for groups, most in [(1, 1), (2, 2), (5, 2)]:
        made = priced(groups, most)
        (bounded,) = made.plan.parts
        theirs = [row("p", "a", day) for day in range(groups) for _ in range(most + 1)]
        others = [row(f"q{n}", "b", n) for n in range(DAYS)]
        l1, l2_squared = moved(made, [*theirs, *others], "p")
        assert l1 == bounded.l1 == groups * most * 2
        assert l2_squared == _whole(made, groups, most) == most**2 * (groups + groups**2)


def test_the_engines_cells_become_the_running_counts_of_each_place() -> None:
    rng = random.Random(4)
    made = priced(1, 1)
    rows = [row(f"p{n}", rng.choice("ab"), rng.randrange(DAYS)) for n in range(300)]
    (running,) = made.noises
    assert isinstance(running, TreeMechanism)
    assert running.tree == Tree(DAYS, 8)
    found = running.prefixes(running.blocks(counts(made.plan, rows)))
    keys = [str(key.of) for key in made.plan.keys]
    by_hand = np.zeros((2, DAYS), dtype=np.int64)
    for r in rows:
        first = r.cells["day"]
        assert isinstance(first, datetime)
        by_hand["ab".index(str(r.cells["zip"])), (first - datetime(2026, 1, 1)).days :] += 1
    is_place_first = "zip" in keys[0]
    assert np.array_equal(found, (by_hand if is_place_first else by_hand.T).ravel())
