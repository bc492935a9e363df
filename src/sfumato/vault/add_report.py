"""Report to the owner how the rows were read at `add`, as bands.

Every share is told as one of a few bands, and none is exact. It is computed from rows without
noise, so it is for the owner alone: no ledger, receipt, log or researcher gets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Bug

MOST_UNREADABLE: Final = Fraction(5, 100)  # of the cells of a column that are not empty
_ENDS: Final = (
    (Fraction(1, 100), "under 1 %"),
    (MOST_UNREADABLE, "1 to 5 %"),
    (Fraction(25, 100), "5 to 25 %"),
    (Fraction(50, 100), "25 to 50 %"),
    (Fraction(95, 100), "50 to 95 %"),
)
_REST: Final = "over 95 %"
FEWEST: Final = _ENDS[0][1]
BANDS: Final = (*(word for _, word in _ENDS), _REST)


def band(part: int, whole: int) -> str:
    """Return the band of a share; nothing of nothing is in the lowest."""
    share = Fraction(part, whole) if whole else Fraction(0)
    if share < _ENDS[0][0]:
        return FEWEST
    return next((word for end, word in _ENDS[1:] if share <= end), _REST)


@dataclass(frozen=True)
class ColumnReport:
    """Shares of one column, as bands; None where the question does not arise."""

    column: str
    empty: str  # of the rows
    unreadable: str | None = None  # as the column's type, of the cells that are not empty
    outside_bounds: str | None = None  # of the values: they count as the nearest bound
    outside_keys: str | None = None  # of the values: they count in no group
    people_cut: str | None = None  # who have more groups, or rows in one, than count by this key
    rows_cut: str | None = None  # that do not count in an answer by this key
    like_thousands: str | None = None  # of numbers with a decimal mark: 1.234; None if not all are


@dataclass(frozen=True)
class TableReport:
    """Shares of one table, as bands; None where the question does not arise."""

    table: str
    columns: tuple[ColumnReport, ...]
    without_person: str | None = None  # of the rows: they are dropped
    people_cut: str | None = None  # who have more rows than count in an answer without groups
    rows_cut: str | None = None  # that do not count in an answer without groups
    rows_dropped: str | None = None  # beyond limits.rows_per_person: no question reads them


def report_json(tables: tuple[TableReport, ...]) -> Json:
    """Return the report as JSON."""
    return {"tables": [_table_json(table) for table in tables]}


def _table_json(table: TableReport) -> Json:
    columns: list[Json] = [vars(column).copy() for column in table.columns]
    return {**vars(table), "columns": columns}


def read_report(shape: object) -> tuple[TableReport, ...]:
    """Return the report again; whatever is no band raises, so that no number gets through."""
    tables = shape.get("tables") if isinstance(shape, Mapping) else None
    if not isinstance(tables, list):
        raise Bug("a report that is none")
    return tuple(_read_table(table) for table in tables)


def _read_table(shape: object) -> TableReport:
    if not isinstance(shape, Mapping) or not isinstance(shape.get("columns"), list):
        raise Bug("a report of a table that is none")
    columns = tuple(
        ColumnReport(str(_of(one)["column"]), **_bands(_of(one), ColumnReport))
        for one in shape["columns"]
    )
    return TableReport(str(shape["table"]), columns, **_bands(shape, TableReport))


def _of(shape: object) -> Mapping[str, object]:
    if not isinstance(shape, Mapping):
        raise Bug("a report of a column that is none")
    return shape


def _bands(shape: Mapping[str, object], kind: type) -> dict[str, str]:
    """Return the bands by name; those that are None are left out."""
    found: dict[str, str] = {}
    for field in fields(kind):
        if field.name in ("table", "column", "columns"):
            continue
        word = shape.get(field.name)
        if word is not None and word not in BANDS:
            raise Bug("a report says only bands")
        if word is not None:
            found[field.name] = str(word)
    return found
