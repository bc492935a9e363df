"""HAVING, ORDER BY and LIMIT on released values: free post-processing, in SQL's own logic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sfumato.core.expression import (
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    Expr,
    IsNull,
    Not,
    Predicate,
    Ref,
    StartsWith,
)
from sfumato.core.question import Aggregate, Question
from sfumato.core.refusal import Bug, Refused


@dataclass(frozen=True)
class Row:
    """One released row: the outputs in their order, what is shown and what is not."""

    values: tuple[Any, ...]  # any released JSON value
    std: tuple[Any, ...]
    intervals: tuple[Any, ...]


def is_chosen_after(question: Question) -> bool:
    """Say whether rows are chosen or ordered by their own noisy values (rules.md, 17)."""
    noisy = {o.name for o in question.outputs if isinstance(o.of, Aggregate)}
    by_value = any(order.by in noisy for order in question.order)
    return question.having is not None or (by_value and question.limit is not None)


def after(question: Question, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that HAVING lets through, in the order asked, as many as asked."""
    names = {output.name: place for place, output in enumerate(question.outputs)}
    kept = list(rows)
    if question.having is not None:
        having = question.having
        kept = [row for row in kept if _holds(having, names, row) is True]
    for order in reversed(question.order):
        place = names[order.by]
        known = [row for row in kept if row.values[place] is not None]
        known.sort(key=lambda row: _sortable(row.values[place]), reverse=order.is_falling)
        kept = known + [row for row in kept if row.values[place] is None]
    return kept if question.limit is None else kept[: question.limit]


def _sortable(value: Any) -> tuple[int, Any]:  # numbers before texts
    return (1, value) if isinstance(value, str) else (0, value)


def check_having(predicate: Predicate, kinds: Mapping[str, str]) -> None:
    """Refuse, before anything is paid, what does not compare released columns with their like.

    `kinds` says of each output by name whether it is a number, a text, a boolean or a list.
    """
    match predicate:
        case Not(predicate=inner):
            check_having(inner, kinds)
        case All(predicates=parts) | AnyOf(predicates=parts):
            for part in parts:
                check_having(part, kinds)
        case IsNull(of=of):
            _name(of)
        case StartsWith(of=of):
            _check_kind(kinds[_name(of)], "text")
        case Compare(of=of, constant=constant):
            _check_kind(kinds[_name(of)], constant.kind)
        case Among(of=of, constants=constants):
            for constant in constants:
                _check_kind(kinds[_name(of)], constant.kind)


def _check_kind(kind: str, wanted: str) -> None:
    if kind != wanted:
        raise Refused(
            "type-mismatch",
            f"HAVING compares a {kind} with a {wanted}.",
            "Compare numbers with numbers and texts with texts.",
        )


def _name(of: Expr) -> str:
    if not isinstance(of, Ref):
        raise Refused(
            "not-in-language",
            "HAVING compares a column of the answer with a constant.",
            "Name the value with AS in SELECT and compare that.",
        )
    return of.column


def _holds(predicate: Predicate, names: dict[str, int], row: Row) -> bool | None:
    match predicate:
        case Not(predicate=inner):
            truth = _holds(inner, names, row)
            return None if truth is None else not truth
        case All(predicates=parts):
            truths = [_holds(part, names, row) for part in parts]
            return False if False in truths else None if None in truths else True
        case AnyOf(predicates=parts):
            truths = [_holds(part, names, row) for part in parts]
            return True if True in truths else None if None in truths else False
        case _:
            return _simple(predicate, row.values[names[_name(predicate.of)]])


def _simple(predicate: Compare | Among | StartsWith | IsNull, value: Any) -> bool | None:
    if isinstance(predicate, IsNull):
        return value is None
    if value is None:
        return None
    match predicate:
        case Compare(operator=operator, constant=constant):
            order = _order(value, constant)
            signs = {"=": (0,), "!=": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}
            return order in signs[operator]
        case Among(constants=constants):
            return any(_order(value, constant) == 0 for constant in constants)
        case StartsWith(letters=letters):
            return str(value).startswith(letters)


def _order(value: Any, constant: Constant) -> int:
    if constant.kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        number = Fraction(repr(value))  # the number that is shown
        return (number > constant.number) - (number < constant.number)
    if constant.kind == "boolean" and isinstance(value, bool):
        wanted = constant.text == "true"
        return (value > wanted) - (value < wanted)
    if constant.kind == "text" and isinstance(value, str):
        return (value > constant.text) - (value < constant.text)
    raise Bug("a released value is not of the type that the plan promised")
