"""The ledger in one SQLite file: WAL journal, every commit synced to disk, one writer at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import apsw

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug, Refused
from sfumato.storage import ledger_creation
from sfumato.storage.database import Dialect, Fault, FaultCode
from sfumato.storage.ledger_tables import APPEND_ONLY
from sfumato.storage.records_database import Records
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.system.durable_files import make_folder, sync
from sfumato.vault.ports import Clock

OLDEST: Final = (3, 51, 3)  # in older versions, a reset of the WAL could corrupt the file
_FULL: Final = 2
_ERRORS: Final = (apsw.Error, UnicodeError, OverflowError)
_SETTINGS: Final = (
    "foreign_keys = ON",
    "trusted_schema = OFF",
    "journal_mode = {journal}",
    "synchronous = FULL",
)
Journal = Literal["wal", "truncate"]


def create_ledger(path: Path, clock: Clock, dice: RandomSource, *, wait_s: float = 10) -> SqlLedger:
    """Create a ledger in a SQLite file that only its owner may read; refuse if it has one."""
    _make_file(path)
    return ledger_creation.create_ledger(_SqliteFile(path, wait_s), clock, dice)


def open_ledger(path: Path, clock: Clock, *, wait_s: float = 10) -> SqlLedger:
    """Open the ledger in a SQLite file; refuse if the file is missing, instead of creating it."""
    if not path.is_file():
        raise Refused(
            "vault-missing",
            "The ledger's file is missing.",
            "Restore the vault from its backup, or create a new vault.",
        )
    return ledger_creation.open_ledger(_SqliteFile(path, wait_s), clock)


def open_records(path: Path, *, wait_s: float = 30) -> Records:
    """Open a records database in a private SQLite file; create the file if it is missing."""
    _make_file(path)
    return Records(_SqliteFile(path, wait_s))


def open_forgetful_records(path: Path, *, wait_s: float = 30) -> Records:
    """Open a records database whose journal doesn't reveal the order of past writes.

    A WAL keeps the pages of about a thousand commits in order. This rollback journal holds only
    what the current commit replaces, and is truncated at its end.
    """
    _make_file(path)
    return Records(_SqliteFile(path, wait_s, "truncate"))


def _make_file(path: Path) -> None:
    make_folder(path.parent)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)
    sync(path.parent)


def _guards() -> tuple[str, ...]:
    return tuple(
        f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table}"
        f" BEGIN SELECT RAISE(ABORT, 'append-only'); END"
        for table in APPEND_ONLY
        for verb in ("UPDATE", "DELETE")
    )


_DIALECT: Final = Dialect(
    integer="INTEGER",
    table_end=" STRICT",
    least="min",
    lock="",  # empty, because BEGIN IMMEDIATE locks the whole file
    exists="SELECT 1 FROM sqlite_schema WHERE name = 'ledger_head'",
    bytewise="",
    guards=_guards(),
)


@dataclass(frozen=True)
class _SqliteFile:
    """The SQLite file of a ledger or of records, with its journal mode."""

    path: Path
    wait_s: float
    journal: Journal = "wal"

    @property
    def dialect(self) -> Dialect:
        return _DIALECT

    def connect(self) -> SqliteLink:
        return SqliteLink(self.path, self.wait_s, self.journal)


class SqliteLink:
    """One open connection to a SQLite file, whose settings were checked to make commits durable."""

    def __init__(self, path: Path, wait_s: float, journal: Journal = "wal") -> None:
        if tuple(map(int, apsw.sqlite_lib_version().split("."))) < OLDEST:
            raise Bug("this SQLite is too old to hold a ledger")
        self._path = str(path)  # `check_place` compares its inode with that of the open file
        self._file = _file_of(self._path)
        self._raw = _opened(path)
        self._raw.set_busy_timeout(int(wait_s * 1000))
        try:
            self._make_settings(journal)
        except Fault:
            self.close()
            raise

    def _make_settings(self, journal: Journal) -> None:
        for setting in _SETTINGS:
            self.rows(f"PRAGMA {setting.format(journal=journal)}")
        if journal == "truncate":
            self.rows("PRAGMA secure_delete = ON")
        wanted = {"journal_mode": journal, "synchronous": _FULL, "foreign_keys": 1}
        found = {name: self.rows(f"PRAGMA {name}")[0][0] for name in wanted}
        if found != wanted:
            raise Fault("unsound")

    def check_place(self) -> None:
        if _file_of(self._path) != self._file:
            raise Fault("lost")  # the file was moved or replaced: we would write to a deleted file

    def begin(self) -> None:
        self.check_place()
        self.rows("BEGIN IMMEDIATE")

    def begin_reading(self) -> None:
        self.rows("BEGIN")

    def commit(self) -> None:
        self.rows("COMMIT")

    def rollback(self) -> None:
        if self._raw.in_transaction:  # SQLite may have rolled back on its own
            self.rows("ROLLBACK")

    # Any: the type of each column depends on the table
    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        code: FaultCode
        bound: Any = tuple(values)  # Any: apsw's own union of the types that can be bound
        try:
            return list(self._raw.execute(sql, bound))
        except _ERRORS as error:
            code = _code_of(error)
        raise Fault(code)  # raised outside the block, so that the driver's error isn't its context

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        self.rows(sql, values)
        return self._raw.changes()

    def origin(self) -> str:
        return "sqlite"

    def close(self) -> None:
        with contextlib.suppress(apsw.Error):
            self._raw.close(True)


def _opened(path: Path) -> apsw.Connection:
    code: FaultCode
    try:
        return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    except _ERRORS as error:
        code = _code_of(error)
    raise Fault(code)


def _file_of(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _code_of(error: Exception) -> FaultCode:
    match error:
        case apsw.BusyError():
            return "busy"
        case apsw.FullError():
            return "full"
        case apsw.IOError() | apsw.CantOpenError() | apsw.ReadOnlyError():
            return "lost"
        case _:
            return "broken"
