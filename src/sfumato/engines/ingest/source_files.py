"""Open a file that DuckDB reads (CSV, TSV, Parquet, DuckDB) as SQL over trimmed texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from sfumato.dp.refusal import Refused
from sfumato.engines.ingest.cell_format_sql import TEXT
from sfumato.engines.ingest.cell_sql import trimmed
from sfumato.engines.ingest.csv_layout import is_text_file, text_layout
from sfumato.engines.ingest.prepare_order import TableOrder
from sfumato.engines.ingest.source_errors import mixed_column, table_not_found
from sfumato.engines.shared.locked_connection import named, quoted
from sfumato.system.csv_writer import NO_VALUE
from sfumato.system.row_files import DUCKDB, KINDS, PARQUET, SHARED, parquet_files
from sfumato.vault.card.cell_formats import PLAIN

DECIMAL: Final = re.compile(r"DECIMAL\(([0-9]+),([0-9]+)\)")  # its width and scale
# types whose equal values have equal texts, and whose texts have no white space at an end
_WHOLE: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_UNSIGNED: Final = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")
FLOATS: Final = ("FLOAT", "DOUBLE")  # but for the zero with a minus
SIMPLE: Final = (*_WHOLE, *_UNSIGNED, *FLOATS, "BOOLEAN", "DATE", "TIMESTAMP")
_DUCKDB: Final = (*DUCKDB, *SHARED)


@dataclass(frozen=True)
class Source:
    """Column names and types of an owner's source, and the SQL that reads it.

    `raw_sql` returns the columns as r0, r1, ... with their own types, which are in `kinds`. `texts`
    has the SQL of each column's trimmed text, made of r0, r1, ... `sql` returns the trimmed texts
    as c0, c1, ...
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    raw_sql: str
    texts: tuple[str, ...]
    is_text_file: bool = False

    @property
    def sql(self) -> str:
        """Return SQL of all columns as trimmed texts."""
        cells = ", ".join(f"{text} AS c{i}" for i, text in enumerate(self.texts))
        return f"SELECT {cells} FROM ({self.raw_sql})"

    def place(self, name: str) -> int:
        """Return the index of a column by its name, ignoring letter case and spaces; or refuse."""
        wanted = name.strip().casefold()
        places = [i for i, n in enumerate(self.names) if n.strip().casefold() == wanted]
        if len(places) != 1:
            what = "no column" if not places else "more than one column"
            raise Refused(
                "source-unreadable",
                f"The file or table has {what} {name!r}, which the data card names.",
                "Correct the name on the card, or in the first line of the file.",
            )
        return places[0]


def paths_of(source: str) -> tuple[str, ...]:
    """Return the files that DuckDB opens to read a source."""
    files = parquet_files(source)
    return files or ((source, source + ".wal") if _suffix(source) in _DUCKDB else (source,))


def open_source(connection: duckdb.DuckDBPyConnection, order: TableOrder) -> Source:
    """Return the columns and SQL of a source, chosen by its file suffix; or refuse the source."""
    suffix, files = _suffix(order.source), parquet_files(order.source)
    if files:
        _check_patterns(files)
        source = _table_source(connection, _read_parquet(files, order.source))
        _check_files(connection, files, order, source)
        return source
    if is_text_file(order.source):
        return _text_source(order)
    if suffix in PARQUET:
        _check_patterns([order.source])
        return _table_source(connection, f"read_parquet({quoted(order.source)})")
    if suffix in _DUCKDB:
        _attach(connection, order.source)
        table = _inner_table(connection, order.inner_table)
        return _table_source(connection, _without_collations(connection, table))
    raise Refused(
        "source-unreadable",
        "The file's name does not end in a suffix of a format that can be read, such as .csv.",
        f"Give {KINDS}.",
    )


def _read_parquet(files: Sequence[str], source: str) -> str:
    """Return SQL that reads Parquet files as one table, with the columns of all files.

    The names of folders such as `year=2024` are columns, as Hive and Spark write them.
    """
    listed = ", ".join(quoted(file) for file in files)
    partitioned = _is_partitioned(files, source)
    return (
        f"read_parquet([{listed}], union_by_name = true,"
        f" hive_partitioning = {str(partitioned).lower()}, hive_types_autocast = false)"
    )


def _is_partitioned(files: Sequence[str], source: str) -> bool:
    """Say whether the names of folders are columns; of a folder, those below it count."""
    above = len(Path(source).parts) if Path(source).is_dir() else 0
    return any("=" in part for file in files for part in Path(file).parts[above:-1])


def _check_patterns(files: Sequence[str]) -> None:
    """Refuse a path that DuckDB would take for a pattern: it would read other files, or twice."""
    if any(letter in file for file in files for letter in "*?["):
        raise Refused(
            "source-unreadable",
            "The path of a Parquet file has one of the letters * ? [, which stand for others.",
            "Rename the file or its folder.",
        )


def _check_files(
    connection: duckdb.DuckDBPyConnection, files: Sequence[str], order: TableOrder, source: Source
) -> None:
    """Refuse files that DuckDB reads as one table, but whose cells would be misread.

    A column that is a number in one file and a text in another is a text of both, to which the
    card's format would apply. The name of a folder would replace a column of the same name.
    """
    with_format = {c.name.strip().casefold() for c in order.columns if c.number_format != PLAIN}
    texts = {
        name.casefold()
        for name, kind in zip(source.names, source.kinds, strict=True)
        if kind == TEXT and name.strip().casefold() in with_format
    }
    parts = [part for file in files for part in Path(file).parts[:-1] if "=" in part]
    is_split = _is_partitioned(files, order.source)
    folders = {part.partition("=")[0].casefold() for part in parts if is_split}
    for file in files if texts or folders else ():
        read = f"read_parquet({quoted(file)}, hive_partitioning = false)"
        for name, kind, *_ in connection.execute(f"DESCRIBE SELECT * FROM {read}").fetchall():
            if name.casefold() in folders:
                raise Refused(
                    "source-unreadable",
                    f"The files have a column {name!r}, and a folder's name has it too.",
                    "Rename the folders, or remove the column from the files.",
                )
            if name.casefold() in texts and kind != TEXT:
                raise mixed_column(name)


def _attach(connection: duckdb.DuckDBPyConnection, source: str) -> None:
    """Attach an owner's DuckDB file read-only, under the name `handed_in`.

    The file that was attached before is detached first.
    """
    open_now = connection.execute(
        "SELECT path FROM duckdb_databases() WHERE database_name = 'handed_in'"
    ).fetchone()
    if open_now is not None and open_now[0] != source:
        connection.execute("DETACH handed_in")
    if open_now is None or open_now[0] != source:
        connection.execute(f"ATTACH {quoted(source)} AS handed_in (READ_ONLY)")


def _suffix(source: str) -> str:
    return Path(source).suffix.casefold()


def _text_source(order: TableOrder) -> Source:
    layout = text_layout(order.source, order.file, is_ours=order.kinds is not None)
    columns = ", ".join(f"'r{i}': 'VARCHAR'" for i in range(len(layout.names)))
    read = (
        f"SELECT * FROM read_csv({quoted(order.source)}, auto_detect = false,"
        f" skip = {layout.skipped},"
        f" header = {str(layout.has_header).lower()}, delim = {quoted(layout.separator)},"
        " quote = '\"', escape = '\"', strict_mode = true,"
        f" nullstr = {quoted(NO_VALUE)}, columns = {{{columns}}})"
    )
    texts = tuple(trimmed(f"r{i}") for i in range(len(layout.names)))
    kinds = order.kinds or (TEXT,) * len(layout.names)
    return Source(layout.names, kinds, read, texts, is_text_file=True)


def _without_collations(connection: duckdb.DuckDBPyConnection, table: str) -> str:
    """Return SQL of a table whose texts have no collation, by which 'a' could equal 'A'."""
    columns = connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()
    texts = [
        f"decode(encode({named(str(name))})) AS {named(str(name))}"
        for name, kind, *_ in columns
        if kind == TEXT
    ]
    return f"(SELECT * REPLACE ({', '.join(texts)}) FROM {table})" if texts else table


def _table_source(connection: duckdb.DuckDBPyConnection, table: str) -> Source:
    found = connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()
    names = tuple(str(row[0]) for row in found)
    kinds = tuple(str(row[1]) for row in found)
    cells = ", ".join(f"{named(name)} AS r{i}" for i, name in enumerate(names))
    texts = tuple(_spelled(f"r{i}", kind) for i, kind in enumerate(kinds))
    return Source(names, kinds, f"SELECT {cells} FROM {table}", texts)


def _spelled(cell: str, kind: str) -> str:
    """Return SQL of a cell as trimmed text.

    DuckDB omits the leading zero of a DECIMAL(n,n), so it is added. The text of a number, date or
    boolean has no white space to trim.
    """
    text = cell if kind == TEXT else f"CAST({cell} AS VARCHAR)"
    found = DECIMAL.fullmatch(kind)
    if found is not None and found[1] == found[2]:
        return rf"regexp_replace({text}, '^(-?)\.', '\10.')"
    return text if found is not None or kind in SIMPLE else trimmed(text)


def _inner_table(connection: duckdb.DuckDBPyConnection, wanted: str | None) -> str:
    tables = [
        (str(schema), str(table))
        for schema, table in connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables()"
            " WHERE database_name = 'handed_in' AND NOT internal ORDER BY 1, 2"
        ).fetchall()
    ]
    fitting = [t for t in tables if wanted is None or wanted in (t[1], f"{t[0]}.{t[1]}")]
    if len(fitting) != 1:
        raise table_not_found("table", [".".join(one) for one in tables], wanted)
    schema, table = fitting[0]
    return f"handed_in.{named(schema)}.{named(table)}"
