"""Connections that the operator configures; owners name a connection and a table or data set.

A connection is to a database, to a place of DataLad data sets, or to a place in an S3 bucket.

So owners cannot choose the host that the service connects to, and never learn an address or a
password. A connection is a private file of the operator. The service reads it at each use, so a new
password or a removed owner takes effect at once.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets import object_store_service as object_store
from sfumato.features.data_sets.repository_service import check_address, is_repository, url_of
from sfumato.system.object_storage import BucketPlace
from sfumato.vault.card.data_card import NAME
from sfumato.vault.database_connection import TableReader, TableThere, read_table
from sfumato.vault.users import Caller

LARGEST: Final = 64 * 1024  # the most bytes of a connection file
_KEYS: Final = {"address", "owners", "tables"}


@dataclass(frozen=True)
class Connection:
    """A connection file: the database's address, and the owners and tables that are allowed."""

    address: str = field(repr=False)
    owners: tuple[str, ...]
    names: tuple[str, ...] | None  # None allows all tables that the database role may read
    bucket: BucketPlace | None = None  # of a connection to an S3 bucket

    def allows(self, wanted: TableThere) -> bool:
        """Return True if a table of the database is one of those that are allowed."""
        return self.names is None or any(self._is_named(one, wanted) for one in self.names)

    def _is_named(self, name: str, wanted: TableThere) -> bool:
        with contextlib.suppress(Refused):  # a name that no table can have
            return read_table(self.address, name) == wanted
        return False


@dataclass(frozen=True)
class Connections:
    """The database connections of one vault that are configured on this machine."""

    files: Mapping[str, Path]
    reader: TableReader

    def check(self) -> None:
        """Refuse a connection with an invalid name, file or address, at start-up."""
        for name in self.files:
            if not NAME.fullmatch(name):
                raise _unusable(name, "its name must be letters, digits, - and _")
            found = self._read(name)
            address = found.address
            if found.bucket is not None:
                object_store.check_installed()
            elif is_repository(address):
                check_address(address)
            else:
                self.reader.check(address)

    def names(self, caller: Caller) -> list[str]:
        """Return the names of the database connections that the caller may use."""
        return [name for name in self.files if self._for(caller, name) is not None]

    def holds(self, name: str) -> bool:
        """Return True if this machine has a database connection of this name."""
        return name in self.files

    def there(self, caller: Caller, name: str, table: str) -> TableThere:
        """Return the connection's table, with the database address, if the caller may read it.

        Refuse any other connection or table.
        """
        found = self._one(caller, name)
        wanted = read_table(found.address, table)
        if not found.allows(wanted):
            raise Refused(
                "source-unreadable",
                "The database connection has no table of that name that it may read.",
                "Name another table, or ask the operator for it.",
            )
        return wanted

    def repository(self, caller: Caller, name: str, data_set: str) -> str | None:
        """Return the URL of a DataLad data set of the connection, if the caller may read it.

        Return None if the connection is another. Refuse any other connection or data set.
        """
        found = self._one(caller, name)
        if not is_repository(found.address):
            return None
        url = url_of(found.address, data_set)
        self._check_named(found, data_set)
        return url

    def bucket(self, caller: Caller, name: str, path: str) -> BucketPlace | None:
        """Return the place in an S3 bucket of the connection, if the caller may read this path.

        Return None if the connection is another. Refuse any other connection or path.
        """
        found = self._one(caller, name)
        if found.bucket is None:
            return None
        object_store.check_path(path)
        self._check_named(found, path)
        return found.bucket

    def _check_named(self, found: Connection, data_set: str) -> None:
        if found.names is not None and data_set not in found.names:
            raise Refused(
                "source-unreadable",
                "The connection has no data set of that name that you may read.",
                "Name another data set, or ask the operator for it.",
            )

    def _one(self, caller: Caller, name: str) -> Connection:
        found = self._for(caller, name)
        if found is None:
            raise Refused(
                "connection-unknown",
                "There is no database connection of that name that you may use.",
                "Use one of your connections (GET /v1/connections), or ask an operator to set "
                "one up.",
            )
        return found

    def columns(self, caller: Caller, name: str, table: str) -> Sequence[tuple[str, str]]:
        """Return the names and types of a database table's columns; no row is read."""
        return self.reader.columns(self.there(caller, name, table))

    def fetch(self, caller: Caller, name: str, table: str, target: tuple[Path, int]) -> None:
        """Write a database table's rows into a file.

        `target` is the path of the file and its greatest size in bytes.
        """
        self.reader.fetch(self.there(caller, name, table), *target)

    def _for(self, caller: Caller, name: str) -> Connection | None:
        """Return the named connection if its file is readable and allows the caller; else None."""
        found = None
        with contextlib.suppress(Refused):
            found = self._read(name) if name in self.files else None
        return found if found is not None and caller.user in found.owners else None

    def _read(self, name: str) -> Connection:
        shape = _toml(name, self.files[name])
        address, tables = _text(name, shape.get("address")), shape.get("tables")
        is_bucket = object_store.is_object_store(address)
        others = set(shape) - _KEYS - (object_store.KEYS if is_bucket else set())
        if others:
            more = f", {', '.join(sorted(object_store.KEYS))}" if is_bucket else ""
            raise _unusable(name, f"it may contain only address, owners, tables{more}")
        return Connection(
            address,
            _texts(name, shape.get("owners"), "owners"),
            None if tables is None else _texts(name, tables, "tables"),
            object_store.place_of(address, shape) if is_bucket else None,
        )


def set_up(files: Mapping[str, str], reader: TableReader) -> Connections:
    """Create the connections from their files; refuse an unusable one at once."""
    made = Connections({name: Path(path) for name, path in files.items()}, reader)
    made.check()
    return made


def _toml(name: str, path: Path) -> Mapping[str, object]:
    """Parse a connection file, which is TOML.

    A refusal never quotes text of the file, because the file contains a password.
    """
    text = _private_text(name, path)
    shape: Mapping[str, object] | None
    try:
        shape = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        shape = None
    if shape is None:
        raise _unusable(name, "it is not TOML")
    return shape


def _private_text(name: str, path: Path) -> str:
    """Return the connection file's text; refuse a file that other users may read."""
    found: str | None = None
    mode = 0
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            found = file.read(LARGEST + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        found = None
    if found is None or not stat.S_ISREG(mode):
        raise _unusable(name, "it cannot be read")
    # without its end, a truncated file could lose `tables` and so allow all tables
    if len(found) > LARGEST:
        raise _unusable(name, f"it is larger than {LARGEST:,} bytes")
    if stat.S_IMODE(mode) & 0o077:
        raise _unusable(name, "other users may read it; its mode must be 0600")
    return found


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _unusable(name, "address must be a text: postgresql://READER@HOST/DATABASE")
    return value


def _texts(name: str, value: object, key: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _unusable(name, f"{key} must be a list of texts")
    return tuple(value)


def _unusable(name: str, why: str) -> Refused:
    return Refused(
        "engine-unavailable",
        f"The file of the connection {name!r} cannot be used: {why}.",
        "Ask the operator to correct the file. docs/how-to/serving.md shows an example.",
    )
