"""Convert Python values to conditions, bounds, shares and sort orders of the query language."""

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
Equal = str | Sequence[str | tuple[str, str]]  # columns that a join compares besides its key


def conjunction(conditions: tuple[Predicate, ...]) -> Predicate | None:
    """Combine conditions with AND; None if there are none."""
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else All(conditions)


def value_of(value: object) -> Constant:
    """Convert a plain Python or NumPy value to a constant; refuse other types and NaN."""
    plain = value if isinstance(value, _VALUES) else _item_of(value)
    if not isinstance(plain, _VALUES) or (
        isinstance(plain, float | Decimal) and not Decimal(plain).is_finite()
    ):
        what = plain if isinstance(plain, float | Decimal) else type(value).__name__
        raise Refused(
            "not-in-language",
            f"{what} is not a value that a question can contain.",
            "Give a number, a text, a date, True or False. For null, write is_null(); for "
            "several values, is_in([...]).",
        )
    return Constant.of(plain)


def _item_of(value: object) -> object:
    """Convert a NumPy scalar to its Python value; return other values unchanged."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "ndim", None) == 0 else value


def of_column(name: str, value: object) -> Predicate:
    """Convert a value, list, (low, high) pair, None or `...` to a condition on a column."""
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
    """Return the condition that an expression is one of the values; refuse an empty list."""
    if isinstance(values, str):  # Python would iterate over its letters
        raise Refused(
            "not-in-language",
            "is_in takes a list of values, but got a single text.",
            f"Write [{values!r}].",
        )
    constants = tuple(value_of(value) for value in values)
    if not constants:
        raise Refused(
            "not-in-language",
            "The list of values to compare with is empty.",
            'Give at least one value, as in is_in(["a", "b"]).',
        )
    return Among(of, constants)


def clamping_bounds(within: object) -> tuple[Constant, Constant]:
    """Return the (low, high) bounds to which each person's sum is clamped; refuse anything else."""
    if not isinstance(within, tuple | list) or len(within) != 2:
        raise Refused(
            "not-in-language",
            "The bounds on a person's sum must be (low, high).",
            "Write within=(0, 500).",
        )
    low, high = within
    return value_of(low), value_of(high)


def share_of(share: object) -> Fraction:
    """Return a quantile's share as an exact fraction from 0 to 1, or refuse."""
    constant = value_of(share)
    if constant.kind != "number" or not 0 <= constant.number <= 1:
        raise Refused(
            "not-in-language",
            f"{share!r} is not a share of the rows.",
            'Write quantile("x", 0.9).',
        )
    return constant.number


def order_of(name: object) -> Order:
    """Parse the name of a column to sort by; a leading minus sorts from the largest down."""
    if not isinstance(name, str):
        raise Refused(
            "not-in-language",
            "Released rows can only be sorted by names of columns of the answer.",
            'Write order_by("-n").',
        )
    return Order(name.removeprefix("-"), name.startswith("-"))


def equal_pairs(table: str, also: Equal) -> tuple[tuple[str, str], ...]:
    """Return pairs of columns that a join compares: one already present, one of the new table."""
    names = (also,) if isinstance(also, str) else also
    if not isinstance(names, Sequence) or not all(map(_is_equal, names)):
        raise Refused(
            "not-in-language",
            "`also` takes the name of a column that both tables have, or a pair of names: the "
            "column of the first table and that of the joined one.",
            'Write also="day", or also=[("day", "given")].',
        )
    pairs = ((name, name) if isinstance(name, str) else name for name in names)
    return tuple((before, f"{table}.{own}") for before, own in pairs)


def _is_equal(name: object) -> bool:
    """Return True for a column's name, or for a pair of column names, that a join compares."""
    is_pair = isinstance(name, tuple) and [type(one) for one in name] == [str, str]
    return isinstance(name, str) or is_pair


def _between(name: str, pair: Sequence[object]) -> Predicate:
    if len(pair) != 2 or pair[0] is pair[1] is None:
        raise Refused(
            "not-in-language",
            f"The range of {name!r} must be (low, high).",
            f"Write {name}=(65, None) for 65 and above.",
        )
    ends: list[Predicate] = []
    if pair[0] is not None:
        ends.append(Compare(Ref(name), ">=", value_of(pair[0])))
    if pair[1] is not None:
        ends.append(Compare(Ref(name), "<=", value_of(pair[1])))
    return ends[0] if len(ends) == 1 else All(tuple(ends))
