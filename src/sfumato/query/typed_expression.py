"""What is publicly known of an expression: its type, bounds and step, and its physical twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from sfumato.query.expression import Constant, Expr, Literally, Predicate, Ref, Unit
from sfumato.vault.card.columns import MAX_STEPS, Column, ColumnType
from sfumato.vault.card.data_card import Card


@dataclass(frozen=True)
class Typed:
    """An expression with all that is publicly known of it.

    A number is `origin` plus `lower` to `upper` whole steps; `is_bounded` says whether anyone
    declared so. A finite type has `keys`, and `code` says physically which of them it is. A period
    counts `unit`s.
    """

    kind: ColumnType
    physical: Expr
    lower: int = 0
    upper: int = 0
    step: Fraction = Fraction(1)
    origin: Fraction = Fraction(0)  # kept apart, so that bins from 5 to 15 stay ten steps wide
    is_bounded: bool = False
    keys: tuple[Constant, ...] | None = None
    code: Expr | None = None
    unit: Unit | None = None

    @property
    def is_number(self) -> bool:
        """Say whether it can be reckoned with."""
        return self.kind in ("integer", "number") and self.unit is None


@dataclass(frozen=True)
class Scope:
    """The columns that an expression may name."""

    place: str  # whose columns they are, for refusals
    find: Callable[[str], Typed]
    condition: Callable[[Predicate], Predicate]  # as physical, in this scope
    nulls: frozenset[str] = frozenset()  # what a text of the rows is never: it is null instead


def number(value: Fraction | int) -> Constant:
    """Return the number as a constant."""
    return Constant("number", str(Fraction(value)))


def whole(value: int) -> Expr:
    """Return the whole number as an expression."""
    return Literally(number(value))


def column_type(card: Card, name: str) -> Typed:
    """Return what a column of the card is."""
    place = card.index(name)
    return typed_column(card.columns[place], place)


def typed_column(column: Column, place: int) -> Typed:
    """Return what a stored column is, under its number."""
    code = None if column.keys is None else Ref(f"k{place}")
    made = Typed(column.type, Ref(f"v{place}"), keys=column.keys, code=code)
    if column.is_numeric:
        return _numeric_column(made, column)
    if column.lower is not None and column.upper is not None:  # dates and times, in days
        return replace(made, lower=column.lower, upper=column.upper, is_bounded=True)
    return made


def _numeric_column(made: Typed, column: Column) -> Typed:
    if column.lower is None or column.upper is None:
        return replace(made, lower=-MAX_STEPS, upper=MAX_STEPS, step=column.step)
    return replace(made, lower=column.lower, upper=column.upper, step=column.step, is_bounded=True)
