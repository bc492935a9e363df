"""Types of expressions: kind, public bounds, step, and the physical expression of each.

A physical expression uses the columns of a prepared table, and all its numbers are whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from sfumato.query.expression import Constant, Expr, LiteralValue, Predicate, Ref, Unit
from sfumato.vault.card.columns import MAX_STEPS, Column, ColumnType
from sfumato.vault.card.data_card import Card


@dataclass(frozen=True)
class ExpressionType:
    """An expression with everything that is publicly known about it.

    A number is `origin` plus `lower` to `upper` whole steps. `is_bounded` says whether its bounds
    were declared. A type with finitely many values has `keys`, and `code` is the physical
    expression for the index of the key. `unit` is the unit of a period.
    """

    kind: ColumnType
    physical: Expr
    lower: int = 0
    upper: int = 0
    step: Fraction = Fraction(1)
    # separate from the bounds, so that bins from 5 to 15 stay ten steps wide
    origin: Fraction = Fraction(0)
    is_bounded: bool = False
    keys: tuple[Constant, ...] | None = None
    code: Expr | None = None
    unit: Unit | None = None

    @property
    def is_number(self) -> bool:
        """Check whether the expression is a number, so that arithmetic is allowed on it."""
        return self.kind in ("integer", "number") and self.unit is None


@dataclass(frozen=True)
class Scope:
    """The columns that an expression may name, with their types."""

    place: str  # the name of the table, for refusals
    find: Callable[[str], ExpressionType]
    condition: Callable[[Predicate], Predicate]  # a condition in physical form
    # texts that the card reads as NULL; no text column contains them
    nulls: frozenset[str] = frozenset()


def number(value: Fraction | int) -> Constant:
    """Wrap a number as a constant."""
    return Constant("number", str(Fraction(value)))


def whole(value: int) -> Expr:
    """Wrap a whole number as a constant expression."""
    return LiteralValue(number(value))


def column_type(card: Card, name: str) -> ExpressionType:
    """Return the type of a column of the data card."""
    place = card.index(name)
    return typed_column(card.columns[place], place)


def typed_column(column: Column, place: int) -> ExpressionType:
    """Return the type of a stored column; `place` is its index."""
    code = None if column.keys is None else Ref(f"k{place}")
    made = ExpressionType(column.type, Ref(f"v{place}"), keys=column.keys, code=code)
    if column.is_numeric:
        return _numeric_column(made, column)
    if column.lower is not None and column.upper is not None:  # dates and times, in days
        return replace(made, lower=column.lower, upper=column.upper, is_bounded=True)
    return made


def _numeric_column(made: ExpressionType, column: Column) -> ExpressionType:
    if column.lower is None or column.upper is None:
        return replace(made, lower=-MAX_STEPS, upper=MAX_STEPS, step=column.step)
    return replace(made, lower=column.lower, upper=column.upper, step=column.step, is_bounded=True)
