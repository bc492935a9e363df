"""Requests of the airlock, and the files they are about: those lie where only the door reads.

A draft is a folder: `held.json` with what was measured, and the files by number. It is made
elsewhere and moved to its place in one step; a place is never written twice.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Final

from sfumato.core.airlock import Held, Request
from sfumato.core.chain import canonical
from sfumato.core.ports import Dice
from sfumato.stores.records import Records

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS airlock (
        id TEXT NOT NULL PRIMARY KEY, people TEXT NOT NULL, made_at TEXT NOT NULL,
        revision {integer} NOT NULL, body TEXT NOT NULL
    ){table_end}""",
)
_WORDS: Final = "held.json"
_DRAFT: Final = "draft-"


class SqlAirlock:
    """An AirlockStore over the vault's records."""

    def __init__(self, records: Records) -> None:
        self._records = records
        records.make(_TABLES)

    def add(self, request: Request) -> None:
        """Remember a request."""
        values = request.id, request.people, request.at, request.revision, request.as_text()
        with self._records.change() as link:
            link.change(
                "INSERT INTO airlock (id, people, made_at, revision, body) VALUES (?, ?, ?, ?, ?)",
                values,
            )

    def find(self, request: str) -> Request | None:
        """Return one by its id, or None."""
        rows = self._records.rows("SELECT body FROM airlock WHERE id = ?", (request,))
        return Request.of_text(rows[0][0]) if rows else None

    def of(self, people: str) -> tuple[Request, ...]:
        """Return every request about these people, the newest first."""
        sql = "SELECT body FROM airlock WHERE people = ? ORDER BY made_at DESC, id"
        return tuple(Request.of_text(body) for (body,) in self._records.rows(sql, (people,)))

    def change(self, request: Request) -> bool:
        """Put the next revision in the place of the one before; False if that is not there."""
        sql = "UPDATE airlock SET revision = ?, body = ? WHERE id = ? AND revision = ?"
        values = request.revision, request.as_text(), request.id, request.revision - 1
        with self._records.change() as link:
            return link.change(sql, values) == 1


class FileAirlock:
    """An AirlockFiles in a folder of the vault."""

    def __init__(self, folder: Path, dice: Dice) -> None:
        self._folder = folder
        self._dice = dice

    def put(self, held: Held) -> str:
        """Keep a draft, durably; return its place."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        place = self._dice.draw(16).hex()
        made = self._folder / f"{_DRAFT}{place}"
        made.mkdir(mode=0o700)
        paths = sorted(held.files)
        for number, path in enumerate(paths):
            _write(made / str(number), held.files[path])
        said = {"nonce": held.nonce, "paths": paths, "measured": held.measured}
        _write(made / _WORDS, canonical(said).encode())
        _sync(made)
        made.rename(self._folder / place)
        _sync(self._folder)
        return place

    def read(self, place: str) -> Held | None:
        """Return the draft that lies there, or None."""
        folder = self._folder / place
        if not place.isalnum() or not (folder / _WORDS).is_file():
            return None
        said = json.loads((folder / _WORDS).read_bytes())
        files = {
            path: (folder / str(number)).read_bytes()
            for number, path in enumerate(said["paths"])
            if (folder / str(number)).is_file()
        }
        return Held(said["nonce"], files, said["measured"])

    def drop(self, place: str) -> None:
        """Let nothing of it be left."""
        if place.isalnum():
            shutil.rmtree(self._folder / place, ignore_errors=True)


def _write(path: Path, text: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
