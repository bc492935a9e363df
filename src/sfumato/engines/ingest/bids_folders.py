"""Keeping each person's files of a BIDS folder, as the card's patterns name them; in a worker.

A person's files lie in one file of ours, named by the keyed hash that names the person: records of
a path, with a mark where the person's name goes, and its bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import duckdb

from sfumato.dp.refusal import Refused
from sfumato.engines.ingest.prepare_order import FolderOrder
from sfumato.vault.card.bids import SUBJECT
from sfumato.vault.folder_records import FILE, HEAD, record

_PERSON: Final = re.compile(r"sub-[A-Za-z0-9]{1,64}")
_AT_ONCE: Final = 1 << 20


def take_folders(connection: duckdb.DuckDBPyConnection, order: FolderOrder, target: Path) -> None:
    """Keep the files of everybody who has rows; refuse, to the owner alone, what is too much."""
    people = connection.execute(
        "SELECT id, lower(hex(who)) FROM persons JOIN people USING (person)"
    ).fetchall()
    if len(people) > order.people:
        raise Refused(
            "source-too-large",
            f"The source has more than the {order.people} people of the card's bids.people.",
            "Raise bids.people on the card, or hand in fewer.",
        )
    target.mkdir(mode=0o700)
    for name, who in people:
        if order.source is not None and _PERSON.fullmatch(name):
            _take(Path(order.source).resolve(), name, order, target / who)


def _take(root: Path, name: str, order: FolderOrder, target: Path) -> None:
    found = [(p, _own(root, name, p.replace(SUBJECT, name))) for p in order.patterns]
    files = [(pattern, path) for pattern, path in found if path is not None]
    if sum(path.stat().st_size for _, path in files) > order.person_bytes:
        raise Refused(
            "source-too-large",
            "Somebody's files are larger than the card's bids.person_mb.",
            "Raise bids.person_mb on the card, or list fewer files there.",
        )
    with target.open("wb") as kept:
        for pattern, path in files:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                kept.write(record(FILE, f"{SUBJECT}/{pattern}", size))
                kept.writelines(_pieces(file, size))
        kept.flush()
        os.fsync(kept.fileno())


def _own(root: Path, name: str, place: str) -> Path | None:
    """Return the file, if it is one and no link leads out of the person's folder.

    A link may lead to where the contents of files are kept, as git-annex does it: a hidden folder.
    What else lies beside the person's folder is others', whose files would be in two blocks.
    """
    path = (root / name / place).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        return None
    top = path.relative_to(root).parts[0]
    return path if top == name or top.startswith(".") else None


def files_of(kept: Path, name: str) -> Iterator[bytes]:
    """Yield a person's files as records under that name, piece by piece; nothing if none are."""
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
