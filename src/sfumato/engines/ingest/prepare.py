"""Prepare a table: read a source, stage typed values, and write ranked rows; in a separate worker.

Rows are sorted by keyed hashes, so the prepared table reveals nothing about the row order of the
source.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import duckdb

from sfumato.dp.refusal import Refused
from sfumato.engines.ingest.bids_folders import folders_mark, take_folders
from sfumato.engines.ingest.cell_format_sql import plain_spelling
from sfumato.engines.ingest.cell_report import (
    STAGING,
    Cell,
    beyond,
    cells_report,
    given,
    is_given,
    staged,
    with_cuts,
)
from sfumato.engines.ingest.cell_sql import (
    group_key,
    half_step,
    rank_type,
    secret_name,
    secret_number,
    steps,
    stored,
    without_nul,
    without_nulls,
)
from sfumato.engines.ingest.file_conversion import converted
from sfumato.engines.ingest.person_sketch import (
    NewSketch,
    Sketch,
    domains_alike,
    united,
    write_sketch,
)
from sfumato.engines.ingest.prepare_order import FOLDERS, Order, TableOrder, read_order
from sfumato.engines.ingest.sketch_samples import Sampled, sampled_columns, take_sketch
from sfumato.engines.ingest.source_errors import AS_TEXT, UNREADABLE, reported, two_spellings
from sfumato.engines.ingest.source_files import DECIMAL, Source, open_source, paths_of
from sfumato.engines.ingest.stored_ranks import group_ranks, row_ranks
from sfumato.engines.ingest.value_dictionaries import coded_source
from sfumato.engines.shared.locked_connection import Room, checkpoint, open_locked, quoted
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.prepared_table import CROWD_BITS, coded
from sfumato.engines.shared.stored_parts import parts_of, write_parts
from sfumato.query.printing.from_clause import stored_name, table_name
from sfumato.vault.add_report import TableReport, report_json
from sfumato.vault.card.columns import Column

# --- Fast path for cells that already are numbers, dates or booleans
#
# The value of a cell is defined by parsing its text (cell_sql.py). The expressions below compute
# the same value without the text, for those source types where this is proved. They never raise an
# error either. The source's type and the card alone decide whether one is used.
#
# A DOUBLE x has the value of its text, the shortest decimal s that parses to x again. Let an edge
# be e = m * half / 10**d with |m * half| < 10**15. Its nearest double E is one division of two
# integers below 2**53. If x > E then s > e, and if x < E then s < e, because parsing is monotone.
# If x = E then s = e: both have at most 15 digits, and two such decimals are never one double. So
# x >= E holds exactly if s >= e. Floats only *guess* the step count, with at most half a step of
# error.


_WHOLE: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_DIGITS: Final = 15  # most digits for which two different decimals are two different doubles
_POWERS: Final = 22  # 10**22 is the largest power of ten that is exact as a double
_EXACT: Final = 18  # most digits of a DECIMAL that DuckDB stores in 64 bits
_FITS: Final = 2**62
_SHIFT: Final = 10**18  # 2**63 times this factor still fits in a HUGEINT
_WORDS: Final = ("true", "false")


def typed_cell(column: Column, cell: str, kind: str, nulls: Sequence[str]) -> str | None:
    """Return SQL of the stored value of a cell that has a type in the source.

    Return None if the cell's text has to be parsed instead.
    """
    if any(_may_be_a_cell(word) for word in nulls):
        return None
    match column.type, kind:
        case "integer" | "number", "DOUBLE":
            return _of_double(column, cell)
        case "integer" | "number", _:
            return _of_exact(column, cell, kind)
        case "boolean", "BOOLEAN":
            return cell
        case "date", "DATE":
            return _of_years(cell, "DATE")
        case "timestamp", "TIMESTAMP":
            return _of_years(cell, "TIMESTAMP")
        case _:
            return None


def _may_be_a_cell(word: str) -> bool:
    """Say whether a missing-value marker could also be a number, date or boolean, such as -999."""
    return any(c.isdigit() for c in word) or word.strip().casefold() in _WORDS


def _of_years(cell: str, kind: str) -> str:
    """Return SQL of a date or timestamp; NULL if its year is not in 1 to 9999."""
    first, beyond = (f"{kind} '{day}'" for day in ("0001-01-01", "10000-01-01"))
    return f"CASE WHEN {cell} >= {first} AND {cell} < {beyond} THEN {cell} END"


def _of_exact(column: Column, cell: str, kind: str) -> str | None:
    """Return SQL that converts an integer or DECIMAL to whole steps, in integer arithmetic.

    Values are clamped before they are multiplied. Return None for other types, or if the arithmetic
    could overflow.
    """
    found = DECIMAL.fullmatch(kind)
    if found is None and kind not in _WHOLE:
        return None
    decimals, half = half_step(column.step)
    width, scale = (18, 0) if found is None else (int(found[1]), int(found[2]))
    if width > _EXACT or scale > decimals:
        return None
    units = cell
    if scale:  # units of the last decimal: exact, and no overflow in so many digits
        wide = cell if width + scale < _EXACT else f"CAST({cell} AS DECIMAL(38,{scale}))"
        units = f"{wide} * {10**scale}"
    shift = 10 ** (decimals - scale)
    if not column.is_bounded:
        return steps(column, f"CAST({units} AS HUGEINT) * {shift}") if shift <= _SHIFT else None
    low, high = (2 * half * bound for bound in column.bounds())
    if max(abs(low), abs(high)) + 10**decimals + half >= _FITS:
        return None
    inside = f"least(greatest(CAST({units} AS BIGINT), {low // shift}), {-(-high // shift)})"
    return steps(column, f"CASE WHEN {cell} IS NOT NULL THEN {inside} * {shift} END")


def _of_double(column: Column, cell: str) -> str | None:
    """Return SQL that rounds a DOUBLE's decimal text half up to whole steps; None if inexact."""
    decimals, half = half_step(column.step)
    if not column.is_bounded or decimals > _POWERS:
        return None
    low, high = column.bounds()
    if 2 * half * max(abs(low), abs(high)) + half >= 10**_DIGITS:
        return None
    unit = f"CAST({10**decimals} AS DOUBLE)"
    guess = f"floor({cell} * {unit} / {2 * half})"
    edge = f"({guess} * {2 * half} + {half}) / {unit}"
    value = f"TRY_CAST({guess} AS BIGINT) + CAST({cell} >= {edge} AS BIGINT)"
    ends = (f"CAST({2 * half * bound} AS DOUBLE) / {unit}" for bound in (low, high))
    below, above = (f"CASE WHEN isfinite({cell}) THEN {bound} END" for bound in (low, high))
    first, last = ends
    return (  # NaN compares above everything; NaN and the infinities become NULL
        f"CAST(CASE WHEN {cell} < {first} THEN {below} WHEN {cell} > {last} THEN {above}"
        f" ELSE {value} END AS BIGINT)"
    )


UNIT: Final = "id"
# The stored order of a person's rows: half of the keyed hash, because hashes can't be compressed
# and would be the largest part of most tables. Rows with the same half are ordered by content.
ROW_KEY: Final = "row_mark >> 32"
# DuckDB's memory for most preparations; what does not fit is written to the spill folder, which
# takes little more time. A table of very many columns may need more, and is then prepared again.
_USUAL_MB = 768
# most columns that one statement parses; one column takes megabytes, however few its rows are
_WIDE = 64


def prepare(room: Room, salt: str, message: Header) -> Header:
    """Prepare all tables of an order in its work folder; return the report for the owner.

    The report also names the people domains that appear to be the same people. A refusal is
    returned, not raised.
    """
    try:
        return _prepared(room, salt, message)
    except Refused as refused:
        return {"refused": reported(refused)}


def _prepared(room: Room, salt: str, message: Header) -> Header:
    order = read_order(message)
    order = replace(order, tables=tuple(converted(t, Path(order.work)) for t in order.tables))
    paths = {path: None for table in order.tables for path in paths_of(table.source)}
    with_less = replace(room, memory_mb=min(room.memory_mb, _USUAL_MB if room.spill else 2**62))
    try:
        return _written(with_less, order, tuple(paths), salt)
    except duckdb.OutOfMemoryException:
        if with_less == room:
            raise
    Path(order.work, "rows.duckdb").unlink()
    shutil.rmtree(Path(order.work, FOLDERS), ignore_errors=True)
    return _written(room, order, tuple(paths), salt)


def _written(room: Room, order: Order, paths: Sequence[str], salt: str) -> Header:
    with open_with_staging(room, Path(order.work), paths) as connection:
        people, report = _made(connection, order, salt)
        checkpoint(connection)
    return {"same_people": list(people), "report": report_json(report)}


@contextmanager
def open_with_staging(
    room: Room, work: Path, paths: Sequence[str]
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Create the prepared table's file, with a second one for tables that are not kept.

    Rows in a file are compressed, and take no memory while they are not read. The second file is
    deleted in the end.
    """
    staging = work / "staging.duckdb"
    # the log has other names while DuckDB writes it into the file, which it does when it likes
    logs = (f"{staging}.wal", f"{staging}.wal.checkpoint", f"{staging}.wal.recovery")
    files = (str(staging), *logs)
    room = replace(room, paths=(*paths, *files))
    connection = open_locked(str(work / "rows.duckdb"), room, read_only=False)
    try:
        connection.execute(f"ATTACH {quoted(files[0])} AS {STAGING}")
        yield connection
    finally:
        connection.close()
        for file in files:
            Path(file).unlink(missing_ok=True)


def _made(
    connection: duckdb.DuckDBPyConnection, order: Order, salt: str
) -> tuple[tuple[str, ...], tuple[TableReport, ...]]:
    taken = [(table, *staged_source(connection, table, salt)) for table in order.tables]
    people = [table for table in order.tables if table.unit is not None]
    if people:
        _write_persons(connection, people, salt)
    if order.folders is not None:
        take_folders(connection, order.folders, Path(order.work, FOLDERS))
    own = united([sketch for table, sketch, _ in taken if table.key is None])
    files = folders_mark(Path(order.work, FOLDERS), salt)
    own = replace(own, whole=(*own.whole, files))
    write_sketch(Path(order.work, "people.json"), own)
    reports = []
    for table, _, found in taken:
        if table.unit is None:
            _write_rows(connection, table)
            reports.append(found[0])
        else:
            _write_people(connection, table, salt)
            reports.append(with_cuts(connection, table, found))
    public = united([sketch for table, sketch, _ in taken if table.key is not None])
    new = NewSketch(own, public, order.different)
    return domains_alike(new, order.sketches), tuple(reports)


def staged_source(
    connection: duckdb.DuckDBPyConnection, order: TableOrder, salt: str
) -> tuple[Sketch, tuple[TableReport, int]]:
    """Read a source into a staging table; return the sketch of its people and the cell report.

    Public tables get a sketch too, so that the table of known people cannot be added as a public
    table.
    """
    source = open_source(connection, order)
    places = [source.place(column.name) for column in order.columns]
    unit = None if order.unit is None else source.place(order.unit)
    rows = _read_source(connection, source, order.limits.rows)
    cells = [Cell(c, p, source.kinds[p]) for c, p in zip(order.columns, places, strict=True)]
    declared = {cell.place: cell for cell in cells}
    coded_cells = coded_source(connection, order, (source, declared), rows, salt)
    sampled = sampled_columns(connection, coded_cells, unit)
    _stage(connection, order, cells, _Extra.of(sampled, unit, salt))
    sketch = take_sketch(connection, sampled, staged(order), salt)
    report = cells_report(connection, order, cells, unit)
    if order.key is not None:
        _check_unique(connection, order, order.key)
    return sketch, report


def _check_unique(connection: duckdb.DuckDBPyConnection, order: TableOrder, key: int) -> None:
    """Refuse a public table with duplicate keys, compared as every engine stores them."""
    value = without_nul(f"v{key}") if order.columns[key].type == "text" else f"v{key}"
    found = connection.execute(
        f"SELECT count({value}), count(DISTINCT {value}) FROM {staged(order)}"
    ).fetchone()
    if found is None or found[0] != found[1]:
        raise Refused(
            "source-unreadable",
            f"Two rows of a public table have the same {order.columns[key].name!r}, as the data "
            "card reads it.",
            "Remove the repeated rows from the public table. If the keys differ only outside the "
            "bounds, declare wider bounds.",
        )


_LINE: Final = re.compile(r"CSV Error on Line: (\d{1,12})\b")
_FAULTS: Final = (  # a phrase in DuckDB's error, and our message for it
    ("Expected Number of Columns", "Not every line has as many cells as the first line."),
    ("unterminated quote", "A quote is not closed, or a quote inside a cell is not doubled."),
    ("invalid state", "The lines end in different ways, or a quote is in a forbidden place."),
)


def _read_source(connection: duckdb.DuckDBPyConnection, source: Source, most: int) -> int:
    """Create the view `source` of an owner's rows, and return their number.

    The lines of a text file are split into cells once, and copied. Refuse more rows than the card
    allows, or a text file that can't be split into cells. DuckDB's error quotes cells, so its text
    is never passed on.
    """
    counted, said = None, ""
    read = source.raw_sql
    try:
        if source.is_text_file and len(source.names) <= _WIDE:
            connection.execute(
                f"CREATE OR REPLACE TABLE {STAGING}.cells AS {read} LIMIT {most + 1}"
            )
            read = f"SELECT * FROM {STAGING}.cells"
        connection.execute(f"CREATE OR REPLACE TEMP VIEW source AS {read}")
        counted = connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM source LIMIT {most + 1})"
        ).fetchone()
    except duckdb.InvalidInputException as error:
        said = str(error)
    if said:
        cause = next((cause for word, cause in _FAULTS if word in said), UNREADABLE)
        line = _LINE.search(said)  # the line's number, and nothing that is in it
        if line is not None:
            cause += f" The first such line is {line[1]}; line ends inside quotes do not count."
        raise Refused("source-unreadable", cause, AS_TEXT)
    if counted is None or counted[0] > most:
        raise Refused(
            "source-too-large",
            f"The source has more than the {most} rows of the data card's limits.rows.",
            "Raise limits.rows on the card, or add fewer rows.",
        )
    return int(counted[0])


# --- staging: parse cells to values and key codes ------------------------------------------------


@dataclass(frozen=True)
class _Extra:
    """What staging keeps of each row beside the declared columns: SQL over `texts`, with names."""

    unit: int | None
    columns: tuple[tuple[str, str], ...]  # SQL, and the name in the staging table
    bound: tuple[str, ...]  # parameters of the SQL

    @classmethod
    def of(cls, sampled: Sampled, unit: int | None, salt: str) -> _Extra:
        """Return the row's keyed hash, and what the sketch of the people needs."""
        texts, bound = sampled.staged(salt)
        names = [f"q{i}" for i in sampled.quasi_identifiers]
        columns = (sampled.row_mark, "row_mark"), *zip(texts, names, strict=True)
        return cls(unit, columns, (salt, *bound))


def _stage(
    connection: duckdb.DuckDBPyConnection,
    order: TableOrder,
    cells: Sequence[Cell],
    extra: _Extra,
) -> None:
    """Create a staging table of clamped values, key codes, and flags of values outside the bounds.

    A number is first clamped to bounds that are one step wider on both sides. The second clamping,
    to the card's bounds, then shows whether the value was outside. Bounds are multiples of the
    step, so the result is the same.
    """
    wide = [replace(cell, column=_widened(cell.column)) for cell in cells]
    is_wide = len(order.columns) > _WIDE
    texts, values = [], []
    for i, cell in enumerate(wide):
        texts += [f"{_cell(cell, order)} AS x{i}", f"{is_given(order, cell)} AS {given(i)}"]
        values += [f"{f'x{i}' if is_wide else _value(cell, order, f'x{i}')} AS v{i}", given(i)]
    others = [name for _, name in extra.columns]
    texts += [f"{sql} AS {name}" for sql, name in extra.columns]
    if extra.unit is not None:  # rows without a person are dropped later (soundness rule 12)
        nulls = order.nulls_of(order.unit)
        texts.append(f"nullif({without_nulls(f'c{extra.unit}', nulls)}, '') AS {UNIT}")
        others.append(UNIT)
    keyed = [(i, column) for i, column in enumerate(order.columns) if column.keys is not None]
    for i, column in keyed:
        _load_keys(connection, i, column)
    kept = [text for i, column in enumerate(order.columns) for text in _clamped(column, i)]
    kept += [f"v.{given(i)}" for i in range(len(cells))]
    kept += [f"v.{name}" for name in others]
    kept += [f"codes{i}.code AS k{i}" for i, _ in keyed]
    joins = "".join(
        f" LEFT JOIN codes{i} ON codes{i}.value = {_inside(column, i)}" for i, column in keyed
    )
    read = f"SELECT {', '.join([*values, *others])} FROM (SELECT {', '.join(texts)} FROM texts)"
    bound = list(extra.bound)
    if is_wide:
        _read_one_by_one(connection, order, (read, bound), wide)
        read, bound = "SELECT * FROM unread", []
    connection.execute(
        f"CREATE OR REPLACE TABLE {staged(order)} AS"
        f" SELECT {', '.join(kept)} FROM ({read}) AS v{joins}",
        bound,
    )
    connection.execute("DROP TABLE IF EXISTS unread")


def _cell(cell: Cell, order: TableOrder) -> str:
    """Return SQL of a source cell: as its own SQL type if that can be stored, else as text."""
    nulls = order.nulls_of(cell.column.name)
    if typed_cell(cell.column, "x", cell.kind, nulls) is not None:
        return f"r{cell.place}"
    text = without_nulls(f"c{cell.place}", nulls)
    return plain_spelling(cell.column, text, cell.kind)


def _value(cell: Cell, order: TableOrder, text: str) -> str:
    """Return SQL of a cell's stored value; `text` is the SQL of the cell that `_cell` returned."""
    said = typed_cell(cell.column, text, cell.kind, order.nulls_of(cell.column.name))
    return stored(cell.column, text, order.limits.text_length) if said is None else said


def _widened(column: Column) -> Column:
    """Return a column with numeric bounds that are one step wider, to find values outside them."""
    if not column.is_numeric or not column.is_bounded:
        return column
    low, high = column.bounds()
    return replace(column, lower=low - 1, upper=high + 1)


def _inside(column: Column, place: int) -> str:
    """Return SQL that clamps a staged number to the card's bounds; any other value stays."""
    value = f"v.v{place}"
    if not column.is_numeric or not column.is_bounded:
        return value
    low, high = column.bounds()
    clamped = f"CAST(least(greatest({value}, {low}), {high}) AS BIGINT)"
    return f"CASE WHEN {value} IS NOT NULL THEN {clamped} END"  # LEAST ignores NULL


def _clamped(column: Column, place: int) -> list[str]:
    """Return SQL of the clamped value and, for a bounded column, a flag of values outside."""
    kept = [f"{_inside(column, place)} AS v{place}"]
    if not column.is_bounded:
        return kept
    low, high = column.bounds()
    value = f"v.v{place}"
    if not column.is_numeric:
        value = f"CAST({value} AS DATE) - DATE '1970-01-01'"
    return [*kept, f"{value} NOT BETWEEN {low} AND {high} AS {beyond(place)}"]


def _read_one_by_one(
    connection: duckdb.DuckDBPyConnection,
    order: TableOrder,
    read: tuple[str, list[str]],
    cells: Sequence[Cell],
) -> None:
    """Parse a wide table one column at a time, to limit the memory.

    In a single statement, each thread allocates buffers for the expressions of every column. Some
    hundred columns would exceed the worker's memory limit, even with few rows.
    """
    sql, bound = read
    connection.execute(f"CREATE TEMP TABLE unread AS {sql}", bound)
    for place, cell in enumerate(cells):
        value = _value(cell, order, f"v{place}")
        stored_as = _stored_as(cell.column)
        connection.execute(
            f"ALTER TABLE unread ALTER v{place} SET DATA TYPE {stored_as} USING ({value})"
        )


def _load_keys(connection: duckdb.DuckDBPyConnection, place: int, column: Column) -> None:
    """Create the lookup table of a column's declared keys and their codes, in the card's order."""
    keys = column.keys or ()
    numeric = column.is_numeric
    values = [int(key.number / column.step) if numeric else key.text for key in keys]
    stored_as = _stored_as(column)
    listed = "BIGINT[]" if numeric else "VARCHAR[]"
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE codes{place} AS"
        f" SELECT CAST(value AS {stored_as}) AS value, code"
        f" FROM (SELECT unnest(CAST(? AS {listed})) AS value,"
        f" CAST(unnest(range({len(values)})) AS INTEGER) AS code)",
        [values],
    )


def _stored_as(column: Column) -> str:
    """Return the SQL type of a column's stored values."""
    kind = {"text": "VARCHAR", "boolean": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMP"}
    return "BIGINT" if column.is_numeric else kind[column.type]


# --- writing: rows and persons in the order of keyed hashes --------------------------------------


def stored_columns(order: TableOrder) -> list[str]:
    """Return the columns of a table's cells: values, and codes of declared keys."""
    values = [f"v{i}" for i in range(len(order.columns))]
    return values + [f"k{i}" for i, column in enumerate(order.columns) if column.keys is not None]


def _write_rows(connection: duckdb.DuckDBPyConnection, order: TableOrder) -> None:
    columns = ", ".join(stored_columns(order))
    connection.execute(
        f"CREATE TABLE {table_name('duckdb', order.place)} AS SELECT {ROW_KEY} AS row_key,"
        f" {columns} FROM {staged(order)} ORDER BY row_key, {columns}"
    )
    connection.execute(f"DROP TABLE {staged(order)}")


def _write_persons(
    connection: duckdb.DuckDBPyConnection, tables: Sequence[TableOrder], salt: str
) -> None:
    """Write the table of all persons in any table, with their numbers and keyed hashes.

    `person` is a dense number that changes when other persons are added or removed. It only
    identifies persons. Every order of rows uses `person_key` and `row_key`, which depend on no
    other person. `who` is a keyed digest, unique, and the same for a person in every version of the
    data (continual_counting.proof.md).
    """
    for table in tables:
        connection.execute(
            f"CREATE TEMP TABLE {_counted(table)} AS SELECT {UNIT}, count(*) AS n"
            f" FROM {staged(table)} WHERE {UNIT} IS NOT NULL GROUP BY {UNIT}"
        )
    everybody = " UNION ALL ".join(f"SELECT {UNIT} FROM {_counted(table)}" for table in tables)
    connection.execute(
        f"CREATE TEMP TABLE persons AS SELECT {UNIT}, person_key,"
        " CAST(row_number() OVER (ORDER BY person_key, id) - 1 AS UINTEGER) AS person"
        f" FROM (SELECT {UNIT}, {secret_number('person', UNIT)} AS person_key"
        f" FROM (SELECT DISTINCT {UNIT} FROM ({everybody})))",
        [salt],
    )
    connection.execute(
        f"CREATE TABLE people AS SELECT person, person_key, {secret_name('who', UNIT)} AS who"
        " FROM persons ORDER BY person",
        [salt],
    )
    twice = connection.execute(
        f"SELECT 1 FROM (SELECT split_part({UNIT}, '.', 1) AS whole FROM persons"
        f" WHERE regexp_full_match({UNIT}, '[0-9]+[.]0*')) AS decimal"
        f" SEMI JOIN persons ON persons.{UNIT} = whole LIMIT 1"
    ).fetchone()
    if twice is not None:  # both would have the contribution bounds of a person
        raise two_spellings()


def _counted(order: TableOrder) -> str:
    """Return the name of the table of a table's persons, each with the number of their rows."""
    return stored_name("counted", order.place)


def _write_people(connection: duckdb.DuckDBPyConnection, order: TableOrder, salt: str) -> None:
    """Write a table with persons: ranked rows, dictionaries, precomputed sums, and row counts.

    Rows are sorted by the persons' keyed hashes. Rows beyond `rows_per_person` are dropped.
    """
    rows = _kept_rows(connection, order)
    for place in coded(order.columns):
        _write_texts(connection, order, (place, rows), salt)
    _sort_rows(connection, order, rows)
    crowds = stored_name("crowds", order.place)
    connection.execute(
        f"CREATE TABLE {crowds} AS SELECT person >> {CROWD_BITS} AS few, count(*) AS n"
        f" FROM {_NUMBERED} GROUP BY few ORDER BY few"
    )
    _write_ranked(connection, order, salt)
    connection.execute(f"DROP TABLE {_NUMBERED}")
    _write_parts(connection, order)


_KEPT: Final = f"{STAGING}.kept"
_NUMBERED: Final = f"{STAGING}.numbered"
_RANKED_AT_ONCE: Final = 1 << 19  # rows


def _kept_rows(connection: duckdb.DuckDBPyConnection, order: TableOrder) -> str:
    """Return the name of the table with a table's staged rows that are within the card's limit.

    The limit is `rows_per_person`.
    """
    most = order.limits.rows_per_person
    found = connection.execute(f"SELECT max(n) FROM {_counted(order)}").fetchone()
    connection.execute(f"DROP TABLE {_counted(order)}")
    if found is None or found[0] is None or found[0] <= most:
        return staged(order)
    ranking = ", ".join((ROW_KEY, *stored_columns(order)))
    connection.execute(
        f"CREATE OR REPLACE TABLE {_KEPT} AS SELECT * FROM {staged(order)}"
        f" WHERE {UNIT} IS NOT NULL"
        f" QUALIFY row_number() OVER (PARTITION BY {UNIT} ORDER BY {ranking}) <= {most}"
    )
    return _KEPT


def _write_texts(
    connection: duckdb.DuckDBPyConnection, order: TableOrder, of: tuple[int, str], salt: str
) -> None:
    """Write the dictionary of a column of private texts, with codes in the order of the texts.

    Codes change when another person adds or removes a text. `text_key` does not change, so the
    kernel orders a person's groups by it (engines/kernel/ranks.proof.md).
    """
    place, rows = of
    connection.execute(
        f"CREATE TABLE {_dictionary(order, place)} AS SELECT"
        " CAST(row_number() OVER (ORDER BY value) - 1 AS UINTEGER) AS code, value,"
        f" {secret_number('text', 'value')} AS text_key FROM (SELECT DISTINCT v{place} AS value"
        f" FROM {rows} WHERE v{place} IS NOT NULL AND {UNIT} IS NOT NULL)"
        " ORDER BY code",
        [salt],
    )


def _dictionary(order: TableOrder, place: int) -> str:
    return stored_name(f"texts{place}", order.place)


def _sort_rows(connection: duckdb.DuckDBPyConnection, order: TableOrder, rows: str) -> None:
    """Sort the rows by person, and those of a person by keyed hash and then by content."""
    texts = coded(order.columns)
    joins = "".join(
        f" LEFT JOIN {_dictionary(order, i)} AS texts{i} ON texts{i}.value = n.v{i}" for i in texts
    )
    columns = stored_columns(order)
    codes = {f"v{i}": f"texts{i}.code" for i in texts}  # in the order of the texts
    ranking = ", ".join(("row_key", *(codes.get(name, name) for name in columns)))
    listed = ("person", "person_key", "row_key", *columns)
    read = ", ".join(("person", "person_key", f"{ROW_KEY} AS row_key", *columns))
    given_codes = [f"texts{i}.code AS c{i}" for i in texts]
    connection.execute(
        f"CREATE OR REPLACE TABLE {_NUMBERED} AS SELECT"
        f" {', '.join([*(f'n.{name}' for name in listed), *given_codes])}"
        f" FROM (SELECT {read} FROM {rows} JOIN persons USING ({UNIT})) AS n{joins}"
        f" ORDER BY person, {ranking}"
    )
    connection.execute(f"DROP TABLE IF EXISTS {_KEPT}")
    connection.execute(f"DROP TABLE {staged(order)}")


def _write_ranked(connection: duckdb.DuckDBPyConnection, order: TableOrder, salt: str) -> None:
    """Write the prepared table, with the ranks of each row that decide whether the row counts.

    The proof is engines/kernel/ranks.proof.md.
    """
    codes = {i: f"k{i}" for i, column in enumerate(order.columns) if column.keys is not None}
    codes |= {i: f"c{i}" for i in coded(order.columns)}
    kind = rank_type(order.limits.rows_per_person)
    columns = ["person", "person_key", "row_key", f"CAST(rr AS {kind}) AS rr"]
    columns += [*stored_columns(order), *(f"c{i}" for i in coded(order.columns))]
    for i in codes:
        columns += [f"CAST(nullif({name}{i}, 0) AS {kind}) AS {name}{i}" for name in ("gr", "rr")]
    asked = [
        "person",
        *(f"CAST(coalesce({code}, -1) AS BIGINT) AS {code}" for code in codes.values()),
    ]
    asked += [f"coalesce({group_key(i, code)}, 0) AS h{i}" for i, code in codes.items()]
    table, made = table_name("duckdb", order.place), False
    connection.execute("BEGIN")
    for where in _ranges(connection, order):
        found = connection.execute(
            f"SELECT {', '.join(asked)} FROM {_NUMBERED} WHERE {where}", [salt] * len(codes)
        ).fetchnumpy()
        ranks = {"rr": row_ranks(found["person"])}
        for i, code in codes.items():
            ranks[f"gr{i}"], ranks[f"rr{i}"] = group_ranks(
                found["person"], found[code], found[f"h{i}"]
            )
        connection.register("ranks", ranks)
        begun = f"INSERT INTO {table}" if made else f"CREATE TABLE {table} AS"
        connection.execute(
            f"{begun} SELECT {', '.join(columns)}"
            f" FROM (SELECT * FROM {_NUMBERED} WHERE {where}) POSITIONAL JOIN ranks"
        )
        connection.unregister("ranks")
        made = True
    connection.execute("COMMIT")


def _ranges(connection: duckdb.DuckDBPyConnection, order: TableOrder) -> list[str]:
    """Return SQL conditions that split the sorted rows into ranges, each with whole persons."""
    crowds = connection.execute(
        f"SELECT n FROM {stored_name('crowds', order.place)} ORDER BY few"
    ).fetchall()
    ends, rows = [0], 0
    for (n,) in crowds:
        rows += n
        if rows - ends[-1] >= _RANKED_AT_ONCE:
            ends.append(rows)
    if ends[-1] < rows or rows == 0:
        ends.append(rows)
    return [f"rowid >= {first} AND rowid < {end}" for first, end in pairwise(ends)]


def _write_parts(connection: duckdb.DuckDBPyConnection, order: TableOrder) -> None:
    """Write the precomputed sums per person and group (engines/shared/stored_parts.py)."""
    parts = parts_of(order.columns, *order.bounds)
    kind = rank_type(order.limits.rows_per_person)
    for statement in write_parts(order.columns, parts, order.place, kind):
        connection.execute(statement)
