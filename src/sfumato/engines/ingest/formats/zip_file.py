"""Unpack one file of rows from a zip file."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from sfumato.dp.refusal import Refused
from sfumato.engines.ingest.formats.compressed_file import SAMPLE, most_bytes, too_large
from sfumato.engines.ingest.source_errors import not_one, unreadable
from sfumato.system.folder_stream import archive_kind
from sfumato.system.row_files import COMPRESSED, KINDS, LINES, OF_TABLES, TEXT, row_suffix
from sfumato.system.zip_listing import MAX_ENTRIES, entry_name, is_hidden_entry, opened_zip

_PIECE: Final = 1 << 20
_ENCRYPTED: Final = 0x1
_LINES: Final = (*TEXT, *LINES)  # of these, the first lines can be read without the others
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class Unzipped:
    """A file that was unpacked from a zip file, and the table to read in it."""

    path: Path
    inner_table: str | None


def unzip(source: str, wanted: str | None, stem: Path, *, is_sample: bool) -> Unzipped:
    """Unpack the file of rows that a zip file has, or the wanted one of several.

    Args:
        source: The zip file.
        wanted: The file, by its path, its name or its name without the suffix; or a table of the
            only file; or both: `book.xlsx/Sheet 1`.
        stem: Where to unpack the file; its suffix is added.
        is_sample: Of a text, unpack only the whole lines of the first megabytes.
    """
    try:
        with opened_zip(source) as archive:
            info, inner = _chosen(_files(archive.infolist()), wanted)
            suffix = row_suffix(entry_name(info)) or ""
            target = stem.with_name(stem.name + suffix)
            # no more bytes than this are unpacked, whatever the entry holds
            if info.file_size > most_bytes(min(info.compress_size, Path(source).stat().st_size)):
                raise too_large()
            with archive.open(info) as packed, target.open("wb") as file:
                _copy(packed, file, SAMPLE if is_sample and suffix in _LINES else None)
            return Unzipped(target, inner)
    except (EOFError, ValueError, zipfile.BadZipFile, zlib.error):
        raise _damaged() from None
    except (NotImplementedError, RuntimeError):  # of a kind that zipfile does not read
        raise _damaged() from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise _damaged() from None


def _copy(packed: IO[bytes], file: IO[bytes], sample: int | None) -> None:
    if sample is not None:
        text = packed.read(sample)
        file.write(text if len(text) < sample else text[: text.rfind(b"\n") + 1])
        return
    while piece := packed.read(_PIECE):
        file.write(piece)


def _files(entries: Sequence[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """Return the files of rows by their paths; refuse a zip file that is not safe to read."""
    found: dict[str, zipfile.ZipInfo] = {}
    has_archive = False
    for number, info in enumerate(entries, 1):
        name = entry_name(info)
        _check_path(number, name)
        if info.is_dir() or is_hidden_entry(name):
            continue
        is_archive = archive_kind(name) is not None or name.casefold().endswith(COMPRESSED)
        has_archive = has_archive or is_archive
        if row_suffix(name) is None or is_archive:  # nothing is unpacked twice
            continue
        _check_kind(number, info)
        if name in found:
            raise unreadable(
                f"Entry {number} of the zip file has the name of an earlier entry.",
                "Make the zip file again, with one file of each name.",
            )
        found[name] = info
    if found:
        return found
    raise unreadable(
        "The zip file has no file of rows, but another archive."
        if has_archive
        else "The zip file has no file of rows.",
        "Unpack it, and give the archive that is in it."
        if has_archive
        else f"Give {KINDS}. The zip file of a BIDS folder has participants.tsv at its top.",
    )


def _check_path(number: int, name: str) -> None:
    """Refuse a path that leads out of the zip file, also of a file that is not read."""
    names = name.removesuffix("/").split("/")
    is_absolute = names[0] == "" or names[0].endswith(":")
    if is_absolute or ".." in names or not name.isprintable():
        raise unreadable(
            f"Entry {number} of the zip file has a path that is absolute, contains '..', or is "
            "not text.",
            "Make the zip file again, with relative paths.",
        )


def _check_kind(number: int, info: zipfile.ZipInfo) -> None:
    """Refuse a file of rows that is encrypted, a link, or packed in a way that cannot be read."""
    if info.flag_bits & _ENCRYPTED:
        raise unreadable(
            f"Entry {number} of the zip file is encrypted.",
            "Make the zip file without a password.",
        )
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
        raise unreadable(
            f"Entry {number} of the zip file is a link or a device, not a file.",
            "Put the file itself into the zip file.",
        )
    if info.compress_type not in _METHODS:
        raise unreadable(
            f"Entry {number} of the zip file is compressed by a method other than deflate.",
            "Make the zip file with `zip`, or unpack it and give the file.",
        )


def _chosen(
    files: dict[str, zipfile.ZipInfo], wanted: str | None
) -> tuple[zipfile.ZipInfo, str | None]:
    """Return the file to read, and the table to read in it."""
    # many tables have a README.txt beside them: a text is read if it is alone or asked for
    named = sorted(files)
    names = [name for name in named if not name.casefold().endswith(".txt")] or named
    if wanted is None and len(names) == 1:
        return files[names[0]], None
    if wanted is None:
        raise not_one(f"The zip file has {len(names)} files of rows.", names, names)
    for is_it in (str.__eq__, _has_name):
        fitting = [name for name in named if is_it(name, wanted)]
        if len(fitting) == 1:
            return files[fitting[0]], None
    within = [name for name in names if wanted.startswith(f"{name}/")]
    inner = wanted.removeprefix(f"{within[0]}/") if within else wanted
    within = within or (names if len(names) == 1 else [])
    if within and within[0].casefold().endswith(OF_TABLES):
        return files[within[0]], inner
    raise not_one("The zip file has no file of rows of that name, or several.", names, names)


def _has_name(name: str, wanted: str) -> bool:
    """Return True if a file is meant by its name in its folder, with or without the suffix."""
    last = name.rpartition("/")[2]
    return wanted in (last, last[: -len(row_suffix(last) or "")])


def _damaged() -> Refused:
    return unreadable(
        f"The zip file is damaged, cut off, or has more than {MAX_ENTRIES:,} entries.",
        "Make it again, and test it with `unzip -t`.",
    )
