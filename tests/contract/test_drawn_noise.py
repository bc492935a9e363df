"""On every engine no release draws less noise than it was charged for, whatever is asked.

Tables and questions are dealt at random, with bounds that bite. An answer is released; what was
drawn for it, and what the engine says of the same tables without one person, give the loss that the
charge is held against (support/privacy_loss_oracle.py). What a plan claims of itself takes no part
in it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import pytest

from contract.test_engine_questions import PEOPLE, ROWS, pose, prepared
from sfumato.dp.budget import EPSILON_UNITS, Budget
from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.query.expression import Ref
from sfumato.query.model import Aggregate, Output, Query, Verb, query_json
from sfumato.query.plan import Plan
from sfumato.query.request import Request
from sfumato.release.release_order import ReleaseContext
from sfumato.release.unseal import unseal
from sfumato.vault.engine_port import Engine
from support.engine_rows import SALT
from support.privacy_loss_oracle import asked, door_to, excess, loss_of
from support.query_oracle import found_by, planned
from support.random_tables import Dealt, one_dealt, two_dealt
from support.sensitivity_oracle import Cells, tight

CAP = Budget(Fraction(1000), Fraction(1, 10))
EPSILONS = [Fraction(text) for text in ("0.05", "1", "6")]
DELTAS = [Fraction(text) for text in ("0", "1e-9", "1e-5")]
MANY = {"duckdb": 300, "postgres": 150, "spark": 30}  # a part of `make slow`, of which there are 3
OF_ONE_DEAL = 15
Maker = Callable[[bytes], Engine]


def deal(rng: random.Random) -> Dealt:
    """Deal rows to tables of people, or to one of which each row is protected by itself."""
    if rng.random() < 0.8:
        dealt = two_dealt(rng, PEOPLE, rng.randint(2, 6), 4)
    else:
        dealt = one_dealt(rng, ROWS, rng.randint(2, 6), 1)
    return replace(dealt, made=replace(dealt.made, budget=CAP), is_wide=True)


def choice(rng: random.Random) -> Query:
    """Return a question of one choice among what all rows are, by keys of any kind."""
    verb: Verb = rng.choice(("top", "first_above", "quantile", "minimum", "maximum", "bounds"))
    listed = verb in ("top", "first_above")
    of = Aggregate(
        verb,
        (Ref(rng.choice(("zip", "grade") if listed else ("pay", "age"))),),
        most=rng.choice((1, 2)) if listed else None,
        at=Fraction(rng.choice(("0.01", "0.3333", "1/2", "1"))) if verb == "quantile" else None,
    )
    keys: tuple[Ref, ...] = rng.choice(((), (Ref("zip"),), (Ref("grade"),), (Ref("town"),)))
    outputs = [Output(f"g{place}", key) for place, key in enumerate(keys)]
    return Query("t", (*outputs, Output("n", of)), None, keys)


def without(dealt: Dealt, who: str) -> Dealt:
    rows = {name: [row for row in rows if row.who != who] for name, rows in dealt.rows.items()}
    return replace(dealt, rows=rows)


@dataclass
class Judge:
    """Holds an engine's releases to what they were charged; knows how far the furthest went."""

    engine: Engine
    rng: random.Random
    releases: int = 0
    moved: int = 0
    selected: int = 0
    furthest: float = 0.0  # of the epsilon that was charged

    def until(self, releases: int, folder: Path) -> None:
        """Judge so many releases; stop at the first that was charged less than it loses."""
        deals = 0
        while self.releases < releases:
            dealt, deals = deal(self.rng), deals + 1
            home = folder / str(deals)
            home.mkdir()
            rest = without(dealt, self._person(dealt))
            tables = (
                prepared(self.engine, home / "whole", dealt),
                prepared(self.engine, home / "without", rest),
            )
            door = door_to(self.engine, home)
            for _ in range(min(OF_ONE_DEAL, releases - self.releases)):
                self._judge(door, dealt, tables)

    def _person(self, dealt: Dealt) -> str:
        """Return who is left out: of three at random, the one with the most rows."""
        having = Counter(row.who for rows in dealt.rows.values() for row in rows if row.who)
        return max(self.rng.choices(sorted(having), k=3), key=having.__getitem__)

    def _judge(self, door: ReleaseContext, dealt: Dealt, tables: tuple[str, str]) -> None:
        question = pose(dealt).question if self.rng.random() < 0.6 else choice(self.rng)
        plan = planned(dealt.made, tight(self.rng, question, dealt.made.unit))
        if plan is None:
            return
        epsilon, delta = self.rng.choice(EPSILONS), self.rng.choice(DELTAS)
        request = Request(plan.question, epsilon=epsilon, delta=delta)
        with suppress(Refused):  # no delta for private keys, or noise too wide to be drawn
            draws, charged = asked(door, dealt.made, tables[0], request, f"op-{self.releases}")
            loss = loss_of(plan, draws, *(self._added_up(plan, table) for table in tables))
            wrong = excess(loss, charged)
            assert not wrong, (wrong, query_json(plan.question), draws.every, dealt.rows)
            self.releases += 1
            self.moved += loss.epsilon + loss.rho > 0
            self.selected += plan.selects_keys
            self.furthest = max(self.furthest, loss.epsilon * EPSILON_UNITS / charged.epsilon)

    def _added_up(self, plan: Plan, table: str) -> Cells:
        return found_by(plan, lambda measure: unseal(self.engine.measure(table, measure)))


def test_no_release_loses_more_than_it_was_charged(tmp_path: Path) -> None:
    judge = Judge(DuckDBEngine(SALT, memory_mb=512, threads=1, deadline_s=60), random.Random(1))
    judge.until(15, tmp_path)
    judge.engine.close()
    assert judge.moved > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_none_of_many_releases_loses_more_than_it_was_charged(
    make_engine: Maker, kind: str, tmp_path: Path, part: int
) -> None:
    judge = Judge(make_engine(SALT), random.Random(200 + part))
    judge.until(MANY[kind], tmp_path)
    judge.engine.close()
    print(f"{kind} {part}: {judge}")
    assert judge.moved > judge.releases / 4
    assert judge.selected > judge.releases / 20
    assert judge.furthest > 0.9
