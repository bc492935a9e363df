"""Uploads: streamed into files of the vault that only it may read, and gone after a day.

In a vault that is sealed at rest they are sealed while they come in, under the file's own name.
Beside each file lies a note of whose it is. A file that is being written is locked; so what a
killed door has left is told from what is still coming.
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
from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Refused
from sfumato.sandbox.ports import Drafts
from sfumato.vault.encryption_at_rest import PIECE, AtRest, Sealer
from sfumato.vault.ports import Clock
from sfumato.vault.users import Caller

MOST: Final = 2 * 10**9  # bytes of one file
SHARE: Final = 4  # an owner's files are so many times the largest, all together
FILES: Final = 40  # of one owner
AT_ONCE, OF_ONE_OWNER = 4, 2  # that are coming in
KEPT: Final = timedelta(hours=24)
SUFFIXES: Final = (".csv", ".tsv", ".parquet")
SEALED: Final = ".sealed"  # how a sealed file's name goes on; the engine knows it by that
_ID: Final = re.compile(r"[0-9a-f]{24}")


@dataclass(frozen=True)
class Upload:
    """One file that is here whole."""

    id: str
    owner: str
    name: str  # as it was called; never a path of ours
    path: Path
    size: int
    until: str


@dataclass(frozen=True)
class Uploads:
    """The files that wait in one vault, on this machine."""

    folder: Path
    dice: Dice
    clock: Clock
    most: int = MOST
    coming: Counter[str] = field(default_factory=Counter)  # by owner, in this process
    lock: threading.Lock = field(default_factory=threading.Lock)
    beginning: threading.Lock = field(default_factory=threading.Lock)
    rest: AtRest | None = None  # by which they are sealed, and where they may lie open
    drafts: Drafts | None = None

    def begin(self, caller: Caller, name: str, size: int | None) -> Incoming:
        """Return where the file is written to, piece by piece; or refuse before it comes."""
        suffix = _suffix(name)
        self.sweep()
        with self.beginning:  # or two would be given the same room
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
        """Return one of the caller's uploads, or refuse; another's is not there."""
        found = self._find(upload)
        if found is None or found.owner != caller.user or self._is_old(found):
            raise Refused(
                "upload-unknown",
                "You have no such upload here: it was added, or is older than a day.",
                "Upload the file again.",
            )
        return found

    def holds(self, uploads: list[str]) -> bool:
        """Say whether all of these files are on this machine."""
        return all(self._find(upload) is not None for upload in uploads)

    def remove(self, uploads: list[str]) -> None:
        """Remove what was added."""
        for upload in uploads:
            if _ID.fullmatch(upload):
                self._forget(upload)

    def sweep(self) -> None:
        """Remove what is older than a day, and what nobody writes to any more."""
        if not self.folder.is_dir():
            return
        for stem in {path.name.partition(".")[0] for path in self.folder.iterdir()}:
            found = self._find(stem)
            is_left = found is None and not self._is_coming(stem)
            if is_left or (found is not None and self._is_old(found)):
                self._forget(stem)

    def leave(self, owner: str) -> None:
        """Count one file less that is coming in."""
        with self.lock:
            self.coming[owner] -= 1

    def _enter(self, owner: str) -> None:
        with self.lock:
            if self.coming.total() >= AT_ONCE or self.coming[owner] >= OF_ONE_OWNER:
                raise Refused("too-many", "Too many files come in already.", "Try again later.")
            self.coming[owner] += 1

    def _room(self, owner: str) -> int:
        """Return how large the owner's next file may be; what is coming in has its room already."""
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
        sealer = None if self.rest is None else self.rest.sealer(path.name)
        return Incoming(self, stem, owner, path, descriptor, room, sealer=sealer)

    def _note(self, stem: str, said: Json) -> None:
        path, made = self.folder / f"{stem}.json", self.folder / f"{stem}.json.new"
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(said, file)
        made.replace(path)

    def whole(self, stem: str, size: int) -> Upload:
        """Note that all of a file is here."""
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
        """Return the file that is here whole, or None."""
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
        """Say whether a process writes to the file: it holds the lock as long as it lives."""
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
    """One file that is coming in."""

    uploads: Uploads
    stem: str
    owner: str
    path: Path
    descriptor: int
    room: int
    size: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    sealer: Sealer | None = None

    def take(self, part: bytes) -> None:
        """Write the next piece, or refuse what is too large."""
        with self.lock:
            self.size += len(part)
            if self.size > self.room:
                raise _too_large(self.room)
            if not self._is_written(part if self.sealer is None else self.sealer.taken(part)):
                raise _no_space()

    def _is_written(self, part: bytes) -> bool:
        """Say whether the piece was written; after the end nothing is."""
        rest = memoryview(part)
        try:
            while rest and self.descriptor >= 0:
                rest = rest[os.write(self.descriptor, rest) :]
        except OSError:
            return False
        return not rest

    @contextmanager
    def filling(self) -> Iterator[Path]:
        """Give the place where another process writes all of the file, before it is kept."""
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
        """Return the file, which is here whole now."""
        with self.lock:
            if self.sealer is not None and not self._is_written(self.sealer.end()):
                raise _no_space()
        return self.uploads.whole(self.stem, self.size)

    def end(self, *, is_kept: bool) -> None:
        """Let go of the file; one that is not kept is removed."""
        with self.lock:  # a thread that writes still must not write to another's descriptor
            descriptor, self.descriptor = self.descriptor, -1
            if not is_kept:
                self.uploads.remove([self.stem])
            os.close(descriptor)
        self.uploads.leave(self.owner)


def _room_in(said: Json) -> int:
    """Return how large a file may still become that is coming in."""
    room = said.get("room")
    return room if isinstance(room, int) and said.get("whole") is False else 0


def _suffix(name: str) -> str:
    """Return how the name ends, or refuse; nothing else of it is ever used as a name of ours."""
    suffix = "." + name.rpartition(".")[2].casefold()
    if suffix not in SUFFIXES or not (len(name) <= 200 and name.isprintable()):
        raise Refused(
            "source-unreadable",
            f"The file's name ends in none of {', '.join(SUFFIXES)}.",
            "Hand in CSV, TSV or Parquet.",
        )
    return suffix


def _too_large(room: int) -> Refused:
    return Refused(
        "too-large",
        f"The file is larger than {room} bytes, which is what may still come from you.",
        "Add what you have uploaded, split the file, or ask the operator for --max-upload.",
    )


def _no_space() -> Refused:
    return Refused(
        "too-large", "The file could not be written: there is no space left.", "Tell the operator."
    )
