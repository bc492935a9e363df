"""Unpack an uploaded folder, zip or tar file into a new private folder, or refuse it.

Nothing in the archive is trusted. Only regular files are written, under names that cannot leave the
folder. Sizes, the number of files and the free disk space are checked while files are written. A
refusal counts entries and never quotes a name, because names of files may name people.
"""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Protocol, cast

from sfumato.dp.refusal import Refused
from sfumato.system.durable_files import is_written
from sfumato.system.folder_stream import HEAD, Kind

ANNEX: Final = Path(".git/annex/objects")  # contents, to which links in a folder may lead
_MAX_PADDING: Final = 16 << 20  # bytes behind the end of a tar file
MAX_FILES: Final = 200_000  # most entries of an archive
MAX_PATH, MAX_NAME, MAX_DEPTH = 1000, 255, 32  # bytes of a path and of a name; names in a path
SPARE_BYTES: Final = 256 << 20  # the free disk space that an upload leaves
CHUNK: Final = 1 << 20
ROWS: Final = "participants.tsv"
_MAX_READ: Final = 64 << 20  # most bytes of one read: the table of contents of a zip file
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_UTF8: Final = 0x800  # flag of a zip entry whose name is UTF-8
_ENCRYPTED: Final = 0x1
_ZIP_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Readable(Protocol):
    """A file that is read from its beginning."""

    def read(self, size: int, /) -> bytes:
        """Return at most that many of the next bytes; b"" at the end."""
        ...


@dataclass(frozen=True)
class Unpacked:
    """An unpacked folder: its path, and the number and total size of its files."""

    root: Path
    files: int
    size: int


def unpack(
    kind: Kind,
    file: PartFile,
    target: Path,
    most: int,
    check: Callable[[int], None] = lambda _size: None,
) -> Unpacked:
    """Unpack an archive into the new folder `target`; refuse an unsafe or damaged archive.

    Args:
        kind: The kind of the archive.
        file: Its content.
        target: The path of a folder that does not exist yet.
        most: The most bytes of all files together.
        check: Called before more is written, with the bytes of all files then; it may refuse them.

    Returns:
        The folder of participants.tsv: `target`, or the only folder in it.
    """
    writer = _Writer(target, most, check)
    target.mkdir(mode=0o700)
    damaged: str | None = None
    try:
        for entry in _entries(kind, file):
            writer.take(entry)
    except (EOFError, ValueError, zipfile.BadZipFile, tarfile.TarError, zlib.error) as error:
        damaged = type(error).__name__
    except (OSError, NotImplementedError, RuntimeError) as error:  # of gzip and of zipfile
        damaged = type(error).__name__
    if damaged is not None:
        raise unreadable(
            f"After {writer.entries} entries the archive cannot be read ({damaged}). It is cut off "
            "or damaged, or it has sparse files or very long headers.",
            "Make the archive again, and test it with `unzip -t` or `tar -t`.",
        )
    return Unpacked(_root(target), writer.files, writer.size)


def copy_folder(files: Sequence[tuple[str, Path]], root: Path, target: Path, most: int) -> Unpacked:
    """Copy files into the new folder `target`, with the checks of an archive.

    Args:
        files: The path of each file in the folder, and where it is.
        root: The folder; symbolic links may lead only to the contents of its git-annex.
        target: The path of a folder that does not exist yet.
        most: The most bytes of all files together.
    """
    writer, annex = _Writer(target, most), root / ANNEX
    target.mkdir(mode=0o700)
    for path, place in files:
        found = place.resolve()
        is_inside = found.is_relative_to(root.resolve()) and not place.is_symlink()
        is_safe = found.is_relative_to(annex.resolve()) or is_inside
        if not is_safe or not found.is_file():
            writer.take(Entry(path, "link" if place.is_symlink() else "special"))
            continue
        with found.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            writer.take(Entry(path, "file", lambda opened=opened: opened, size))  # type: ignore[misc]  # a lambda with a default
    return Unpacked(_root(target), writer.files, writer.size)


def _root(target: Path) -> Path:
    """Return the folder of participants.tsv: the unpacked folder, or the only folder in it."""
    if (target / ROWS).is_file():
        return target
    inner = [path for path in target.iterdir() if path.is_dir()]
    if len(inner) == 1 and (inner[0] / ROWS).is_file():
        return inner[0]
    raise unreadable(
        f"The folder has no {ROWS}.",
        f"Upload the folder that contains {ROWS}, not the one above or below it.",
    )


# --- where files are written


@dataclass(frozen=True)
class Entry:
    """One entry of an archive: its name, what it is, and its content if it is a regular file."""

    name: str
    kind: str  # "file", "folder", or what is refused: "link", "special"
    open: Callable[[], Readable] | None = None
    size: int = 0  # the size that the archive declares


@dataclass
class _Writer:
    """Writes the entries of an archive under `target`, within limits."""

    target: Path
    most: int
    check: Callable[[int], None] = lambda _size: None  # may refuse so many bytes of all files
    entries: int = 0
    files: int = 0
    size: int = 0
    skipped: int = 0  # bytes of hidden files
    seen: dict[str, tuple[str, bool]] = field(default_factory=dict)  # folded path: path, is a file

    def take(self, entry: Entry) -> None:
        """Write an entry, unless it is a folder or hidden; refuse an unsafe one."""
        self.entries += 1
        if self.entries > MAX_FILES:
            raise _too_many()
        names = self._checked(entry.name)
        if is_hidden(names):  # it is not written, but it takes time to pass over
            self.skipped += entry.size
            if self.skipped > self.most:
                raise too_large(self.most)
            return
        if entry.kind in ("link", "special"):
            raise self._refused(
                "is a link"
                if entry.kind == "link"
                else "is a device, a pipe or of a kind that sfumato does not know",
                "Pack the files that links lead to: use `tar --dereference` (not with hard links: "
                "also --hard-dereference), or `zip` without -y.",
            )
        self._note(names, is_file=entry.kind == "file")
        if entry.open is not None:
            self._write(names, entry.open(), entry.size)

    def _checked(self, name: str) -> tuple[str, ...]:
        """Return the names of a path; refuse a path that is unsafe or cannot be a file's."""
        names = name.rstrip("/").split("/")
        while names[0] == "." and len(names) > 1:
            names = names[1:]
        if names == ["."]:  # the folder itself, as `tar .` writes it
            return (".",)
        is_safe = all(one not in ("", ".", "..") and "\\" not in one for one in names)
        if not is_safe or not name.isprintable():
            raise self._refused(
                "has a path that is absolute, contains '..' or '\\', or is not text",
                "Pack the folder with relative paths, and rename such files.",
            )
        is_short = len(name.encode()) <= MAX_PATH and len(names) <= MAX_DEPTH
        if not is_short or any(len(one.encode()) > MAX_NAME for one in names):
            raise self._refused(
                f"has a path of more than {MAX_PATH} bytes or {MAX_DEPTH} names, or a name of more "
                f"than {MAX_NAME} bytes",
                "Shorten the name, or leave the file out.",
            )
        return tuple(names)

    def _note(self, names: tuple[str, ...], *, is_file: bool) -> None:
        """Refuse a path that is there already, also in other letter case or another Unicode form.

        A file is no folder, and no folder is spelled in two ways.
        """
        for depth in range(1, len(names) + 1):
            if len(self.seen) > MAX_FILES:
                raise _too_many()
            path = "/".join(names[:depth])
            mine = (path, is_file and depth == len(names))
            found = self.seen.setdefault(_folded(path), mine)
            if found != mine or (mine[1] and found is not mine):
                raise self._refused(
                    "has the name of an earlier entry, or differs from it only in upper and lower "
                    "case or in the Unicode form",
                    "Rename one of the two.",
                )

    def _write(self, names: tuple[str, ...], content: Readable, declared: int) -> None:
        self._check_room(declared)
        file = self._new(self.target.joinpath(*names))
        if file is None:
            raise no_space()
        size = 0
        with file:
            while piece := content.read(CHUNK):
                self._check_room(len(piece))
                size += len(piece)
                self.size += len(piece)
                if not is_written(file.fileno(), piece):
                    raise no_space()
        if size != declared:
            raise self._refused("has another size than the archive says", "Make the archive again.")
        self.files += 1

    def _new(self, place: Path) -> IO[bytes] | None:
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.fdopen(os.open(place, _NEW, 0o600), "wb", buffering=0)
        except OSError:
            return None

    def _check_room(self, size: int) -> None:
        """Refuse more bytes than the operator allows, or than the disk has."""
        if self.size + size > self.most:
            raise too_large(self.most)
        self.check(self.size + size)
        if free_bytes(self.target) < size + SPARE_BYTES:
            raise no_space()

    def _refused(self, what: str, next_step: str) -> Refused:
        return unreadable(f"Entry {self.entries} of the archive {what}.", next_step)


def is_hidden(names: Sequence[str]) -> bool:
    """Return True for paths that are never published: of git, of DataLad, and of file managers."""
    return names[0] == "__MACOSX" or any(name.startswith(".") for name in names)


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def free_bytes(folder: Path) -> int:
    """Return how many bytes are free on the disk of a folder."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


# --- the content of an upload as one file


class PartFile:
    """A seekable read-only file whose content is that of several files of one size, in a row."""

    def __init__(self, paths: Sequence[Path], part_bytes: int, size: int) -> None:
        self._paths = paths
        self._part_bytes = part_bytes
        self._size = size
        self._place = 0
        self._open: tuple[int, IO[bytes]] | None = None

    @classmethod
    def of(cls, path: Path) -> PartFile:
        """Return a file on disk as such a file."""
        size = path.stat().st_size
        return cls([path], max(1, size), size)

    def __enter__(self) -> PartFile:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes; fewer at the end of the file."""
        left = self._size - self._place
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted > _MAX_READ:
            raise _too_many()
        pieces = []
        while wanted > 0:
            piece = self._part(wanted)
            if not piece:
                raise EOFError
            pieces.append(piece)
            self._place += len(piece)
            wanted -= len(piece)
        read = b"".join(pieces)
        # a long read is of a zip file's table of contents: check it before it is parsed
        if len(read) > CHUNK and read.count(b"PK\1\2") > MAX_FILES:
            raise _too_many()
        return read

    def _part(self, wanted: int) -> bytes:
        number, offset = divmod(self._place, self._part_bytes)
        if self._open is None or self._open[0] != number:
            self.close()
            self._open = (number, self._paths[number].open("rb"))
        file = self._open[1]
        file.seek(offset)
        return file.read(min(wanted, self._part_bytes - offset))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the place of the next read, and return it."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        """Return the place of the next read."""
        return self._place

    def seekable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close the file that is open."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


# --- the entries of each kind of archive


def _entries(kind: Kind, file: PartFile) -> Iterator[Entry]:
    match kind:
        case "folder":
            return _of_stream(file)
        case "zip":
            return _of_zip(file)
        case "tar":
            return _of_tar(file)
        case "tar.gz":
            return _of_tar(gzip.GzipFile(fileobj=cast("Any", file), mode="rb"))


@dataclass
class _Slice:
    """The next bytes of a file, as a file of their own; a missing byte is an error."""

    file: Readable
    left: int

    def read(self, size: int, /) -> bytes:
        if not self.left:
            return b""
        piece = self.file.read(min(size, self.left))
        if not piece:
            raise EOFError
        self.left -= len(piece)
        return piece


def _of_stream(file: PartFile) -> Iterator[Entry]:
    while head := file.read(HEAD.size):
        if len(head) < HEAD.size:
            raise EOFError
        length, size = HEAD.unpack(head)
        path = file.read(length)
        if len(path) < length:
            raise EOFError
        content = _Slice(file, size)
        yield Entry(path.decode("utf-8"), "file", lambda content=content: content, size)  # type: ignore[misc]  # a lambda with a default
        while content.read(CHUNK):  # of a hidden file
            pass


def _of_zip(file: PartFile) -> Iterator[Entry]:
    with zipfile.ZipFile(cast("Any", file)) as archive:
        for info in archive.infolist():
            yield _zip_entry(archive, info)


def _zip_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Entry:
    mode = stat.S_IFMT(info.external_attr >> 16)
    name = _zip_name(info)
    if info.is_dir():
        return Entry(name, "folder")
    if mode not in (0, stat.S_IFREG):
        return Entry(name, "link" if mode == stat.S_IFLNK else "special")
    if info.flag_bits & _ENCRYPTED or info.compress_type not in _ZIP_METHODS:
        raise unreadable(
            "The zip file is encrypted, or compressed by a method other than deflate.",
            "Make it with `zip -r`, without a password.",
        )
    return Entry(name, "file", lambda: cast("Readable", archive.open(info)), info.file_size)


def _zip_name(info: zipfile.ZipInfo) -> str:
    """Return the name of a zip entry; many programs write UTF-8 without saying so."""
    found: str | None = info.filename
    if not info.flag_bits & _UTF8:
        try:
            found = info.filename.encode("cp437").decode("utf-8")
        except UnicodeDecodeError:
            found = None
    if found is None or info.filename != info.orig_filename:  # zipfile cuts a name at a NUL byte
        raise unreadable(
            "The zip file has a name that is not UTF-8.",
            "Make it with `zip -r` or Python, or rename the file.",
        )
    return found


def _of_tar(file: object) -> Iterator[Entry]:
    from sfumato.sandbox.oci_layers import Member

    class _Member(Member):
        """A tar member that notes the end of the archive, which `tarfile` lets be missing."""

        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
            is_end.append(buf.count(0) == tarfile.BLOCKSIZE)
            return super().frombuf(buf, encoding, errors)

    is_end: list[bool] = [False]  # of each header that was read
    source = cast("Any", file)  # Any: tarfile and gzip only need its `read`
    with tarfile.open(fileobj=source, mode="r|", tarinfo=_Member) as archive:
        while (member := archive.next()) is not None:
            del is_end[:-1]
            vars(archive)["members"] = []  # tarfile keeps all of them
            yield _tar_entry(archive, member)
    if not is_end[-1]:
        raise EOFError
    left = _MAX_PADDING
    while piece := source.read(CHUNK):  # so that gzip checks its sum
        left -= len(piece)
        if left < 0:
            raise EOFError


def _tar_entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    if member.isdir():
        return Entry(member.name, "folder")
    if member.issym() or member.islnk():
        return Entry(member.name, "link")
    if not member.isreg() or member.issparse():
        return Entry(member.name, "special")
    content = _Slice(cast("Readable", archive.extractfile(member)), member.size)
    return Entry(member.name, "file", lambda: content, member.size)


# --- refusals


def unreadable(cause: str, next_step: str) -> Refused:
    """Return the refusal of an archive that cannot be published."""
    return Refused("source-unreadable", cause, next_step)


def too_large(most: int) -> Refused:
    """Return the refusal of a folder of more bytes than the operator allows."""
    return Refused(
        "too-large",
        f"The files of the folder have more than {most:,} bytes, the most that is allowed.",
        "Publish fewer files, or ask the operator for --max-folder.",
    )


def no_space() -> Refused:
    """Return the refusal of files for which the disk has no room."""
    return Refused(
        "too-large",
        "The disk of the vault has not enough free space for these files.",
        "Publish fewer files, or tell the operator.",
    )


def _too_many() -> Refused:
    return Refused(
        "too-large",
        f"The archive has more than {MAX_FILES:,} entries.",
        "Publish fewer files: pack only the files that the data card lists.",
    )
