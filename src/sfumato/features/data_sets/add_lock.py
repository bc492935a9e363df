"""The lock by which one data set is added at a time, whichever process adds it."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sfumato.dp.refusal import Refused


@contextmanager
def add_lock(path: Path) -> Iterator[None]:
    """Hold the same lock, or refuse at once: an add holds it for as long as it prepares."""
    with path.open("a") as file:
        is_held = False
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = True
        if not is_held:
            raise Refused("ledger-busy", "A data set is being added.", "Try again in a while.")
        yield


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Hold a lock between processes: what was checked before a data set is added stays true."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
