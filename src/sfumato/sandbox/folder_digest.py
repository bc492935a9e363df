"""What lies in a folder of an environment: its digest, its size, and that nobody changes it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_AT_ONCE: Final = 1 << 20


def contents_of(folder: Path) -> str:
    """Return the digest of every name, every byte, every link and every right to run below it."""
    whole = hashlib.sha256()
    for place in sorted(_below(folder)):
        mode = place.lstat().st_mode
        name = os.fsencode(place.relative_to(folder))
        if stat.S_ISLNK(mode):
            kind, said = b"l", hashlib.sha256(os.fsencode(os.readlink(place)))
        elif stat.S_ISDIR(mode):
            kind, said = b"d", hashlib.sha256()
        else:
            kind, said = b"x" if mode & stat.S_IXUSR else b"f", _hashed(place)
        whole.update(b"%s%d:%s%s" % (kind, len(name), name, said.digest()))
    return whole.hexdigest()


def _hashed(place: Path) -> hashlib._Hash:
    found = hashlib.sha256()
    with place.open("rb") as file:
        while piece := file.read(_AT_ONCE):
            found.update(piece)
    return found


def _below(folder: Path) -> Iterator[Path]:
    """Yield everything below the folder; links are not followed."""
    left = [folder]
    while left:
        with os.scandir(left.pop()) as found:
            entries = list(found)
        for entry in entries:
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                left.append(Path(entry.path))


def size_of(folder: Path) -> int:
    """Return the memory that a copy needs, a page a file at least."""
    return sum(4096 + -(-place.lstat().st_size // 4096) * 4096 for place in _below(folder))


def let_nobody_change(folder: Path) -> None:
    for place in (folder, *_below(folder)):
        mode = place.lstat().st_mode
        if not stat.S_ISLNK(mode):
            place.chmod(0o555 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o444)
