"""Formulas over made-up released numbers: what they are of, and the noise that is in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from sfumato.dp.mechanisms.noise import Noise
from sfumato.query.aggregates.aggregate import NoisyPart
from sfumato.query.aggregates.registry import aggregate_of
from sfumato.query.expression import Ref
from sfumato.query.model import Aggregate, Formula
from sfumato.query.plan import Plan, make_plan
from sfumato.query.price import Priced
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card

CARD = """
unit = "who"
budget = { epsilon = 10, delta = 1e-6 }
size = 500
[limits]
rows = 1000000
rows_per_person = 10
[columns.a]
type = "integer"
lower = 0
upper = 100
[columns.b]
type = "number"
lower = -5
upper = 5
step = 0.5
[columns.sex]
type = "text"
keys = ["f", "m"]
[columns.town]
type = "text"
"""


def plan_of(card: Card, select: str, rest: str = "") -> Plan:
    return make_plan(card, read_sql(f"SELECT {select} FROM t {rest}", "t"))


def formula_of(plan: Plan, name: str = "r") -> Formula:
    return next(o.of for o in plan.question.outputs if o.name == name and isinstance(o.of, Formula))


def released(priced: Priced, exact: Sequence[int], draws: int) -> list[NoisyPart]:
    """Return each part as it would be released that many times, of these exact numbers."""
    made, dice = [], np.random.default_rng(5)
    for number, noise in zip(exact, priced.noises, strict=True):
        assert isinstance(noise, Noise)
        assert noise.kind == "laplace"
        chance = 1 - math.exp(-1 / noise.width())
        drawn = dice.geometric(chance, draws) - dice.geometric(chance, draws)
        made.append(NoisyPart((number + drawn).astype(np.int64), noise))
    return made


ROWS = [(a, b) for a in range(0, 101, 5) for b in (-4, 0.5, 2)] * 20  # 1,260 of them


def exact_parts(plan: Plan) -> list[int]:
    """Return what the parts are of ROWS, each a person's own row."""
    made = []
    for asked in plan.asked:
        for place in plan.parts_of(asked.aggregate):
            tally = plan.parts[place].part.tally
            of = asked.aggregate.operands
            column = 1 if of and of[0] == Ref("b") else 0
            steps = (
                [round(Fraction(row[column]) / asked.operand.step) for row in ROWS] if of else []
            )
            total = sum(tally.scale * s + tally.offset for s in steps)
            made.append((place, total if tally.kind == "sum" else len(ROWS)))
    return [value for _, value in sorted(dict(made).items())]


def as_pairs(bars: Sequence[object]) -> list[tuple[float, float] | None]:
    return [None if bar is None else (bar[0], bar[1]) for bar in bars]  # type: ignore[index]  # pairs


def columns_of_all(plan: Plan, noisy: Sequence[NoisyPart]) -> dict[str, Sequence[object]]:
    made: dict[str, Sequence[object]] = {}
    for output in plan.question.outputs:
        if isinstance(output.of, Aggregate):
            parts = [noisy[place] for place in plan.parts_of(output.of)]
            estimate = aggregate_of(output.of.verb).finish(plan.asked_of(output.of), parts)
            made[output.name] = estimate.values
    return made
