"""For every verb somebody moves each of its parts, from rows on, just as far as the plan claims.

What one person moves of running counts is in query/test_running_sensitivity.py; that a rank moves
as far as the choice of a quantile says, in dp/mechanisms/test_quantile.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import duckdb
import pytest

from sfumato.query.aggregates.registry import AGGREGATES
from sfumato.query.model import Verb
from sfumato.query.plan import Plan, make_plan
from sfumato.query.sql.select import read_sql
from support.query_oracle import Person, Value, added_up, card, meaning, prepare
from support.sensitivity_oracle import Cells, changes, excess, moved_by

MADE = card(max_groups=2, max_rows=2)
PAIRS: dict[Verb, str] = {
    "count": "COUNT(*)",
    "count_values": "COUNT(pay)",
    "count_people": "COUNT(DISTINCT who)",
    "count_distinct": "COUNT(DISTINCT age)",
    "sum": "SUM(pay)",
    "mean": "AVG(pay)",
    "variance": "VAR_SAMP(pay)",
    "deviation": "STDDEV_SAMP(pay)",
    "population_variance": "VAR_POP(pay)",
    "population_deviation": "STDDEV_POP(pay)",
    "covariance": "COVAR_SAMP(pay, age)",
    "population_covariance": "COVAR_POP(pay, age)",
    "correlation": "CORR(pay, age)",
    "slope": "REGR_SLOPE(pay, age)",
    "intercept": "REGR_INTERCEPT(pay, age)",
    "quantile": "QUANTILE_CONT(pay, 0.3)",
    "minimum": "MIN(pay)",
    "maximum": "MAX(pay)",
    "top": "APPROX_TOP_K(grade, 2)",
    "bounds": "BOUNDS(pay)",
    "first_above": "FIRST_ABOVE(grade, 2)",
}  # fmt: skip
ENDS = [(pay, age) for pay, age in product(("-3", "5"), ("0", "12"))]


def row(who: str, place: str, pay: str, age: str) -> Person:
    said = {"zip": place, "pay": pay, "age": age, "grade": "2"}
    cells: dict[str, Value] = {c.name: meaning(c, said.get(c.name, "")) for c in MADE.columns}
    return Person(who, cells)


OTHERS = [row("other", "a", "0", "3")]
THEIRS = [*((end, end) for end in ENDS), (ENDS[0], ENDS[-1])]  # as many rows as count, by group


@dataclass(frozen=True)
class Pairs:
    """Tables with somebody in them, for each of them, and the one without."""

    database: duckdb.DuckDBPyConnection
    whole: list[str]
    without: str

    def moved(self, plan: Plan) -> list[list[tuple[int, int]]]:
        """Return, of everybody part by part, the sum of changes and of their squares."""
        without = added_up(self.database, plan, self.without)
        return [_moved(plan, added_up(self.database, plan, w), without) for w in self.whole]


def _moved(plan: Plan, whole: Cells, without: Cells) -> list[tuple[int, int]]:
    assert not excess(plan, whole, without)
    every = [changes(whole, without, plan.tally_of(n)) for n in range(len(plan.parts))]
    return [(moved_by(part), sum(n**2 for cell in part for n in cell)) for part in every]


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    """Return the tables, prepared anew with each of those people."""
    with duckdb.connect(config={"threads": 1}) as database:
        somebody = [[row("one", place, *end) for place in "ab" for end in ends] for ends in THEIRS]
        whole = [prepare(database, MADE, [*OTHERS, *theirs]) for theirs in somebody]
        yield Pairs(database, whole, prepare(database, MADE, OTHERS))


def planned(verb: Verb) -> Plan:
    return make_plan(MADE, read_sql(f"SELECT zip, {PAIRS[verb]} FROM t GROUP BY zip", "t"))


def test_every_verb_has_its_pair() -> None:
    assert {*PAIRS, "running_count"} == set(AGGREGATES)
    assert [[a.verb for a in planned(verb).aggregates] for verb in PAIRS] == [[v] for v in PAIRS]


@pytest.mark.parametrize("verb", PAIRS)
def test_somebody_moves_each_part_of_a_verb_as_far_as_claimed(pairs: Pairs, verb: Verb) -> None:
    plan = planned(verb)
    for bounded, seen in zip(plan.parts, zip(*pairs.moved(plan), strict=True), strict=True):
        claimed = bounded.l1, bounded.l2_squared
        assert tuple(max(of) for of in zip(*seen, strict=True)) == claimed, bounded.part.says
