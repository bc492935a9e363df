"""A question on a card becomes a plan: what to add up, and how far one person can move it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from sfumato.core.card import Card, Column
from sfumato.core.measure import KeyColumn, Measure
from sfumato.core.question import (
    Aggregate,
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    IsNull,
    Json,
    Not,
    Predicate,
    Question,
    predicate_json,
)
from sfumato.core.refusal import Refused
from sfumato.plan.rules import checked, comparisons, in_cards_spelling
from sfumato.plan.verbs import VERBS
from sfumato.plan.verbs.verb import Part

MAX_TOTAL = 2**62  # no sum, even of every row at its bound, may pass this


@dataclass(frozen=True)
class Bounded:
    """A part with what one person (or one row, if that is the unit) can do to it over all cells."""

    part: Part
    l1: int
    l2_squared: int
    weight: Fraction


@dataclass(frozen=True)
class Plan:
    """A checked question, ready to be priced; made of the question and the card alone."""

    card: Card
    question: Question
    measure: Measure
    parts: tuple[Bounded, ...]

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """Return the grouping columns in the card's order, which is the canonical one."""
        return tuple(self.card.column(name) for name in sorted_keys(self.card, self.question))

    def parts_of(self, aggregate: Aggregate) -> tuple[int, ...]:
        """Return where the aggregate's parts stand among the plan's."""
        tallies = [bounded.part.tally for bounded in self.parts]
        wanted = VERBS[aggregate.verb].parts(self.card, aggregate)
        return tuple(tallies.index(part.tally) for part in wanted)

    def canonical(self) -> Json:
        """Return what decides the answer, however it is named and in whatever order asked."""
        where = self.question.where
        return {
            "people": self.card.people,
            "data_set": self.card.name,
            "version": self.card.version,
            "unit": self.card.unit,
            "where": None if where is None else predicate_json(where),
            "group_by": [_column_promise(column) for column in self.key_columns],
            "aggregates": [_aggregate_promise(self.card, a) for a in self.question.aggregates],
            "reach": [[b.part.tally.kind, b.l1] for b in self.parts],
            "max_groups": self.measure.max_groups,
            "max_rows": self.measure.max_rows,
        }

    def shape(self) -> Json:
        """Return what the question looks like without its constants: what is frozen if stopped."""
        where = self.question.where
        return {
            "data_set": self.card.name,
            "columns": [] if where is None else sorted({name for name, _ in comparisons(where)}),
            "group_by": [column.name for column in self.key_columns],
            "aggregates": [[a.verb, a.column] for a in self.question.aggregates],
        }


def make_plan(card: Card, question: Question) -> Plan:
    """Return the plan, or refuse; a function of the question and the card, never of rows."""
    question = in_cards_spelling(card, question)
    checked(card, question)
    groups, rows = _bounds(card, question)
    parts = _parts(card, question, groups, rows)
    measure = Measure(
        where=None if question.where is None else _physical(card, question.where),
        keys=tuple(_key_column(card, name) for name in sorted_keys(card, question)),
        tallies=tuple(bounded.part.tally for bounded in parts),
        by_person=card.by_person,
        max_groups=groups,
        max_rows=rows,
    )
    return Plan(card, question, measure, parts)


def sorted_keys(card: Card, question: Question) -> tuple[str, ...]:
    """Return the grouping columns in the card's order."""
    return tuple(sorted(question.group_by, key=card.index))


def _bounds(card: Card, question: Question) -> tuple[int, int]:
    if not card.by_person:
        return 1, 1
    cells = math.prod(len(card.column(name).keys or ()) for name in question.group_by)
    groups = min(question.max_groups or card.max_groups, cells)
    return groups, question.max_rows or card.max_rows


def _parts(card: Card, question: Question, groups: int, rows: int) -> tuple[Bounded, ...]:
    weights: dict[Part, Fraction] = {}
    for aggregate in question.aggregates:
        parts = VERBS[aggregate.verb].parts(card, aggregate)
        for part in parts:
            weights[part] = weights.get(part, Fraction(0)) + Fraction(1, len(parts))
    total = sum(weights.values())
    return tuple(
        _bounded(card, part, groups, rows, weight / total) for part, weight in weights.items()
    )


def _bounded(card: Card, part: Part, groups: int, rows: int, weight: Fraction) -> Bounded:
    if card.limits.rows * part.per_row >= MAX_TOTAL:
        raise Refused(
            "noise-out-of-range",
            "The column's step is too fine, or the card's maximum of rows too large, to add up.",
            "Ask the owner for a coarser step or a lower limits.rows.",
        )
    per_cell = part.per_row * (1 if part.tally.kind == "people" else rows)
    return Bounded(part, groups * per_cell, groups * per_cell**2, weight)


def _key_column(card: Card, name: str) -> KeyColumn:
    return KeyColumn(f"k{card.index(name)}", len(card.column(name).keys or ()))


def _column_promise(column: Column) -> Json:
    return {"column": column.name, "keys": [key.text for key in column.keys or ()]}


def _aggregate_promise(card: Card, aggregate: Aggregate) -> Json:
    promise: Json = {"verb": aggregate.verb, "column": aggregate.column}
    if aggregate.verb in ("sum", "mean"):
        column = card.column(aggregate.column)
        promise.update(lower=column.lower, upper=column.upper, step=str(column.step))
    return promise


def _physical(card: Card, predicate: Predicate) -> Predicate:
    """Return the condition on the prepared table's columns, numbers in steps."""
    match predicate:
        case Compare(column=name, operator=operator, constant=constant):
            return Compare(f"v{card.index(name)}", operator, _stored(card.column(name), constant))
        case Among(column=name, constants=constants):
            column = card.column(name)
            return Among(f"v{card.index(name)}", tuple(_stored(column, c) for c in constants))
        case IsNull(column=name):
            return IsNull(f"v{card.index(name)}")
        case Not(predicate=inner):
            return Not(_physical(card, inner))
        case All(predicates=parts):
            return All(tuple(_physical(card, p) for p in parts))
        case AnyOf(predicates=parts):
            return AnyOf(tuple(_physical(card, p) for p in parts))


def _stored(column: Column, constant: Constant) -> Constant:
    return Constant.of(constant.number / column.step) if column.is_numeric else constant
