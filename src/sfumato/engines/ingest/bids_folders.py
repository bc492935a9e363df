"""Import each person's files from a BIDS folder, as the card's patterns select; in a worker.

All files of a person go into one archive file, whose name is the person's keyed hash. A record of
the archive is a path and the file's bytes. In the path, a placeholder replaces the person's name.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import duckdb

from sfumato.dp.refusal import Refused
from sfumato.engines.ingest.prepare_order import FolderOrder
from sfumato.vault.card.bids import DERIVATIVES, SUBJECT, derivative_of, person_path
from sfumato.vault.folder_archive_format import FILE, HEAD, record

_PERSON: Final = re.compile(r"sub-[A-Za-z0-9]{1,64}")
_AT_ONCE: Final = 1 << 20


def take_folders(connection: duckdb.DuckDBPyConnection, order: FolderOrder, target: Path) -> None:
    """Import the BIDS files of every person who has rows into one archive per person.

    Refuse too many persons or too large files; only the owner sees that refusal.
    """
    people = connection.execute(
        "SELECT id, lower(hex(who)) FROM persons JOIN people USING (person)"
    ).fetchall()
    if len(people) > order.people:
        raise Refused(
            "source-too-large",
            f"The source has more than the {order.people} people of the data card's bids.people.",
            "Raise bids.people on the card, or add fewer people.",
        )
    target.mkdir(mode=0o700)
    for name, who in people:
        if order.source is not None and _PERSON.fullmatch(name):
            _take(Path(order.source).resolve(), name, order, target / who)


def folders_mark(folder: Path, salt: str) -> str:
    """Return a keyed hash of all imported files, to tell whether people's files have changed."""
    found = hashlib.blake2b(digest_size=16, key=hashlib.sha256(salt.encode()).digest())
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        found.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while piece := file.read(_AT_ONCE):
                found.update(piece)
    return found.hexdigest()


def _take(root: Path, name: str, order: FolderOrder, target: Path) -> None:
    found = [(pattern, own_file(root, name, pattern)) for pattern in order.patterns]
    files = [(pattern, path) for pattern, path in found if path is not None]
    if sum(path.stat().st_size for _, path in files) > order.person_bytes:
        raise Refused(
            "source-too-large",
            "One person's files are larger than the data card's bids.person_mb.",
            "Raise bids.person_mb on the card, or list fewer files there.",
        )
    with target.open("wb") as kept:
        for pattern, path in files:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                kept.write(record(FILE, person_path(pattern, SUBJECT), size))
                kept.writelines(_pieces(file, size))
        kept.flush()
        os.fsync(kept.fileno())


def own_file(root: Path, name: str, pattern: str) -> Path | None:
    """Return the resolved path of a person's file; None if it is missing or another person's.

    A symbolic link may lead to a hidden folder, where git-annex stores contents. Any other target
    outside the person's folders may belong to another person, whose file would then be in two
    blocks.
    """
    place = person_path(pattern, name)
    path = (root / place).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        return None
    if path == root / place:
        return path
    parts = path.relative_to(root).parts
    if parts[0] == name or parts[0].startswith("."):
        return path
    derivative = derivative_of(pattern)
    if derivative is None or parts[:2] != (DERIVATIVES, derivative):
        return None
    is_own = parts[: _depth(place, name)] == Path(place).parts[: _depth(place, name)]
    return path if is_own or parts[2].startswith(".") else None


def _depth(place: str, name: str) -> int:
    """Return how many parts of a derivative's path lead to the person's folder, or to the file."""
    parts = Path(place).parts
    return parts.index(name) + 1 if name in parts else len(parts)


def files_of(kept: Path, name: str) -> Iterator[bytes]:
    """Yield the records of a person's archived BIDS files, under the given person name.

    Yield nothing if none are stored.
    """
    if not kept.exists():
        return
    with kept.open("rb") as file:
        while head := file.read(HEAD.size):
            kind, length, size = HEAD.unpack(head)
            yield record(kind, file.read(length).decode().replace(SUBJECT, name), size)
            yield from _pieces(file, size)


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0:
        piece = file.read(min(size, _AT_ONCE))
        if not piece:
            raise ValueError
        size -= len(piece)
        yield piece
