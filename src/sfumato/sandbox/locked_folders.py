"""Draft folders with a lock, so that leftovers of killed processes can be found and deleted.

A folder is created or removed under a draft name. Its lock ends with the last process that holds
it. Leftovers are deleted when the next folder is created, and when a vault is opened. The lock is
on the folder itself. Child processes that write into the folder inherit the lock, because pip can
outlive its parent.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DRAFT, GONE, CONTROL = ".draft-", ".gone-", ".control-"
_KINDS: Final = (DRAFT, GONE, CONTROL)


@dataclass(frozen=True)
class LockedFolder:
    """A draft folder (unfinished, to be renamed), and the file descriptor that holds its lock."""

    place: Path
    lock: int


@contextmanager
def held_folder(above: Path, kind: str = DRAFT) -> Iterator[LockedFolder]:
    """Yield a new draft folder that is locked; delete it afterwards, unless it was renamed."""
    sweep(above)
    made = new_locked(above, kind)
    try:
        yield made
    finally:
        _remove(made.place)
        os.close(made.lock)


def sweep(above: Path) -> None:
    """Delete the draft folders of killed processes; a folder that a live process locks stays."""
    for place in (found for kind in _KINDS for found in above.glob(f"{kind}*")):
        lock = _taken(place)
        if lock is not None:
            _remove(place)
            os.close(lock)


def new_locked(above: Path, kind: str) -> LockedFolder:
    """Create a locked draft folder; try again if a concurrent sweep locked or deleted it first.

    Any other lock error is raised, because another try would fail too.
    """
    while True:
        place = Path(tempfile.mkdtemp(prefix=kind, dir=above))
        try:
            lock = locked(place)
        except (BlockingIOError, FileNotFoundError):
            continue
        except OSError:
            _remove(place)
            raise
        if place.exists():
            return LockedFolder(place, lock)
        os.close(lock)


def _taken(place: Path) -> int | None:
    """Try to lock a folder; return the descriptor, or None if it is locked or can't be locked."""
    try:
        return locked(place)
    except OSError:
        return None


def locked(place: Path) -> int:
    """Lock a folder, and return the descriptor that holds the lock; raise if it is locked."""
    lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _remove(place: Path) -> None:
    """Delete a folder with all contents, read-only subfolders included."""
    with contextlib.suppress(OSError):
        for folder, _, _ in os.walk(place):
            os.chmod(folder, stat.S_IRWXU)
    shutil.rmtree(place, ignore_errors=True)
