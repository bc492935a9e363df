"""The ledger in PostgreSQL: synchronous commits, and a row lock on the head for one writer."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import errors

from sfumato.dp.ports import RandomSource
from sfumato.storage import ledger_creation
from sfumato.storage.database import Dialect, Fault, FaultCode
from sfumato.storage.ledger_tables import APPEND_ONLY
from sfumato.storage.records_database import Records
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault.ports import Clock

_ERRORS: Final = (psycopg.Error, UnicodeError, OverflowError)
_CHECKED: Final = """SELECT current_setting('synchronous_commit'), current_setting('fsync'),
    current_setting('full_page_writes'), current_setting('server_encoding'), pg_is_in_recovery()"""
_SOUND: Final = ("on", "on", "on", "UTF8", False)
# Take the timeline from the current WAL position. The control file shows a promotion only after the
# next checkpoint.
_ORIGIN: Final = """SELECT system_identifier,
    substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) FROM pg_control_system()"""


def create_ledger(url: str, clock: Clock, dice: RandomSource, *, wait_s: float = 10) -> SqlLedger:
    """Create a ledger in the connection's first schema; refuse if the schema has one."""
    return ledger_creation.create_ledger(_PostgresSchema(url, wait_s), clock, dice)


def open_ledger(url: str, clock: Clock, *, wait_s: float = 10) -> SqlLedger:
    """Open the ledger in the connection's first PostgreSQL schema; refuse if there is none."""
    return ledger_creation.open_ledger(_PostgresSchema(url, wait_s), clock)


def open_records(url: str, *, wait_s: float = 10) -> Records:
    """Open the records database in the connection's first schema, next to the ledger's tables."""
    return Records(_PostgresSchema(url, wait_s))


def _guards() -> tuple[str, ...]:
    refuse = (
        "CREATE FUNCTION ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'append-only'; END $$"
    )
    triggers = (
        f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only()"
        for table in APPEND_ONLY
    )
    return (refuse, *triggers)


@dataclass(frozen=True)
class _PostgresSchema:
    """The PostgreSQL schema that a URL names, as the place of a ledger or of records."""

    url: str
    wait_s: float

    @property
    def dialect(self) -> Dialect:
        return Dialect(
            integer="BIGINT",
            table_end="",
            least="LEAST",
            lock=" FOR UPDATE",
            exists="SELECT 1 WHERE to_regclass('ledger_head') IS NOT NULL",
            bytewise=' COLLATE "C"',
            guards=_guards(),
        )

    def connect(self) -> PostgresLink:
        return PostgresLink(self.url, self.wait_s)


class PostgresLink:
    """One open connection to PostgreSQL, whose settings were checked to make commits durable."""

    def __init__(self, url: str, wait_s: float) -> None:
        self._raw = _opened(url, wait_s)
        wait_ms = int(wait_s * 1000)
        # Sent in every transaction, because a connection pooler may give each one another session.
        self._begin = (
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on;"
            f" SET LOCAL lock_timeout = {wait_ms}; SET LOCAL statement_timeout = {6 * wait_ms};"
            f" SET LOCAL idle_in_transaction_session_timeout = {6 * wait_ms}"
        )
        try:
            self._check_settings()
        except Fault:
            self.close()
            raise

    def _check_settings(self) -> None:
        self.begin()
        found = self.rows(_CHECKED)[0]
        self.rollback()
        if found != _SOUND:
            raise Fault("unsound")

    def check_place(self) -> None:
        """Do nothing: a server doesn't replace its database under a connection, unlike a file."""

    def begin(self) -> None:
        self.change(self._begin)

    def begin_reading(self) -> None:
        self.change("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def commit(self) -> None:
        self.change("COMMIT")

    def rollback(self) -> None:
        if self._raw.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self.change("ROLLBACK")

    # Any: the type of each column depends on the table
    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._run(sql, values).fetchall()

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        return self._run(sql, values).rowcount

    def origin(self) -> str:
        system, timeline = self.rows(_ORIGIN)[0]
        return f"postgresql {system} {timeline}"

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._raw.close()

    def _run(self, sql: str, values: Sequence[object]) -> psycopg.Cursor[tuple[Any, ...]]:
        code: FaultCode
        try:
            return self._raw.execute(sql.replace("?", "%s"), values or None)
        except _ERRORS as error:
            code = _code_of(error)
        if self._raw.closed:
            code = "lost"
        raise Fault(code)  # raised outside the block, so that the driver's error isn't its context


def _opened(url: str, wait_s: float) -> psycopg.Connection[tuple[Any, ...]]:
    with contextlib.suppress(*_ERRORS):
        return psycopg.connect(url, autocommit=True, connect_timeout=max(2, int(wait_s)))
    raise Fault("lost")


def _code_of(error: Exception) -> FaultCode:
    match error:
        case errors.LockNotAvailable() | errors.DeadlockDetected() | errors.QueryCanceled():
            return "busy"
        case errors.DiskFull():
            return "full"
        case errors.IoError() | errors.ReadOnlySqlTransaction():
            return "lost"
        case _:
            return "broken"
