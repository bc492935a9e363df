"""Rules that build generalisation hierarchies: intervals, prefixes, dates and taxonomies.

A rule contains no rows of a table, so it can be reviewed once and used again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from itertools import pairwise
from typing import Final

from sfumato.dp.anonymity.coded_table import Column, Value, bound_text, is_number, number_in
from sfumato.dp.anonymity.generalization_hierarchy import ANYTHING, Hierarchy, Step, build
from sfumato.dp.refusal import Refused

DAY: Final = re.compile(  # an ISO date, with or without time of day
    r"(\d{4})-(\d{2})-(\d{2})(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
)
POST: Final = re.compile(
    r"\b(zip|plz|post(al)?[_ ]?code)", re.I
)  # names of columns with postal codes
UNITS: Final = ("month", "quarter", "year", "decade")
_LEAST: Final = 1e-30  # smallest width that can be written exactly
_MOST: Final = 1e30
_PREFIXES: Final = 8  # most levels of a proposed prefix rule
FAN: Final = 4  # in a proposed rule, about this many groups form one group of the next level


@dataclass(frozen=True)
class Intervals:
    """A rule that generalises numbers to intervals of these widths, one width per level.

    Each width is a multiple of the previous one.
    """

    widths: tuple[float, ...]
    start: float = 0.0

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return for each level the function that maps a number to its interval."""
        return tuple(self._step(width) for width in self.widths)

    def _step(self, width: float) -> Step:
        wide, start = Fraction(str(width)), Fraction(str(self.start))

        def interval(value: Value, text: str) -> str:
            if not is_number(value):
                return text
            low = start + math.floor((Fraction(str(value)) - start) / wide) * wide
            return f"[{bound_text(low)}, {bound_text(low + wide)})"

        return interval


@dataclass(frozen=True)
class Prefixes:
    """A rule that keeps the first letters of a text, fewer at each level.

    The other letters become `*`.
    """

    keep: tuple[int, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return for each level the function that maps a text to its prefix."""
        return tuple(self._step(count) for count in self.keep)

    def _step(self, count: int) -> Step:
        def prefix(value: Value, text: str) -> str:
            return text if value is None else text[:count] + ANYTHING * max(0, len(text) - count)

        return prefix


@dataclass(frozen=True)
class Dates:
    """A rule that generalises dates to months, quarters, years or decades.

    Dates are texts like 2026-11-22, with or without a time.
    """

    units: tuple[str, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return for each level the function that maps a date to its period; other texts stay."""
        return tuple(self._step(unit) for unit in self.units)

    def _step(self, unit: str) -> Step:
        def period(value: Value, text: str) -> str:
            day = _day(value)
            return text if day is None else _period(day, unit)

        return period


@dataclass(frozen=True)
class Taxonomy:
    """A rule that lists the groups of each value, the narrowest first, as on one line of a CSV."""

    groups: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        if len({len(path) for path in self.groups.values()}) > 1:
            raise Refused(
                "bad-request",
                "The lines of a taxonomy differ in length.",
                "Give every value the same number of groups.",
            )

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return for each level the function that maps a value to its group.

        A value that the taxonomy lacks is refused.
        """
        height = max((len(path) for path in self.groups.values()), default=0)
        return tuple(self._step(level) for level in range(height))

    def _step(self, level: int) -> Step:
        return lambda value, text: self._path(value, text)[level]

    def _path(self, value: Value, text: str) -> tuple[str, ...]:
        found = self.groups.get(text, self.groups.get("") if value is None else None)
        if found is not None:
            return found
        raise Refused(
            "bad-request",
            "The table has a value that the taxonomy lacks.",
            "Add a line for every value, and one with an empty name for missing values.",
        )


Rule = Intervals | Prefixes | Dates | Taxonomy
EVERYTHING: Final = Taxonomy({})  # all or nothing: no level between the values and `*`


def built(column: Column, rule: Rule) -> Hierarchy:
    """Build the generalisation hierarchy of a column by a rule, with `*` as the highest level."""
    _check(column, rule)
    steps = () if rule == EVERYTHING else rule.steps
    return build(column, [*steps, lambda _value, _text: ANYTHING])


def proposed(column: Column) -> Rule:
    """Propose a hierarchy rule for the values of a column: dates, intervals, prefixes, or only `*`.

    It is only a proposal. Check it with `Hierarchy.preview` and edit the rule before using it.
    """
    known = [value for value in column.values if value is not None and not _is_cut(value)]
    if len(known) > 2 and column_of_numbers(known):
        digits = {len(str(value)) if isinstance(value, int) and value > 0 else 0 for value in known}
        if POST.search(column.name) and len(digits) == 1 and min(digits) > 1:
            return _proposed_prefixes(max(digits))
        return _proposed_intervals([Fraction(str(value)) for value in known])
    texts = [value for value in known if isinstance(value, str)]
    if len(texts) < len(known) or len(known) < 3:
        return EVERYTHING
    if all(_day(text) is not None for text in texts):
        return Dates(UNITS)
    lengths = {len(text) for text in texts}
    if len(lengths) == 1 and min(lengths) > 1 and all(any(c.isdigit() for c in t) for t in texts):
        return _proposed_prefixes(max(lengths))
    return EVERYTHING


def _proposed_prefixes(letters: int) -> Prefixes:
    """Propose a rule with one prefix level for every letter but one, or with 8 levels at most."""
    steps = min(letters - 1, _PREFIXES)
    return Prefixes(tuple(letters * step // (steps + 1) for step in range(steps, 0, -1)))


def _is_cut(value: Value) -> bool:
    """Return whether a value is a bottom code or top code: a text like `<18` or `>90`."""
    return isinstance(value, str) and value[:1] in {"<", ">"} and number_in(value[1:]) is not None


def column_of_numbers(values: Sequence[Value]) -> bool:
    """Return whether all these values of a column are numbers."""
    return all(is_number(value) for value in values)


def _proposed_intervals(numbers: Sequence[Fraction]) -> Rule:
    """Propose round interval widths that divide the domain into about 64, 16 and 4 intervals.

    For integers a width of one is dropped, because such intervals hide nothing.
    """
    low, high = min(numbers), max(numbers)
    widths = [_round((high - low) / FAN**3)]
    while widths[-1] * FAN < high - low:
        widths.append(widths[-1] * FAN)
    if all(number.denominator == 1 for number in numbers):
        widths = [width for width in widths if width > 1]
    if not widths:
        return EVERYTHING
    start = math.floor(low / widths[-1]) * widths[-1]
    made = Intervals(tuple(map(float, widths)), float(start))
    return EVERYTHING if _wrong_intervals(made) else made


def _round(width: Fraction) -> Fraction:
    power = Fraction(10) ** math.floor(math.log10(width))
    return next((m * power for m in (1, 2, 5) if m * power >= width), 10 * power)


def _day(value: Value) -> date | None:
    found = DAY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    try:
        return date(*(int(part) for part in found.groups()))
    except ValueError:
        return None


def _period(day: date, unit: str) -> str:
    match unit:
        case "month":
            return f"{day.year}-{day.month:02d}"
        case "quarter":
            return f"{day.year} Q{(day.month + 2) // 3}"
        case "year":
            return f"{day.year}"
        case "decade":
            return f"{day.year // 10 * 10}s"
    raise Refused(
        "bad-request",
        f"{unit!r} is not a unit to which dates can be coarsened.",
        f"Use {', '.join(UNITS)}.",
    )


def _check(column: Column, rule: Rule) -> None:
    wrong = None
    match rule:
        case Intervals():
            wrong = _wrong_intervals(rule)
        case Prefixes(keep) if min(keep, default=0) < 0 or not _falls(keep):
            wrong = "Every level must keep fewer letters than the level below, and at least 0."
        case Dates(units) if not _falls([-UNITS.index(unit) for unit in units]):
            wrong = f"Units of dates must grow: {', '.join(UNITS)}."
    if wrong is not None:
        raise Refused("bad-request", wrong, f"Correct the rule of {column.name!r}.")


def _wrong_intervals(rule: Intervals) -> str | None:
    if not all(_LEAST <= width <= _MOST for width in rule.widths):
        return f"The width of an interval must be above 0, from {_LEAST:g} to {_MOST:g}."
    if not abs(rule.start) <= _MOST:
        return f"Intervals must start at a number of at most {_MOST:g}."
    widths = [Fraction(str(width)) for width in rule.widths]
    if any(wider <= width or wider % width for width, wider in pairwise(widths)):
        return "Every width must be larger than the one before, and a multiple of it."
    return None


def _falls(numbers: Sequence[int]) -> bool:
    return all(after < before for before, after in pairwise(numbers))
