"""Uploads of folders and archives: receive them in parts, resume them, and unpack them.

An upload is named by a hash of its owner, its name and the hashes of its parts. So the same command
finds the same upload again, after a cut connection, a killed client or a restarted service, and
sends only the parts that are missing. A part is stored whole or not at all. When all parts are
there, the archive is unpacked and checked, and the parts are deleted. An upload is deleted when its
data set was added, when it is refused, and a day after the last part arrived.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, Literal, cast

from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.folder_archive import (
    SPARE_BYTES,
    PartFile,
    Unpacked,
    free_bytes,
    no_space,
    too_large,
    unpack,
    unreadable,
)
from sfumato.features.data_sets.upload_service import KEPT, Upload, upload_unknown
from sfumato.sandbox.ports import Drafts
from sfumato.system.durable_files import is_written, sync
from sfumato.system.folder_stream import (
    KINDS,
    PART_BYTES,
    Kind,
    archive_kind,
    part_count,
    part_size,
)
from sfumato.vault.ports import Clock
from sfumato.vault.users import Caller
from sfumato.wire.json_text import bad_request

MAX_FOLDER_BYTES: Final = 20 * 10**9  # the most bytes of a folder, if the operator sets no other
# the most uploads of one owner that are not yet a data set: their number, and their bytes
# together as a multiple of the most of one
UPLOADS, SHARE = 10, 2
AHEAD: Final = 1 << 20  # bytes of the share that an archive takes before it needs them
AT_ONCE, OF_ONE_OWNER = 8, 4  # the most parts that arrive at once: of all owners, and of one
SHORT_S: Final = 0.3  # how long a call waits for an archive to be unpacked
_ID: Final = re.compile(r"[0-9a-f]{24}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
State = Literal["uploading", "unpacking", "ready"]


@dataclass(frozen=True)
class FolderUpload:
    """An upload of a folder or an archive, as its note on the disk describes it."""

    id: str
    owner: str
    name: str  # the name of the folder or file; it is never used as a path
    kind: Kind
    size: int  # of the stream that is sent
    at: str  # when the last part arrived
    root: str = ""  # of the unpacked folder, below the upload's own; "" if it is not unpacked
    files: int = 0
    unpacked: int = 0  # bytes of the unpacked files

    @property
    def is_ready(self) -> bool:
        """Return True if the folder is unpacked."""
        return bool(self.root)

    @property
    def taken(self) -> int:
        """Return how many bytes of the owner's share the upload takes."""
        return self.unpacked if self.is_ready else self.size

    @property
    def until(self) -> datetime:
        """Return when the upload expires."""
        return datetime.fromisoformat(self.at) + KEPT


@dataclass(frozen=True)
class FolderUploads:
    """The uploaded folders of one vault on this machine."""

    folder: Path
    dice: RandomSource
    clock: Clock
    drafts: Drafts  # temporary folders, for archives that are on this machine
    most: int = MAX_FOLDER_BYTES
    is_sealed: bool = False  # True: the vault is encrypted at rest, and cannot keep folders
    lock: threading.Lock = field(default_factory=threading.Lock)
    arriving: Counter[str] = field(default_factory=Counter)  # parts that arrive now, by owner
    drafted: set[Path] = field(default_factory=set)  # their files
    work: dict[str, _Unpacking] = field(default_factory=dict)

    # --- uploading

    def begin(self, caller: Caller, name: str, kind: Kind, parts: Sequence[str], size: int) -> Json:
        """Start an upload, or resume it; return which parts are missing."""
        self._check(name, kind, parts, size)
        self.sweep()
        found: FolderUpload | None
        made = FolderUpload(
            _id_of(caller.user, name, kind, parts, size),
            caller.user,
            name,
            kind,
            size,
            self.clock.now(),
        )
        with self.lock:
            self._drop_ended(caller.user)
            found = self._find(made.id)
            if found is None:
                self._make_room(caller.user, made)
                found = self._new(made, parts)
            elif not found.is_ready:
                self._note(found, at=made.at)
                self._drop_halves(found.id)
        return self.shown(found)

    def shown(self, found: FolderUpload) -> Json:
        """Return an upload as JSON: its state, and the numbers of the parts that are missing."""
        state: State = "ready" if found.is_ready else "uploading"
        if not found.is_ready and self._is_unpacking(found.id):
            state = "unpacking"
        missing = [] if state != "uploading" else list(self._missing(found))
        return {
            "upload": found.id,
            "name": found.name,
            "state": state,
            "missing": missing,
            "files": found.files,
            "bytes": found.unpacked if found.is_ready else found.size,
            "until": found.until.isoformat(),
        }

    def begin_part(self, caller: Caller, upload: str, name: str, size: int | None) -> IncomingPart:
        """Start to receive a part; refuse a part that the upload does not have."""
        found = self._own(caller, upload)
        numbers = [n for n, part in enumerate(self._parts(found.id)) if part == name]
        if not numbers or found.is_ready:
            raise bad_request("the upload has no part of that name, or needs no more parts")
        wanted = part_size(numbers[0], found.size)
        if size is not None and size != wanted:
            raise bad_request(f"this part has {wanted} bytes")
        if free_bytes(self.folder) < wanted + SPARE_BYTES:
            raise no_space()
        self._enter(caller.user)
        file: int | None = None
        place = self._place(found.id) / "parts" / f"{name}.{self.dice.draw(8).hex()}.half"
        with contextlib.suppress(OSError):
            file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        if file is None:
            self.leave(caller.user, place)
            raise no_space()
        self.drafted.add(place)
        return IncomingPart(self, found, name, wanted, place, file)

    def finish(self, caller: Caller, upload: str) -> Json:
        """Unpack the archive when all its parts are there, in the background; return the state.

        The same call shows the state later, and raises the refusal of an unsafe archive.
        """
        doing = self.work.get(upload)
        if doing is None or doing.owner != caller.user:
            found = self._own(caller, upload)
            with self.lock:
                if found.is_ready or any(True for _ in self._missing(found)):
                    return self.shown(found)
                doing = self._begin_to_unpack(found)
        doing.done.wait(SHORT_S)
        if doing.done.is_set():
            self.work.pop(upload, None)
        if doing.refused is not None:
            raise doing.refused
        return self.shown(self._own(caller, upload))

    def _begin_to_unpack(self, found: FolderUpload) -> _Unpacking:
        doing = self.work.get(found.id)
        if doing is None:
            doing = self.work[found.id] = _Unpacking(found.owner)
            work = threading.Thread(target=self._unpack, args=(found, doing), daemon=True)
            work.start()
        return doing

    def _is_unpacking(self, upload: str) -> bool:
        doing = self.work.get(upload)
        return doing is not None and not doing.done.is_set()

    def _drop_ended(self, owner: str) -> None:
        """Forget how the owner's archives ended, if no call has asked for it."""
        for upload, doing in list(self.work.items()):
            if doing.owner == owner and doing.done.is_set():
                del self.work[upload]

    # --- using an upload

    def has(self, upload: str) -> bool:
        """Return True if there is an uploaded folder with that id."""
        return self._find(upload) is not None

    def one(self, caller: Caller, upload: str) -> Upload:
        """Return an unpacked folder of the caller's as an upload whose path is a folder."""
        found = self._own(caller, upload)
        if not found.is_ready:
            raise Refused(
                "upload-unknown",
                "Not all parts of this folder have been uploaded.",
                "Upload the folder again: only the missing parts are sent.",
            )
        path = self._place(found.id) / found.root
        until = found.until.isoformat()
        return Upload(found.id, found.owner, found.name, path, found.unpacked, until)

    def holds(self, upload: str) -> bool:
        """Return True if the unpacked folder is on this machine."""
        found = self._find(upload)
        return found is not None and found.is_ready

    def remove(self, uploads: Sequence[str]) -> None:
        """Delete the uploads with these ids."""
        for upload in uploads:
            if _ID.fullmatch(upload) and self._place(upload).is_dir():
                self._forget(upload)

    def sweep(self) -> None:
        """Delete uploads that have expired, and folders without a readable note."""
        if not self.folder.is_dir():
            return
        now = datetime.fromisoformat(self.clock.now())
        with self.lock:
            for place in list(self.folder.iterdir()):
                found = self._find(place.name)
                is_old = found is not None and now > found.until
                if (found is None or is_old) and not self._is_unpacking(place.name):
                    self._forget(place.name)
            with contextlib.suppress(OSError):
                self.folder.rmdir()  # only if it is empty

    @contextmanager
    def unpacked(self, path: Path) -> Iterator[str]:
        """Yield the folder that a zip or tar file of this machine holds; delete it at the end."""
        kind = archive_kind(path.name)
        self._check_unsealed()
        if kind is None or not path.is_file():
            raise Refused(
                "source-unreadable",
                f"There is no archive {os.fspath(path)!r}.",
                f"Give a folder, or a file that ends in {', '.join(KINDS)}.",
            )
        with self.drafts.draft() as draft, PartFile.of(path) as file:
            yield str(unpack(kind, file, Path(draft, "tree"), self.most).root)

    # --- checks

    def _check(self, name: str, kind: Kind, parts: Sequence[str], size: int) -> None:
        self._check_unsealed()
        if size > self.most:
            raise too_large(self.most)
        if size < 1 or len(parts) != part_count(size) or not all(map(_HASH.fullmatch, parts)):
            raise bad_request("parts has to name each part of the upload by its SHA-256")
        if not (1 <= len(name) <= 200 and name.isprintable()) or kind not in (
            "folder",
            *KINDS.values(),
        ):
            raise bad_request("an upload has a short name, and is a folder, a zip or a tar")

    def _check_unsealed(self) -> None:
        if self.is_sealed:
            raise Refused(
                "at-rest-not-possible",
                "A vault that is encrypted at rest cannot keep folders of people's files.",
                "Add them to a vault without a key, on a disk that is encrypted as a whole.",
            )

    def _own(self, caller: Caller, upload: str) -> FolderUpload:
        """Return an upload of the caller's; refuse an unknown, expired or another user's one."""
        found = self._find(upload)
        now = datetime.fromisoformat(self.clock.now())
        if found is None or found.owner != caller.user or now > found.until:
            raise upload_unknown()
        return found

    def _make_room(self, owner: str, made: FolderUpload) -> None:
        """Refuse an upload beyond the owner's share, or beyond the disk's space.

        A ready upload may be waiting for a job, so it is never deleted here.
        """
        if not self._free_share(owner, made.size, UPLOADS - 1):
            raise _share_is_full()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # the stream and the unpacked files are on the disk at the same time
        if free_bytes(self.folder) < 2 * made.size + SPARE_BYTES:
            raise no_space()

    def _free_share(self, owner: str, size: int, uploads: int, besides: str = "") -> bool:
        """Return True if the owner's share has room for `size` bytes besides their other uploads.

        There may be so many others at most. The oldest unfinished ones are deleted if that helps.
        """
        found = [one for one in self._every() if one.owner == owner and one.id != besides]
        idle = [one for one in found if not (one.is_ready or self._is_unpacking(one.id))]
        kept = [one for one in found if one not in idle]

        def fits(others: Sequence[FolderUpload]) -> bool:
            taken = size + sum(map(self._taken, others))
            return len(others) <= uploads and taken <= SHARE * self.most

        if not fits(kept):
            return False
        idle.sort(key=lambda one: one.at, reverse=True)
        while not fits([*kept, *idle]):
            self._forget(idle.pop().id)
        return True

    def _taken(self, one: FolderUpload) -> int:
        """Return how many bytes of the owner's share an upload takes, also while it is unpacked."""
        doing = self.work.get(one.id)
        if doing is None or doing.done.is_set():
            return one.taken
        return max(one.taken, doing.taken)

    def _take_share(self, found: FolderUpload, doing: _Unpacking, size: int) -> None:
        """Let an archive's files have so many bytes; refuse more than the owner's share has."""
        if size <= doing.taken:
            return
        with self.lock:
            wanted = max(size, min(size + AHEAD, self.most))
            if not self._free_share(found.owner, max(wanted, found.size), UPLOADS, found.id):
                raise _share_is_full()
            doing.taken = wanted

    def _enter(self, owner: str) -> None:
        with self.lock:
            if self.arriving.total() >= AT_ONCE or self.arriving[owner] >= OF_ONE_OWNER:
                raise Refused(
                    "too-many",
                    "Too many files are being uploaded to the service now.",
                    "Try again in a few minutes.",
                )
            self.arriving[owner] += 1

    def leave(self, owner: str, place: Path) -> None:
        """Count one fewer part that arrives, because it has ended."""
        with self.lock:
            self.arriving[owner] -= 1
            self.drafted.discard(place)

    def touch(self, upload: str) -> None:
        """Let an upload expire a day from now, because a part of it has arrived."""
        with self.lock:
            found = self._find(upload)
            if found is not None and not found.is_ready:
                self._note(found, at=self.clock.now())

    # --- the files of an upload

    def _place(self, upload: str) -> Path:
        return self.folder / upload

    def _new(self, made: FolderUpload, parts: Sequence[str]) -> FolderUpload:
        place = self._place(made.id)
        shutil.rmtree(place, ignore_errors=True)
        (place / "parts").mkdir(mode=0o700, parents=True)
        place.chmod(0o700)
        _write(place / "parts.json", list(parts))
        return self._note(made)

    def _note(self, found: FolderUpload, **changes: object) -> FolderUpload:
        made = FolderUpload(**{**found.__dict__, **changes})
        _write(self._place(made.id) / "note.json", made.__dict__)
        return made

    def _find(self, upload: str) -> FolderUpload | None:
        if not _ID.fullmatch(upload):
            return None
        found = None
        with contextlib.suppress(OSError, ValueError, TypeError):
            text = (self._place(upload) / "note.json").read_text("utf-8")
            said = json.loads(text)
            known = {one.name for one in fields(FolderUpload)}  # another version may write more
            found = FolderUpload(**{key: said[key] for key in said if key in known})
        return found

    def _every(self) -> list[FolderUpload]:
        if not self.folder.is_dir():
            return []
        found = (self._find(place.name) for place in self.folder.iterdir())
        return [one for one in found if one is not None]

    def _parts(self, upload: str) -> list[str]:
        text = (self._place(upload) / "parts.json").read_text("utf-8")
        return cast("list[str]", json.loads(text))

    def _missing(self, found: FolderUpload) -> Iterator[int]:
        """Yield the numbers of the parts that have not arrived, each name once."""
        place, seen = self._place(found.id) / "parts", set()
        for number, name in enumerate(self._parts(found.id)):
            if name not in seen and not (place / name).is_file():
                yield number
            seen.add(name)

    def _drop_halves(self, upload: str) -> None:
        for half in (self._place(upload) / "parts").glob("*.half"):
            if half not in self.drafted:
                half.unlink(missing_ok=True)

    def _forget(self, upload: str) -> None:
        # rename first: a folder that is deleted in part must not count as an upload
        place = self._place(upload)
        gone = place.with_name(f"{upload[:24]}.{self.dice.draw(8).hex()}.gone")
        with contextlib.suppress(OSError):
            place.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _unpack(self, found: FolderUpload, doing: _Unpacking) -> None:
        """Unpack an upload; delete its parts, or the whole upload if it is refused."""
        place, refused = self._place(found.id), _broken()
        try:
            made = self._unpacked(found, doing)
            root = made.root.relative_to(place).as_posix()
            self._note(found, root=root, files=made.files, unpacked=made.size, at=self.clock.now())
            shutil.rmtree(place / "parts", ignore_errors=True)
            refused = None
        except Refused as error:
            refused = error
        except OSError:  # the disk, or the folder was removed
            refused = no_space()
        finally:
            doing.refused = refused
            if refused is not None:
                self._forget(found.id)
            doing.done.set()

    def _unpacked(self, found: FolderUpload, doing: _Unpacking) -> Unpacked:
        place = self._place(found.id)
        shutil.rmtree(place / "tree", ignore_errors=True)
        paths = [place / "parts" / name for name in self._parts(found.id)]
        with PartFile(paths, PART_BYTES, found.size) as file:
            take = partial(self._take_share, found, doing)
            made = unpack(found.kind, file, place / "tree", self.most, take)
        os.sync()  # the note must not be on the disk before the files are
        return made


@dataclass
class _Unpacking:
    """An archive that is being unpacked, and how that ended."""

    owner: str
    taken: int = 0  # bytes of the owner's share that its files may have so far
    done: threading.Event = field(default_factory=threading.Event)
    refused: Refused | None = None


@dataclass
class IncomingPart:
    """A part that is arriving. It is stored under its name when its SHA-256 is right."""

    uploads: FolderUploads
    found: FolderUpload
    name: str
    wanted: int
    place: Path
    descriptor: int
    size: int = 0
    hash: hashlib._Hash = field(default_factory=hashlib.sha256)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, piece: bytes) -> None:
        """Write the next bytes of the part; refuse more bytes than it has."""
        with self.lock:
            self.size += len(piece)
            if self.size > self.wanted:
                raise bad_request(f"this part has {self.wanted} bytes")
            self.hash.update(piece)
            if not is_written(self.descriptor, piece):
                raise no_space()

    def kept(self) -> Upload:
        """Store the part under its name; refuse it if its bytes are others."""
        with self.lock:
            if self.size != self.wanted or self.hash.hexdigest() != self.name:
                raise bad_request("the bytes of the part are not those that its name stands for")
            os.fsync(self.descriptor)
            self.place.replace(self.place.with_name(self.name))
        sync(self.place.parent)
        self.uploads.touch(self.found.id)
        until = self.found.until.isoformat()
        return Upload(self.found.id, self.found.owner, self.name, self.place, self.size, until)

    def end(self, *, is_kept: bool) -> None:
        """Close the file; throw a half part away."""
        with self.lock:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)
            if not is_kept:
                self.place.unlink(missing_ok=True)
        self.uploads.leave(self.found.owner, self.place)


def _id_of(owner: str, name: str, kind: Kind, parts: Sequence[str], size: int) -> str:
    text = json.dumps([owner, name, kind, size, list(parts)])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _share_is_full() -> Refused:
    return Refused(
        "too-large",
        "You have uploaded too many folders that are not yet data sets.",
        "Add them first. An upload is deleted after a day.",
    )


def _broken() -> Refused | None:
    return unreadable(
        "The archive could not be unpacked.", "Make the archive again, or upload the folder."
    )


def _write(path: Path, shape: object) -> None:
    """Write a private JSON file whole, or not at all."""
    made = path.with_name(path.name + ".new")
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(shape, file)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
