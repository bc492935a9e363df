"""What is charged for each verb, by name, and that no two tiny tables lose more at its release.

The loss is computed from what the release has drawn and from the tables' own integers
(support/privacy_loss_oracle.py); what a plan claims of itself takes no part in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, count
from itertools import combinations_with_replacement as multisets
from pathlib import Path
from typing import Final

import duckdb
import pytest

from sfumato.dp.accounting.privacy_events import (
    ExponentialEvent,
    PrivacyCost,
    PureEvent,
    privacy_cost,
)
from sfumato.query.aggregates.registry import AGGREGATES
from sfumato.query.model import Verb
from sfumato.query.plan import Plan, make_plan
from sfumato.query.price import price_at
from sfumato.query.request import Request
from sfumato.query.sql.select import read_sql
from sfumato.release.release_order import ReleaseContext
from sfumato.vault.sealed import Sealed
from support.privacy_loss_oracle import (
    Draws,
    asked,
    door_to,
    excess,
    loss_of,
)
from support.query_oracle import Person, added_up, answered, card, meaning, prepare
from support.scripted_engine import ScriptedEngine
from support.sensitivity_oracle import Cells

MADE = card(max_groups=2, max_rows=2, budget={"epsilon": 1000, "delta": Decimal("1e-3")})
EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
# verb -> its text, and the event that it is charged as: alone, and where a delta is given
CHARGED: Final[dict[Verb, tuple[str, str, str]]] = {
    "count": ("COUNT(*)", "pure/1", "pure/1"),
    "count_values": ("COUNT(pay)", "pure/1", "pure/1"),
    "count_people": ("COUNT(DISTINCT who)", "pure/1", "pure/1"),
    "count_distinct": ("COUNT(DISTINCT age)", "pure/1", "pure/1"),
    "sum": ("SUM(pay)", "pure/1", "pure/1"),
    "mean": ("AVG(pay)", "pure/1", "pure/1"),
    "variance": ("VAR_SAMP(pay)", "pure/1", "pure/1"),
    "deviation": ("STDDEV_SAMP(pay)", "pure/1", "pure/1"),
    "population_variance": ("VAR_POP(pay)", "pure/1", "pure/1"),
    "population_deviation": ("STDDEV_POP(pay)", "pure/1", "pure/1"),
    "covariance": ("COVAR_SAMP(pay, age)", "pure/1", "pure/1"),
    "population_covariance": ("COVAR_POP(pay, age)", "pure/1", "pure/1"),
    "correlation": ("CORR(pay, age)", "pure/1", "gaussian/1"),
    "slope": ("REGR_SLOPE(pay, age)", "pure/1", "pure/1"),
    "intercept": ("REGR_INTERCEPT(pay, age)", "pure/1", "pure/1"),
    "quantile": ("QUANTILE_CONT(age, 0.3)", "pure/1", "pure/1"),
    "minimum": ("MIN(age)", "pure/1", "pure/1"),
    "maximum": ("MAX(age)", "pure/1", "pure/1"),
    "top": ("MODE(grade)", "pure/1", "pure/1"),
    "bounds": ("BOUNDS(pay)", "pure/1", "pure/1"),
    "first_above": ("FIRST_ABOVE(grade, 2)", "pure/1", "pure/1"),
}  # fmt: skip
KINDS = [("-3", "0", "1"), ("5", "12", "2"), ("-3", "12", "3"), ("5", "0", "1")]
OPERATION = count()
SOURCE = Path(__file__).parents[2] / "src" / "sfumato"
# where events are made in src, which, and whether what is charged so answers more than once
MAKERS: Final[dict[str, tuple[set[str], bool]]] = {
    "features/surveys/release.py": ({"PureEvent"}, False),
    "features/streams/release.py": ({"PureEvent"}, True),  # all periods
    "features/federated/average_plan.py": (
        {"PureEvent"},
        False,
    ),  # of an average without noise, which is not DP
    "features/synthetic/choice_plan.py": ({"ExponentialEvent", "JointEvent"}, False),
    "features/synthetic/misfit_plan.py": ({"PureEvent"}, False),
    "features/pipelines/program_plan.py": (
        {"ExponentialEvent", "GaussianEvent", "JointEvent", "PureEvent"},
        False,
    ),
    "query/price.py": ({"GaussianEvent", "JointEvent", "PureEvent"}, False),
    "query/partition_selection_price.py": ({"ApproximateEvent", "ThresholdEvent"}, False),
    "features/federated/sum_plan.py": (
        {"ApproximateEvent"},
        True,
    ),  # the messages of one sum over sites
    "query/top_up.py": ({"GaussianEvent", "PureEvent"}, False),
    "features/federated/training_plan.py": ({"ApproximateEvent"}, True),  # all rounds of a lesson
    "features/synthetic/measurement_release.py": ({"PureEvent"}, False),
}


def row(who: str, place: str, kind: int) -> Person:
    pay, age, grade = KINDS[kind]
    said = {"zip": place, "pay": pay, "age": age, "grade": grade}
    return Person(who, {c.name: meaning(c, said.get(c.name, "")) for c in MADE.columns})


def planned(text: str) -> Plan:
    return make_plan(MADE, read_sql(f"SELECT zip, {text} AS x FROM t GROUP BY zip", "t"))


@dataclass(frozen=True)
class Tiny:
    """Every tiny table of others, by name, and with each way in which somebody may join it."""

    database: duckdb.DuckDBPyConnection
    pairs: list[tuple[str, list[str]]]
    known: dict[str, list[tuple[Cells, Cells]]] = field(default_factory=dict)

    def of(self, plan: Plan) -> list[tuple[Cells, Cells]]:
        """Return what is added up of each pair of tables, with somebody and without."""
        if plan.digest() not in self.known:
            self.known[plan.digest()] = list(self._added_up(plan))
        return self.known[plan.digest()]

    def _added_up(self, plan: Plan) -> Iterator[tuple[Cells, Cells]]:
        for without, several in self.pairs:
            before = added_up(self.database, plan, without)
            for whole in several:
                yield added_up(self.database, plan, whole), before


@pytest.fixture(scope="module")
def tiny() -> Iterator[Tiny]:
    kinds = range(len(KINDS))
    others = [some for size in range(3) for some in combinations(kinds, size)]
    theirs = [some for size in (1, 2) for some in multisets(kinds, size)]
    with duckdb.connect(config={"threads": 1}) as database:
        pairs = []
        for some in others:
            rows = [row(f"p{kind}", place, kind) for place in "ab" for kind in some]
            joined = [[row("one", place, kind) for place in "ab" for kind in t] for t in theirs]
            whole = [prepare(database, MADE, [*rows, *more]) for more in joined]
            pairs.append((prepare(database, MADE, rows), whole))
        yield Tiny(database, pairs)


Asking = Callable[[Plan, Fraction], tuple[Draws, PrivacyCost]]


@pytest.fixture(scope="module")
def ask(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Asking:
    (_, whole), *_ = reversed(tiny.pairs)
    engine = ScriptedEngine(lambda m: Sealed(answered(tiny.database, whole[-1], m)))
    door: ReleaseContext = door_to(engine, tmp_path_factory.mktemp("charged"))

    def made(plan: Plan, delta: Fraction) -> tuple[Draws, PrivacyCost]:
        request = Request(plan.question, epsilon=EPSILON, delta=delta)
        return asked(door, MADE, "t", request, f"op-{next(OPERATION)}")

    return made


def test_the_table_has_every_verb() -> None:
    # what a running count costs is in query/test_running_sensitivity.py
    assert {*CHARGED, "running_count"} == set(AGGREGATES)


@pytest.mark.parametrize("verb", CHARGED)
def test_a_verb_is_charged_as_the_table_says(verb: Verb) -> None:
    text, alone, with_delta = CHARGED[verb]
    assert [a.verb for a in planned(text).aggregates] == [verb]
    assert price_at(planned(text), EPSILON, Fraction(0)).event.name == alone
    assert price_at(planned(text), EPSILON, DELTA).event.name == with_delta


def test_whoever_makes_an_event_is_known() -> None:
    """An interactive mechanism makes no rho of its own: dp/accounting/privacy_filter.proof.md."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        made = set(re.findall(r"\b([A-Z][a-z]+Event)\(", path.read_text("utf-8")))
        if made and path.name != "privacy_events.py":
            found[path.relative_to(SOURCE).as_posix()] = made
    assert found == {path: events for path, (events, _) in MAKERS.items()}
    interactive = set[str]().union(*(events for events, again in MAKERS.values() if again))
    assert interactive <= {"PureEvent", "ApproximateEvent"}


@pytest.mark.parametrize(
    "text", [*(text for text, _, _ in CHARGED.values()), "APPROX_TOP_K(grade, 2)"]
)
def test_no_two_tiny_tables_lose_more_than_a_release_was_charged(
    ask: Asking, tiny: Tiny, text: str
) -> None:
    plan = planned(text)
    for delta in (Fraction(0), DELTA):
        draws, charged = ask(plan, delta)
        losses = [loss_of(plan, draws, *pair) for pair in tiny.of(plan)]
        assert [excess(loss, charged) for loss in losses if excess(loss, charged)] == []
        assert max(loss.epsilon + loss.rho for loss in losses) > 0


def test_the_mode_would_lose_more_than_the_rho_of_the_exponential_mechanism(
    ask: Asking, tiny: Tiny
) -> None:
    plan = planned(CHARGED["top"][0])
    draws, charged = ask(plan, Fraction(0))
    eighth = privacy_cost(ExponentialEvent(EPSILON))
    losses = [loss_of(plan, draws, *pair) for pair in tiny.of(plan)]
    assert charged == privacy_cost(PureEvent(EPSILON))
    assert any(excess(loss, eighth) for loss in losses)
