"""A file lock between processes, so that only one data set is added at a time."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sfumato.dp.refusal import Refused


@contextmanager
def add_lock(path: Path) -> Iterator[None]:
    """Hold the lock for adding data sets during the block.

    Refuse at once if another process holds the lock, because an add can take a long time.
    """
    with path.open("a") as file:
        is_held = False
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = True
        if not is_held:
            raise Refused("ledger-busy", "Another data set is being added now.", "Try again later.")
        yield


@contextmanager
def wait_add_lock(path: Path) -> Iterator[None]:
    """Wait for the lock for adding data sets and hold it during the block.

    So checks before an add stay valid until the add has ended.
    """
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
