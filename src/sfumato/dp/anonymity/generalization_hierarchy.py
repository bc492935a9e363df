"""Hierarchies: for every value of a column, what it may be replaced by, step by step.

Level 0 is the values themselves. A group of one level lies within one group of the next, and the
last level may be one group that says nothing.
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
Step = Callable[[Value, str], str]  # of a value, and of how it is written


@dataclass(frozen=True)
class Level:
    """One step of a hierarchy: the group of every value of the domain, and the groups' names."""

    of_value: Codes
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Hierarchy:
    """A column's domain, in order, and its levels; `build` checks that they nest."""

    name: str
    domain: tuple[Value, ...]
    levels: tuple[Level, ...]

    @property
    def height(self) -> int:
        """Return how many levels there are, the values themselves included."""
        return len(self.levels)

    @cached_property
    def losses(self) -> tuple[Floats, ...]:
        """Return, per level, how uncertain each value of the domain becomes, from 0 to 1.

        Of numbers: the width of its group over the domain's; of all else: the share of the
        domain in its group, and nothing for a group of one (Xu and others 2006).
        """
        return tuple(_losses(self.domain, level) for level in self.levels)

    def codes_of(self, column: Column) -> Codes:
        """Return the column's rows as places in the domain, or refuse values outside it."""
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
        """Return some values with what each level makes of them, spread over the domain."""
        spread = np.unique(np.linspace(0, len(self.domain) - 1, count).astype(int))
        if not self.domain:
            return []
        return [
            tuple(level.labels[level.of_value[place]] for level in self.levels) for place in spread
        ]


def build(column: Column, steps: Sequence[Step]) -> Hierarchy:
    """Return the hierarchy of the column's values whose levels these steps make, each from both
    the value itself and how it is written.
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
            f"The hierarchy of {name!r} does not nest: one of its groups is divided further up.",
            "Let every level be made of whole groups of the level below.",
            column=name,
        )


def _check_names(name: str, levels: Sequence[Level]) -> None:
    """Refuse a group whose name says, at a level below, something that is not in it.

    Cells of several levels may stand in one table: nobody could tell what such a name means.
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
                    f"The hierarchy of {name!r} names a group like a value or group outside it.",
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
    """Return the width of each group; one that mixes numbers with nothing is as wide as can be."""
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    known = ~np.isnan(sized)
    np.minimum.at(low, level.of_value[known], sized[known])
    np.maximum.at(high, level.of_value[known], sized[known])
    width = np.where(high >= low, high - low, 0.0)
    mixed = np.bincount(level.of_value, ~known, minlength=count) * (high >= low) > 0
    return np.where(mixed, np.nanmax(sized) - np.nanmin(sized), width)


def _kind(value: Value) -> tuple[bool, Value]:
    return (isinstance(value, bool), value)
