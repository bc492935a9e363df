"""Uploads: stream files into private files of the vault, which are deleted after a day.

If the vault is encrypted at rest, an upload is encrypted while it arrives, bound to its file name.
A JSON note next to each file names its owner. A file is locked while it is written, so a sweep can
tell the remains of a killed process from an upload in progress.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.sandbox.ports import Drafts
from sfumato.system.durable_files import is_written
from sfumato.system.row_files import KINDS, SUFFIXES, row_suffix
from sfumato.vault.encryption_at_rest import PIECE, AtRest, FileEncryptor
from sfumato.vault.ports import Clock
from sfumato.vault.users import Caller

MAX_BYTES: Final = 2 * 10**9  # the most bytes of one file
SHARE: Final = 4  # limit of one owner: all files together have at most SHARE * MAX_BYTES
FILES: Final = 40  # the most files of one owner
AT_ONCE, OF_ONE_OWNER = 4, 2  # the most concurrent uploads: of all owners, and of one owner
KEPT: Final = timedelta(hours=24)
SEALED: Final = ".sealed"  # the suffix of encrypted files, by which the engine recognises them
_ID: Final = re.compile(r"[0-9a-f]{24}")


@dataclass(frozen=True)
class Upload:
    """A complete uploaded file, with its owner and its expiry."""

    id: str
    owner: str
    name: str  # the original name; it is never used as a path
    path: Path
    size: int
    until: str


@dataclass(frozen=True)
class Uploads:
    """The uploaded files of one vault on this machine."""

    folder: Path
    dice: RandomSource
    clock: Clock
    most: int = MAX_BYTES
    coming: Counter[str] = field(default_factory=Counter)  # uploads in progress, by owner
    lock: threading.Lock = field(default_factory=threading.Lock)
    beginning: threading.Lock = field(default_factory=threading.Lock)
    rest: AtRest | None = None  # encrypts the files, if the vault is encrypted at rest
    drafts: Drafts | None = None  # temporary folders in which rows may be in clear text

    def begin(self, caller: Caller, name: str, size: int | None) -> Incoming:
        """Start an upload; refuse a bad file name or size before any byte arrives."""
        suffix = _suffix(name)
        self.sweep()
        with self.beginning:  # hold the lock, or two uploads could reserve the same free space
            room = self._room(caller.user)
            if size is not None and size > room:
                raise _too_large(room)
            self._enter(caller.user)
            try:
                return self._incoming(caller.user, name, suffix, room if size is None else size)
            except OSError:
                self.leave(caller.user)
        raise _no_space()

    def one(self, caller: Caller, upload: str) -> Upload:
        """Return one of the caller's uploads.

        Refuse an unknown, expired or another user's upload.
        """
        found = self._find(upload)
        if found is None or found.owner != caller.user or self._is_old(found):
            raise upload_unknown()
        return found

    def holds(self, uploads: list[str]) -> bool:
        """Return True if all uploads with these ids are on this machine."""
        return all(self._find(upload) is not None for upload in uploads)

    def remove(self, uploads: list[str]) -> None:
        """Delete the uploads with these ids."""
        for upload in uploads:
            if _ID.fullmatch(upload):
                self._forget(upload)

    def sweep(self) -> None:
        """Delete uploads that are older than a day, and incomplete ones that no process writes."""
        if not self.folder.is_dir():
            return
        for stem in {path.name.partition(".")[0] for path in self.folder.iterdir()}:
            found = self._find(stem)
            is_left = found is None and not self._is_coming(stem)
            if is_left or (found is not None and self._is_old(found)):
                self._forget(stem)

    def leave(self, owner: str) -> None:
        """Count one fewer upload in progress of this owner, because it has ended."""
        with self.lock:
            self.coming[owner] -= 1

    def _enter(self, owner: str) -> None:
        with self.lock:
            if self.coming.total() >= AT_ONCE or self.coming[owner] >= OF_ONE_OWNER:
                raise Refused(
                    "too-many",
                    "Too many files are being uploaded to the service now.",
                    "Try again in a few minutes.",
                )
            self.coming[owner] += 1

    def _room(self, owner: str) -> int:
        """Return how many bytes the owner's next uploaded file may have; refuse too many files.

        An upload in progress counts with all the bytes that it reserved.
        """
        there = ((n, self._said(path.name.partition(".")[0])) for path, n in self._sizes())
        sizes = [max(n, _room_in(said)) for n, said in there if said.get("owner") == owner]
        if len(sizes) >= FILES:
            raise _too_large(0)
        return max(0, min(self.most, SHARE * self.most - sum(sizes)))

    def _sizes(self) -> list[tuple[Path, int]]:
        if not self.folder.is_dir():
            return []
        found = []
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):
                if path.name.endswith(tuple(suffix + self._end for suffix in SUFFIXES)):
                    found.append((path, path.stat().st_size))
        return found

    @property
    def _end(self) -> str:
        return "" if self.rest is None else SEALED

    def _path(self, stem: str, suffix: str) -> Path:
        return self.folder / f"{stem}{suffix}{self._end}"

    def _incoming(self, owner: str, name: str, suffix: str, room: int) -> Incoming:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        stem = self.dice.draw(12).hex()
        path = self._path(stem, suffix)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        said: Json = {"owner": owner, "name": name, "at": self.clock.now(), "whole": False}
        self._note(stem, {**said, "room": room})
        sealer = None if self.rest is None else self.rest.encryptor(path.name)
        return Incoming(self, stem, owner, path, descriptor, room, sealer=sealer)

    def _note(self, stem: str, said: Json) -> None:
        path, made = self.folder / f"{stem}.json", self.folder / f"{stem}.json.new"
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(said, file)
        made.replace(path)

    def whole(self, stem: str, size: int) -> Upload:
        """Mark an upload as complete, with its size, and return it."""
        said = self._said(stem)
        self._note(stem, {**said, "whole": True, "size": size})
        found = self._find(stem)
        if found is None:
            raise _no_space()
        return found

    def _said(self, stem: str) -> Json:
        said = None
        try:
            said = json.loads((self.folder / f"{stem}.json").read_text("utf-8"))
        except (OSError, ValueError):
            said = None
        return dict(said) if isinstance(said, dict) else {}

    def _find(self, upload: str) -> Upload | None:
        """Return the complete upload with that id, or None."""
        said = self._said(upload) if _ID.fullmatch(upload) else {}
        if said.get("whole") is not True:
            return None
        name = str(said["name"])
        path = self._path(upload, _suffix(name))
        if not path.is_file():
            return None
        until = datetime.fromisoformat(str(said["at"])) + KEPT
        size = int(str(said["size"]))
        return Upload(upload, str(said["owner"]), name, path, size, until.isoformat())

    def _is_old(self, upload: Upload) -> bool:
        now = datetime.fromisoformat(self.clock.now())
        return now > datetime.fromisoformat(upload.until)

    def _is_coming(self, stem: str) -> bool:
        """Return True if a running process still writes the upload, and so holds its lock."""
        for suffix in SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(self._path(stem, suffix), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
                finally:
                    os.close(descriptor)
        return False

    def _forget(self, stem: str) -> None:
        for path in self.folder.glob(f"{stem}.*") if self.folder.is_dir() else ():
            path.unlink(missing_ok=True)


@dataclass
class Incoming:
    """An upload in progress, to which chunks are written."""

    uploads: Uploads
    stem: str
    owner: str
    path: Path
    descriptor: int
    room: int
    size: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    sealer: FileEncryptor | None = None

    def take(self, part: bytes) -> None:
        """Write the next chunk of the upload; refuse if the file becomes too large."""
        with self.lock:
            self.size += len(part)
            if self.size > self.room:
                raise _too_large(self.room)
            text = part if self.sealer is None else self.sealer.update(part)
            if not is_written(self.descriptor, text):
                raise _no_space()

    @contextmanager
    def filling(self) -> Iterator[Path]:
        """Yield a path where another process writes the whole upload.

        If the vault is encrypted, encrypt the file when the block ends.
        """
        if self.sealer is None or self.uploads.drafts is None:
            yield self.path
            self.size = self.path.stat().st_size
            return
        with self.uploads.drafts.draft() as folder:
            place = Path(folder, "rows")
            place.touch(mode=0o600)
            yield place
            with place.open("rb") as file:
                while part := file.read(PIECE):
                    self.take(part)

    def kept(self) -> Upload:
        """Complete the upload in progress, and return it."""
        with self.lock:
            text = b"" if self.sealer is None else self.sealer.finalize()
            if not is_written(self.descriptor, text):
                raise _no_space()
        return self.uploads.whole(self.stem, self.size)

    def end(self, *, is_kept: bool) -> None:
        """Close the upload's file; delete the file unless `is_kept`."""
        # mark it as closed, so that a late writer cannot write to a descriptor that was reused
        with self.lock:
            descriptor, self.descriptor = self.descriptor, -1
            if not is_kept:
                self.uploads.remove([self.stem])
            os.close(descriptor)
        self.uploads.leave(self.owner)


def _room_in(said: Json) -> int:
    """Return how many bytes an upload's note reserves; 0 for a complete upload."""
    room = said.get("room")
    return room if isinstance(room, int) and said.get("whole") is False else 0


def _suffix(name: str) -> str:
    """Return the suffix of a file name; refuse an unknown suffix or a bad name.

    No other part of the name is used for paths.
    """
    suffix = row_suffix(name)
    if suffix is None or not (len(name) <= 200 and name.isprintable()):
        raise Refused(
            "source-unreadable",
            "The file's name does not end in a suffix of a format that can be read, such as .csv.",
            f"Give {KINDS}.",
        )
    return suffix


def upload_unknown() -> Refused:
    """Return the refusal of an upload that is not there, or is another user's."""
    return Refused(
        "upload-unknown",
        "You have no upload with this id. It was already added or removed, or it is older than a "
        "day.",
        "Upload the file again.",
    )


def _too_large(room: int) -> Refused:
    return Refused(
        "too-large",
        f"The file is larger than {room} bytes, the upload space that you have left.",
        "Add what you have uploaded, split the file, or ask the operator for --max-upload.",
    )


def _no_space() -> Refused:
    return Refused(
        "too-large",
        "The file could not be written, because the disk is full.",
        "Tell the operator.",
    )
