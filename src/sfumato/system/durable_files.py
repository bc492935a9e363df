"""Durable private files: write and sync files and folders, so that they survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path


def write_new(path: Path, content: bytes) -> None:
    """Create a file of mode 0600 and write its content durably (fsync); fail if the file exists.

    The file's name becomes durable only after `sync` of its folder.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())


def is_written(descriptor: int, piece: bytes) -> bool:
    """Write a piece to an open file, and return True if it was written in full.

    Nothing is written to a closed file, whose descriptor is -1.
    """
    rest = memoryview(piece)
    try:
        while rest and descriptor >= 0:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        return False
    return not rest


def sync(path: Path) -> None:
    """Make the content of a file, or the list of file names of a folder, durable (fsync)."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_folder(folder: Path) -> None:
    """Create a folder of mode 0700 and its missing parents, durably; do nothing if it exists."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
        sync(one.parent)
