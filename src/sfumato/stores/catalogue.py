"""The catalogue in a file of its own: signed cards and groups; never a row."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from sfumato.core.card import Card
from sfumato.core.ports import Listing

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS versions (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, card TEXT NOT NULL, place TEXT NOT NULL,
  people TEXT NOT NULL, sketch TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS members (
  person TEXT NOT NULL, team TEXT NOT NULL, PRIMARY KEY (person, team)) STRICT;
"""


class SQLiteCatalogue:
    """Data sets and groups; every version is kept, the newest is current."""

    def __init__(self, path: Path, read: Callable[[str, str], Card]) -> None:
        self._path = path
        self._read = read
        self._connection: tuple[int, apsw.Connection] | None = None
        self._rows(_TABLES)
        path.chmod(0o600)

    def names(self) -> tuple[str, ...]:
        """Return the names of all data sets, sorted."""
        rows = self._rows("SELECT DISTINCT name FROM versions ORDER BY name")
        return tuple(str(name) for (name,) in rows)

    def find(self, name: str) -> Listing | None:
        """Return the current version of a data set, letter case aside, or None."""
        if not name.isprintable():  # half a letter cannot be looked for
            return None
        rows = self._rows(
            "SELECT name, card, place FROM versions WHERE lower(name) = lower(?) "
            "ORDER BY id DESC LIMIT 1",
            (name,),
        )
        return next((Listing(self._read(str(n), str(c)), str(p)) for n, c, p in rows), None)

    def cards(self) -> tuple[Card, ...]:
        """Return every card that was ever signed here, all versions."""
        rows = self._rows("SELECT name, card FROM versions ORDER BY id")
        return tuple(self._read(str(name), str(card)) for name, card in rows)

    def put(self, name: str, card_text: str, table: str, people: str, sketch: str) -> None:
        """Make this the current version of the data set."""
        self._rows(
            "INSERT INTO versions (name, card, place, people, sketch) VALUES (?, ?, ?, ?, ?)",
            (name, card_text, table, people, sketch),
        )

    def groups_of(self, user: str) -> tuple[str, ...]:
        """Return the groups that the user was enrolled in."""
        rows = self._rows("SELECT team FROM members WHERE person = ? ORDER BY team", (user,))
        return tuple(str(team) for (team,) in rows)

    def enrol(self, user: str, group: str) -> None:
        """Put the user into the group."""
        self._rows("INSERT OR IGNORE INTO members VALUES (?, ?)", (user, group))

    def people(self) -> tuple[tuple[str, str], ...]:
        """Return every people domain with its sketch file, one pair per prepared table."""
        rows = self._rows("SELECT people, sketch FROM versions ORDER BY id")
        return tuple((str(people), str(sketch)) for people, sketch in rows)

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None and self._connection[0] == os.getpid():
            self._connection[1].close()
        self._connection = None

    def _rows(self, sql: str, values: tuple[str, ...] = ()) -> list[tuple[object, ...]]:
        return list(self._open().execute(sql, values))

    def _open(self) -> apsw.Connection:
        """Return this process's connection: SQLite's do not live through a fork."""
        if self._connection is None or self._connection[0] != os.getpid():
            connection = apsw.Connection(str(self._path))
            connection.set_busy_timeout(30_000)
            connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;")
            self._connection = (os.getpid(), connection)
        return self._connection[1]
