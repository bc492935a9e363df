"""Canonical form of conditions: different ways to write one condition become one value.

`canonical_condition` keeps the truth value for every row: true, false or NULL. A WHERE, or the
condition of a CASE branch, matters only where it is true. So `selection_condition` may turn false
into NULL there. For example, `sick IS FALSE` becomes `sick = FALSE` in a WHERE, but not under a
NOT.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sfumato.query.expression import (
    OPPOSITE,
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    Expr,
    IsNull,
    Not,
    Predicate,
    StartsWith,
    canonical_order,
)

_FALSE: Final = Constant.of(False)


def canonical_condition(predicate: Predicate) -> Predicate:
    """Return the condition in canonical form: NOTs inside, flattened, sorted, no duplicates.

    Each condition inside is visited once. The result has no more conditions than the input, except
    for a NOT on each that has no opposite.
    """
    match predicate:
        case Compare(of=of, operator="!=", constant=constant) if constant.kind == "boolean":
            return Compare(of, "=", Constant.of(constant == _FALSE))
        case Among(of=of, constants=constants):
            return _among(of, constants)
        case Not(predicate=inner):
            return _denied(canonical_condition(inner))
        case All(predicates=parts):
            return _joined(All, map(canonical_condition, parts))
        case AnyOf(predicates=parts):
            return _joined(AnyOf, map(canonical_condition, parts))
        case _:
            return predicate


def selection_condition(predicate: Predicate) -> Predicate:
    """Return a canonical condition that is true for the same rows as this one.

    For other rows it may be false or NULL. `x IS NOT NULL` is dropped if another condition is true
    only for known values of x.
    """
    match predicate:
        case All(predicates=parts):
            chosen = [selection_condition(part) for part in parts]
            known = {of for part in chosen for of in _needed(part)}
            return _joined(All, (part for part in chosen if not _says_known(part, known)))
        case AnyOf(predicates=parts):
            return _joined(AnyOf, map(selection_condition, parts))
        case _:
            return predicate


def _says_known(part: Predicate, known: set[Expr]) -> bool:
    inner = part.predicate if isinstance(part, Not) else None
    return isinstance(inner, IsNull) and inner.of in known


def _needed(part: Predicate) -> tuple[Expr, ...]:
    """Return the expressions that are not NULL wherever a comparison, IN or LIKE is true or false.

    So an additional IS NOT NULL on these expressions is redundant.
    """
    inner = part.predicate if isinstance(part, Not) else part
    return (inner.of,) if isinstance(inner, Compare | Among | StartsWith) else ()


def _denied(predicate: Predicate) -> Predicate:
    """Return the negation of a canonical condition; it is NULL for the same rows."""
    match predicate:
        case Not(predicate=inner):
            return inner
        case Compare(of=of, operator=operator, constant=constant):
            return canonical_condition(Compare(of, OPPOSITE[operator], constant))
        case All(predicates=parts):
            return _joined(AnyOf, map(_denied, parts))
        case AnyOf(predicates=parts):
            return _joined(All, map(_denied, parts))
        case _:
            return Not(predicate)


def _joined(kind: type[All] | type[AnyOf], parts: Iterable[Predicate]) -> Predicate:
    flat: dict[Predicate, None] = {}  # in order, and each once
    for part in parts:
        flat.update(dict.fromkeys(part.predicates if isinstance(part, kind) else (part,)))
    merged = dict.fromkeys(_with_lists(kind, [*flat]))
    ordered = tuple(sorted(merged, key=canonical_order))
    return ordered[0] if len(ordered) == 1 else kind(ordered)


# --- lists ----------------------------------------------------------------------------------------


def _among(of: Expr, constants: Iterable[Constant]) -> Predicate:
    few = tuple(sorted(set(constants), key=lambda c: (c.kind, c.text)))
    return canonical_condition(Compare(of, "=", few[0])) if len(few) == 1 else Among(of, few)


def _with_lists(kind: type[All] | type[AnyOf], parts: Sequence[Predicate]) -> list[Predicate]:
    """Merge all equalities and lists on the same expression into one IN, or one NOT IN."""
    lists: dict[Expr, list[Constant]] = {}
    others: list[Predicate] = []
    for part in parts:
        # a nested AND or OR is no list, so it is not negated to find out
        is_whole = isinstance(part, All | AnyOf)
        found = None if is_whole else _listed(part if kind is AnyOf else _denied(part))
        if found is None:
            others.append(part)
        else:
            lists.setdefault(found.of, []).extend(found.constants)
    made = [_among(of, constants) for of, constants in lists.items()]
    return [*others, *(made if kind is AnyOf else map(_denied, made))]


def _listed(part: Predicate) -> Among | None:
    """Return the condition as a list of allowed values; None if it has no such form."""
    match part:
        case Compare(of=of, operator="=", constant=constant):
            return Among(of, (constant,))
        case Among():
            return part
        case _:
            return None
