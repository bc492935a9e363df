"""Child process of the PostgreSQL engine: it copies tables to the server, and queries them.

Queries run under the read-only role (the reader).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final, LiteralString, cast

import numpy as np
import psycopg
from psycopg import sql

from sfumato.engines.duckdb.stream_period import count_remote_period
from sfumato.engines.kernel.packed_rows import Extent, extent_sql
from sfumato.engines.postgres.address import CONNECTION_OPTIONS
from sfumato.engines.postgres.reader_privileges import excess_privileges
from sfumato.engines.postgres.reader_role import make_reader, unmake_reader, welcome_reader
from sfumato.engines.postgres.row_ranges import Link, add_up, counted, extent_of
from sfumato.engines.shared.cell_assembly import Assembly, Columns, Layout, cells_bytes
from sfumato.engines.shared.cold_path import KernelPlan
from sfumato.engines.shared.driver_process import HostEnded, RequestHandler, serve
from sfumato.engines.shared.locked_connection import Room
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.table_copy import Copied, copy_out, copying_of
from sfumato.vault.engine_port import SIGNAL, START

_TYPES: Final = {"VARCHAR": 'TEXT COLLATE "C"', "TIMESTAMP": "TIMESTAMP(6)"}
_PIECE: Final = 1 << 20
CONNECTIONS: Final = (
    2  # parallel connections that fetch rows; PostgreSQL gives a query two workers too
)
_OURS: Final = re.compile(r"rows_[0-9a-f]{24}_[0-9]{1,3}")
# Settings that a role may change for its session. They keep bound parameters out of the server's
# error log, give dates one format, and end the query of a lost client.
_SESSION: Final = {
    "log_parameter_max_length_on_error": "0",
    "debug_print_parse": "off",
    "debug_print_rewritten": "off",
    "debug_print_plan": "off",
    "client_min_messages": "error",
    "client_connection_check_interval": "500",
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "default_transaction_read_only": "on",
    "idle_in_transaction_session_timeout": "60000",
    "jit": "off",
    "search_path": "pg_catalog",
    "lock_timeout": "5000",
}


@dataclass
class WorkerState:
    """State of PostgreSQL's driver process: start message, connections, sizes of tables."""

    start: Header
    links: list[Link] = field(default_factory=list)
    extents: dict[str, Extent] = field(default_factory=dict)  # cache; a copied table never changes

    def measure(self, request: Header) -> bytes:
        """Return the exact counts and sums of a query, as bytes.

        Raise `HostEnded` if an operator of the server ended the query.
        """
        try:
            return self._measured(request)
        except psycopg.errors.AdminShutdown:  # pg_terminate_backend, or a server shutdown
            pass
        raise HostEnded(SIGNAL)

    def _measured(self, request: Header) -> bytes:
        assembly = Assembly(Layout.read(request["layout"]))
        timeout, cold = str(request["timeout_ms"]), request["cold"]
        if cold is not None:
            with self._transactions(CONNECTIONS, timeout) as links:
                read = KernelPlan.read(cold)
                assembly.add(range(len(read.tallies)), self._added_up(links, read))
            return assembly.as_bytes()
        with self._transactions(1, timeout) as links:
            for statement in cast(list[dict[str, Any]], request["statements"]):
                assembly.add(statement["tallies"], self._run_statement(links[0], statement))
        return assembly.as_bytes()

    def count_period(self, request: Header) -> bytes:
        """Count one period of a stream; return the row count of its block of periods, as bytes.

        The block is the order's first period up to this one. No connection stays in use while the
        counts are merged with the local state of the stream.
        """
        timeout, memory_mb = str(request["timeout_ms"]), int(str(self.start["memory_mb"]))

        def ask(low: int, high: int) -> Columns:
            bound = [*cast(list[object], request["parameters"]), low, high]
            with self._transactions(1, timeout) as (link,):
                return counted(link, str(request["sql"]), bound)

        return cells_bytes(count_remote_period(Room(memory_mb, 2, "", ()), request, ask))

    @contextmanager
    def _transactions(self, count: int, timeout_ms: str) -> Iterator[list[Link]]:
        """Yield connections to the server, each in its own read-only transaction with a timeout."""
        links = [self._first_connection(), *self._further_connections(count)]
        with ExitStack() as stack:
            for link in links:
                stack.enter_context(link.transaction())
                link.execute("SET TRANSACTION READ ONLY")
                link.execute("SELECT set_config('statement_timeout', %s, true)", (timeout_ms,))
            yield links

    def _added_up(self, links: list[Link], cold: KernelPlan) -> Columns:
        asked = extent_sql(cold)
        if asked not in self.extents:
            self.extents[asked] = extent_of(links[0], cold)
        return add_up(links, cold, self.extents[asked], str(self.start["salt"]))

    def _run_statement(self, link: Link, statement: Mapping[str, Any]) -> Columns:
        text = (
            statement["sql"].replace("%", "%%").replace("?", "%s")
        )  # our SQL has no ? inside a string
        bound = [self.start["salt"] if p is None else p for p in statement["parameters"]]
        with link.cursor() as cursor:
            cursor.execute(cast(LiteralString, text), bound, prepare=False)
            names = [column.name for column in cursor.description or ()]
            rows = cursor.fetchall()
        columns = zip(*rows, strict=True) if rows else ((),) * len(names)
        return {n: _array(n, values) for n, values in zip(names, columns, strict=True)}

    def _first_connection(self) -> Link:
        """Return the first connection to the server; raise `HostEnded` if it can't be reached.

        No row was read yet, so the failure reveals nothing about rows.
        """
        with suppress(psycopg.OperationalError):
            return self._connection(0)
        raise HostEnded(START)

    def _further_connections(self, count: int) -> Iterator[Link]:
        """Yield further connections to the server, as many as it allows."""
        with suppress(psycopg.OperationalError):
            for index in range(1, count):
                yield self._connection(index)

    def _connection(self, index: int) -> Link:
        """Return a connection of the reader role; reconnect if the connection was lost."""
        if index < len(self.links) and _is_alive(self.links[index]):
            return self.links[index]
        for old in self.links[index:]:
            old.close()
        del self.links[index:]
        link = psycopg.connect(str(self.start["reader"]), **CONNECTION_OPTIONS)
        settings = {**_SESSION, "work_mem": f"{self.start['work_mem_mb']}MB"}
        for name, value in settings.items():
            link.execute("SELECT set_config(%s, %s, false)", (name, value))
        if self._excess_privileges(link):  # a reader with excess privileges never runs a query
            link.close()
            raise PermissionError
        self.links.append(link)
        return link

    def _excess_privileges(self, link: psycopg.Connection[Any]) -> tuple[str, ...]:
        return excess_privileges(link, str(self.start["role"]), str(self.start["schema"]))

    def probe(self, _request: Header) -> bytes:
        """Return the reader role's excess privileges, as JSON."""
        with psycopg.connect(str(self.start["reader"]), **CONNECTION_OPTIONS) as link:
            return json.dumps(self._excess_privileges(link)).encode("ascii")

    def reader(self, request: Header) -> bytes:
        """Create the schema and the reader role; return the restrictions not set, as JSON.

        Without a password, an existing reader gets access to the schema instead.
        """
        owner, schema, role = (str(self.start[name]) for name in ("owner", "schema", "role"))
        if request["password"] is None:
            welcome_reader(owner, schema, role)
            return b"[]"
        return json.dumps(make_reader(owner, schema, role, str(request["password"]))).encode()

    def unreader(self, request: Header) -> bytes:
        """Drop the empty schema, and the reader role if the request says so."""
        owner, schema, role = (str(self.start[name]) for name in ("owner", "schema", "role"))
        unmake_reader(owner, schema, role, with_role=request["with_role"] is True)
        return b""

    def forget(self, request: Header) -> bytes:
        """Drop tables that this engine created on the server; a missing table is not an error."""
        names = cast(list[str], request["names"])
        if not all(_OURS.fullmatch(name) for name in names):
            raise ValueError
        with psycopg.connect(str(self.start["owner"]), **CONNECTION_OPTIONS) as link:
            link.execute("SET lock_timeout = '30s'")
            for name in names:
                table = sql.Identifier(str(self.start["schema"]), name)
                link.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
        return b""

    def load(self, request: Header) -> bytes:
        """Copy prepared tables to the server; return what a marker file has to say of each table.

        A marker file is a local file that stands for tables on the server. Return no entries if the
        server can't be reached.
        """
        copies = copy_out(copying_of(request, self.start, "csv"))
        named = list(zip(cast(list[str], request["names"]), copies, strict=True))
        try:
            owner = psycopg.connect(str(self.start["owner"]), **CONNECTION_OPTIONS)
        except psycopg.OperationalError:
            return json.dumps({"tables": []}).encode("ascii")  # nothing has been made
        with owner as link:
            link.execute("SET log_parameter_max_length_on_error = 0")
            with link.transaction():
                for name, copied in named:
                    self._fill(link, sql.Identifier(str(self.start["schema"]), name), copied)
            for name, _ in named:
                table = sql.Identifier(str(self.start["schema"]), name)
                link.execute(sql.SQL("VACUUM (FREEZE, ANALYZE) {}").format(table))
        known = [{"table": name, **copied.as_json()} for name, copied in named]
        return json.dumps({"tables": known}).encode("ascii")

    def _fill(self, link: Link, table: sql.Identifier, copied: Copied) -> None:
        link.execute(_table_sql(table, copied))
        _copy_in(link, table, copied.file)
        if "person" in dict(copied.columns):  # rows are sorted by person, so a BRIN index is enough
            range_index = "CREATE INDEX ON {} USING brin (person) WITH (pages_per_range = 16)"
            link.execute(sql.SQL(range_index).format(table))
        reader = sql.Identifier(str(self.start["role"]))
        link.execute(sql.SQL("REVOKE ALL ON {} FROM PUBLIC").format(table))
        link.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(table, reader))


def _is_alive(link: psycopg.Connection[Any]) -> bool:
    """Say whether a connection to the server still works.

    So a server restart doesn't fail the next query.
    """
    try:
        link.execute("SELECT 1")
    except psycopg.OperationalError:
        link.close()
    return not link.closed


def _array(name: str, values: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """Return a result column as a numpy array: sums and counts as int64, keys as objects."""
    if name[0] == "g" and name[1:].isdigit():
        keys = np.empty(len(values), dtype=object)
        keys[:] = [v if isinstance(v, date | bool | str) else int(v) for v in values]
        return keys
    return np.array([int(value) for value in values], dtype=np.int64)


def _table_sql(table: sql.Identifier, copied: Copied) -> sql.Composed:
    columns = ", ".join(f"{name} {_TYPES.get(kind, kind)}" for name, kind in copied.columns)
    return sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(columns))


def _copy_in(link: Link, table: sql.Identifier, file: Path) -> None:
    text = sql.SQL("COPY {} FROM STDIN (FORMAT csv, NULL '')").format(table)
    with file.open("rb") as source, link.cursor() as cursor, cursor.copy(text) as copy:
        while piece := source.read(_PIECE):
            copy.write(piece)


def _start_worker(start: Header) -> Mapping[str, RequestHandler]:
    state = WorkerState(start)
    return {
        "measure": state.measure, "take": state.count_period, "load": state.load,
        "forget": state.forget, "probe": state.probe, "reader": state.reader,
        "unreader": state.unreader,
    }  # fmt: skip


def main() -> None:
    """Serve the parent's requests until the parent closes the pipe."""
    serve(_start_worker)
