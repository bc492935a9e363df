"""The records database: catalogue, users and jobs, separate from the ledger.

It holds no rows of data sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sfumato.storage.database import Database, DatabaseLink, Fault, FaultCode, exception_of
from sfumato.storage.shared_connection import SharedConnection


class Records:
    """Records database (catalogue, users and jobs) on one connection, for one thread at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held = SharedConnection(database.connect)

    def make(self, tables: Sequence[str]) -> None:
        """Create those of the tables that don't exist."""
        whole = self._database.dialect.table_end
        with self.change() as link:
            for table in tables:
                link.change(table.format(integer=self._database.dialect.integer, table_end=whole))

    @property
    def made(self) -> int:
        """Return how many connections this object has made so far, to detect a reconnect.

        After a reconnect, the database may be a restored one, so cached rows may be stale.
        """
        return self._held.made

    @property
    def lock_rows(self) -> str:
        """Return the SQL suffix of a SELECT that locks its rows until the transaction ends."""
        return self._database.dialect.lock

    # Any: the type of each column depends on the table
    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one SQL statement and return its rows; reconnect once if the connection is lost."""
        return self._held.seen(lambda link: link.rows(sql, values))

    @contextmanager
    def change(self) -> Iterator[DatabaseLink]:
        """Run a block as one transaction: commit at its end, roll back if it raises."""
        with self._held.lock:
            code: FaultCode
            try:
                link = self._held.connected()
                link.begin()
                yield link
                link.commit()
                return
            except Fault as fault:
                code = fault.code
            except BaseException:
                self.close()  # closing rolls the transaction back
                raise
            self.close()
        raise exception_of(code)

    def close(self) -> None:
        """Close the database connection; the next call opens a new one."""
        self._held.drop()
