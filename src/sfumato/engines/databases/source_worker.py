"""Child process that copies one table of a database to a file, through SQLAlchemy.

It reads only a table or view that the database lists. In MySQL and MariaDB, it uses a read-only
transaction, and refuses a user that may do more than read. No error text of the server is passed
on, because it may quote a value or the address.
"""

from __future__ import annotations

import contextlib
import errno
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import BIT, FLOAT, TINYINT, YEAR
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

from sfumato.engines.databases.database_address import MYSQL
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.source_process import (
    ReportedFailure,
    answer_of,
    limit_file,
    serve_source,
)
from sfumato.system.csv_writer import NO_VALUE, write_rows
from sfumato.system.typed_rows import spell

_ROWS: Final = 100  # rows in memory at once
_CONNECT_S: Final = 10
_SYSTEM: Final = frozenset(
    {"information_schema", "mysql", "performance_schema", "pg_catalog", "sys"}
)
# What a user of MySQL or MariaDB may have: the right to read, and to see what there is.
_RIGHT: Final = r"(?:USAGE|SELECT|SHOW VIEW|SHOW DATABASES)(?: \((?:`(?:[^`]|``)+`(?:, )?)+\))?"
_GRANT: Final = re.compile(rf"GRANT {_RIGHT}(?:, {_RIGHT})* ON .*", re.DOTALL)


# What the installer of MariaDB gives to everybody, also to new users: a database for tests.
_FOR_ALL: Final = (" ON `test`.* TO PUBLIC", " ON `test\\_%`.* TO PUBLIC")


def columns(request: Header) -> bytes:
    """Return the table's column names and types, from the catalogue; read no row."""
    with _linked(request) as link:
        found = _columns(link, request)
    return answer_of(columns=[[one["name"], _type_of(one["type"])] for one in found])


def fetch(request: Header) -> bytes:
    """Write the table's rows to a file as tab-separated text; refuse too many bytes."""
    place, _ = limit_file(request)
    with _linked(request) as link:
        found = _columns(link, request)
        rows = link.execution_options(stream_results=True, max_row_buffer=_ROWS).execute(
            _select(link, request, found)
        )
        is_full = False
        try:
            with place.open("r+", encoding="utf-8", newline="") as file:
                write_rows(file, [[str(one["name"]) for one in found]], "\t")
                write_rows(file, _texts(rows, [_spelling(one["type"]) for one in found]), "\t")
        except OSError as error:
            is_full = error.errno in (errno.EFBIG, errno.ENOSPC)
            if not is_full:
                raise
    if is_full:
        raise ReportedFailure("too-large")
    return answer_of()


# --- the connection


@contextlib.contextmanager
def _linked(request: Header) -> Iterator[sa.Connection]:
    """Connect, and begin a transaction that only reads; refuse a user that may do more."""
    url = _url(request)
    is_mysql = url.get_backend_name() in MYSQL
    options: dict[str, Any] = {"connect_timeout": _CONNECT_S} if is_mysql else {}
    engine, link = None, None
    try:
        engine = sa.create_engine(
            url, poolclass=NullPool, connect_args=options, hide_parameters=True
        )
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError, ValueError, TypeError):
        engine = None
    if engine is None:
        raise ReportedFailure("no-driver")
    with contextlib.suppress(Exception):  # of any driver
        link = engine.connect()
    if link is None:
        raise ReportedFailure("unreachable")
    with contextlib.closing(link):
        if is_mysql:
            _begin_mysql(link, request)
        yield link


def _url(request: Header) -> URL:
    """Return the address with a driver and the password; an SQLite file is opened read-only."""
    url = None
    with contextlib.suppress(sa.exc.ArgumentError, ValueError):
        url = make_url(str(request["address"]))
    if url is None:
        raise ReportedFailure("no-driver")
    if url.drivername in MYSQL:
        url = url.set(drivername=f"{url.drivername}+pymysql")
    if request["password"] is not None:
        url = url.set(password=str(request["password"]))
    if url.get_backend_name() == "sqlite":  # else a file that is not there would be made
        path = f"file:{quote(url.database or '')}"
        url = url.set(database=path, query={"mode": "ro", "uri": "true"})
    return url


def _begin_mysql(link: sa.Connection, request: Header) -> None:
    """Begin a transaction that only reads, with times in UTC; refuse a user that may do more."""
    cipher = link.exec_driver_sql("SHOW SESSION STATUS LIKE 'Ssl_cipher'").fetchone()
    if not request["is_here"] and (cipher is None or not cipher[1]):
        raise ReportedFailure("unencrypted")
    grants = [str(row[0]) for row in link.exec_driver_sql("SHOW GRANTS")]
    if not grants or not all(map(_only_reads, grants)):
        raise ReportedFailure("unsafe")
    limit = float(str(request["limit_s"]))
    is_mariadb = getattr(link.dialect, "is_mariadb", False)
    link.exec_driver_sql(
        f"SET SESSION max_statement_time = {limit:.0f}"
        if is_mariadb
        else f"SET SESSION max_execution_time = {limit * 1000:.0f}"
    )
    link.exec_driver_sql("SET SESSION time_zone = '+00:00'")
    link.exec_driver_sql("START TRANSACTION READ ONLY")


def _only_reads(grant: str) -> bool:
    if grant.endswith(_FOR_ALL):
        return True
    return _GRANT.fullmatch(grant) is not None and "WITH GRANT OPTION" not in grant


# --- the table


def _columns(link: sa.Connection, request: Header) -> Sequence[Any]:  # SQLAlchemy's own dicts
    """Return the columns of the wanted table or view, as the catalogue describes them."""
    schema, table = str(request["schema"]) or None, str(request["table"])
    found: Sequence[Any] = []
    if (schema or "").casefold() not in _SYSTEM:
        with contextlib.suppress(sa.exc.SQLAlchemyError):
            look = sa.inspect(link)
            names = [*look.get_table_names(schema=schema), *look.get_view_names(schema=schema)]
            found = look.get_columns(table, schema=schema) if table in names else []
    if link.dialect.name in MYSQL:  # SQLAlchemy reads the names from SQL, and leaves `` in them
        found = [{**one, "name": str(one["name"]).replace("``", "`")} for one in found]
    if not found or not all(str(one["name"]).isprintable() for one in found):
        raise ReportedFailure("no-table")
    return found


def _select(link: sa.Connection, request: Header, found: Sequence[Any]) -> sa.Select[Any]:
    """Return a SELECT of all columns by their names; the dialect quotes each of them."""

    def name(text: object) -> sa.sql.quoted_name:
        return sa.sql.quoted_name(str(text), quote=True)

    schema = str(request["schema"])
    columns: list[sa.ColumnClause[Any]] = [sa.column(name(one["name"])) for one in found]
    table = sa.table(name(request["table"]), *columns, schema=name(schema) if schema else None)
    is_mysql = link.dialect.name in MYSQL
    asked = [
        # type_coerce: SQLAlchemy leaves the value as the driver gives it
        sa.type_coerce(sa.cast(column, sa.Double()), sa.types.NullType())
        if is_mysql and _is_single(one["type"])
        else column
        for column, one in zip(columns, found, strict=True)
    ]
    return sa.select(*asked).select_from(table)


def _is_single(kind: object) -> bool:
    """Return True for a type of single precision, of which MySQL shows only six digits."""
    return type(kind) is FLOAT


def _type_of(kind: object) -> str:
    """Return the type of a column that a proposed card has."""
    match kind:
        case TINYINT(display_width=1) | sa.types.Boolean():
            return "boolean"
        case BIT(length=1 | None):
            return "boolean"
        case sa.types.Integer() | YEAR() | BIT():
            return "integer"
        case sa.types.Numeric() | sa.types.Float():
            return "number"
        case sa.types.DateTime():
            return "timestamp"
        case sa.types.Date():
            return "date"
        case _:
            return "text"


# --- the cells


def _texts(
    rows: sa.Result[Any], spellings: Sequence[Callable[[object], str]]
) -> Iterator[list[str]]:
    for row in rows:
        yield [
            NO_VALUE if value is None else spelled(value)
            for spelled, value in zip(spellings, row, strict=True)
        ]


def _spelling(kind: object) -> Callable[[object], str]:
    """Return how the values of a column become texts."""
    if isinstance(kind, BIT):
        return _bits
    return _single if _is_single(kind) else _text


def _text(value: object) -> str:
    match value:
        case bytearray() | memoryview():
            return bytes(value).hex()
        case datetime():
            utc = value if value.tzinfo is None else value.astimezone(UTC)
            return utc.replace(tzinfo=None).isoformat(" ")
        case timedelta():
            return _duration(value)
        case set() | frozenset():
            return ",".join(sorted(map(str, value)))
        case _:
            return spell(value)


def _duration(value: timedelta) -> str:
    """Return a TIME of MySQL, which reaches from -838:59:59 to 838:59:59."""
    size = abs(value)
    seconds = size.days * 86_400 + size.seconds
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    part = f".{size.microseconds:06}" if size.microseconds else ""
    return f"{'-' if value < timedelta(0) else ''}{text}{part}"


def _bits(value: object) -> str:
    return str(int.from_bytes(value, "big")) if isinstance(value, bytes) else _text(value)


def _single(value: object) -> str:
    """Return the shortest text that is this number of single precision."""
    if not isinstance(value, float):
        return _text(value)
    stored = struct.pack("<f", value)
    for digits in range(6, 10):
        text = f"{value:.{digits}g}"
        if struct.pack("<f", float(text)) == stored:
            return spell(float(text))
    return spell(value)


def main() -> None:
    """Serve the parent's requests until the parent closes the pipe."""
    serve_source({"columns": columns, "fetch": fetch})
