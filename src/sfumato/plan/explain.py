"""A plan in plain words, for every face."""

from __future__ import annotations

import math

from sfumato.core.question import (
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    IsNull,
    Json,
    Not,
    Predicate,
)
from sfumato.plan.plan import Bounded, Plan
from sfumato.plan.price import Priced
from sfumato.plan.verbs import VERBS


def in_words(plan: Plan) -> str:
    """Return what the question asks, as a sentence without a full stop."""
    question = plan.question
    asked = " and ".join(VERBS[a.verb].says(a) for a in question.aggregates)
    grouped = " and ".join(question.group_by)
    parts = [asked]
    if grouped:
        parts.append(f"for each {grouped}")
    if question.where is not None:
        parts.append(f"where {_condition(question.where)}")
    return ", ".join(parts)


def bounding_in_words(plan: Plan) -> str:
    """Return how much of one person the answer can hold."""
    if not plan.card.by_person:
        return "each row counts as one person"
    groups, rows = plan.measure.max_groups, plan.measure.max_rows
    where = f" in each of at most {groups} {_plural(groups, 'group')}" if groups > 1 else ""
    return f"at most {rows} {_plural(rows, 'row')} of a person{where} count, chosen at random"


def split_in_words(priced: Priced) -> list[Json]:
    """Return how the price is split over the parts, and the noise that each share buys."""
    pairs = zip(priced.plan.parts, priced.noises, strict=True)
    return [
        {
            "part": _part_in_words(priced.plan, bounded),
            "share": float(bounded.weight),
            "epsilon": float(priced.epsilon * bounded.weight),
            "sensitivity": bounded.l1,
            "std": noise.std(),
            **noise.as_json(),
        }
        for bounded, noise in pairs
    ]


def odds_in_words(epsilon: float, delta: float, unit: str) -> str:
    """Return what everything spent so far means for someone who guesses about one person."""
    sure = 100 / (1 + math.exp(-epsilon))
    chance = f", except with chance {delta:g}" if delta else ""
    return (
        "with everything asked of these people so far, someone who would be 50 % sure of a fact "
        f"about a {unit} if that {unit} were absent can be at most {_percent(sure)} % sure{chance}"
    )


def _percent(sure: float) -> str:
    return f"{sure:.0f}" if sure < 99 else f"{math.floor(sure * 100) / 100:.2f}"


def _part_in_words(plan: Plan, bounded: Bounded) -> str:
    tally = bounded.part.tally
    if not tally.column:
        return "count of people" if tally.kind == "people" else "count of rows"
    name = plan.card.columns[int(tally.column[1:])].name
    if tally.kind == "values":
        return f"count of {name}"
    return f"sum of {name}" if tally.scale == 1 else f"sum of {name} about its middle"


def _condition(predicate: Predicate) -> str:
    match predicate:
        case Compare(column=name, operator=operator, constant=constant):
            return f"{name} {operator} {_spelled(constant)}"
        case Among(column=name, constants=constants):
            return f"{name} is one of {', '.join(map(_spelled, constants))}"
        case IsNull(column=name):
            return f"{name} is missing"
        case Not(predicate=IsNull(column=name)):
            return f"{name} is known"
        case Not(predicate=inner):
            return f"not ({_condition(inner)})"
        case All(predicates=parts):
            return " and ".join(_within(p) for p in parts)
        case AnyOf(predicates=parts):
            return " or ".join(_within(p) for p in parts)


def _within(predicate: Predicate) -> str:
    text = _condition(predicate)
    return f"({text})" if isinstance(predicate, All | AnyOf) else text


def _spelled(constant: Constant) -> str:
    if constant.kind == "number":
        return f"{float(constant.number):g}"
    return constant.text if constant.kind == "boolean" else f"'{constant.text}'"


def _plural(count: int, word: str) -> str:
    return word if count == 1 else word + "s"
