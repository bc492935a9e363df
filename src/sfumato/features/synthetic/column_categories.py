"""Map a column to a few categories: its declared keys, or bins between its declared bounds.

All of it depends on the card alone, so the rows never add a category. The last category of every
column is the missing value. For a column with keys, it also includes values outside the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

import numpy as np

from sfumato.features.synthetic.column_values import Value, value_of_key
from sfumato.features.synthetic.seeded_numbers import Integers, Seeded
from sfumato.query.expression import (
    Among,
    Case,
    Compare,
    Constant,
    Expr,
    IsNull,
    LiteralValue,
    Predicate,
    Ref,
)
from sfumato.vault.card.card_json import plain_number
from sfumato.vault.card.columns import Column

BINS: Final = 16
MAX_KEYS: Final = 300
_ZERO: Final = date(1970, 1, 1)


@dataclass(frozen=True)
class Coded:
    """A column whose values are mapped to categories: declared keys, or bins between its bounds.

    `begins` has the first value of each bin, as a whole number: steps from 0, or the number of a
    day.
    """

    column: Column
    begins: tuple[int, ...] = ()  # first step of each bin; empty for keys

    @property
    def size(self) -> int:
        """Return the number of categories of the column; the missing value is one of them."""
        return 1 + (len(self.begins) or len(self.column.keys or ()))

    def begins_shown(self) -> list[int | float]:
        """Return the lower edge of each bin of the column, in the column's own unit."""
        return [plain_number(place * self.column.step) for place in self.begins]

    def grouped(self, groups: Sequence[int]) -> Expr:
        """Return an SQL CASE expression from a row's value to the group of its category.

        So categories can be merged before they are counted. `groups` has the group of each
        category.
        """
        name = Ref(self.column.name)
        missing = groups[-1]
        if self.column.keys is not None:
            return Case(tuple(_keys_of(name, self.column.keys, groups)), _whole(missing))
        whens: list[tuple[Predicate, Expr]] = [(IsNull(name), _whole(missing))]
        for place, end in enumerate(self.begins[1:]):
            whens.append((Compare(name, "<", self._mark(end)), _whole(groups[place])))
        return Case(tuple(whens), _whole(groups[len(self.begins) - 1]))

    def _mark(self, place: int) -> Constant:
        if self.column.is_numeric:
            return Constant("number", str(place * self.column.step))
        day = (_ZERO + timedelta(days=place)).isoformat()
        is_date = self.column.type == "date"
        return Constant("text", day if is_date else day + " 00:00:00.000000")

    def values(self, codes: Integers, stream: Seeded) -> list[Value]:
        """Draw a value of the column for each category code; steps of a bin are equally likely."""
        places = codes.tolist()
        if self.column.keys is not None:
            keys: list[Value] = [value_of_key(self.column, key) for key in self.column.keys]
            return [[*keys, None][place] for place in places]
        begins = np.array([*self.begins, (self.column.upper or 0) + 1])
        widths = np.append(np.diff(begins), 1)
        within = np.floor(stream.uniforms(len(codes)) * widths[codes]).astype(np.int64)
        steps = (begins[codes] + within).tolist()
        return [
            None if place == self.size - 1 else self._value(step, stream)
            for place, step in zip(places, steps, strict=True)
        ]

    def _value(self, step: int, stream: Seeded) -> Value:
        if self.column.is_numeric:
            return step * self.column.step
        day = (_ZERO + timedelta(days=step)).isoformat()
        if self.column.type == "date":
            return day
        second = stream.integer(86_400)
        return f"{day} {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.000000"


def coded(column: Column, bins: int = BINS) -> Coded | None:
    """Split a column into categories; return None if its card gives no usable keys or bounds.

    The bins are of equal width, or nearly so. More than 300 keys (MAX_KEYS) are too many.
    """
    if column.keys is not None:
        return Coded(column) if len(column.keys) <= MAX_KEYS else None
    if column.lower is None or column.upper is None:
        return None
    steps = column.upper - column.lower + 1
    count = min(bins, steps)
    return Coded(column, tuple(column.lower + place * steps // count for place in range(count)))


def _keys_of(
    name: Ref, keys: Sequence[Constant], groups: Sequence[int]
) -> list[tuple[Predicate, Expr]]:
    """Return the WHEN conditions of a CASE expression that maps declared keys to groups.

    No condition holds for a value that is no declared key; the caller's CASE gives a default.
    """
    found: dict[int, list[Constant]] = {}
    for key, group in zip(keys, groups, strict=False):
        found.setdefault(group, []).append(key)
    return [(Among(name, tuple(members)), _whole(group)) for group, members in found.items()]


def _whole(number: int) -> Expr:
    return LiteralValue(Constant("number", str(number)))
