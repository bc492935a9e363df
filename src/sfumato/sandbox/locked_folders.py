"""Folders that are made, or let go of, whole: each has a lock that dies with whoever is at it.

What the killed leave is swept by whoever makes the next one, and where a vault is opened. The lock
is on the folder itself, and whoever is started to write into it holds it too: pip may live longer
than what started it.
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
    """A folder, and the descriptor of its lock."""

    place: Path
    lock: int


@contextmanager
def held_folder(above: Path, kind: str = DRAFT) -> Iterator[LockedFolder]:
    """Give a new folder; it is gone afterwards, unless it has been given another name."""
    sweep(above)
    made = _new(above, kind)
    try:
        yield made
    finally:
        _remove(made.place)
        os.close(made.lock)


def sweep(above: Path) -> None:
    """Remove what the killed have left; what somebody alive holds stays."""
    for place in (found for kind in _KINDS for found in above.glob(f"{kind}*")):
        lock = _taken(place)
        if lock is not None:
            _remove(place)
            os.close(lock)


def _new(above: Path, kind: str) -> LockedFolder:
    """Return a folder and its lock; one that a sweep was quicker to take is left to it.

    Whatever else is in the way of a lock would be in the way of the next one too.
    """
    while True:
        place = Path(tempfile.mkdtemp(prefix=kind, dir=above))
        try:
            lock = _locked(place)
        except (BlockingIOError, FileNotFoundError):
            continue
        except OSError:
            _remove(place)
            raise
        if place.exists():
            return LockedFolder(place, lock)
        os.close(lock)


def _taken(place: Path) -> int | None:
    """Return the folder's lock, or None if somebody who is alive has it, or nobody can have it."""
    try:
        return _locked(place)
    except OSError:
        return None


def _locked(place: Path) -> int:
    lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _remove(place: Path) -> None:
    """Let nothing be left of it, of folders that nobody may change either."""
    with contextlib.suppress(OSError):
        for folder, _, _ in os.walk(place):
            os.chmod(folder, stat.S_IRWXU)
    shutil.rmtree(place, ignore_errors=True)
