"""Merge the layers of a container image and write its files, without following links of the image.

The layers are merged as a tree in memory, in which links only point to names of the tree. Then the
tree is written once: folders and files first, links last. So no layer can write through a link.
Devices, pipes and setuid bits are left out.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from sfumato.sandbox.program_environment import bad_environment

# --- Parsing untrusted tar files: limits are checked before a header is read
#
# We parse pax headers ourselves, in one pass over their bytes. The parser of `tarfile`, up to
# Python 3.11.9, scans them again for each record, and copies global headers for each member. A
# hostile layer of such headers keeps it busy for days.


_MAX_HEADER: Final = 1 << 14  # most bytes of an extended header, which is read as a whole
_MAX_DIGITS: Final = 12  # most digits of a number in an extended header
_MAX_SIZE: Final = 1 << 33  # most bytes of any member: no unpacked layer is larger
_BLOCK: Final = tarfile.BLOCKSIZE
_EXTENDED: Final = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip
_USED: Final = (b"path", b"linkpath", b"size")
_HOLES: Final = b"GNU.sparse."


class Member(tarfile.TarInfo):
    """A tar member with limits; a long extended header or a sparse file raises ValueError."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        """Check a tar member's type and size before its data is read or skipped.

        Otherwise a huge declared size would make `tarfile` skip for ever.
        """
        is_long = self.type in _EXTENDED and self.size > _MAX_HEADER
        if is_long or self.type == tarfile.GNUTYPE_SPARSE:
            raise ValueError
        _check_size(self.size)
        made: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        return made

    def _proc_pax(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        """Return the next tar member, with the pax records of this header applied to it.

        Global pax headers are ignored, because layers do not need them. They are refused if they
        set a path, a link or a size.
        """
        said = records(bytes(tar.fileobj.read(_padded(self.size)))[: self.size])
        try:
            found = self.fromtarfile(tar)
        except tarfile.HeaderError:  # tarfile would take it for the end of the tar
            raise ValueError from None
        if self.type == tarfile.XGLTYPE:
            if said:
                raise ValueError
            return found
        return _with(found, said, tar)


def records(text: bytes) -> dict[bytes, bytes]:
    """Parse a tar's pax records in linear time; return those for path, linkpath and size.

    A record is `LENGTH KEY=VALUE` and a newline. A malformed record raises ValueError. So does a
    sparse map, because it can be large in memory even if it is small when compressed.
    """
    said: dict[bytes, bytes] = {}
    place = 0
    while place < len(text) and text[place] != 0:
        blank = text.find(b" ", place, place + _MAX_DIGITS + 1)
        end = place + _number(text[place : max(place, blank)])
        key, equals, value = text[blank + 1 : end].partition(b"=")
        if end > len(text) or not equals or not value.endswith(b"\n") or key.startswith(_HOLES):
            raise ValueError
        if key in _USED:
            said[key] = value[:-1]
        place = end
    return said


def _with(
    found: tarfile.TarInfo, said: dict[bytes, bytes], tar: tarfile.TarFile
) -> tarfile.TarInfo:
    if b"path" in said:
        found.name = _text(said[b"path"]).rstrip("/")
    if b"linkpath" in said:
        found.linkname = _text(said[b"linkpath"])
    if b"size" in said:
        found.size = _number(said[b"size"])
        _check_size(found.size)
        has_bytes = found.isreg() or found.type not in tarfile.SUPPORTED_TYPES
        tar.offset = found.offset_data + (_padded(found.size) if has_bytes else 0)
    return found


def _check_size(size: int) -> None:
    if not 0 <= size <= _MAX_SIZE:
        raise ValueError


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > _MAX_DIGITS:
        raise ValueError
    return int(text)


def _text(said: bytes) -> str:
    return said.decode("utf-8", "surrogateescape")


def _padded(size: int) -> int:
    """Round a size in bytes up to whole tar blocks."""
    return -(-size // _BLOCK) * _BLOCK


MAX_BYTES: Final = 4 << 30  # most bytes of all files of all layers together
MAX_ENTRIES: Final = 500_000
_NO_END: Final = 1 << 62
_MAX_PATH, _MAX_DEPTH, _MAX_LINKS = 4096, 64, 40
_MAX_STEPS: Final = 32_000_000  # most path components to resolve, over all members and links
_OURS: Final = ("dev", "proc", "sys", "work", "tmp")  # the sandbox replaces these folders
_GONE, _ALL_GONE = ".wh.", ".wh..wh..opq"


@dataclass
class StoredFile:
    """A regular file of an image: the host path of its unpacked bytes, and if it is executable."""

    place: Path
    may_run: bool


@dataclass
class Link:
    """A symbolic link of an image; its target is resolved only inside the image."""

    target: str


@dataclass
class Folder:
    """A folder of an image, and its entries by name."""

    inside: dict[str, Folder | StoredFile | Link] = field(default_factory=dict)


Node = Folder | StoredFile | Link


class Layers:
    """The merged file tree of an image; layers are added from the lowest to the highest."""

    def __init__(self, bytes_in: Path) -> None:
        """Start with an empty tree; file contents are stored as numbered files in `bytes_in`."""
        self.root = Folder()
        self._bytes_in, self._count, self._size, self._steps = bytes_in, 0, 0, 0
        self._names: dict[str, str] = {}  # interns path components to save memory

    def add(self, layer: IO[bytes], end: int = _NO_END) -> None:
        """Merge a layer (an open tar file) on top of the image's tree; or refuse.

        No member of it may reach beyond `end`.
        """
        found: list[tuple[tuple[str, ...], Node | tuple[str, ...]]] = []
        try:
            with tarfile.open(fileobj=layer, mode="r|", tarinfo=Member) as tar:
                for member in tar:
                    self._count += 1
                    if member.isreg() and member.offset_data + member.size > end:
                        raise ValueError
                    node = self._node(tar, member)
                    if node is not None:
                        parts = parts_of(member.name)
                        found.append((tuple(self._names.setdefault(p, p) for p in parts), node))
                    # tarfile would keep every member in memory
                    tar.members.clear()  # type: ignore[attr-defined]  # unknown to typeshed
        except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError):
            found = []
            self._count = MAX_ENTRIES + 1
        if self._count > MAX_ENTRIES:
            raise bad_environment("a layer is not a tar file, or it has too many files")
        # whiteouts delete entries of lower layers only, so they are applied first
        for parts, _ in found:
            self._take_away(parts)
        for parts, node in found:
            if parts and not parts[-1].startswith(_GONE):
                self._put(parts, node)

    def has(self, path: str) -> bool:
        """Return True if a path exists in the image; links are resolved inside the image."""
        *above, name = parts_of(path)
        folder = self._folder(tuple(above), make=False)
        return folder is not None and name in folder.inside

    def read(self, path: str, most: int) -> bytes | None:
        """Return the bytes of a file of the image if there are at most so many, else None."""
        *above, name = parts_of(path)
        folder = self._folder(tuple(above), make=False)
        found = None if folder is None else folder.inside.get(name)
        if not isinstance(found, StoredFile) or found.place.stat().st_size > most:
            return None
        return found.place.read_bytes()

    def replace(self, path: str, text: bytes) -> None:
        """Put other bytes into a file of the image; its other hard links keep theirs."""
        *above, name = parts_of(path)
        folder = self._folder(tuple(above), make=False)
        found = None if folder is None else folder.inside.get(name)
        if folder is None or not isinstance(found, StoredFile):
            raise ValueError
        place = self._bytes_in / f"own-{name}"
        place.write_bytes(text)
        folder.inside[name] = StoredFile(place, found.may_run)

    def is_folder(self, path: str) -> bool:
        """Return True if a path is a folder of the image; links are resolved inside the image."""
        return self._folder(parts_of(path), make=False) is not None

    def write(self, target: Path) -> None:
        """Write the image's tree to disk, folders and files before links; or refuse."""
        try:
            self._write(target)
        except OSError:
            raise bad_environment("a name in it is too long, or the disk is full") from None

    def _write(self, target: Path) -> None:
        for name in _OURS:
            self.root.inside[name] = Folder()
        target.mkdir()
        links, size = [], 0
        for place, node in _walked(self.root, target):
            if isinstance(node, Folder):
                place.mkdir()
            elif isinstance(node, StoredFile):
                size = _more(size, node.place.stat().st_size)  # a hard link is written as a copy
                shutil.copyfile(node.place, place)
                place.chmod(0o755 if node.may_run else 0o644)
            else:
                links.append((place, node.target))
        for place, to in links:
            place.symlink_to(to)

    def _node(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> Node | tuple[str, ...] | None:
        """Convert a tar member to a node of the tree; a hard link becomes its target's path."""
        if self._count > MAX_ENTRIES:
            raise ValueError
        if member.isdir():
            return Folder()
        if member.issym():
            if not 0 < len(member.linkname) <= _MAX_PATH or "\0" in member.linkname:
                raise ValueError
            return Link(member.linkname)
        if member.islnk():
            return parts_of(member.linkname)
        if not member.isreg():
            return None  # a device or a pipe
        self._size = _more(self._size, member.size)
        place = self._bytes_in / str(self._count)
        source = tar.extractfile(member)
        with place.open("xb") as file:
            if source is not None:
                shutil.copyfileobj(source, file, 1 << 20)
        return StoredFile(place, bool(member.mode & 0o111))

    def _take_away(self, parts: tuple[str, ...]) -> None:
        if not parts or not parts[-1].startswith(_GONE):
            return
        folder = self._folder(parts[:-1], make=False)
        if folder is None:
            return
        if parts[-1] == _ALL_GONE:
            folder.inside.clear()
        else:
            folder.inside.pop(parts[-1].removeprefix(_GONE), None)

    def _put(self, parts: tuple[str, ...], node: Node | tuple[str, ...]) -> None:
        folder = self._folder(parts[:-1], make=True)
        if folder is None:
            raise bad_environment("a layer puts a file into something that is not a folder")
        if isinstance(node, tuple):
            above = self._folder(node[:-1], make=False)
            found = None if above is None or not node else above.inside.get(node[-1])
            if not isinstance(found, StoredFile | Link):  # a link can have several names too
                raise bad_environment(
                    "a layer has a hard link to something that is not a file of the image"
                )
            node = found
        if isinstance(node, Folder) and isinstance(folder.inside.get(parts[-1]), Folder):
            return  # an existing folder keeps its contents
        folder.inside[parts[-1]] = node

    def _folder(self, parts: tuple[str, ...], *, make: bool) -> Folder | None:
        """Resolve a path to a folder of the image's tree, following links inside the tree.

        Return None if there is no such folder.
        """
        left, way, links = list(reversed(parts)), [self.root], 0
        while left:
            self._steps += 1
            if self._steps > _MAX_STEPS:
                raise bad_environment("its links form a chain that is too long")
            name = left.pop()
            if name in ("", "."):
                continue
            if name == "..":
                way = way[:-1] or way
                continue
            node = way[-1].inside.get(name)
            if node is None and make:
                node = way[-1].inside[name] = Folder()
                self._count += 1
                if self._count > MAX_ENTRIES:
                    raise bad_environment("there are too many files and folders")
            if isinstance(node, Link):
                links += 1
                if links > _MAX_LINKS:
                    return None
                way = [self.root] if node.target.startswith("/") else way
                further = node.target.split("/")
                self._steps += len(further)
                left += reversed(further)
            elif isinstance(node, Folder) and len(way) <= _MAX_DEPTH:
                way.append(node)
            else:
                return None
        return way[-1]


def parts_of(path: str) -> tuple[str, ...]:
    """Split a tar member's path into names, below the image's root; refuse paths with `..`."""
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    is_long = len(path) > _MAX_PATH or len(parts) > _MAX_DEPTH
    if ".." in parts or "\0" in path or is_long:
        raise bad_environment("a layer has a path that leaves its folder, or is too long")
    return parts


def _more(size: int, by: int) -> int:
    if size + by > MAX_BYTES:
        raise bad_environment(f"its files are more than {MAX_BYTES >> 30} GB")
    return size + by


def _walked(folder: Folder, place: Path) -> Iterator[tuple[Path, Node]]:
    left: list[tuple[Path, Folder]] = [(place, folder)]
    while left:
        above, one = left.pop()
        for name, node in one.inside.items():
            yield above / name, node
            if isinstance(node, Folder):
                left.append((above / name, node))


def merged_layers(files: Iterable[AbstractContextManager[IO[bytes]]], bytes_in: Path) -> Layers:
    """Merge an image's layers, the lowest first, from files of our own; or refuse.

    Some builders leave out the end marker, and what pads the last file to a whole block. We add it.
    """
    merged = Layers(bytes_in)
    for one in files:
        with one as file:
            end = file.seek(0, os.SEEK_END)
            file.write(bytes(-end % _BLOCK) if end else bytes(2 * _BLOCK))
            file.seek(0)
            merged.add(file, end)
    return merged
