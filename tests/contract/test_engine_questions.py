"""Random questions on every engine: from their text, or as JSON, to the last unit as plainly read.

A question is posed of rows at random (support/random_tables.py), goes through its text or its JSON,
the plan and the engine's own SQL to a real engine, and what comes back is what
support/query_oracle.py says of the question as it was posed. Where a bound on a person bites (every
fifth), what is plain is the measure, and engine_rows.py adds it up in the order that the engine's
secret gives.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import pytest

from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.query.expression import Expr
from sfumato.query.model import Aggregate, Formula, Query, query_json
from sfumato.query.plan import Plan, make_plan
from sfumato.query.query_from_json import read_query
from sfumato.query.sql.select import read_sql
from sfumato.release.unseal import unseal
from sfumato.vault.card.data_card import Card
from sfumato.vault.engine_port import Engine
from support.engine_rows import (
    SALT,
    Row,
    added_up,
    joined_rows,
    numbers,
    prepare,
    rows_beside,
    stored_rows,
    write_source,
)
from support.kernel_oracle import kernel_order, orders_by_kernel
from support.query_oracle import as_posed, card, disagreement, found_by, planned
from support.random_queries import text_of
from support.random_tables import PUBLIC, Dealt, Posed, one_dealt, tables_card, two_dealt
from support.sensitivity_oracle import tight
from support.spark_batcher import SparkTogether

FEW = {"duckdb": 80, "postgres": 60, "spark": 10}
MANY = 500  # a part of `make slow`, of which there are ten
OF_ONE_DEAL = 80
PEOPLE = tables_card(1000, 20)
ROWS = card("row", tables={"places": PUBLIC})
AFTER = ("", "", "", " HAVING COUNT(*) > 1", " HAVING SUM(LEAST(GREATEST({}, 0), 3)) >= 2",
         " ORDER BY COUNT(*) DESC LIMIT 2")  # fmt: skip
Maker = Callable[[bytes], Engine]


@pytest.fixture(scope="module")
def engine(make_engine: Maker) -> Iterator[Engine]:
    made = make_engine(SALT)
    yield made
    made.close()


@dataclass(frozen=True)
class Asked:
    """How many questions were answered, how many of them as text, and of how many some row is."""

    answered: int = 0
    spelled: int = 0
    met: int = 0
    bitten: int = 0  # besides those answered

    def and_also(self, other: Asked) -> Asked:
        """Return both together."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Asked(*(one + more for one, more in pairs))


def deal(rng: random.Random) -> Dealt:
    """Deal rows to tables of people, or to one whose rows are nobody's."""
    if rng.random() < 0.8:
        dealt = two_dealt(rng, PEOPLE, rng.randint(0, 6), 4)
    else:
        dealt = one_dealt(rng, ROWS, rng.randint(0, 6), 4)
    return replace(dealt, is_wide=True)


def pose(dealt: Dealt) -> Posed:
    """Pose a question of any kind."""
    kinds = [Dealt.of_one, Dealt.of_one, Dealt.of_public]
    if dealt.made.by_person:
        kinds += [Dealt.of_one, Dealt.of_joined, Dealt.of_joined, Dealt.of_people, Dealt.of_people]
    return dealt.rng.choice(kinds)(dealt)


def prepared(engine: Engine, folder: Path, dealt: Dealt) -> str:
    """Prepare the tables from their sources, as an owner does."""
    folder.mkdir()
    paths = []
    for table in dealt.made.every_table:
        unit = [dealt.made.unit] if dealt.made.by_person and not table.is_public else []
        names = [column.name for column in table.columns]
        rows = [
            [*[row.who for _ in unit], *(row.texts[name] for name in names)]
            for row in dealt.rows[table.name]
        ]
        paths.append(write_source(folder / f"{table.name}.csv", [*unit, *names], rows))
    return prepare(engine, paths[0], dealt.made, others=paths[1:])[0]


def as_text(rng: random.Random, question: Query) -> tuple[Query, str]:
    """Return a question that a text can say, and a text that says it, and asks more after it."""
    outputs = tuple(replace(output, of=_sayable(output.of)) for output in question.outputs)
    question = replace(question, outputs=outputs)
    number = "m0" if question.source is not None else "dose" if question.table == "more" else "pay"
    return question, text_of(question, plain=False, rest=rng.choice(AFTER).format(number))


def _sayable(of: Aggregate | Expr | Formula) -> Aggregate | Expr | Formula:
    """Return it without the bounds for which SQL has no word; nobody here reaches them."""
    if isinstance(of, Aggregate) and of.verb in ("sum", "count_distinct"):
        return replace(of, person_sum_bounds=None, most=None)
    return of


def plans_of(rng: random.Random, made: Card, question: Query) -> tuple[Plan, Plan, str] | None:
    """Return the plan of what is posed, that of what is asked, and how it is; None if refused."""
    text = ""
    try:
        if rng.random() < 0.5:
            question, text = as_text(rng, question)
            plan = make_plan(made, read_sql(text, "t"))
        else:
            plan = make_plan(made, read_query(query_json(question)))
    except Refused:
        return None
    said = as_posed(made, question)
    return None if said is None else (said, plan, text)


Check = Callable[[], Asked]  # asks an engine, and fails if its answer is not as plainly read


def one_by_one(checks: Sequence[Check]) -> list[Asked]:
    """Return what the checks have seen."""
    return [check() for check in checks]


@dataclass(frozen=True)
class Exam:
    """An engine, and how it is asked of one deal of rows after the other."""

    engine: Engine
    kind: str
    folder: Path
    rng: random.Random
    in_turn: Callable[[Sequence[Check]], list[Asked]] = one_by_one

    def until(self, count: int) -> Asked:
        """Ask until so many questions were answered; stop at one that is not as plainly read."""
        asked, deals = Asked(), 0
        while asked.answered < count:
            dealt, deals = deal(self.rng), deals + 1
            table = prepared(self.engine, self.folder / f"{deals}", dealt)
            stored = self._stored(self.folder / f"{deals}", table, dealt)
            checks = self._checks(table, dealt, stored, count - asked.answered)
            for one in self.in_turn(list(checks)):
                asked = asked.and_also(one)
        return asked

    def _checks(
        self, table: str, dealt: Dealt, stored: list[list[Row]], most: int
    ) -> Iterator[Check]:
        """Yield checks of so many questions at most; of bounds that bite every fifth besides."""
        for place in range(OF_ONE_DEAL):
            if most == 0:
                return
            of_question = place % 5 > 0
            check = (
                self._of_question(table, dealt)
                if of_question
                else self._of_bounds(table, dealt, stored)
            )
            if check is not None:
                most -= of_question
                yield check

    def _stored(self, folder: Path, table: str, dealt: Dealt) -> list[list[Row]]:
        """Return what DuckDB's preparation makes of the tables, which the other engines copy."""
        if self.kind != "duckdb":
            duck = DuckDBEngine(SALT, memory_mb=1024, threads=1)
            table = prepared(duck, folder / "twin", dealt)
            duck.close()
        return [stored_rows(table, place) for place in range(len(dealt.made.every_table))]

    def _of_bounds(self, table: str, dealt: Dealt, stored: list[list[Row]]) -> Check | None:
        plan = planned(dealt.made, tight(self.rng, pose(dealt).question, dealt.made.unit))
        if plan is None:
            return None
        measure = plan.measure if plan.measure.is_public else plan.measure.without_histograms
        order = kernel_order if orders_by_kernel(table, measure, self.kind) else None

        def check() -> Asked:
            found = numbers(self.engine, table, measure)
            others = rows_beside(measure, stored)
            by_hand = added_up(measure, joined_rows(measure, stored), order=order, others=others)
            assert found == by_hand, (measure, dealt.rows)
            return Asked(bitten=1)

        return check

    def _of_question(self, table: str, dealt: Dealt) -> Check | None:
        posed = pose(dealt)
        plans = plans_of(dealt.rng, dealt.made, posed.question)
        if plans is None:
            return None
        said, plan, text = plans

        def check() -> Asked:
            found = found_by(plan, lambda measure: unseal(self.engine.measure(table, measure)))
            for one in (plan, said) if text else (said,):  # what is asked after it, what was posed
                wrong = disagreement(plan, found, posed.rows, posed.others, said=one)
                assert not wrong, (wrong, text or query_json(posed.question), dealt.rows)
            return Asked(answered=1, spelled=bool(text), met=bool(found))

        return check


def test_random_questions_are_answered_as_they_are_plainly_read(
    engine: Engine, kind: str, tmp_path: Path
) -> None:
    asked = Exam(engine, kind, tmp_path, random.Random(1)).until(FEW[kind])
    assert asked.spelled > asked.answered / 4


@pytest.fixture(scope="module")
def together() -> Iterator[SparkTogether]:
    made = SparkTogether(SALT)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_random_questions_are_answered_as_they_are_plainly_read(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path, part: int
) -> None:
    """On Spark many at once, or it would take hours; the few above are asked one by one."""
    started = time.monotonic()
    engine: Engine = request.getfixturevalue("together" if kind == "spark" else "engine")
    in_turn = engine.in_turn if isinstance(engine, SparkTogether) else one_by_one
    asked = Exam(engine, kind, tmp_path, random.Random(100 + part), in_turn).until(MANY)
    assert asked.spelled > asked.answered / 4
    assert asked.met > asked.answered / 4
    print(f"{kind} {part}: {asked} in {time.monotonic() - started:.0f} s")
