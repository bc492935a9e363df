"""Detect a full disk or memory file system, and refuse with a constant message.

Without this test, a full disk would look like a damaged source.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from sfumato.engines.shared.message_frames import Header

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the last by `spare_kept`
_SPARE: Final = 512 << 20  # bytes that stay free on a disk, because the vault writes there too
_OF_DISK: Final = (duckdb.IOException, duckdb.TransactionException, duckdb.FatalException)
NO_SPACE: Final[Header] = {
    "refused": [
        "source-too-large",
        "There is no disk space left to prepare the rows.",
        (
            "Free space on the vault's disk and try again. For a vault that is encrypted at rest, "
            "also free space in the folder of SFUMATO_SCRATCH."
        ),
    ]
}


def is_full(error: Exception) -> bool:
    """Say whether an error means that a disk or memory file system has no space left."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    said = str(error)  # never passed on, because an error text could quote a value
    return isinstance(error, _OF_DISK) and any(os.strerror(code) in said for code in _FULL)


@contextmanager
def spare_kept(folder: Path) -> Iterator[None]:
    """Let no file that this process writes take the last free space of a disk during the block.

    Without that limit, a small file of an owner that becomes a very large one would fill the disk.
    """
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    wanted = max(free - _SPARE, free // 2)
    limits = [wanted, *(one for one in (before, most) if one != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(limits), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
