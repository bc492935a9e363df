"""RULES: what a question must satisfy on a card, in order; each a plain function that refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sfumato.core.card import Card, Column, read_constant
from sfumato.core.question import (
    Aggregate,
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    IsNull,
    Not,
    Output,
    Predicate,
    Question,
    canonical,
)
from sfumato.core.refusal import Refused
from sfumato.plan.verbs import VERBS

Rule = Callable[[Card, Question], None]
MAX_CELLS: Final = 1_000_000
MAX_OUTPUTS: Final = 50


def asks_for_an_aggregate(_card: Card, question: Question) -> None:
    """A question without an aggregate would ask for rows."""
    if not question.aggregates:
        raise Refused(
            "no-aggregate",
            "The question asks for no aggregate, and rows never leave.",
            "Ask for COUNT, SUM or AVG.",
        )
    if len(question.outputs) > MAX_OUTPUTS:
        raise Refused(
            "question-too-large", f"More than {MAX_OUTPUTS} columns.", "Ask in several questions."
        )


def names_are_distinct(_card: Card, question: Question) -> None:
    """Two columns of an answer cannot share a name."""
    names = [output.name for output in question.outputs]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None or any(not 0 < len(n) <= 200 or not n.isprintable() for n in names):
        raise Refused(
            "not-in-language",
            "Two columns of the answer share a name, or a name is empty.",
            "Name each with AS.",
        )


def groups_have_public_keys(card: Card, question: Question) -> None:
    """A grouping by keys that the owner did not declare would show whose rows exist."""
    if len(set(question.group_by)) < len(question.group_by):
        raise Refused("not-in-language", "A grouping stands twice.", "Name each column once.")
    for name in question.group_by:
        column = card.column(name)
        if column.keys is None:
            raise Refused(
                "keys-needed",
                f"The card declares no keys for {column.name!r}.",
                "Group by a column with declared keys, or ask the owner to declare them.",
                column=column.name,
            )


def outputs_are_grouped(_card: Card, question: Question) -> None:
    """A plain column in the answer must be one that the question groups by."""
    for output in question.outputs:
        if isinstance(output.of, str) and output.of not in question.group_by:
            raise Refused(
                "not-in-language",
                f"{output.of!r} stands in the answer but not in GROUP BY.",
                "Group by it, or take an aggregate of it.",
                column=output.of,
            )


def cells_are_few(card: Card, question: Question) -> None:
    """The cross of all keys must stay within what one answer can hold."""
    cells = 1
    for name in question.group_by:
        cells *= len(card.column(name).keys or ())
    if cells > MAX_CELLS:
        raise Refused(
            "question-too-large",
            f"The keys make {cells:,} cells; {MAX_CELLS:,} are the most.",
            "Group by fewer columns.",
        )


def aggregates_fit_their_columns(card: Card, question: Question) -> None:
    """Each verb says what it needs of a column."""
    for aggregate in question.aggregates:
        VERBS[aggregate.verb].check(card, aggregate)


def conditions_fit_their_columns(card: Card, question: Question) -> None:
    """A condition compares a column with constants of its own type."""
    if question.where is not None:
        for name, operator in comparisons(question.where):
            column = card.column(name)
            if operator not in ("=", "!=", "in", "null") and column.type in ("text", "boolean"):
                raise Refused(
                    "type-mismatch",
                    f"{column.name!r} is {column.type}, which has no order here.",
                    "Compare it with = or IN.",
                    column=column.name,
                )


def bounds_are_sensible(card: Card, question: Question) -> None:
    """Bounds on a person's part make sense only where the unit is a person."""
    asked = question.max_groups is not None or question.max_rows is not None
    if asked and not card.by_person:
        raise Refused(
            "not-in-language",
            f"The unit of {card.name!r} is a row, so a person's part has no bounds to choose.",
            "Leave out max_groups and max_rows.",
        )
    most = card.limits.rows_per_person
    if (question.max_rows or 1) > most or card.max_rows > most:
        raise Refused(
            "not-in-language", f"At most {most} rows a person are kept.", "Ask for fewer rows."
        )


RULES: Final[tuple[Rule, ...]] = (
    asks_for_an_aggregate,
    names_are_distinct,
    groups_have_public_keys,
    outputs_are_grouped,
    cells_are_few,
    aggregates_fit_their_columns,
    conditions_fit_their_columns,
    bounds_are_sensible,
)


def constant_for(column: Column, constant: Constant) -> Constant:
    """Return the constant in the column's own spelling, or refuse what is not of its type."""
    if constant.kind == "boolean":
        value: object = constant.text == "true"
    elif constant.kind == "number":
        value = constant.number
    else:
        value = constant.text
    return read_constant(column.type, value, column.name)


def checked(card: Card, question: Question) -> None:
    """Refuse the question unless every rule holds."""
    for rule in RULES:
        rule(card, question)


def in_cards_spelling(card: Card, question: Question) -> Question:
    """Return the question with columns and constants spelled as on the card, or refuse."""
    return Question(
        data_set=card.name,
        outputs=tuple(_output(card, output) for output in question.outputs),
        where=None if question.where is None else canonical(_predicate(card, question.where)),
        group_by=tuple(card.column(name).name for name in question.group_by),
        max_groups=question.max_groups,
        max_rows=question.max_rows,
    )


def _output(card: Card, output: Output) -> Output:
    if isinstance(output.of, str):
        return Output(output.name, card.column(output.of).name)
    verb, name = output.of.verb, output.of.column
    if verb == "count_people":
        return Output(output.name, Aggregate(verb, _unit(card, name)))
    return Output(output.name, Aggregate(verb, card.column(name).name if name else ""))


def _unit(card: Card, name: str) -> str:
    """Return no column: people are counted by the unit of the card and by nothing else."""
    if name and name.casefold() != card.unit.casefold():
        raise Refused(
            "not-in-language",
            f"Only people are counted as DISTINCT, and {name!r} is not the unit of the card.",
            f"The unit of {card.name!r} is {card.unit!r}.",
            column=name,
        )
    return ""


def _predicate(card: Card, predicate: Predicate) -> Predicate:
    match predicate:
        case Compare(column=name, operator=operator, constant=constant):
            column = card.column(name)
            return Compare(column.name, operator, constant_for(column, constant))
        case Among(column=name, constants=constants):
            column = card.column(name)
            return Among(column.name, tuple(constant_for(column, c) for c in constants))
        case IsNull(column=name):
            return IsNull(card.column(name).name)
        case Not(predicate=inner):
            return Not(_predicate(card, inner))
        case All(predicates=parts):
            return All(tuple(_predicate(card, p) for p in parts))
        case AnyOf(predicates=parts):
            return AnyOf(tuple(_predicate(card, p) for p in parts))


def comparisons(predicate: Predicate) -> Iterator[tuple[str, str]]:
    """Yield every column of a condition with what it is compared by."""
    match predicate:
        case Compare(column=name, operator=operator):
            yield name, operator
        case Among(column=name):
            yield name, "in"
        case IsNull(column=name):
            yield name, "null"
        case Not(predicate=inner):
            yield from comparisons(inner)
        case All(predicates=parts) | AnyOf(predicates=parts):
            for part in parts:
                yield from comparisons(part)
