"""Child process that copies one PostgreSQL source table to a file.

It uses a read-only transaction, and refuses a role that may do more than read. No error text of the
server is passed on, because it may quote a value or the address.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from sfumato.engines.postgres.address import CONNECTION_OPTIONS
from sfumato.engines.postgres.reader_privileges import EXCESS_PRIVILEGES, FILES
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.source_process import (
    ReportedFailure,
    answer_of,
    limit_file,
    serve_source,
)
from sfumato.system.csv_writer import NO_VALUE

# Privileges that the role must not have. Which other tables it may read is the operator's decision.
CLOSED: Final = (
    "superuser", "create-roles", "create-databases", "owner-of-something", "create-in-database",
    "create-in-schema", "write", "files",
)  # fmt: skip
_SESSION: Final = {
    "search_path": "pg_catalog",
    "default_transaction_read_only": "on",
    "client_min_messages": "error",
    "log_parameter_max_length_on_error": "0",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "lock_timeout": "5000",
    "idle_in_transaction_session_timeout": "60000",
}
_TABLE: Final = """SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm')
 AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
 AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')"""
_COLUMNS: Final = """SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
 WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_TYPES: Final[Mapping[str, str]] = {
    "smallint": "integer", "integer": "integer", "bigint": "integer",
    "numeric": "number", "real": "number", "double precision": "number",
    "boolean": "boolean", "date": "date",
    "timestamp without time zone": "timestamp", "timestamp with time zone": "timestamp",
}  # fmt: skip
_ZONED: Final = "timestamp with time zone"
Link = psycopg.Connection[Any]


def columns(request: Header) -> bytes:
    """Return the source table's column names and types, from the catalogue; read no row."""
    with _linked(request) as link, link.transaction():
        found = _columns(link, request)
    return answer_of(columns=[[name, _TYPES.get(kind, "text")] for name, kind in found])


def fetch(request: Header) -> bytes:
    """Write the source table's rows to a file as tab-separated text; refuse too many bytes."""
    place, max_bytes = limit_file(request)
    with (
        place.open("r+b") as target,  # the parent has created it
        _linked(request) as link,
        link.transaction(),
    ):
        link.execute("SET TRANSACTION READ ONLY")
        text, bytes_left = _copy(request, _columns(link, request)), max_bytes
        with link.cursor() as cursor, cursor.copy(text) as copy:
            for piece in copy:
                bytes_left -= len(piece)
                if bytes_left < 0:
                    raise ReportedFailure("too-large")
                target.write(piece)
    return answer_of()


def _linked(request: Header) -> Link:
    """Return a read-only connection to the source database; refuse a role that may do more."""
    try:
        link = psycopg.connect(str(request["address"]), **CONNECTION_OPTIONS)
    except psycopg.Error:
        raise ReportedFailure("unreachable") from None
    settings = {**_SESSION, "statement_timeout": str(request["timeout_ms"])}
    for name, value in settings.items():
        link.execute("SELECT set_config(%s, %s, false)", (name, value))
    asked = ", ".join(f"coalesce(({EXCESS_PRIVILEGES[name]}), true)" for name in CLOSED)
    found = link.execute(f"SELECT {asked}".encode(), {"files": FILES}).fetchone() or ()
    if any(is_open for _, is_open in zip(CLOSED, found, strict=True)):
        link.close()
        raise ReportedFailure("unsafe")
    return link


def _columns(link: Link, request: Header) -> list[tuple[str, str]]:
    row = link.execute(_TABLE, (request["schema"], request["table"])).fetchone()
    if row is None:
        raise ReportedFailure("no-table")
    found = [(str(n), str(k)) for n, k in link.execute(_COLUMNS, (row[0],)).fetchall()]
    if not found or not all(name.isprintable() for name, _ in found):
        raise ReportedFailure("no-table")
    return found


def _copy(request: Header, found: list[tuple[str, str]]) -> sql.Composed:
    """Return the COPY TO STDOUT statement that exports the source table.

    NULL becomes a marker that ingest reads as NULL.
    """
    table = sql.Identifier(str(request["schema"]), str(request["table"]))
    asked = sql.SQL(", ").join(_column(name, kind) for name, kind in found)
    return sql.SQL(
        "COPY (SELECT {} FROM {}) TO STDOUT"
        " (FORMAT csv, HEADER, DELIMITER E'\\t', NULL {}, ENCODING 'UTF8')"
    ).format(asked, table, sql.Literal(NO_VALUE))


def _column(name: str, kind: str) -> sql.Composed:
    text: LiteralString = "{0} AT TIME ZONE 'UTC' AS {0}" if kind == _ZONED else "{0}"
    return sql.SQL(text).format(sql.Identifier(name))


def main() -> None:
    """Serve the parent's requests until the parent closes the pipe."""
    serve_source({"columns": columns, "fetch": fetch})
