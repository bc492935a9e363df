"""Find a person in a table without names, by what somebody who knows them knows anyway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sfumato.core.crowd.subsets import Uniqueness
from sfumato.core.refusal import Refused

TOLD: Final = 8  # facts that a finding names before it counts the rest
Value = str | int | float | bool
Row = Mapping[str, Value]


@dataclass(frozen=True)
class Between:
    """A number known only as a range, both ends included."""

    low: float
    high: float

    def holds(self, value: Value) -> bool:
        """Say whether the value is a number in the range."""
        if isinstance(value, str | bool):
            return False
        return self.low <= value <= self.high


Knowledge = Mapping[str, Value | Between]


@dataclass(frozen=True)
class Linkage:
    """The rows that fit what the attacker knows, and what all of them say besides."""

    matches: tuple[Row, ...]
    learnt: Row

    @property
    def is_found(self) -> bool:
        """Say whether exactly one row is left."""
        return len(self.matches) == 1

    @property
    def finding(self) -> str:
        """Return the outcome in plain words."""
        if not self.matches:
            return "Nobody fits."
        facts = _facts(self.learnt)
        if self.is_found:
            return f"Found: exactly one row fits. Learnt: {facts or 'nothing new'}."
        if self.learnt:
            return f"{len(self.matches)} rows fit, and all of them say: {facts}."
        return f"{len(self.matches)} rows fit, and they agree on nothing else."


def link(rows: Sequence[Row], knowledge: Knowledge) -> Linkage:
    """Return the rows that fit, and what the attacker learns because all of them agree on it."""
    _check_columns(rows, knowledge)
    matches = tuple(row for row in rows if _fits(row, knowledge))
    return Linkage(matches, _learnt(matches, knowledge))


def uniqueness(rows: Sequence[Row], columns: Sequence[str]) -> tuple[Uniqueness, ...]:
    """Return how unique people are by the first column, by the first two, and so on."""
    _check_columns(rows, columns)
    return tuple(_unique_by(rows, tuple(columns[:count])) for count in range(1, len(columns) + 1))


def in_bands(rows: Sequence[Row], column: str, width: int) -> tuple[Row, ...]:
    """Return the rows with a column of numbers known only as bands of that width."""
    _check_columns(rows, [column])
    return tuple({**row, column: _band(row[column], width)} for row in rows)


def _fits(row: Row, knowledge: Knowledge) -> bool:
    return all(_agrees(row[name], known) for name, known in knowledge.items())


def _agrees(value: Value, known: Value | Between) -> bool:
    return known.holds(value) if isinstance(known, Between) else value == known


def _learnt(matches: tuple[Row, ...], knowledge: Knowledge) -> Row:
    """Return the other columns, and known ranges made exact, where all the matches agree."""
    if not matches:
        return {}
    told = {name for name, known in knowledge.items() if not isinstance(known, Between)}
    return {
        name: value
        for name, value in matches[0].items()
        if name not in told and all(row[name] == value for row in matches)
    }


def _unique_by(rows: Sequence[Row], columns: tuple[str, ...]) -> Uniqueness:
    groups = Counter(tuple(row[name] for name in columns) for row in rows)
    unique = sum(1 for size in groups.values() if size == 1)
    return Uniqueness(columns, len(rows), unique, min(groups.values(), default=0))


def _band(value: Value, width: int) -> Value:
    return value if isinstance(value, str | bool) else int(value // width) * width


def _facts(learnt: Row) -> str:
    told = [f"{name} = {_spell(value)}" for name, value in learnt.items()]
    more = len(told) - TOLD
    return ", ".join(told[:TOLD]) + (f", and {more} columns more" if more > 0 else "")


def _spell(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else f"{value:,}"


def _check_columns(rows: Sequence[Row], names: Iterable[str]) -> None:
    missing = [name for name in names if rows and name not in rows[0]]
    if missing:
        raise Refused(
            "unknown-column",
            f"The rows have no column {missing[0]!r}.",
            f"Name one of {', '.join(rows[0])}.",
            column=missing[0],
        )
