"""What of a prepared DuckDB table goes to another engine, and in which shape.

`person_key` goes as text (it is only ever spelled), `row_key` as a signed number in the same order.
A person table gets the places that its public keys' cells and rows have in the secret order, so
that the usual questions need no sorting (postgres_ranks.py).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import duckdb

from sfumato.engines.frames import Header
from sfumato.engines.locked import Room, open_locked, quoted
from sfumato.plan.lower_from import stored_name, table_name

Shape = Literal["csv", "parquet"]
_COPIED: Final = re.compile(r"[vk][0-9]{1,5}")
_FIRST_DAY: Final = {"DATE": "DATE '0001-01-01'", "TIMESTAMP": "TIMESTAMP '0001-01-01'"}


@dataclass(frozen=True)
class Copied:
    """The file of a copy, its columns with their DuckDB types, and which keys have ranks."""

    file: Path
    columns: tuple[tuple[str, str], ...]
    ranked: tuple[int, ...]


def order_mark(salt: str) -> str:
    """Return a mark of the secret by which ranks were made; it tells nothing of the secret."""
    return hashlib.sha256(f"sfumato ranks 1:{salt}".encode()).hexdigest()


@dataclass(frozen=True)
class Copying:
    """A prepared file, how many tables it holds, and how to copy them."""

    prepared: str
    tables: int
    work: str
    shape: Shape
    salt: str
    memory_mb: int

    def file(self, table: int) -> Path:
        """Return where a table's copy goes."""
        return Path(self.work, f"{stored_name('rows', table)}.{self.shape}")


def copying_of(request: Header, start: Header, shape: Shape) -> Copying:
    """Return the order to copy that a driver was given."""
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
    """Write each prepared table's rows to a file in the order of their people."""
    files = tuple(str(copying.file(table)) for table in range(copying.tables))
    room = Room(copying.memory_mb, 2, str(Path(copying.work, "spill")), files)
    connection = open_locked(copying.prepared, room, read_only=True)
    try:
        return tuple(_copy(connection, copying, table) for table in range(copying.tables))
    finally:
        connection.close()


def _copy(connection: duckdb.DuckDBPyConnection, copying: Copying, table: int) -> Copied:
    name, target = table_name("duckdb", table), copying.file(table)
    described = connection.execute(f"DESCRIBE {name}").fetchall()
    types = {str(row[0]): str(row[1]) for row in described}
    copied = _copied(types, target)
    sql, secrets = _select(types, copied, name)
    into = f"{quoted(str(target))} ({_options(copying.shape, copied)})"
    connection.execute(f"COPY ({sql}) TO {into}", [copying.salt] * secrets)
    return copied


def _copied(types: dict[str, str], file: Path) -> Copied:
    kept = {name: kind for name, kind in types.items() if _COPIED.fullmatch(name)}
    by_person = "person" in types
    ranked = tuple(int(name[1:]) for name in kept if name[0] == "k") if by_person else ()
    columns = {"person": "BIGINT", "person_key": "VARCHAR"} if by_person else {}
    columns |= {"row_key": "BIGINT"}
    columns |= {name: "BIGINT" if name[0] == "k" else kind for name, kind in kept.items()}
    for place in ranked:
        columns |= {f"g{place}": "BIGINT", f"n{place}": "BIGINT"}
    return Copied(file, tuple(columns.items()), ranked)


def _select(types: dict[str, str], copied: Copied, name: str) -> tuple[str, int]:
    """Print the rows of the copy, and how often the secret is bound."""
    columns = ", ".join(f"{_column(column, types)} AS {column}" for column, _ in copied.columns)
    hashed = "".join(f", {_cell_order(place)} AS h{place}" for place in copied.ranked)
    order = "person, row_key" if "person" in types else "row_key"
    sql = f"SELECT {columns} FROM (SELECT *{hashed} FROM {name}) ORDER BY {order}"
    return sql, len(copied.ranked)


def _cell_order(place: int) -> str:
    """Print the keyed order of a person's cells, the same text as plan/lower.py has."""
    text = f"? || ':cell:' || CAST(person_key AS VARCHAR) || ':' || CAST(k{place} AS VARCHAR)"
    return f"CASE WHEN k{place} IS NOT NULL THEN md5_number({text}) >> 64 END"


def _column(name: str, types: dict[str, str]) -> str:
    place = name[1:]
    match name[0], name:
        case _, "person_key":
            return "CAST(person_key AS VARCHAR)"
        case _, "row_key":  # of 64 bits without a sign: the same order with one
            return "CAST(CAST(row_key AS HUGEINT) - 9223372036854775808 AS BIGINT)"
        case "v", _ if types[name] == "VARCHAR":  # no letter NUL is known to PostgreSQL
            return f"replace({name}, chr(0), chr(65533))"
        case "v", _ if types[name] in _FIRST_DAY:  # nor a year before the first
            return f"CASE WHEN {name} >= {_FIRST_DAY[types[name]]} THEN {name} END"
        case "g", _:
            ranks = (
                f"dense_rank() OVER (PARTITION BY person ORDER BY h{place} NULLS LAST, k{place})"
            )
            return f"CASE WHEN k{place} IS NOT NULL THEN {ranks} END"
        case "n", _:
            ranks = f"row_number() OVER (PARTITION BY person, k{place} ORDER BY row_key)"
            return f"CASE WHEN k{place} IS NOT NULL THEN {ranks} END"
    return name


def _options(shape: Shape, copied: Copied) -> str:
    if shape == "parquet":
        return "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 100000"
    texts = ", ".join(name for name, kind in copied.columns if kind == "VARCHAR")
    force = f", FORCE_QUOTE ({texts})" if texts else ""  # an empty text is not null
    return f"FORMAT csv, HEADER false, NULLSTR ''{force}"
