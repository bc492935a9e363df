"""Vaults that are sealed at rest, for tests: a key elsewhere, a folder in memory, and an image."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sfumato

MEMORY = Path("/dev/shm")  # noqa: S108  # what is tested is that no row lies open elsewhere


@contextmanager
def memory() -> Iterator[Path]:
    """Give a folder in memory, where the tests' vaults may lay rows open."""
    made = Path(tempfile.mkdtemp(prefix="sfumato-tests-", dir=MEMORY))
    before = os.environ.get("SFUMATO_SCRATCH")
    os.environ["SFUMATO_SCRATCH"] = str(made)
    try:
        yield made
    finally:
        if before is None:
            del os.environ["SFUMATO_SCRATCH"]
        else:
            os.environ["SFUMATO_SCRATCH"] = before
        shutil.rmtree(made, ignore_errors=True)


def make_sealed(folder: Path) -> tuple[Path, str]:
    """Return a new vault that is sealed, and where its key is."""
    key = str(folder / "elsewhere" / "key")
    sfumato.create(folder / "vault", anchor=folder / "anchors" / "anchor", at_rest_key=key)
    return folder / "vault", key


def image(*folders: Path) -> bytes:
    """Return all that lies in the folders, names too, as whoever takes the disk reads it."""
    parts: list[bytes] = []
    for path in (path for folder in folders for path in sorted(folder.rglob("*"))):
        parts.append(str(path).encode())
        if path.is_file() and not path.is_symlink():
            parts.append(path.read_bytes())
    return b"\n".join(parts)


def lies_open(memory: Path) -> list[Path]:
    """Return every file that lies open in memory."""
    return [path for path in memory.rglob("*") if path.is_file()]
