"""Rows that lie on the disk sealed, and open in memory alone; the worker's side of it.

A prepared table is opened from a file without a name, in memory, that ends with this process. What
DuckDB has to write beside its file lies in a private folder of a file system in memory, which the
parent makes and removes (`engines/shared/memory_scratch.py`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final

from sfumato.engines.duckdb.locked_connection import Room
from sfumato.engines.shared.atomic_publish import is_whole
from sfumato.engines.shared.disk_full import is_full
from sfumato.engines.shared.message_frames import Header
from sfumato.query.measure import Cells
from sfumato.vault.encryption_at_rest import PIECE, AtRest, Unsealable

SEALED: Final = ".sealed"  # how the name of a source ends that was sealed when it came in
USED: Final = "used.duckdb"


def rest_of(start: Header) -> AtRest | None:
    """Return the key that the parent has sent, if the vault is sealed."""
    said = start.get("at_rest")
    if not isinstance(said, dict):
        return None
    return AtRest(bytes.fromhex(said["key"]), _drawn_from(bytes.fromhex(said["seed"])))


def _drawn_from(seed: bytes) -> Callable[[int], bytes]:
    """Return what gives 32 bytes that no other call and no other worker is given.

    They have to be different, not secret: the parent has drawn the seed for this worker alone.
    """
    given = 0

    def draw(_count: int) -> bytes:
        nonlocal given
        given += 1
        return sha256(seed + given.to_bytes(8, "big")).digest()

    return draw


def in_memory(rest: AtRest, path: str) -> int:
    """Return the descriptor of a file in memory that holds what was sealed, all of it sure."""
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
    """Write what was sealed into a file of the private folder; it is there whole or not at all."""
    made = target.with_name(f"{target.name}.part")
    with made.open("wb") as file:
        _open_into(rest, path, file)
    made.replace(target)


def _open_into(rest: AtRest, path: str, file: BinaryIO) -> None:
    with open(path, "rb") as sealed:
        for piece in rest.pieces(Path(path).name, sealed.read):
            file.write(piece)


def write_sealed(rest: AtRest, made: Path, target: Path, name: str) -> None:
    """Seal what was made in memory into a file on the disk, which will have that name."""
    if not is_whole(made):  # nobody sees the log any more, once the file is sealed elsewhere
        raise OSError(errno.ENOSPC, "a part of it waits in a log")
    with made.open("rb") as file, target.open("wb") as sealed:
        parts = iter(lambda: file.read(PIECE), b"")
        for part in rest.sealer(name).all_of(parts):
            sealed.write(part)


# --- what a worker is asked, with everything where it can be read ---------------------------------


def prepared_sealed(rest: AtRest, room: Room, salt: str, request: Header) -> Header:
    """Prepare in memory; put the table and the sketch away."""
    from sfumato.engines.ingest.prepare import prepare

    body: dict[str, Any] = request  # Any: a message of our own parent
    work, out = Path(body["work"]), Path(body["out"])
    tables = [
        {**table, "source": _reachable(rest, table["source"], work, place)}
        for place, table in enumerate(body["tables"])
    ]
    sketches = [
        [domain, _known(rest, path, work / f"sketch-{place}.json")]
        for place, (domain, path) in enumerate(body["sketches"])
    ]
    said = prepare(room, salt, {**request, "tables": tables, "sketches": sketches})
    if "refused" not in said:
        for made, name in zip(("rows.duckdb", "people.json"), body["names"], strict=True):
            write_sealed(rest, work / made, out / made, name)
    return said


def described_sealed(rest: AtRest, room: Room, request: Header) -> Header:
    """Describe a source that was sealed when it came in, or any other."""
    from sfumato.engines.ingest.column_types import column_types

    source = _reachable(rest, str(request["source"]), Path(str(request["work"])), 0)
    return column_types(room, {**request, "source": source})


def taken_sealed(rest: AtRest, room: Room, request: Header) -> Cells:
    """Count a period of a stream; put away what is to be kept of it."""
    from sfumato.engines.duckdb.stream_period import count_period

    body: dict[str, Any] = request  # Any: a message of our own parent
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
    """Return where a source can be read: where it lies, or laid open if it was sealed."""
    if not source.endswith(SEALED):
        return source
    target = work / f"source-{place}{Path(source.removesuffix(SEALED)).suffix}"
    open_in_memory(rest, source, target)
    return str(target)


def _known(rest: AtRest, path: str, target: Path) -> str:
    """Return where a sketch can be read; where one is damaged nothing is, so it may be anyone's."""
    try:
        open_in_memory(rest, path, target)
    except (OSError, Unsealable) as error:
        if is_full(error):  # what cannot be read just now is not damaged
            raise
        target.unlink(missing_ok=True)
    return str(target)
