"""Link background knowledge to rows of a table without names (re-identification)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sfumato.dp.anonymity.tables_in_memory import Tabular, plain, rows_of
from sfumato.dp.anonymity.uniqueness import Uniqueness
from sfumato.dp.refusal import Refused

TOLD: Final = 8  # the most facts that a finding lists; it counts the others
Value = str | int | float | bool
Row = Mapping[str, Value]
Cell = Value | None  # None is a missing value
Cells = Mapping[str, Cell]


@dataclass(frozen=True)
class Between:
    """Background knowledge of a number as a range, both ends included."""

    low: float
    high: float

    def holds(self, value: Cell) -> bool:
        """Return True if the value is a number in the range."""
        if value is None or isinstance(value, str | bool):
            return False
        return self.low <= value <= self.high


Knowledge = Mapping[str, Cell | Between]


@dataclass(frozen=True)
class Linkage:
    """The rows that fit the attacker's knowledge, and the values that all of them share."""

    matches: tuple[Cells, ...]
    learnt: Cells

    @property
    def is_found(self) -> bool:
        """Return True if exactly one row fits the attacker's knowledge."""
        return len(self.matches) == 1

    @property
    def finding(self) -> str:
        """Return a sentence: how many rows fit the knowledge, and what the attacker learns."""
        if not self.matches:
            return "No row fits."
        facts = _facts(self.learnt)
        if self.is_found:
            return f"Found: exactly one row fits. Learnt: {facts or 'nothing new'}."
        if self.learnt:
            return f"{len(self.matches)} rows fit, and all of them say: {facts}."
        return f"{len(self.matches)} rows fit, and they share no other value."


def link(table: Tabular, knowledge: Mapping[Any, Any]) -> Linkage:
    """Return the rows that fit the knowledge, and what the attacker learns from them.

    The attacker learns a value if all fitting rows agree on it.

    Args:
        table: Rows, a pandas, polars or pyarrow frame, an array, or a tensor; columns of the
            last two are named by their index, from 0.
        knowledge: What is known of each column: a value, or a range (`Between`).

    Raises:
        Refused: A column does not exist, or it holds only texts and a number is known, or vice
            versa: no row would fit, and that would look like safety.
    """
    rows = rows_of(table)
    known = {str(name): _known(value) for name, value in knowledge.items()}
    _check_columns(rows, known)
    _check_kinds(rows, known)
    matches = tuple(row for row in rows if _fits(row, known))
    return Linkage(matches, _learnt(matches, known))


def uniqueness(table: Tabular, columns: Sequence[object]) -> tuple[Uniqueness, ...]:
    """Return how many people are unique by the first column, by the first two, and so on.

    Args:
        table: Rows, a frame, an array or a tensor, as for `link`.
        columns: The columns that become known, one after the other.

    Raises:
        Refused: A column does not exist.
    """
    rows, names = rows_of(table), [str(name) for name in columns]
    _check_columns(rows, names)
    return tuple(_unique_by(rows, tuple(names[:count])) for count in range(1, len(names) + 1))


def in_bands(rows: Sequence[Row], column: str, width: int) -> tuple[Row, ...]:
    """Generalise one column: replace its numbers by bands of a fixed width.

    Args:
        rows: The rows.
        column: A column of numbers.
        width: The width of a band.

    Returns:
        The rows, with bands in place of the numbers.

    Raises:
        Refused: `unknown-column` if the rows have no such column.
    """
    _check_columns(rows, [column])
    return tuple({**row, column: _band(row[column], width)} for row in rows)


def _known(value: Any) -> Cell | Between:  # Any: a value of the caller's library
    return value if isinstance(value, Between) else plain(value)


def _check_kinds(rows: Sequence[Cells], knowledge: Knowledge) -> None:
    """Refuse a known number for a text column, and a known text for a numeric column."""
    for name, known in knowledge.items():
        kinds = {isinstance(row[name], str) for row in rows if row[name] is not None}
        if known is not None and kinds == {not isinstance(known, str)}:
            holds, is_known = ("texts", "a number") if True in kinds else ("numbers", "a text")
            raise Refused(
                "type-mismatch",
                f"The column {name!r} contains {holds}, but the known value is {is_known}.",
                "Write the known value as the type of the column, or convert the column.",
                column=name,
            )


def _fits(row: Cells, knowledge: Knowledge) -> bool:
    return all(_agrees(row[name], known) for name, known in knowledge.items())


def _agrees(value: Cell, known: Cell | Between) -> bool:
    return known.holds(value) if isinstance(known, Between) else value == known


def _learnt(matches: tuple[Cells, ...], knowledge: Knowledge) -> Cells:
    """Return the facts that all matching rows share.

    These are other columns, and the exact values of columns that were known as a range.
    """
    if not matches:
        return {}
    told = {name for name, known in knowledge.items() if not isinstance(known, Between)}
    return {
        name: value
        for name, value in matches[0].items()
        if name not in told and all(row[name] == value for row in matches)
    }


def _unique_by(rows: Sequence[Cells], columns: tuple[str, ...]) -> Uniqueness:
    groups = Counter(tuple(row[name] for name in columns) for row in rows)
    unique = sum(1 for size in groups.values() if size == 1)
    return Uniqueness(columns, len(rows), unique, min(groups.values(), default=0))


def _band(value: Value, width: int) -> Value:
    return value if isinstance(value, str | bool) else int(value // width) * width


def _facts(learnt: Cells) -> str:
    told = [f"{name} = {_spell(value)}" for name, value in learnt.items()]
    more = len(told) - TOLD
    return ", ".join(told[:TOLD]) + (f", and {more} more columns" if more > 0 else "")


def _spell(value: Cell) -> str:
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else f"{value:,}"


def _check_columns(rows: Sequence[Cells], names: Iterable[str]) -> None:
    missing = [name for name in names if rows and name not in rows[0]]
    if missing:
        raise Refused(
            "unknown-column",
            f"The rows have no column {missing[0]!r}.",
            f"Name one of {', '.join(rows[0])}.",
            column=missing[0],
        )
