"""The database interface of the ledger; SQLite and PostgreSQL implement it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from sfumato.dp.refusal import Bug, Refused

FaultCode = Literal["busy", "full", "lost", "unsound", "broken"]

_WHY: Final[dict[FaultCode, str]] = {
    "busy": "another process locks it",
    "full": "there is no space left",
    "lost": "the database could not be reached, read or written",
    "unsound": "the database does not keep acknowledged writes",
    "broken": "the database rejected a statement of sfumato's",
}


class Fault(Exception):
    """A database error, reduced to a code: the driver's text could contain a value or a host."""

    def __init__(self, code: FaultCode) -> None:
        super().__init__(code)
        self.code = code


def exception_of(code: FaultCode) -> Refused | Bug:
    """Return the exception to raise for a database error of this code: a refusal or a bug."""
    if code == "busy":
        return Refused(
            "ledger-busy", "Another process is writing to the ledger.", "Try again in a minute."
        )
    if code in ("full", "lost"):
        return Refused(
            "ledger-unavailable",
            f"The ledger could not be used: {_WHY[code]}.",
            "Tell the operator. Later, ask again with the same operation id, so that you are "
            "charged only once.",
        )
    return Bug(f"the ledger could not be used: {_WHY[code]}")


@dataclass(frozen=True)
class Dialect:
    """SQL texts in which SQLite and PostgreSQL differ."""

    integer: str
    table_end: str
    least: str
    lock: str  # appended to the SELECT that reads the head, to lock it
    exists: str  # a query that returns a row if the ledger's tables exist
    bytewise: str  # appended to a text column, to compare it byte by byte
    guards: tuple[str, ...]  # SQL statements that make entries and answers append-only


class DatabaseLink(Protocol):
    """One open database connection; SQL parameters are `?`, and every error is a Fault."""

    def check_place(self) -> None:
        """Raise a Fault if the database file was moved or replaced since it was opened."""
        ...

    def begin(self) -> None:
        """Start a read-write transaction."""
        ...

    def begin_reading(self) -> None:
        """Start a read-only transaction that sees one snapshot."""
        ...

    def commit(self) -> None:
        """Commit the transaction; return when all its changes are durable."""
        ...

    def rollback(self) -> None:
        """Roll back the open transaction; do nothing if there is none."""
        ...

    # Any: the type of each column depends on the table
    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one SQL statement; return all rows of its result."""
        ...

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        """Run one SQL statement; return how many rows it changed."""
        ...

    def origin(self) -> str:
        """Return an id of the database, to detect that the ledger was moved to another one.

        PostgreSQL's id also differs after the promotion of a replica. SQLite's id is the same for
        every file.
        """
        ...

    def close(self) -> None:
        """Close the database connection."""
        ...


class Database(Protocol):
    """Location of a database for the ledger or the records, and its SQL dialect."""

    @property
    def dialect(self) -> Dialect:
        """Return the SQL dialect of this database."""
        ...

    def connect(self) -> DatabaseLink:
        """Open a connection; raise a Fault if its settings would not make commits durable."""
        ...
