"""Conditions as a builder is given them: by column, and joined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Final
from uuid import UUID

from sfumato.dp.refusal import Refused
from sfumato.query.expression import (
    All,
    Among,
    Compare,
    Constant,
    Expr,
    IsNull,
    Not,
    Predicate,
    Ref,
)
from sfumato.query.model import Order

_VALUES: Final = (str, bool, float, Decimal, Rational, date, UUID)
Equal = str | Sequence[str | tuple[str, str]]  # columns that a join holds equal


def joined(conditions: tuple[Predicate, ...]) -> Predicate | None:
    """Return all conditions as one, if there are any."""
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else All(conditions)


def value_of(value: object) -> Constant:
    """Return the constant that a plain value is; what is none would be compared as its spelling."""
    plain = value if isinstance(value, _VALUES) else _item_of(value)
    if not isinstance(plain, _VALUES) or (
        isinstance(plain, float | Decimal) and not Decimal(plain).is_finite()
    ):
        what = plain if isinstance(plain, float | Decimal) else type(value).__name__
        raise Refused(
            "not-in-language",
            f"{what} is no value to compare with or to give.",
            "Give a number, a text, a date, True or False; for null write is_null(), for several "
            "is_in([...]).",
        )
    return Constant.of(plain)


def _item_of(value: object) -> object:
    """Return the Python value of a number or a moment of NumPy's."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "ndim", None) == 0 else value


def of_column(name: str, value: object) -> Predicate:
    """Return what a value, a list, a pair or None says of a column."""
    if value is None:
        return IsNull(Ref(name))
    if value is Ellipsis:
        return Not(IsNull(Ref(name)))
    if isinstance(value, tuple):
        return _between(name, value)
    if isinstance(value, list | set | frozenset):
        return among(Ref(name), value)
    return Compare(Ref(name), "=", value_of(value))


def among(of: Expr, values: Iterable[object]) -> Among:
    """Return that it is one of the values; of none nothing is."""
    if isinstance(values, str):  # whose letters nobody means
        raise Refused("not-in-language", "A text is no list.", f"Write [{values!r}].")
    constants = tuple(value_of(value) for value in values)
    if not constants:
        raise Refused("not-in-language", "This list is empty.", "Name at least one value.")
    return Among(of, constants)


def ends_of(within: object) -> tuple[Constant, Constant]:
    """Return the two ends between which each person's sum is kept, or refuse."""
    if not isinstance(within, tuple | list) or len(within) != 2:
        raise Refused(
            "not-in-language",
            "The bounds on a person's sum are not (low, high).",
            "Write within=(0, 500).",
        )
    low, high = within
    return value_of(low), value_of(high)


def share_of(share: object) -> Fraction:
    """Return the share of the rows below a quantile; the question says which there are."""
    constant = value_of(share)
    if constant.kind != "number" or not 0 <= constant.number <= 1:
        raise Refused(
            "not-in-language",
            f"{share!r} is no share of the rows.",
            'Write quantile("x", 0.9).',
        )
    return constant.number


def order_of(name: object) -> Order:
    """Return the column of the answer to sort by, and which way."""
    if not isinstance(name, str):
        raise Refused(
            "not-in-language",
            "Released rows are sorted by columns of the answer, by name.",
            'Write order_by("-n").',
        )
    return Order(name.removeprefix("-"), name.startswith("-"))


def equal_pairs(table: str, also: Equal) -> tuple[tuple[str, str], ...]:
    """Return pairs of columns that are equal: one before, and one of the table that is joined."""
    names = (also,) if isinstance(also, str) else also
    if not isinstance(names, Sequence) or not all(map(_is_equal, names)):
        raise Refused(
            "not-in-language",
            "What else is equal is columns, or pairs of a column before and one of the table.",
            'Write also="day", or also=[("day", "given")].',
        )
    pairs = ((name, name) if isinstance(name, str) else name for name in names)
    return tuple((before, f"{table}.{own}") for before, own in pairs)


def _is_equal(name: object) -> bool:
    """Say whether that is a column, or a pair of them."""
    is_pair = isinstance(name, tuple) and [type(one) for one in name] == [str, str]
    return isinstance(name, str) or is_pair


def _between(name: str, pair: Sequence[object]) -> Predicate:
    if len(pair) != 2 or pair[0] is pair[1] is None:
        raise Refused(
            "not-in-language",
            f"The range of {name!r} is not (low, high).",
            f"Write {name}=(65, None) for 65 and above.",
        )
    ends: list[Predicate] = []
    if pair[0] is not None:
        ends.append(Compare(Ref(name), ">=", value_of(pair[0])))
    if pair[1] is not None:
        ends.append(Compare(Ref(name), "<=", value_of(pair[1])))
    return ends[0] if len(ends) == 1 else All(tuple(ends))
