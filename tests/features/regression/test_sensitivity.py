"""The questions of a regression: nobody moves them further than the plan claims, by brute force."""

from __future__ import annotations

import random
from fractions import Fraction

import duckdb
import numpy as np
import pytest

from query.test_sensitivity import cells
from sfumato.client import Builder
from sfumato.features.regression.logistic import WEIGHT_GRID, gradient_question
from sfumato.features.regression.moments_query import moments, moments_question
from sfumato.features.regression.scaled_columns import Model, model_of
from sfumato.query.plan import Plan, make_plan
from support.k_anonymity_oracles import Quick
from support.query_oracle import CARD, Person, added_up, card, prepare, some_rows
from support.sensitivity_oracle import changes, excess, moved_by

XS = ("pay", "age", "grade")
WEIGHTS = [(0, 0, 0, 0), (1, -2, 3, 7.125), (-16, 16, 16, -16)]


def model(unit: str) -> Model:
    asked = Quick({"age": np.zeros(1)}, np.random.default_rng(0), CARD)
    built = Builder("t", asked)
    return model_of(built if unit == "row" else built.at_most(rows=2), asked.card, "sick", XS)


def plans(unit: str) -> list[Plan]:
    """Return the plans of the moments and of rounds at several weights."""
    odds = model(unit)
    weights = [[Fraction(round(w * WEIGHT_GRID), WEIGHT_GRID) for w in some] for some in WEIGHTS]
    built = [moments_question(odds), *(gradient_question(odds, some)[0] for some in weights)]
    return [make_plan(card(unit), b.question()) for b in built]


@pytest.mark.parametrize("unit", ["who", "row"])
def test_nobody_moves_a_question_of_a_fit_further_than_claimed(unit: str) -> None:
    rng, moved = random.Random(11), 0
    made, every = card(unit), plans(unit)
    for _ in range(5):
        with duckdb.connect(config={"threads": 1}) as database:
            rows = some_rows(rng, rng.randint(1, 4), 6 if unit == "who" else 1)
            whole = prepare(database, made, rows)
            for who in sorted({row.who for row in rows}):
                few = prepare(database, made, [row for row in rows if row.who != who])
                for plan in every:
                    pair = added_up(database, plan, whole), added_up(database, plan, few)
                    assert not excess(plan, *pair)
                    moved += pair[0] != pair[1]
    assert moved > 5


EXTREMES = [
    cells(pay=pay, age=age, grade=grade, sick=sick)
    for pay in ("-3", "5") for age in ("0", "12") for grade in ("1", "5") for sick in ("true", "f")
]  # fmt: skip


def test_the_claims_of_a_fit_are_attained_by_somebody_with_many_rows() -> None:
    """No noise is wasted: each claim is reached (a gradient's nearly, for the curve is not 0)."""
    made, every = card(), plans("who")
    reached = [[0.0] * len(plan.parts) for plan in every]
    with duckdb.connect(config={"threads": 1}) as database:
        empty = prepare(database, made, [Person("other", cells(pay="0"))])
        for extreme in EXTREMES:
            rows = [Person("other", cells(pay="0")), *[Person("one", extreme)] * 5]
            table = prepare(database, made, rows)
            for plan, best in zip(every, reached, strict=True):
                pair = added_up(database, plan, table), added_up(database, plan, empty)
                assert not excess(plan, *pair)
                for place, bounded in enumerate(plan.parts):
                    share = moved_by(changes(*pair, plan.tally_of(place))) / bounded.l1
                    best[place] = max(best[place], share)
    assert reached[0] == [1.0] * len(reached[0])  # the moments: exactly
    assert min(reached[3]) > 0.99  # a round at heavy weights
    assert all(b.cells == 1 for plan in every for b in plan.parts)


def test_a_square_costs_half_of_a_product() -> None:
    """Counted from its middle, a square moves by half of its largest: the clamp is believed."""
    asked, plan = model("row"), plans("row")[0]
    by_name = {m.name: m for m in moments(asked)}
    reach = {f"z{i}": float(x.reach) for i, x in enumerate(asked.xs, 1)}
    outputs = {o.name: o.of for o in plan.question.outputs}
    for name, column in (("z1z1", "z1"), ("z2z2", "z2")):
        asked_of = plan.asked_of(outputs[name])  # type: ignore[arg-type]  # aggregates all
        (place,) = plan.parts_of(outputs[name])  # type: ignore[arg-type]
        claimed = plan.parts[place].per_cell * float(asked_of.operand.step)
        assert claimed == reach[column] ** 2 / 2
        assert by_name[name].pattern.max() == 1 / reach[column] ** 2
