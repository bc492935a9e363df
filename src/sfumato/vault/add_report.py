"""Report to the owner, in bands, which shares of cells and rows `add` could not read or dropped.

Every share is one of a few bands such as "1 to 5 %". The report is computed from rows without
noise, so only the owner may see it. No ledger, receipt, log or researcher gets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Bug

# largest share of a column's non-empty cells that may be unreadable
MAX_UNREADABLE: Final = Fraction(5, 100)
_ENDS: Final = (
    (Fraction(1, 100), "under 1 %"),
    (MAX_UNREADABLE, "1 to 5 %"),
    (Fraction(25, 100), "5 to 25 %"),
    (Fraction(50, 100), "25 to 50 %"),
    (Fraction(95, 100), "50 to 95 %"),
)
_REST: Final = "over 95 %"
FEWEST: Final = _ENDS[0][1]
BANDS: Final = (*(word for _, word in _ENDS), _REST)


def band(part: int, whole: int) -> str:
    """Return the band, such as "1 to 5 %", of the share `part` / `whole`.

    0 / 0 is in the lowest band.
    """
    share = Fraction(part, whole) if whole else Fraction(0)
    if share < _ENDS[0][0]:
        return FEWEST
    return next((word for end, word in _ENDS[1:] if share <= end), _REST)


@dataclass(frozen=True)
class ColumnReport:
    """The reading report of one column: shares as bands; None if a share doesn't apply."""

    column: str
    empty: str  # rows with an empty cell
    unreadable: str | None = None  # non-empty cells that aren't of the column's type
    outside_bounds: str | None = None  # values that clamping moves to a bound
    outside_keys: str | None = None  # values that equal no public key, so they are in no group
    # people whom the contribution bounds cut, if rows are grouped by this column
    people_cut: str | None = None
    # rows that the contribution bounds drop, if rows are grouped by this column
    rows_cut: str | None = None
    # numbers like 1.234, if every number with a decimal mark looks like this
    like_thousands: str | None = None


@dataclass(frozen=True)
class TableReport:
    """The reading report of one table: shares as bands; None if a share doesn't apply."""

    table: str
    columns: tuple[ColumnReport, ...]
    without_person: str | None = None  # rows that name no person; they are dropped
    people_cut: str | None = None  # people whom the contribution bounds cut, without groups
    rows_cut: str | None = None  # rows that contribution bounds drop, without groups
    rows_dropped: str | None = None  # rows beyond limits.rows_per_person, which no query reads


def report_json(tables: tuple[TableReport, ...]) -> Json:
    """Return the owner's report on how `add` read the tables, as JSON."""
    return {"tables": [_table_json(table) for table in tables]}


def _table_json(table: TableReport) -> Json:
    columns: list[Json] = [vars(column).copy() for column in table.columns]
    return {**vars(table), "columns": columns}


def read_report(shape: object) -> tuple[TableReport, ...]:
    """Read the owner's report on how `add` read the tables, from JSON.

    Raise `Bug` if a share isn't a band, so that no exact number gets through.
    """
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
    """Return the bands of a column's or table's report by field name, without None values."""
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
