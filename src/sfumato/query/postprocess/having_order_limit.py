"""HAVING, ORDER BY and LIMIT on released values: free post-processing, with SQL's NULL logic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sfumato.dp.refusal import Refused
from sfumato.query.expression import (
    All,
    Among,
    AnyOf,
    Arithmetic,
    Case,
    Compare,
    Constant,
    Expr,
    IsNull,
    Not,
    Predicate,
    Ref,
    StartsWith,
    columns_of,
    parts_of,
)
from sfumato.query.model import Aggregate, Formula, Query
from sfumato.query.name_resolution import as_boolean
from sfumato.query.postprocess.formula_rules import check_formula
from sfumato.query.postprocess.linear_forms import divisor_of
from sfumato.query.postprocess.released_conditions import holds


@dataclass(frozen=True)
class Row:
    """One released row: all outputs in order, including those that are not shown."""

    values: tuple[Any, ...]  # any released JSON value
    std: tuple[Any, ...]
    intervals: tuple[Any, ...]


def is_selected_after_noise(question: Query) -> bool:
    """Check whether noisy values decide which rows or values are shown (soundness rule 17)."""
    if any(_chooses(o.of.expr) for o in question.outputs if isinstance(o.of, Formula)):
        return True
    noisy = {o.name for o in question.outputs if isinstance(o.of, Aggregate | Formula)}
    by_value = any(order.by in noisy for order in question.order)
    return question.having is not None or (by_value and question.limit is not None)


def _chooses(expr: Expr | Predicate) -> bool:
    """Return True if a formula has a CASE that chooses its branch by a number of the answer.

    The CASE of a divisor NULLIF(x, 0) doesn't count.
    """
    if isinstance(expr, Case) and any(columns_of(when) for when, _ in expr.whens):
        return True
    if isinstance(expr, Arithmetic) and expr.sign == "/":
        expr = replace(expr, right=divisor_of(expr.right))
    return any(_chooses(part) for part in parts_of(expr))


def apply_having_order_limit(question: Query, rows: Sequence[Row]) -> list[Row]:
    """Apply HAVING, ORDER BY and LIMIT to the released rows."""
    names = {output.name: place for place, output in enumerate(question.outputs)}
    kept = list(rows)
    if question.having is not None:
        having = question.having
        kept = [row for row in kept if holds(having, _by_name(names, row)) is True]
    for order in reversed(question.order):
        place = names[order.by]
        known = [row for row in kept if row.values[place] is not None]
        known.sort(key=lambda row: _sortable(row.values[place]), reverse=order.is_falling)
        kept = known + [row for row in kept if row.values[place] is None]
    return kept if question.limit is None else kept[: question.limit]


def _by_name(names: Mapping[str, int], row: Row) -> dict[str, Any]:
    return {name: row.values[place] for name, place in names.items()}


def _sortable(value: Any) -> tuple[int, Any]:  # numbers before texts
    return (1, value) if isinstance(value, str) else (0, value)


def having_in_kinds(predicate: Predicate, kinds: Mapping[str, str]) -> Predicate:
    """Return HAVING with 1 and 0 read as true and false, where it compares a boolean with them."""
    match predicate:
        case Not(predicate=inner):
            return Not(having_in_kinds(inner, kinds))
        case All(predicates=parts):
            return All(tuple(having_in_kinds(part, kinds) for part in parts))
        case AnyOf(predicates=parts):
            return AnyOf(tuple(having_in_kinds(part, kinds) for part in parts))
        case Compare(of=Ref(column=name), constant=constant) if kinds[name] == "boolean":
            return replace(predicate, constant=_boolean(constant))
        case Among(of=Ref(column=name), constants=constants) if kinds[name] == "boolean":
            return replace(predicate, constants=tuple(map(_boolean, constants)))
        case _:
            return predicate


def _boolean(constant: Constant) -> Constant:
    return Constant.of(as_boolean(constant)) if constant.kind == "number" else constant


def check_having(predicate: Predicate, kinds: Mapping[str, str]) -> None:
    """Refuse HAVING that compares a released column with a value of another kind.

    The refusal comes before anything is paid. `kinds` maps each output name to its kind: number,
    text, boolean or list.
    """
    match predicate:
        case Not(predicate=inner):
            check_having(inner, kinds)
        case All(predicates=parts) | AnyOf(predicates=parts):
            for part in parts:
                check_having(part, kinds)
        case IsNull(of=of):
            _kind(of, kinds)
        case StartsWith(of=of):
            _check_kind(_kind(of, kinds), "text")
        case Compare(of=of, constant=constant):
            _check_kind(_kind(of, kinds), constant.kind)
        case Among(of=of, constants=constants):
            for constant in constants:
                _check_kind(_kind(of, kinds), constant.kind)


def _kind(of: Expr, kinds: Mapping[str, str]) -> str:
    """Return the kind of one side of HAVING: the kind of an output, or number for a formula."""
    if isinstance(of, Ref):
        return kinds[of.column]
    check_formula(of, kinds)
    return "number"


def _check_kind(kind: str, wanted: str) -> None:
    if kind != wanted:
        raise Refused(
            "type-mismatch",
            f"HAVING compares a value of type {kind} with one of type {wanted}.",
            "Compare numbers with numbers and texts with texts.",
        )
