"""Export a prepared DuckDB table for PostgreSQL (CSV) or Spark (Parquet).

`person_key` becomes text, because queries only use its text form. `row_key` becomes a signed number
in the same order.

A table with persons also gets the ranks of cells and rows in the secret order, for each column of
declared keys or private texts. So common queries need no sorting (driver_rank_path.py).

For PostgreSQL, the ranks are also packed into integers. `a3` is the person and the rank of the cell
among the person's cells. `b3` is the code and the rank of the row in the cell. `a` is the person
and the rank of the row among all rows of the person.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from sfumato.engines.ingest.cell_sql import without_nul
from sfumato.engines.kernel.row_arrays import INDEX_BITS
from sfumato.engines.shared.locked_connection import Room, open_locked, quoted
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.person_names import copy_names, names_in
from sfumato.query.printing.from_clause import stored_name, table_name

if TYPE_CHECKING:
    import duckdb

Shape = Literal["csv", "parquet"]
_COPIED: Final = re.compile(r"[vk][0-9]{1,5}")
_CODED: Final = re.compile(r"c[0-9]{1,5}")
_FIRST_DAY: Final = {"DATE": "DATE '0001-01-01'", "TIMESTAMP": "TIMESTAMP '0001-01-01'"}


@dataclass(frozen=True)
class Copied:
    """An exported table: its file, its columns with SQL types, and the columns with ranks."""

    file: Path
    columns: tuple[tuple[str, str], ...]
    ranked: tuple[int, ...]  # columns with declared keys
    texts: tuple[int, ...]  # columns of private texts

    @property
    def ordered(self) -> tuple[int, ...]:
        """Return the indexes of all columns with stored ranks."""
        return self.ranked + self.texts

    def as_json(self) -> Header:
        """Return the exported table's entry for the marker file, which later queries read."""
        return {"ranked": list(self.ranked), "texts": list(self.texts), "packed": True}


def order_mark(salt: str) -> str:
    """Return a hash that shows with which salt ranks were made, without revealing the salt."""
    return hashlib.sha256(f"sfumato ranks 1:{salt}".encode()).hexdigest()


@dataclass(frozen=True)
class Copying:
    """Order to export the tables of a prepared DuckDB file: target folder, format and salt."""

    prepared: str
    tables: int
    work: str
    shape: Shape
    salt: str
    memory_mb: int

    def file(self, table: int) -> Path:
        """Return the path of the export file of one table."""
        return Path(self.work, f"{stored_name('rows', table)}.{self.shape}")


def copying_of(request: Header, start: Header, shape: Shape) -> Copying:
    """Return the export order that the messages to a driver describe."""
    return Copying(
        str(request["prepared"]),
        _count(request["names"]),
        str(request["work"]),
        shape,
        str(start["salt"]),
        int(str(start["memory_mb"])),
    )


def _count(names: object) -> int:
    return len(names) if isinstance(names, list) else 0


def copy_out(copying: Copying) -> tuple[Copied, ...]:
    """Export each prepared table to a file sorted by person; export the pseudonyms too."""
    files = (
        *(str(copying.file(table)) for table in range(copying.tables)),
        str(names_in(copying.work)),
    )
    room = Room(copying.memory_mb, 2, str(Path(copying.work, "spill")), files)
    connection = open_locked(copying.prepared, room, read_only=True)
    try:
        copy_names(connection, copying.work)
        return tuple(_copy(connection, copying, table) for table in range(copying.tables))
    finally:
        connection.close()


def _copy(connection: duckdb.DuckDBPyConnection, copying: Copying, table: int) -> Copied:
    name, target = table_name("duckdb", table), copying.file(table)
    described = connection.execute(f"DESCRIBE {name}").fetchall()
    types = {str(row[0]): str(row[1]) for row in described}
    copied = _copied(types, target, copying.shape)
    sql = _select(types, copied, table)
    into = f"{quoted(str(target))} ({_options(copying.shape, copied)})"
    connection.execute(f"COPY ({sql}) TO {into}", [copying.salt] * len(copied.ordered))
    return copied


def _copied(types: dict[str, str], file: Path, shape: Shape) -> Copied:
    kept = {name: kind for name, kind in types.items() if _COPIED.fullmatch(name)}
    by_person = "person" in types
    ranked = tuple(int(name[1:]) for name in kept if name[0] == "k") if by_person else ()
    texts = tuple(int(name[1:]) for name in types if _CODED.fullmatch(name)) if by_person else ()
    columns = {"person": "BIGINT", "person_key": "VARCHAR"} if by_person else {}
    columns |= {"row_key": "BIGINT"}
    columns |= {name: "BIGINT" if name[0] == "k" else kind for name, kind in kept.items()}
    for place in ranked + texts:
        columns |= {f"g{place}": "INTEGER", f"n{place}": "INTEGER"}
    columns |= {f"c{place}": "BIGINT" for place in texts}
    if by_person and shape == "parquet":
        columns |= {"rr": "INTEGER"}
    elif by_person:
        packed = ["a", *(f"{name}{place}" for place in ranked + texts for name in "ab")]
        columns |= dict.fromkeys(packed, "BIGINT")
    return Copied(file, tuple(columns.items()), ranked, texts)


def _select(types: dict[str, str], copied: Copied, table: int) -> str:
    """Return the SELECT that exports a table; the salt is bound once per column with ranks."""
    columns = ", ".join(f"{_column(column, types)} AS {column}" for column, _ in copied.columns)
    one = "".join(f", one{place}" for place in copied.texts)
    joins = "".join(f" LEFT JOIN {_one_code(place, table)}" for place in copied.texts)
    source = f"SELECT r.*{one} FROM {table_name('duckdb', table)} AS r{joins}"
    hashed = "".join(f", {_cell_order(place, types)} AS h{place}" for place in copied.ordered)
    ranked = "".join(f", {text}" for place in copied.ordered for text in _ranks(place, types))
    order = "person, rr" if "person" in types else "row_key"
    inner = f"SELECT *{ranked} FROM (SELECT *{hashed} FROM ({source}))"
    return f"SELECT {columns} FROM ({inner}) ORDER BY {order}"


def _one_code(place: int, table: int) -> str:
    """Return SQL that gives one code to texts that become equal in the exported table.

    The export replaces NUL characters, so two different texts can become equal.
    """
    same = f"min(code) OVER (PARTITION BY {without_nul('value')})"
    texts = stored_name(f"texts{place}", table)
    return (
        f"(SELECT code, {same} AS one{place} FROM {texts}) AS t{place} ON t{place}.code = c{place}"
    )


def _code(place: int, types: dict[str, str]) -> str:
    return f"k{place}" if f"k{place}" in types else f"one{place}"


def _cell_order(place: int, types: dict[str, str]) -> str:
    """Return SQL of the keyed hash that orders a person's groups.

    It is the same as in query/printing/statements.py.
    """
    code = _code(place, types)
    cell = f"CAST(k{place} AS VARCHAR)" if code[0] == "k" else without_nul(f"v{place}")
    text = f"? || ':cell:' || CAST(person_key AS VARCHAR) || ':' || {cell}"
    return f"CASE WHEN {code} IS NOT NULL THEN md5_number({text}) >> 64 END"


def _ranks(place: int, types: dict[str, str]) -> tuple[str, str]:
    """Return SQL of two ranks of a row: of its group for the person, and of the row in it."""
    code = _code(place, types)
    cell = f"dense_rank() OVER (PARTITION BY person ORDER BY h{place} NULLS LAST, {code})"
    row = f"row_number() OVER (PARTITION BY person, {code} ORDER BY rr)"
    there = f"CASE WHEN {code} IS NOT NULL THEN"
    return (
        f"CAST({there} {cell} END AS INTEGER) AS g{place}",
        f"CAST({there} {row} END AS INTEGER) AS n{place}",
    )


def _column(name: str, types: dict[str, str]) -> str:
    letter, place = name[0], name[1:]
    match letter, name:
        case _, "person_key":
            return "CAST(person_key AS VARCHAR)"
        case _, "row_key":  # unsigned 64 bits become signed, in the same order
            return "CAST(CAST(row_key AS HUGEINT) - 9223372036854775808 AS BIGINT)"
        case _, "a":
            return f"CAST(person AS BIGINT) << {INDEX_BITS} | rr"
        case "a", _:
            return f"CAST(person AS BIGINT) << {INDEX_BITS} | g{place}"
        case "b", _:
            return f"CAST({_code(int(place), types)} AS BIGINT) << {INDEX_BITS} | n{place}"
        case "c", _:
            return f"one{place}"
        case "v", _ if types[name] == "VARCHAR":
            return without_nul(name)
        case "v", _ if types[name] in _FIRST_DAY:  # dates before year 1 become NULL
            return f"CASE WHEN {name} >= {_FIRST_DAY[types[name]]} THEN {name} END"
    return name


def _options(shape: Shape, copied: Copied) -> str:
    if shape == "parquet":
        return "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 100000"
    texts = ", ".join(name for name, kind in copied.columns if kind == "VARCHAR")
    force = f", FORCE_QUOTE ({texts})" if texts else ""  # keeps an empty text apart from NULL
    return f"FORMAT csv, HEADER false, NULLSTR ''{force}"
