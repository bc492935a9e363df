"""Private folders that live as long as one run; what the killed leave, the next run sweeps."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_LOCK: Final = ".lock"


class FileDrafts:
    """A Drafts in a folder; each draft has a lock beside it, which dies with its process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def draft(self) -> Iterator[str]:
        """Give a private folder that is gone afterwards."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self.sweep()
        lock, held = self._new_lock()
        made = lock.with_suffix("")
        made.mkdir(mode=0o700)
        try:
            yield str(made)
        finally:
            _removed(made, lock, held)

    def sweep(self) -> None:
        """Remove what the killed have left: nobody holds its lock."""
        for lock in self._folder.glob(f"*{_LOCK}"):
            try:
                held = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # another swept it
            if _is_free(held):
                _removed(lock.with_suffix(""), lock, held)
            else:
                os.close(held)
        for folder in self._folder.glob("*"):  # made under a lock, and gone before its lock is
            if folder.is_dir() and not folder.with_name(folder.name + _LOCK).exists():
                shutil.rmtree(folder, ignore_errors=True)

    def _new_lock(self) -> tuple[Path, int]:
        """Return a lock that is held; one that a sweep was quicker to take is left to it."""
        while True:
            held, path = tempfile.mkstemp(suffix=_LOCK, dir=self._folder)  # 0600
            if _is_free(held) and os.path.exists(path):
                return Path(path), held
            os.close(held)


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _removed(folder: Path, lock: Path, held: int) -> None:
    """Remove the folder, then its lock; a folder that stays keeps its lock, for the next sweep."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        lock.unlink(missing_ok=True)
    os.close(held)
