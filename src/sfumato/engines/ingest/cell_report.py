"""Count how the cells of a source were parsed, and refuse columns that were mostly unreadable.

Exact counts stay in the worker. It reports them only as bands (vault/add_report.py). A refusal
names only the columns whose cells could not be parsed as the column's type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import duckdb

from sfumato.dp.refusal import Refused
from sfumato.engines.ingest.cell_format_hints import are_like_thousands, hint_of
from sfumato.engines.ingest.cell_format_sql import TEXT
from sfumato.engines.ingest.cell_sql import without_nulls
from sfumato.engines.ingest.prepare_order import TableOrder
from sfumato.engines.shared.locked_connection import quoted
from sfumato.engines.shared.prepared_table import coded
from sfumato.query.printing.from_clause import stored_name, table_name
from sfumato.vault.add_report import BANDS, MAX_UNREADABLE, ColumnReport, TableReport, band
from sfumato.vault.card.columns import Column

_AT_ONCE: Final = 64  # columns in one statement
_CUTS_AT_ONCE: Final = 32  # conditions that are counted in one statement, for each person
_NAMED: Final = 10  # most columns that one refusal names
_LOOKED_AT: Final = 1000  # how many cells of a column are read to find a hint


@dataclass(frozen=True)
class Cell:
    """One column to parse: its entry on the data card, and its index and SQL type in the source."""

    column: Column
    place: int
    kind: str


@dataclass(frozen=True)
class _Counts:
    """Cell counts of one column: non-empty, parsed, beyond the bounds, without a declared key."""

    given: int
    read: int
    beyond: int
    keyless: int

    @property
    def is_unreadable(self) -> bool:
        """Return whether too many of the column's cells (over MAX_UNREADABLE) were not parsed."""
        return self.given - self.read > MAX_UNREADABLE * self.given


STAGING: Final = "staging"  # the name of the database that is deleted after preparation


def staged(order: TableOrder) -> str:
    """Return the name of a table's staging table: parsed values of all rows, in no order.

    `id` is the person, or NULL for a row without a person. `row_mark` is a keyed hash of the row.
    """
    return f"{STAGING}.{stored_name('staged', order.place)}"


def of_people(unit: int | None) -> str:
    """Return the SQL condition for the staged rows that are kept: those of a person, or all."""
    return "true" if unit is None else "id IS NOT NULL"


def given(place: int) -> str:
    """Return the name of the staging column that says if a column's source cell was not empty."""
    return f"given{place}"


def beyond(place: int) -> str:
    """Return the name of the staging column that flags a column's values outside its bounds."""
    return f"beyond{place}"


def cells_report(
    connection: duckdb.DuckDBPyConnection,
    order: TableOrder,
    cells: Sequence[Cell],
    unit: int | None,
) -> tuple[TableReport, int]:
    """Report how a table's cells were parsed; refuse columns whose cells are mostly unreadable.

    Return the report, and the number of rows that belong to a person.
    """
    rows, kept = _numbers(
        connection, f"SELECT count(*), count(*) FILTER ({of_people(unit)}) FROM {staged(order)}"
    )
    counts = list(_counts(connection, order, cells, of_people(unit)))
    _check_readable(connection, order, list(zip(cells, counts, strict=True)))
    columns = tuple(
        replace(
            _column(cell.column, found, kept),
            like_thousands=_like_thousands(connection, cell) if cell.kind == TEXT else None,
        )
        for cell, found in zip(cells, counts, strict=True)
    )
    without = None if unit is None else band(rows - kept, rows)
    return TableReport(order.name, columns, without_person=without), kept


def _given(place: int, nulls: Sequence[str]) -> str:
    """Return SQL that tests if a source cell is given: neither empty nor a missing-value marker."""
    return f"coalesce({without_nulls(f'c{place}', nulls)}, '') <> ''"


def is_given(order: TableOrder, cell: Cell) -> str:
    """Return SQL that tests if a declared column's cell is given."""
    return _given(cell.place, order.nulls_of(cell.column.name))


def _counts(
    connection: duckdb.DuckDBPyConnection, order: TableOrder, cells: Sequence[Cell], where: str
) -> Iterator[_Counts]:
    for first in range(0, len(cells), _AT_ONCE):
        places = range(first, min(first + _AT_ONCE, len(cells)))
        read = ", ".join(text for i in places for text in _read(cells[i].column, i))
        found = _numbers(connection, f"SELECT {read} FROM {staged(order)} WHERE {where}")
        for first_count in range(0, len(found), 4):
            yield _Counts(*found[first_count : first_count + 4])


def _read(column: Column, i: int) -> tuple[str, str, str, str]:
    outside = f"count(*) FILTER ({beyond(i)})" if column.is_bounded else "0"
    keyless = f"v{i} IS NOT NULL AND k{i} IS NULL"
    without_key = "0" if column.keys is None else f"count(*) FILTER ({keyless})"
    return f"count(*) FILTER ({given(i)})", f"count(v{i})", outside, without_key


def _column(column: Column, found: _Counts, rows: int) -> ColumnReport:
    is_text = column.type == "text"
    return ColumnReport(
        column.name,
        empty=band(rows - found.given, rows),
        unreadable=None if is_text else band(found.given - found.read, found.given),
        outside_bounds=band(found.beyond, found.read) if column.is_bounded else None,
        outside_keys=None if column.keys is None else band(found.keyless, found.read),
    )


def _like_thousands(connection: duckdb.DuckDBPyConnection, cell: Cell) -> str | None:
    """Report as a band that a column's decimal marks may all be thousands separators (1.234).

    Return the highest band if so, else None. Only 1000 cells with a decimal mark are read.
    """
    spelled = cell.column.number_format
    if not cell.column.is_numeric or spelled.thousands:
        return None
    found = connection.execute(
        f"SELECT c{cell.place} FROM texts WHERE contains(c{cell.place}, {quoted(spelled.decimal)})"
        f" LIMIT {_LOOKED_AT}"
    ).fetchall()
    return BANDS[-1] if are_like_thousands([text for (text,) in found], spelled.decimal) else None


# --- refusing ------------------------------------------------------------------------------------


def _check_readable(
    connection: duckdb.DuckDBPyConnection,
    order: TableOrder,
    counted: Sequence[tuple[Cell, _Counts]],
) -> None:
    """Refuse columns with too many unparsed cells; the refusal names columns, never a cell."""
    wrong = [
        cell
        for cell, found in counted
        if cell.column.type != "text"
        and found.is_unreadable
        and cell.column.name not in order.accepted
    ]
    if not wrong:
        return
    listed = ", ".join(f"{cell.column.name!r} as {cell.column.type}" for cell in wrong[:_NAMED])
    more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    hints = [_hint(connection, order, cell) for cell in wrong[:_NAMED]]
    accept = " ".join(f"--accept-unreadable {cell.column.name!r}" for cell in wrong[:_NAMED])
    raise Refused(
        "cells-unreadable",
        f"More than 5 % of the cells that are not empty cannot be read: {listed}{more}.",
        " ".join(dict.fromkeys(hint for hint in hints if hint))
        + (" " if any(hints) else "")
        + (
            "Set decimal, thousands, format or nulls on the data card. To count these cells as "
            f"empty, add the rows with accept_unreadable ({accept})."
        ),
    )


def _hint(connection: duckdb.DuckDBPyConnection, order: TableOrder, cell: Cell) -> str:
    """Return a hint about the card setting that parses a column's cells; "" if there is none."""
    found = connection.execute(
        f"SELECT c{cell.place} FROM texts WHERE {is_given(order, cell)} LIMIT {_LOOKED_AT}"
    ).fetchall()
    return hint_of(cell.column, [str(text) for (text,) in found])


# --- people --------------------------------------------------------------------------------------


def with_cuts(
    connection: duckdb.DuckDBPyConnection, order: TableOrder, found: tuple[TableReport, int]
) -> TableReport:
    """Return a table's report with bands of how many persons and rows contribution bounds cut."""
    (report, staged_rows), (groups, most) = found, order.bounds
    ranked = {i for i, column in enumerate(order.columns) if column.keys is not None}
    places = sorted(ranked | set(coded(order.columns)))
    # not by rr = 1 and rr = most + 1: appended rows have ranks after a person's earlier rows
    asked = ["rr IS NOT NULL", f"rr > {most}"]
    for place in places:
        asked += [f"gr{place} IS NOT NULL", f"gr{place} > {groups} OR rr{place} > {most}"]
    counts = _rows_and_people(connection, table_name("duckdb", order.place), asked)
    (rows, people), (cut, over) = counts[:2]
    columns = list(report.columns)
    for place, of, of_cut in zip(places, counts[2::2], counts[3::2], strict=True):
        columns[place] = replace(
            columns[place], people_cut=band(of_cut[1], of[1]), rows_cut=band(of_cut[0], of[0])
        )
    return replace(
        report,
        columns=tuple(columns),
        people_cut=band(over, people),
        rows_cut=band(cut, rows),
        rows_dropped=band(staged_rows - rows, staged_rows),
    )


def _rows_and_people(
    connection: duckdb.DuckDBPyConnection, table: str, conditions: Sequence[str]
) -> list[tuple[int, int]]:
    """Return for each condition how many rows of a table meet it, and persons with such a row."""
    found: list[tuple[int, int]] = []
    for first in range(0, len(conditions), _CUTS_AT_ONCE):
        some = conditions[first : first + _CUTS_AT_ONCE]
        each = ", ".join(f"count(*) FILTER ({condition})" for condition in some)
        rows = _numbers(connection, f"SELECT {each} FROM {table}")
        any_row = ", ".join(f"bool_or({condition}) AS b{i}" for i, condition in enumerate(some))
        any_person = ", ".join(f"count(*) FILTER (b{i})" for i in range(len(some)))
        people = _numbers(
            connection, f"SELECT {any_person} FROM (SELECT {any_row} FROM {table} GROUP BY person)"
        )
        found += zip(rows, people, strict=True)
    return found


def _numbers(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[int, ...]:
    found = connection.execute(sql).fetchone()
    return tuple(int(number) for number in found or ())
