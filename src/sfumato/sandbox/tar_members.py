"""Members of a stranger's tar, looked at before what they say of themselves is read.

What a member says (a pax header) is read by us, in one pass over its bytes: the library's own
reader, up to Python 3.11.9, goes over them once more for each record, and copies what is said of
all members for each of them. A layer of such headers keeps it busy for days.
"""

from __future__ import annotations

import tarfile
from typing import Final

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
