"""Temporary folders that are removed even if their process is killed.

A process locks each of its folders while it lives. The next process that creates such a folder
removes those of the same user that nobody locks. Folders of earlier versions have other names and
no lock, and are kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PREFIX: Final = "sfumato-run-"
_HOW: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TemporaryFolder:
    """Private temporary folder (mode 0700), which exists until `remove` is called.

    The process locks it while the process lives.
    """

    def __init__(self, prefix: str = PREFIX, above: Path | None = None) -> None:
        """Create the folder in the temporary directory or in `above`.

        First remove the folders that killed processes left there.
        """
        above = above or Path(tempfile.gettempdir())
        sweep(prefix, above)
        self.path, self._lock = _new(prefix, above)

    def remove(self) -> None:
        """Remove the temporary folder with its content; a second call does nothing."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            _remove(self.path, lock)
            os.close(lock)


@contextmanager
def temporary_folder(prefix: str = PREFIX, above: Path | None = None) -> Iterator[Path]:
    """Create a private temporary folder that is removed when the `with` block ends."""
    made = TemporaryFolder(prefix, above)
    try:
        yield made.path
    finally:
        made.remove()


def sweep(prefix: str = PREFIX, above: Path | None = None) -> None:
    """Remove temporary folders with this prefix whose processes were killed; leave all others."""
    above = above or Path(tempfile.gettempdir())
    found = []
    with contextlib.suppress(OSError), os.scandir(above) as entries:
        found = [Path(one.path) for one in entries if one.name.startswith(prefix)]
    for place in found:
        _sweep_one(place)


def _sweep_one(path: Path) -> None:
    try:
        folder = os.open(path, _HOW)  # refuses links and anything but folders
    except OSError:
        return
    try:
        if os.fstat(folder).st_uid == os.geteuid():
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path, folder)
    except OSError:  # a live process holds the lock, or it can't be tested
        pass
    finally:
        os.close(folder)


def _new(prefix: str, above: Path) -> tuple[Path, int]:
    """Create a temporary folder and lock it; try again if another process removed it first."""
    while True:
        place = Path(tempfile.mkdtemp(prefix=prefix, dir=above))  # 0700
        lock = -1
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            lock = os.open(place, _HOW)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.lstat(place)):
                return place, lock
        if lock >= 0:
            os.close(lock)


def _remove(path: Path, folder: int) -> None:
    """Remove the content of the open folder, then its name; never follow a link in its place."""
    with os.scandir(folder) as entries:
        found = [(one.name, one.is_dir(follow_symlinks=False)) for one in entries]
    for name, is_folder in found:
        with contextlib.suppress(OSError):
            if is_folder:
                shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
    with contextlib.suppress(OSError):
        os.rmdir(path)
