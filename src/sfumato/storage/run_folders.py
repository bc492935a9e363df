"""Private temporary folders, one per run; the next run removes the folders of killed processes."""

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
    """Private temporary folders below one folder, removed even if their process is killed.

    A process locks the lock file of each of its folders while it runs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def draft(self) -> Iterator[str]:
        """Create a private temporary folder that is removed when the `with` block ends."""
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
        """Remove the temporary folders of killed processes: those whose lock nobody holds."""
        for lock in self._folder.glob(f"*{_LOCK}"):
            try:
                held = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # another process removed it
            if _is_free(held):
                _removed(lock.with_suffix(""), lock, held)
            else:
                os.close(held)
        for folder in self._folder.glob("*"):  # folders without a lock file are leftovers too
            if folder.is_dir() and not folder.with_name(folder.name + _LOCK).exists():
                shutil.rmtree(folder, ignore_errors=True)

    def _new_lock(self) -> tuple[Path, int]:
        """Create a lock file and lock it; try again if another process took or removed it first."""
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
    """Remove a temporary folder, then its lock file.

    If the folder can't be removed, keep the lock file for the next sweep.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        lock.unlink(missing_ok=True)
    os.close(held)
