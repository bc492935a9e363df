"""Store airlock requests in SQL, and their drafts in a private folder of the vault.

A draft is a folder with `held.json`, which has the measurements, and numbered files. It is written
under a temporary name and renamed atomically; a place is never written twice. Work in progress
holds a file lock, which ends with its process. A sweep deletes locks of dead processes, and drafts
that no request names.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sfumato.dp.ports import RandomSource
from sfumato.features.airlock.model import DraftFiles, Request
from sfumato.storage.key_files import decrypted_at_rest, encrypted_at_rest
from sfumato.storage.records_database import Records
from sfumato.system.durable_files import make_folder, sync, write_new
from sfumato.vault.encryption_at_rest import AtRest
from sfumato.vault.hash_chain import canonical

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS airlock (
        id TEXT NOT NULL PRIMARY KEY, people TEXT NOT NULL, made_at TEXT NOT NULL,
        revision {integer} NOT NULL, body TEXT NOT NULL
    ){table_end}""",
)
_WORDS: Final = "held.json"
_DRAFT: Final = "draft-"
_GONE: Final = "gone-"
_LOCK: Final = ".lock"
# the lock file that is held (shared) while a stored draft has no request yet
_WRITES: Final = f"writes{_LOCK}"


class SqlAirlock:
    """A store of airlock requests in the vault's SQL database."""

    def __init__(self, records: Records) -> None:
        self._records = records
        records.make(_TABLES)

    def add(self, request: Request) -> None:
        """Store a new request."""
        values = request.id, request.people, request.at, request.revision, request.as_text()
        with self._records.change() as link:
            link.change(
                "INSERT INTO airlock (id, people, made_at, revision, body) VALUES (?, ?, ?, ?, ?)",
                values,
            )

    def find(self, request: str) -> Request | None:
        """Return the request of this id, or None."""
        rows = self._records.rows("SELECT body FROM airlock WHERE id = ?", (request,))
        return Request.of_text(rows[0][0]) if rows else None

    def of(self, people: str) -> tuple[Request, ...]:
        """Return all requests about a people domain, the newest first.

        A people domain is all data sets about the same people.
        """
        sql = "SELECT body FROM airlock WHERE people = ? ORDER BY made_at DESC, id"
        return tuple(Request.of_text(body) for (body,) in self._records.rows(sql, (people,)))

    def all(self) -> tuple[Request, ...]:
        """Return every request of the vault."""
        rows = self._records.rows("SELECT body FROM airlock", ())
        return tuple(Request.of_text(body) for (body,) in rows)

    def change(self, request: Request) -> bool:
        """Replace the stored request by compare-and-swap; return False if its revision differs."""
        sql = "UPDATE airlock SET revision = ?, body = ? WHERE id = ? AND revision = ?"
        values = request.revision, request.as_text(), request.id, request.revision - 1
        with self._records.change() as link:
            return link.change(sql, values) == 1


class FileAirlock:
    """A store of drafts (files under review) in a private folder of the vault."""

    def __init__(self, folder: Path, dice: RandomSource, rest: AtRest | None = None) -> None:
        self._folder = folder
        self._dice = dice
        self._rest = rest

    def put(self, held: DraftFiles) -> str:
        """Store a draft durably; return its place, the name of its folder."""
        make_folder(self._folder)
        place = self._dice.draw(16).hex()
        made = self._folder / f"{_DRAFT}{place}"
        made.mkdir(mode=0o700)
        paths = sorted(held.files)
        for number, path in enumerate(paths):
            write_new(
                made / str(number),
                encrypted_at_rest(self._rest, f"{place}/{number}", held.files[path]),
            )
        said = {"nonce": held.nonce, "paths": paths, "measured": held.measured}
        words = encrypted_at_rest(self._rest, f"{place}/{_WORDS}", canonical(said).encode())
        write_new(made / _WORDS, words)
        sync(made)
        made.rename(self._folder / place)
        sync(self._folder)
        return place

    def read(self, place: str) -> DraftFiles | None:
        """Return the draft in the folder of this name, or None."""
        words = self._file(place, _WORDS) if place.isalnum() else None
        if words is None:
            return None
        said = json.loads(words)
        found = {path: self._file(place, str(at)) for at, path in enumerate(said["paths"])}
        files = {path: file for path, file in found.items() if file is not None}
        return DraftFiles(said["nonce"], files, said["measured"])

    def _file(self, place: str, name: str) -> bytes | None:
        """Return a file of a draft, or None if it is missing or damaged."""
        path = self._folder / place / name
        if not path.is_file():
            return None
        return decrypted_at_rest(self._rest, f"{place}/{name}", path.read_bytes())

    def drop(self, place: str) -> None:
        """Delete a draft in a background thread, so that the caller cannot time the deletion."""
        if not place.isalnum():
            return
        gone = self._folder / f"{_GONE}{place}"
        try:
            (self._folder / place).rename(gone)
        except OSError:
            return  # deleted already
        threading.Thread(target=shutil.rmtree, args=(gone, True)).start()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold a lock during the `with` block, so that no sweep deletes the draft being written.

        No request names that draft yet, so a sweep would take it for unused.
        """
        with self._locked(_WRITES, fcntl.LOCK_SH):
            yield

    @contextmanager
    def holding(self, what: str) -> Iterator[None]:
        """Hold the exclusive lock of this name during the `with` block, across processes.

        Wait for the lock if necessary.
        """
        path = self._folder / f"{what}{_LOCK}"
        with self._locked(path.name, fcntl.LOCK_EX):
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    def is_held(self, what: str) -> bool:
        """Return True if a living process holds the lock of this name."""
        path = self._folder / f"{what}{_LOCK}"
        if not path.exists():
            return False
        with self._opened(path) as held:
            return not _is_free(held, fcntl.LOCK_SH)

    def sweep(self, named: Callable[[], Collection[str]]) -> None:
        """Delete locks of dead processes, and all drafts whose names `named` does not return.

        While any draft is being written, no draft is deleted; the next sweep deletes it.
        """
        if not self._folder.is_dir():
            return
        for lock in self._folder.glob(f"*{_LOCK}"):
            if lock.name != _WRITES:
                self._swept(lock)
        if not any(place.is_dir() for place in self._folder.iterdir()):
            return
        with self._opened(self._folder / _WRITES) as held:
            if not _is_free(held, fcntl.LOCK_EX):
                return
            there, kept = list(self._folder.iterdir()), named()
            for place in there:
                if place.is_dir() and place.name not in kept:
                    shutil.rmtree(place, ignore_errors=True)

    def _swept(self, lock: Path) -> None:
        """Delete a lock file that no process holds any more.

        A file that another process has put in its place stays.
        """
        with self._opened(lock) as held:
            if _is_free(held, fcntl.LOCK_EX) and _lies_at(held, lock):
                lock.unlink(missing_ok=True)

    @contextmanager
    def _opened(self, lock: Path) -> Iterator[int]:
        held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield held
        finally:
            os.close(held)

    @contextmanager
    def _locked(self, name: str, how: int) -> Iterator[None]:
        make_folder(self._folder)
        held = self._taken(self._folder / name, how)
        try:
            yield
        finally:
            os.close(held)

    def _taken(self, path: Path, how: int) -> int:
        """Open and lock a lock file; return its descriptor, which holds the lock while it is open.

        Try again if another process deleted the file meanwhile: such a lock would protect nothing.
        """
        while True:
            held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(held, how)
            if _lies_at(held, path):
                return held
            os.close(held)


def _lies_at(held: int, path: Path) -> bool:
    """Return True if the path still names the open file, so that its lock counts.

    Another process may have deleted or replaced the file since it was opened.
    """
    try:
        return os.path.samestat(os.fstat(held), path.stat())
    except FileNotFoundError:
        return False


def _is_free(held: int, how: int) -> bool:
    try:
        fcntl.flock(held, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
