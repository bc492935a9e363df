"""One database for what is no ledger: the catalogue, who may come in, jobs; never a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sfumato.storage.database import Database, DatabaseLink, Fault, FaultCode, spoken
from sfumato.storage.shared_connection import SharedConnection


class Records:
    """One connection (`shared_connection.py`); threads take turns."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held = SharedConnection(database.connect)

    def make(self, tables: Sequence[str]) -> None:
        """Make the tables that are not there yet."""
        whole = self._database.dialect.table_end
        with self.change() as link:
            for table in tables:
                link.change(table.format(integer=self._database.dialect.integer, table_end=whole))

    @property
    def made(self) -> int:
        """Return how often the connection was made: another may lead to a restored database."""
        return self._held.made

    @property
    def lock_rows(self) -> str:
        """Return what a SELECT ends with that holds its rows until the transaction is over."""
        return self._database.dialect.lock

    # Any: a column's type is the table's business
    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of one statement; a lost connection is made anew, once."""
        return self._held.seen(lambda link: link.rows(sql, values))

    @contextmanager
    def change(self) -> Iterator[DatabaseLink]:
        """Hold one transaction: durable when the block ends, undone when it raises."""
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
                self.close()  # which undoes what was begun
                raise
            self.close()
        raise spoken(code)

    def close(self) -> None:
        """Let go of the connection; the next call makes a new one."""
        self._held.drop()
