"""Generalisation hierarchies: the more general labels of every value of a column, by level.

Level 0 is the values themselves. Each group of a level is inside one group of the next level. The
last level may be a single group (`*`), which says nothing about the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from sfumato.dp.anonymity.coded_table import Codes, Column, Floats, Value, is_number
from sfumato.dp.refusal import Refused

ANYTHING = "*"
Step = Callable[[Value, str], str]  # maps a value and its original text to a label


@dataclass(frozen=True)
class Level:
    """One level of a generalisation hierarchy: the group of every value, and each group's label."""

    of_value: Codes
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Hierarchy:
    """The generalisation hierarchy of one column: its values in order, and the levels.

    `build` checks that the levels nest.
    """

    name: str
    domain: tuple[Value, ...]
    levels: tuple[Level, ...]

    @property
    def height(self) -> int:
        """Return the number of levels, including level 0 with the values themselves."""
        return len(self.levels)

    @cached_property
    def losses(self) -> tuple[Floats, ...]:
        """Return the normalised certainty penalty of each value at each level, from 0 to 1.

        For numbers it is the width of the value's group over the width of the domain. For other
        values it is the share of the domain in the group, or 0 for a group of one value (Xu and
        others 2006).
        """
        return tuple(_losses(self.domain, level) for level in self.levels)

    def codes_of(self, column: Column) -> Codes:
        """Encode a column by the indices of its values in the hierarchy; refuse unknown values."""
        place_of = {_kind(value): place for place, value in enumerate(self.domain)}
        places = [place_of.get(_kind(value), -1) for value in column.values]
        missing = sum(place < 0 for place in places)
        if missing:
            raise Refused(
                "bad-request",
                f"{missing} value(s) of {self.name!r} are not in its hierarchy.",
                "Add them to the hierarchy, or propose a new one.",
                column=self.name,
            )
        return np.array(places, np.int64)[column.codes]

    def preview(self, count: int = 6) -> list[tuple[str, ...]]:
        """Return sample values of the column, each with its label at every level.

        The samples are evenly spread over the domain.
        """
        spread = np.unique(np.linspace(0, len(self.domain) - 1, count).astype(int))
        if not self.domain:
            return []
        return [
            tuple(level.labels[level.of_value[place]] for level in self.levels) for place in spread
        ]


def build(column: Column, steps: Sequence[Step]) -> Hierarchy:
    """Build the generalisation hierarchy of a column, with one level for each step.

    A step maps a value and its original text to a label. Level 0 is the values themselves.
    """
    levels = [Level(np.arange(len(column.values)), column.written)]
    levels += [_level(column, step) for step in steps]
    for finer, coarser in pairwise(levels):
        _check_nested(column.name, finer, coarser)
    _check_names(column.name, levels)
    return Hierarchy(column.name, column.values, tuple(levels))


def _level(column: Column, step: Step) -> Level:
    labels: dict[str, int] = {}
    pairs = zip(column.values, column.written, strict=True)
    codes = [labels.setdefault(step(value, text), len(labels)) for value, text in pairs]
    return Level(np.array(codes, np.int64), tuple(labels))


def _check_nested(name: str, finer: Level, coarser: Level) -> None:
    group = np.zeros(len(finer.labels), np.int64)
    group[finer.of_value] = coarser.of_value
    if (group[finer.of_value] != coarser.of_value).any():
        raise Refused(
            "bad-request",
            f"The hierarchy of {name!r} does not nest: a higher level divides a group of a lower "
            "one.",
            "Make every level from whole groups of the level below.",
            column=name,
        )


def _check_names(name: str, levels: Sequence[Level]) -> None:
    """Refuse a group's label if a finer level uses the same label for something outside the group.

    For example, "10-19" must not name a decade of ages and a single value elsewhere. A recoded
    table may mix cells of several levels, so such a label would be ambiguous.
    """
    places: dict[str, list[int]] = {text: [] for level in levels[1:] for text in level.labels}
    for level in levels:
        someone = np.zeros(len(level.labels), np.int64)
        someone[level.of_value] = np.arange(len(level.of_value))
        for code, place in enumerate(someone.tolist()):
            named = places.get(level.labels[code], [])
            if named and code not in level.of_value[named]:
                raise Refused(
                    "bad-request",
                    f"The hierarchy of {name!r} gives a group the name of a value or group "
                    "outside it.",
                    "Give each group a name of its own.",
                    column=name,
                )
            named.append(place)


def _losses(domain: Sequence[Value], level: Level) -> Floats:
    count = len(level.labels)
    sizes = np.bincount(level.of_value, minlength=count)
    if not len(domain):
        return np.zeros(0)
    share = np.where(sizes > 1, sizes / len(domain), 0.0)
    numbers = [float(value) for value in domain if is_number(value)]  # type: ignore[arg-type]  # is_number said so
    if len(numbers) < len([value for value in domain if value is not None]) or len(numbers) < 2:
        return share[level.of_value]
    sized = np.array([float(v) if is_number(v) else np.nan for v in domain])  # type: ignore[arg-type]
    width = _widths(sized, level, count) / ((max(numbers) - min(numbers)) or 1.0)
    return width[level.of_value]


def _widths(sized: Floats, level: Level, count: int) -> Floats:
    """Return the width of each group: its largest minus its smallest number.

    A group of numbers and missing values has the full width.
    """
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    known = ~np.isnan(sized)
    np.minimum.at(low, level.of_value[known], sized[known])
    np.maximum.at(high, level.of_value[known], sized[known])
    width = np.where(high >= low, high - low, 0.0)
    mixed = np.bincount(level.of_value, ~known, minlength=count) * (high >= low) > 0
    return np.where(mixed, np.nanmax(sized) - np.nanmin(sized), width)


def _kind(value: Value) -> tuple[bool, Value]:
    return (isinstance(value, bool), value)
