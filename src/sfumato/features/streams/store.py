"""The private state of streams, in folders of the vault that only its owner may read.

A closed period has one folder: `used.duckdb`, which only an engine reads, and `taken.json` with the
noisy block. The folder is made elsewhere and renamed into place, so that after a kill a period's
state is complete or absent.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Bug
from sfumato.system.durable_files import make_folder, sync, write_new
from sfumato.vault.engine_port import PeriodState
from sfumato.vault.hash_chain import canonical

USED: Final = "used.duckdb"
WORDS: Final = "taken.json"
DRAFT: Final = "draft-"


class FileStreams:
    """Store of the private state of streams in a folder that several processes may share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def lock(self, stream: str) -> Iterator[None]:
        """Lock the stream, so that no other process closes one of its periods meanwhile."""
        folder = self._of(stream)
        make_folder(folder)
        file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def find(self, stream: str, end: int) -> PeriodState | None:
        """Return the saved private state of the stream's period `end`, or None."""
        place = self._of(stream) / str(end)
        if not (place / WORDS).is_file() or not (place / USED).is_file():
            return None
        return PeriodState(json.loads((place / WORDS).read_text("utf-8")), str(place / USED))

    @contextmanager
    def draft(self, stream: str) -> Iterator[str]:
        """Create a private folder for an unfinished state file; remove it when the block ends."""
        made = tempfile.mkdtemp(prefix=DRAFT, dir=self._of(stream))  # 0700
        try:
            yield str(Path(made, USED))
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def save(self, stream: str, end: int, draft: str, words: dict[str, object]) -> PeriodState:
        """Save the draft as the state of the period, atomically; a period is saved only once."""
        made, place = Path(draft).parent, self._of(stream) / str(end)
        if place.exists():
            raise Bug("a period of a stream is kept twice")
        write_new(made / WORDS, canonical(words).encode())
        for path in (made / USED, made):
            sync(path)
        made.rename(place)
        sync(place.parent)
        sync(self._folder)
        return PeriodState(words, str(place / USED))

    def drop_before(self, stream: str, end: int) -> None:
        """Delete the state of earlier periods, and drafts of killed processes."""
        for left in self._of(stream).iterdir():
            is_old = left.name.isdigit() and int(left.name) < end
            if is_old or left.name.startswith(DRAFT):
                shutil.rmtree(left, ignore_errors=True)

    def _of(self, stream: str) -> Path:
        return self._folder / stream
