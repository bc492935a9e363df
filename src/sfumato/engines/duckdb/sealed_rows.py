"""Decrypt tables of a vault that is encrypted at rest, only in memory; the worker's side.

A prepared table is decrypted to an anonymous memory file (memfd), which ends with this process.
DuckDB's other files go to a private folder on a memory file system. The parent process creates and
deletes that folder (`engines/shared/memory_scratch.py`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final

from sfumato.engines.shared.atomic_publish import is_whole
from sfumato.engines.shared.disk_full import is_full
from sfumato.engines.shared.locked_connection import Room
from sfumato.engines.shared.message_frames import Header
from sfumato.query.measure import Cells
from sfumato.system.row_files import row_suffix
from sfumato.vault.encryption_at_rest import PIECE, AtRest, DecryptionError

SEALED: Final = ".sealed"  # suffix of a source file that was encrypted at upload
USED: Final = "used.duckdb"


def rest_of(start: Header) -> AtRest | None:
    """Return the key and random seed with which a worker reads an encrypted vault.

    They are in the start message. Return None if the vault isn't encrypted at rest.
    """
    said = start.get("at_rest")
    if not isinstance(said, dict):
        return None
    return AtRest(bytes.fromhex(said["key"]), _drawn_from(bytes.fromhex(said["seed"])))


def _drawn_from(seed: bytes) -> Callable[[int], bytes]:
    """Return a generator of unique 32-byte values, which the encryption of files needs.

    The values are derived from the seed and a counter. They must be unique, not secret. They are
    unique, because each worker has its own random seed.
    """
    given = 0

    def draw(_count: int) -> bytes:
        nonlocal given
        given += 1
        return sha256(seed + given.to_bytes(8, "big")).digest()

    return draw


def in_memory(rest: AtRest, path: str) -> int:
    """Decrypt a file into an anonymous memory file; return its file descriptor.

    The whole content is verified before this returns.
    """
    descriptor = os.memfd_create("rows", os.MFD_CLOEXEC)
    is_whole = False
    try:
        with open(descriptor, "wb", closefd=False) as file:
            _open_into(rest, path, file)
        is_whole = True
    finally:
        if not is_whole:
            os.close(descriptor)
    return descriptor


def open_in_memory(rest: AtRest, path: str, target: Path) -> None:
    """Decrypt a file to `target`, atomically; `target` must be on a memory file system."""
    made = target.with_name(f"{target.name}.part")
    with made.open("wb") as file:
        _open_into(rest, path, file)
    made.replace(target)


def _open_into(rest: AtRest, path: str, file: BinaryIO) -> None:
    with open(path, "rb") as sealed:
        for piece in rest.decrypt_pieces(Path(path).name, sealed.read):
            file.write(piece)


def write_sealed(rest: AtRest, made: Path, target: Path, name: str) -> None:
    """Encrypt a finished file to `target` on disk; the encryption is bound to `name`."""
    if not is_whole(made):  # not complete: a write-ahead log would be lost
        raise OSError(errno.ENOSPC, "a part of it waits in a log")
    with made.open("rb") as file, target.open("wb") as sealed:
        parts = iter(lambda: file.read(PIECE), b"")
        for part in rest.encryptor(name).all_of(parts):
            sealed.write(part)


# --- requests of a worker, on decrypted files -----------------------------------------------------


def prepared_sealed(rest: AtRest, room: Room, salt: str, request: Header) -> Header:
    """Prepare tables in memory; then encrypt the result and the sketch of its people to disk."""
    from sfumato.engines.ingest.prepare import prepare

    body: dict[str, Any] = request  # Any: a message of the parent process
    work, out = Path(body["work"]), Path(body["out"])
    tables = [
        {**table, "source": _reachable(rest, table["source"], work, place)}
        for place, table in enumerate(body["tables"])
    ]
    sketches = [
        [domain, _known(rest, path, work / f"sketch-{place}.json")]
        for place, (domain, path) in enumerate(body["sketches"])
    ]
    different = [
        [
            domain,
            _known(rest, own, work / f"own-{place}.json"),
            _known(rest, other, work / f"other-{place}.json"),
        ]
        for place, (domain, own, other) in enumerate(body["different"])
    ]
    opened: Header = {"tables": tables, "sketches": sketches, "different": different}
    said = prepare(room, salt, {**request, **opened})
    if "refused" not in said:
        for made, name in zip(("rows.duckdb", "people.json"), body["names"], strict=True):
            write_sealed(rest, work / made, out / made, name)
    return said


def described_sealed(rest: AtRest, room: Room, request: Header) -> Header:
    """Guess a source's column names and types; decrypt the source first if it was encrypted."""
    from sfumato.engines.ingest.column_types import column_types

    source = _reachable(rest, str(request["source"]), Path(str(request["work"])), 0)
    return column_types(room, {**request, "source": source})


def taken_sealed(rest: AtRest, room: Room, request: Header) -> Cells:
    """Count one period of a stream in memory; encrypt the stream's new state to disk."""
    from sfumato.engines.duckdb.stream_period import count_period

    body: dict[str, Any] = request  # Any: a message of the parent process
    work = Path(body["spill"])
    moved = {"table": work / "table.duckdb", "target": work / USED}
    open_in_memory(rest, body["table"], moved["table"])
    if body["before"] is not None:
        moved["before"] = work / "before.duckdb"
        open_in_memory(rest, body["before"], moved["before"])
    cells = count_period(room, {**request, **{what: str(path) for what, path in moved.items()}})
    write_sealed(rest, moved["target"], Path(body["target"]), USED)
    return cells


def _reachable(rest: AtRest, source: str, work: Path, place: int) -> str:
    """Decrypt an encrypted source to memory; return the path from which the source can be read."""
    if not source.endswith(SEALED):
        return source
    target = work / f"source-{place}{row_suffix(source.removesuffix(SEALED)) or ''}"
    open_in_memory(rest, source, target)
    return str(target)


def _known(rest: AtRest, path: str, target: Path) -> str:
    """Decrypt a stored sketch of people to `target`; return that path.

    If the sketch is damaged, no file is at that path. A missing sketch counts as matching every
    data set.
    """
    try:
        open_in_memory(rest, path, target)
    except (OSError, DecryptionError) as error:
        if is_full(error):  # a full disk does not mean that the sketch is damaged
            raise
        target.unlink(missing_ok=True)
    return str(target)
