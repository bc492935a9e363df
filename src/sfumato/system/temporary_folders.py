"""Make temporary folders that are removed even if their process is killed.

Each has a lock that ends with its process. Whoever makes the next one removes those of our own
user whose lock nobody holds. Folders of earlier versions have other names and no lock, and stay.
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
    """A private folder (0700) that is there until it is removed; has state."""

    def __init__(self, prefix: str = PREFIX, above: Path | None = None) -> None:
        """Make it in the temporary directory, or in `above`; sweep what the killed have left."""
        above = above or Path(tempfile.gettempdir())
        sweep(prefix, above)
        self.place, self._lock = _new(prefix, above)

    def remove(self) -> None:
        """Remove it with all that is in it; a second time does nothing."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            _remove(self.place, lock)
            os.close(lock)


@contextmanager
def temporary_folder(prefix: str = PREFIX, above: Path | None = None) -> Iterator[Path]:
    """Give a private folder that is gone afterwards."""
    made = TemporaryFolder(prefix, above)
    try:
        yield made.place
    finally:
        made.remove()


def sweep(prefix: str = PREFIX, above: Path | None = None) -> None:
    """Remove the folders of this prefix whose processes were killed; leave all others."""
    above = above or Path(tempfile.gettempdir())
    found = []
    with contextlib.suppress(OSError), os.scandir(above) as entries:
        found = [Path(one.path) for one in entries if one.name.startswith(prefix)]
    for place in found:
        _sweep_one(place)


def _sweep_one(place: Path) -> None:
    try:
        folder = os.open(place, _HOW)  # no link, and nothing that opening would wait for
    except OSError:
        return
    try:
        if os.fstat(folder).st_uid == os.geteuid():
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(place, folder)
    except OSError:  # somebody alive holds it, or nobody can know that nobody does
        pass
    finally:
        os.close(folder)


def _new(prefix: str, above: Path) -> tuple[Path, int]:
    """Return a folder and its lock; one that a sweep was quicker to take is left to it."""
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


def _remove(place: Path, folder: int) -> None:
    """Remove what is in the open folder, then its name; a link in place of it is not followed."""
    with os.scandir(folder) as entries:
        found = [(one.name, one.is_dir(follow_symlinks=False)) for one in entries]
    for name, is_folder in found:
        with contextlib.suppress(OSError):
            if is_folder:
                shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
    with contextlib.suppress(OSError):
        os.rmdir(place)
