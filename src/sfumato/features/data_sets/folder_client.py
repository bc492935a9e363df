"""Read a folder or an archive of the owner's machine as the stream that is uploaded in parts."""

from __future__ import annotations

import bisect
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.system.folder_stream import (
    PART_BYTES,
    Kind,
    archive_kind,
    header,
    part_count,
    part_name,
    part_size,
)
from sfumato.system.zip_listing import is_folder_archive
from sfumato.vault.card.bids import DESCRIPTION
from sfumato.vault.card.bids_patterns import file_patterns, is_listed, listed_patterns
from sfumato.vault.card.data_card import read_card

ROWS: Final = "participants.tsv"
NAMED: Final = 3  # how many files a refusal names
_ANNEX: Final = Path(".git", "annex", "objects")
_POINTER: Final = b"/annex/objects/"  # how git-annex begins a file whose content is elsewhere
_POINTER_BYTES: Final = 32_768


@dataclass(frozen=True)
class _Segment:
    """Bytes of the stream: a header, or a file."""

    begin: int
    size: int
    text: bytes = b""
    path: Path | None = None


@dataclass(frozen=True)
class FolderStream:
    """The stream of a folder or an archive: its kind, its size, and where its bytes are."""

    name: str
    kind: Kind
    size: int
    segments: tuple[_Segment, ...]

    @property
    def parts(self) -> int:
        """Return the number of parts."""
        return part_count(self.size)

    def part(self, number: int) -> bytes:
        """Return a part of the stream by its number; refuse if a file has changed its size."""
        begin = number * PART_BYTES
        left = part_size(number, self.size)
        place = bisect.bisect_right(self.segments, begin, key=lambda one: one.begin) - 1
        pieces = []
        while left:
            one = self.segments[place]
            skipped = max(0, begin - one.begin)
            piece = _piece(one, skipped, min(left, one.size - skipped))
            pieces.append(piece)
            left -= len(piece)
            place += 1
        return b"".join(pieces)

    def part_names(self) -> Iterator[str]:
        """Yield the SHA-256 of each part, in order; this reads everything once."""
        for number in range(self.parts):
            yield part_name(self.part(number))


def check_card(name: str, card: Mapping[str, object]) -> None:
    """Refuse a bad card before the files are sent, which may take hours.

    Args:
        name: The name of the future data set.
        card: The data card.

    Raises:
        Refused: `bad-card` or `bad-budget`.
    """
    read_card(name, card)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return True if a source is uploaded as a folder: a folder, or the zip or tar file of one."""
    return Path(path).is_dir() or is_folder_archive(os.fspath(path))


def folder_stream(path: Path, card: Mapping[str, object]) -> FolderStream:
    """Return the stream of a folder or an archive.

    Of a folder, only the files that the card lists are sent. A zip or tar file is sent as it is.

    Args:
        path: The folder or the archive file.
        card: The data card.

    Raises:
        Refused: `source-unreadable` if files are missing, or if links lead out of the folder.
    """
    name = path.resolve().name[:200] or "folder"
    kind = archive_kind(path.name)
    if kind is not None and not path.is_dir():
        size = _size_of(path)
        return FolderStream(name, kind, size, (_Segment(0, size, path=path),))
    files = folder_files(path, listed_patterns(card))
    segments, begin = [], 0
    for inner, file in files:
        size = _size_of(file)
        head = header(inner, size)
        segments.append(_Segment(begin, len(head), head))
        begin += len(head)
        if size:
            segments.append(_Segment(begin, size, path=file))
            begin += size
    return FolderStream(name, "folder", begin, tuple(segments))


def folder_files(root: Path, patterns: tuple[str, ...]) -> list[tuple[str, Path]]:
    """Return the files of a BIDS folder that a card with these patterns lists: path and place.

    A symbolic link is followed only into the folder's own git-annex objects.

    Args:
        root: The folder.
        patterns: The card's bids.files.

    Raises:
        Refused: `source-unreadable`, naming the first files that are missing or that lead out.
    """
    found = sorted(_listed(root, patterns))
    annex = root.resolve() / _ANNEX
    outside = [inner for inner, file in found if _leads_out(file, annex)]
    if outside:
        raise Refused(
            "source-unreadable",
            f"{_named(outside)} no regular files of the folder: links that lead out of it, or "
            "devices.",
            "Replace them by the files themselves. Links into .git/annex/objects are followed.",
        )
    absent = [inner for inner, file in found if _is_absent(file)]
    if absent:
        raise Refused(
            "source-unreadable",
            f"{_named(absent)} not on this machine: git-annex has only their names.",
            "Get the content first: `datalad get FOLDER`, or `git annex get` in the folder.",
        )
    if ROWS not in dict(found):
        raise Refused(
            "source-unreadable",
            f"The folder has no {ROWS}.",
            f"Give the folder that contains {ROWS}.",
        )
    return found


def proposed_patterns(root: str | os.PathLike[str]) -> list[str]:
    """Return the file patterns that a draft card of a BIDS folder proposes."""
    return file_patterns(path for path, _ in _walk(Path(root)) if "/" in path)


def _listed(root: Path, patterns: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    return (pair for pair in _walk(root) if is_listed(pair[0], patterns))


def _walk(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the path and place of each file that is not hidden; links to folders count as files."""
    for folder, folders, files in os.walk(root):
        names = [name for name in folders if Path(folder, name).is_symlink()]
        folders[:] = [name for name in folders if not name.startswith(".") and name not in names]
        for name in (*files, *names):
            if not name.startswith("."):
                place = Path(folder, name)
                yield place.relative_to(root).as_posix(), place


def _leads_out(file: Path, annex: Path) -> bool:
    if file.is_symlink():
        return not file.resolve().is_relative_to(annex)
    return not stat.S_ISREG(file.lstat().st_mode)


def _is_absent(file: Path) -> bool:
    """Return True if git-annex has only the name of a file: a broken link, or a pointer file."""
    if file.is_symlink():
        return not file.is_file()
    if file.lstat().st_size > _POINTER_BYTES or file.name == DESCRIPTION:
        return False
    with file.open("rb") as opened:
        return opened.read(len(_POINTER)) == _POINTER


def _named(paths: list[str]) -> str:
    """Return the number of these files and the first few names, as the start of a sentence."""
    first = ", ".join(paths[:NAMED]) + (", …" if len(paths) > NAMED else "")
    return f"{len(paths)} files ({first}) are" if len(paths) > 1 else f"1 file ({first}) is"


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        raise _unreadable(path) from None


def _piece(segment: _Segment, skipped: int, size: int) -> bytes:
    if segment.path is None:
        return segment.text[skipped : skipped + size]
    piece = b""
    try:
        with segment.path.open("rb") as file:
            file.seek(skipped)
            piece = file.read(size)
    except OSError:
        raise _unreadable(segment.path) from None
    if len(piece) < size:
        raise changed()
    return piece


def changed() -> Refused:
    """Return the refusal of a folder that changes while it is sent."""
    return Refused(
        "source-unreadable",
        "A file of the folder changed while it was sent.",
        "Run the command again when nothing writes into the folder.",
    )


def _unreadable(path: Path) -> Refused:
    return Refused(
        "source-unreadable",
        f"{os.fspath(path)!r} cannot be read.",
        "Check that the file is there and that you may read it.",
    )
