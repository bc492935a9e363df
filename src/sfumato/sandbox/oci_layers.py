"""The files of an image, from its layers, with nothing of theirs ever followed on this machine.

Layers are merged as a tree in memory, whose links lead nowhere but to names in that tree, and it
is written once: folders, then files, and links last of all. So no layer writes through a link.
Devices and pipes are left out, and so are the bits that lend somebody's rights.
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

# --- Members of a stranger's tar, looked at before what they say of themselves is read
#
# What a member says (a pax header) is read by us, in one pass over its bytes: the library's own
# reader, up to Python 3.11.9, goes over them once more for each record, and copies what is said of
# all members for each of them. A layer of such headers keeps it busy for days.


_MOST_HEADER: Final = 1 << 14  # that a member may say of itself, which is read at once
_MOST_DIGITS: Final = 12  # of a number in it
_MOST_SIZE: Final = 1 << 33  # of a member, whatever it is: no layer is larger when unpacked
_BLOCK: Final = tarfile.BLOCKSIZE
_EXTENDED: Final = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip
_USED: Final = (b"path", b"linkpath", b"size")
_HOLES: Final = b"GNU.sparse."


class Member(tarfile.TarInfo):
    """A member of a tar; one that says very much, or has a list of holes, is a ValueError."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        """Return the member, or refuse before a byte behind its header is read or skipped.

        What is skipped is counted off in steps, for ever if it is said to be large enough.
        """
        is_long = self.type in _EXTENDED and self.size > _MOST_HEADER
        if is_long or self.type == tarfile.GNUTYPE_SPARSE:
            raise ValueError
        _check_size(self.size)
        made: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        return made

    def _proc_pax(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        """Return the member that comes next, with what is said of it here.

        What is said of all that come has no use in a layer, and is not kept.
        """
        said = records(bytes(tar.fileobj.read(_padded(self.size)))[: self.size])
        try:
            found = self.fromtarfile(tar)
        except tarfile.HeaderError:  # the library would take it for the tar's end
            raise ValueError from None
        if self.type == tarfile.XGLTYPE:
            if said:
                raise ValueError
            return found
        return _with(found, said, tar)


def records(text: bytes) -> dict[bytes, bytes]:
    """Return what is said and of use, each byte looked at a few times at most; or a ValueError.

    A record is `LENGTH KEY=VALUE` and the end of a line. A list of holes, however small when
    packed, would be held in memory: it is refused.
    """
    said: dict[bytes, bytes] = {}
    place = 0
    while place < len(text) and text[place] != 0:
        blank = text.find(b" ", place, place + _MOST_DIGITS + 1)
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
    if not 0 <= size <= _MOST_SIZE:
        raise ValueError


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > _MOST_DIGITS:
        raise ValueError
    return int(text)


def _text(said: bytes) -> str:
    return said.decode("utf-8", "surrogateescape")


def _padded(size: int) -> int:
    """Return what is laid down for so many bytes."""
    return -(-size // _BLOCK) * _BLOCK


MOST_BYTES: Final = 4 << 30  # of all files of all layers together
MOST_ENTRIES: Final = 500_000
_MOST_PATH, _MOST_DEPTH, _MOST_LINKS = 4096, 64, 40
_MOST_STEPS: Final = 32_000_000  # from name to name, along all paths and links of all members
_OURS: Final = ("dev", "proc", "sys", "work", "tmp")  # what stands there in a bubble is not theirs
_GONE, _ALL_GONE = ".wh.", ".wh..wh..opq"


@dataclass
class Kept:
    """A plain file: where its bytes have been laid, and whether it may be run."""

    place: Path
    may_run: bool


@dataclass
class Link:
    """A link, as it is written; what it means is for those inside the image."""

    target: str


@dataclass
class Folder:
    """A folder."""

    inside: dict[str, Folder | Kept | Link] = field(default_factory=dict)


Node = Folder | Kept | Link


class Layers:
    """The tree of an image, to which one layer after the other is added."""

    def __init__(self, bytes_in: Path) -> None:
        """Begin with nothing; files' bytes are laid flat into that folder, by number."""
        self.root = Folder()
        self._bytes_in, self._count, self._size, self._steps = bytes_in, 0, 0, 0
        self._names: dict[str, str] = {}  # each is held once, however many paths it is on

    def add(self, layer: IO[bytes]) -> None:
        """Put a layer, an open tar, on top of those before it; or refuse."""
        found: list[tuple[tuple[str, ...], Node | tuple[str, ...]]] = []
        try:
            with tarfile.open(fileobj=layer, mode="r|", tarinfo=Member) as tar:
                for member in tar:
                    self._count += 1
                    node = self._node(tar, member)
                    if node is not None:
                        parts = parts_of(member.name)
                        found.append((tuple(self._names.setdefault(p, p) for p in parts), node))
                    # it would hold each, with all that it says of itself
                    tar.members.clear()  # type: ignore[attr-defined]  # unknown to typeshed
        except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError):
            found = []
            self._count = MOST_ENTRIES + 1
        if self._count > MOST_ENTRIES:
            raise bad_environment("a layer is no tar, or there are too many files")
        for parts, _ in found:  # what a layer takes away is what lay below it, wherever it says so
            self._take_away(parts)
        for parts, node in found:
            if parts and not parts[-1].startswith(_GONE):
                self._put(parts, node)

    def has(self, path: str) -> bool:
        """Say whether there is something of that path, as it is for those inside the image."""
        *above, name = parts_of(path.lstrip("/"))
        folder = self._folder(tuple(above), make=False)
        return folder is not None and name in folder.inside

    def write(self, target: Path) -> None:
        """Write the tree, folders and files before links; or refuse."""
        try:
            self._write(target)
        except OSError:
            raise bad_environment("a name in it is too long, or there is no room for it") from None

    def _write(self, target: Path) -> None:
        for name in _OURS:
            self.root.inside[name] = Folder()
        target.mkdir()
        links, size = [], 0
        for place, node in _walked(self.root, target):
            if isinstance(node, Folder):
                place.mkdir()
            elif isinstance(node, Kept):
                size = _more(size, node.place.stat().st_size)  # a hard link is a copy here
                shutil.copyfile(node.place, place)
                place.chmod(0o755 if node.may_run else 0o644)
            else:
                links.append((place, node.target))
        for place, to in links:
            place.symlink_to(to)

    def _node(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> Node | tuple[str, ...] | None:
        """Return what a member is; of a hard link, the parts of the path that it is another of."""
        if self._count > MOST_ENTRIES:
            raise ValueError
        if member.isdir():
            return Folder()
        if member.issym():
            if not 0 < len(member.linkname) <= _MOST_PATH or "\0" in member.linkname:
                raise ValueError
            return Link(member.linkname)
        if member.islnk():
            return parts_of(member.linkname)
        if not member.isreg():
            return None  # a device, or a pipe
        self._size = _more(self._size, member.size)
        place = self._bytes_in / str(self._count)
        source = tar.extractfile(member)
        with place.open("xb") as file:
            if source is not None:
                shutil.copyfileobj(source, file, 1 << 20)
        return Kept(place, bool(member.mode & 0o111))

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
            raise bad_environment("a layer puts a file below what is no folder")
        if isinstance(node, tuple):
            above = self._folder(node[:-1], make=False)
            found = None if above is None or not node else above.inside.get(node[-1])
            if not isinstance(found, Kept):
                raise bad_environment("a layer has a hard link to what is no file of the image")
            node = found
        if isinstance(node, Folder) and isinstance(folder.inside.get(parts[-1]), Folder):
            return  # its contents stay
        folder.inside[parts[-1]] = node

    def _folder(self, parts: tuple[str, ...], *, make: bool) -> Folder | None:
        """Return the folder of that path in the tree; links on the way lead within the tree."""
        left, way, links = list(reversed(parts)), [self.root], 0
        while left:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise bad_environment("its links lead on and on")
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
                if self._count > MOST_ENTRIES:
                    raise bad_environment("there are too many files and folders")
            if isinstance(node, Link):
                links += 1
                if links > _MOST_LINKS:
                    return None
                way = [self.root] if node.target.startswith("/") else way
                further = node.target.split("/")
                self._steps += len(further)
                left += reversed(further)
            elif isinstance(node, Folder) and len(way) <= _MOST_DEPTH:
                way.append(node)
            else:
                return None
        return way[-1]


def parts_of(path: str) -> tuple[str, ...]:
    """Return the names on a member's path; absolute ones, and ones that climb, are refused."""
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    is_long = len(path) > _MOST_PATH or len(parts) > _MOST_DEPTH
    if path.startswith("/") or ".." in parts or "\0" in path or is_long:
        raise bad_environment("a layer names a path that is absolute, climbs, or is too long")
    return parts


def _more(size: int, by: int) -> int:
    if size + by > MOST_BYTES:
        raise bad_environment(f"its files are more than {MOST_BYTES >> 30} GB")
    return size + by


def _walked(folder: Folder, place: Path) -> Iterator[tuple[Path, Node]]:
    left: list[tuple[Path, Folder]] = [(place, folder)]
    while left:
        above, one = left.pop()
        for name, node in one.inside.items():
            yield above / name, node
            if isinstance(node, Folder):
                left.append((above / name, node))


def layers_of(
    files: Iterable[AbstractContextManager[IO[bytes]]], target: Path, bytes_in: Path
) -> None:
    """Write the merged files of these layers, the lowest first; or refuse."""
    merged = Layers(bytes_in)
    for one in files:
        with one as file:
            merged.add(file)
    merged.write(target)
    for place in os.scandir(bytes_in):
        os.unlink(place.path)
