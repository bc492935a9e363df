"""What the ledger asks of a database, in words that SQLite and PostgreSQL share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from sfumato.dp.refusal import Bug, Refused

FaultCode = Literal["busy", "full", "lost", "unsound", "broken"]

_WHY: Final[dict[FaultCode, str]] = {
    "busy": "another process holds it",
    "full": "there is no space left",
    "lost": "the database could not be reached, read or written",
    "unsound": "the database does not keep what it has acknowledged",
    "broken": "the database refused a statement of ours",
}


class Fault(Exception):
    """A database error cut down to a code: its own text could carry a value or a host."""

    def __init__(self, code: FaultCode) -> None:
        super().__init__(code)
        self.code = code


def spoken(code: FaultCode) -> Refused | Bug:
    """Return the exception by which a fault is told to the house."""
    if code == "busy":
        return Refused("ledger-busy", "The ledger is held by another process.", "Try again.")
    if code in ("full", "lost"):
        return Refused(
            "ledger-unavailable",
            f"The ledger could not be used: {_WHY[code]}.",
            "Tell the operator; then ask again with the same operation id, which pays once.",
        )
    return Bug(f"the ledger could not be used: {_WHY[code]}")


@dataclass(frozen=True)
class Dialect:
    """Where the two databases spell the same thing differently."""

    integer: str
    table_end: str
    least: str
    lock: str  # appended to the SELECT that takes the head
    exists: str  # returns a row when the ledger's tables are there
    bytewise: str  # appended to a text that is compared by its bytes
    guards: tuple[str, ...]  # statements that make entries and answers append-only


class DatabaseLink(Protocol):
    """One open connection; statements use `?`; whatever goes wrong leaves as a Fault."""

    def check_place(self) -> None:
        """Raise a Fault if what the connection leads to is not what lies in its place now."""
        ...

    def begin(self) -> None:
        """Start a transaction that may write."""
        ...

    def begin_reading(self) -> None:
        """Start a transaction that sees one moment and writes nothing."""
        ...

    def commit(self) -> None:
        """Return when everything since `begin` is durable."""
        ...

    def rollback(self) -> None:
        """Undo everything since `begin`; nothing to undo is no fault."""
        ...

    # Any: a column's type is the table's business
    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of one statement."""
        ...

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        """Return how many rows one statement has changed."""
        ...

    def origin(self) -> str:
        """Return what tells this database from another one, or from its own replica."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


class Database(Protocol):
    """Where a ledger lies and how it is spoken to."""

    @property
    def dialect(self) -> Dialect:
        """Return how this database spells things."""
        ...

    def connect(self) -> DatabaseLink:
        """Return a fresh connection whose durability has been checked."""
        ...
