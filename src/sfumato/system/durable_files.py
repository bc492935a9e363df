"""What is on the disk, and stays there after a power cut: new private files, and their names."""

from __future__ import annotations

import os
from pathlib import Path


def write_new(path: Path, content: bytes) -> None:
    """Write a file that was not there and that nobody else may read; its content is on the disk.

    Its name is only after `sync` of its folder.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())


def sync(path: Path) -> None:
    """Bring a file, or what a folder lists, to the disk."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_folder(folder: Path) -> None:
    """Make a folder that nobody else may read, where there is none; its name is on the disk, too.

    Those above it that are missing are made as well.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
        sync(one.parent)
