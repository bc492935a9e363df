"""List the entries of a zip file with a limit, and tell a BIDS folder's zip from one of tables.

The list of a zip file is at its end, and is read into memory. A list of more than 64 MB, or of more
than 10,000 entries, is not read.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sfumato.system.folder_stream import archive_kind

MAX_LIST: Final = 64 << 20  # the most bytes of the list of entries
MAX_ENTRIES: Final = 10_000
_ENTRY: Final = b"PK\1\2"  # how an entry of the list begins
_UTF8: Final = 0x800  # flag of an entry whose name is UTF-8
_ROWS: Final = "participants.tsv"


class _Bounded(io.FileIO):
    """A file that refuses to read a list of too many bytes or entries at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        left = os.fstat(self.fileno()).st_size - self.tell()
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted > MAX_LIST:
            raise zipfile.BadZipFile
        text = super().read(wanted)
        if text.count(_ENTRY) > MAX_ENTRIES:
            raise zipfile.BadZipFile
        return text


@contextmanager
def opened_zip(path: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip file; raise BadZipFile, or another error of `zipfile`, if it is none."""
    with _Bounded(path) as file, zipfile.ZipFile(file) as archive:
        yield archive


def entry_name(info: zipfile.ZipInfo) -> str:
    """Return the name of an entry, with '/' between folders; many write UTF-8 without saying so."""
    name = info.filename
    if not info.flag_bits & _UTF8:
        try:
            name = info.filename.encode("cp437").decode("utf-8")
        except UnicodeError:
            name = info.filename
    return name.replace("\\", "/")


def is_hidden_entry(name: str) -> bool:
    """Return True for what file managers add to a zip file, such as __MACOSX/._visits.csv."""
    names = name.split("/")
    return names[0] == "__MACOSX" or any(
        one.startswith(".") and one not in (".", "..") for one in names
    )


def is_folder_archive(path: str) -> bool:
    """Return True if a source is a folder that is packed: a tar file, or a zip of a BIDS folder.

    A zip of tables has no participants.tsv at its top or in the only folder there. A zip file that
    cannot be read counts as a folder: unpacking it says what is wrong.
    """
    if archive_kind(path) is None or Path(path).is_dir():
        return False
    return archive_kind(path) != "zip" or not _is_of_tables(path)


def _is_of_tables(path: str) -> bool:
    try:
        with opened_zip(path) as archive:
            names = [entry_name(info) for info in archive.infolist()]
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return False
    shown = (name.removeprefix("./") for name in names if not is_hidden_entry(name))
    return not any(name.split("/")[-1] == _ROWS and name.count("/") < 2 for name in shown)
