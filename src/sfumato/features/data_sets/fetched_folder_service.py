"""Folders that the vault fetches itself; what was fetched is kept for a day if adding fails."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.folder_archive import (
    SPARE_BYTES,
    copy_folder,
    free_bytes,
    no_space,
    too_large,
)
from sfumato.features.data_sets.upload_service import KEPT
from sfumato.vault.ports import Clock


@dataclass(frozen=True)
class FetchedFolders:
    """The places of what one vault is fetching on this machine: a folder for each source."""

    folder: Path
    clock: Clock
    most: int  # the most bytes of a folder
    is_sealed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)  # one is fetched at a time

    def place(self, owner: str, source: str) -> Path:
        """Return the place of a source, which may be there from an earlier try."""
        if self.is_sealed:
            raise Refused(
                "at-rest-not-possible",
                "A vault that is encrypted at rest cannot keep folders of people's files.",
                "Add them to a vault without a key, on a disk that is encrypted as a whole.",
            )
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()
        return self.folder / hashlib.sha256(f"{owner}\n{source}".encode()).hexdigest()[:24]

    def begin(self, place: Path) -> None:
        """Make a place anew, and note when."""
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        (place / "begun").write_text(self.clock.now())

    def check_room(self, sizes: Sequence[int]) -> None:
        """Refuse contents of more bytes than are allowed, or than fit on the disk twice."""
        if sum(sizes) > self.most:
            raise too_large(self.most)
        if free_bytes(self.folder) < 2 * sum(sizes) + SPARE_BYTES:
            raise no_space()

    def copied(self, place: Path, files: Sequence[tuple[str, Path]], root: Path) -> str:
        """Copy files into the folder `tree` of a place, with checks of names, links and sizes.

        Args:
            place: The place.
            files: The path of each file in the folder, and where it is.
            root: The folder below which they are.

        Returns:
            The folder that has participants.tsv.
        """
        tree = place / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        return str(copy_folder(files, root, tree, self.most).root)

    def sweep(self) -> None:
        """Delete places that are older than a day, unless one is being fetched."""
        if self.folder.is_dir() and self.lock.acquire(blocking=False):
            try:
                self._sweep()
            finally:
                self.lock.release()

    def _sweep(self) -> None:
        now = datetime.fromisoformat(self.clock.now())
        for place in self.folder.iterdir():
            begun = None
            with contextlib.suppress(OSError, ValueError):
                begun = datetime.fromisoformat((place / "begun").read_text())
            if begun is None or now > begun + KEPT:
                shutil.rmtree(place, ignore_errors=True)
