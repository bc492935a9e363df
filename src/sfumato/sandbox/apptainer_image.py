"""Read an Apptainer image file (SIF) that is identified by its SHA-256 digest.

A SIF file is a header, a table of descriptors, and data objects. Only the one system partition is
extracted. Signatures are not verified, because the owner gives the digest of the whole file. The
image's run script only ever runs inside a sandbox. The format is that of the package `sif` of
apptainer/sif: its header and its descriptors, version 01.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final  # Any: fields of a struct

from sfumato.dp.refusal import Refused
from sfumato.sandbox.oci_image import MAX_TEXT, labels_of, read_json
from sfumato.sandbox.oci_layers import MAX_BYTES, Layers
from sfumato.sandbox.program_environment import bad_environment
from sfumato.sandbox.squashfs import unfold

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_HEADER: Final = struct.Struct("<32s10s3s3s16s8q")
_DESCRIPTOR: Final = struct.Struct("<iBIII7q128s384s")
_PARTITION: Final = struct.Struct("<ii3s")
_MAGIC, _VERSION, _AMD64 = b"SIF_MAGIC\0", b"01\0", b"02\0"
_HEAD: Final = 1 << 20  # the header and the table of descriptors must end within these bytes
_MAX_OBJECTS: Final = 1_000
_AT_ONCE: Final = 1 << 20
# ignored object types: definition, environment, labels, signature, JSON, generic, key, SBOM
_BESIDE: Final = (0x4001, 0x4002, 0x4003, 0x4005, 0x4006, 0x4007, 0x4008, 0x4009)
_FILES: Final = 0x4004
_OCI: Final = (0x400A, 0x400B)
_SQUASHFS, _ENCRYPTED = 1, 5
_PRIMARY: Final = 2
_SUPERBLOCK, _SQUASH_MAGIC = 96, b"hsqs"
_OWN: Final = ".singularity.d"  # folder in an image that holds Apptainer's run script and settings
_RUN: Final = f"/{_OWN}/runscript"
# starts a program in the image's own shell, which first sources its settings, as Apptainer does
_SHELL: Final = (
    "/bin/sh", "-c",
    f'for one in /{_OWN}/env/*.sh; do [ -f "$one" ] && . "$one"; done; exec "$@"', "sh",
)  # fmt: skip


@dataclass(frozen=True)
class SifImage:
    """The start commands of an Apptainer image: its entry point, and a wrapper for programs."""

    entry: tuple[str, ...]
    through: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Part:
    """The offset and size of a partition (a stored file system) in an Apptainer image file."""

    offset: int
    size: int


def read_sif(path: Path, digest: str, target: Path) -> SifImage:
    """Unpack an Apptainer image to the target and return its start commands; or refuse."""
    if _DIGEST.fullmatch(digest) is None:
        raise bad_environment("the name of an image must be sha256: and 64 hexadecimal digits")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        place = Path(folder)
        squash, bytes_in = place / "squash", place / "bytes"
        _take(path, digest, squash)
        bytes_in.mkdir()
        merged = Layers(bytes_in)
        unfold(squash, merged.add)
        squash.unlink()
        merged.write(target)
        return _image_settings(merged)


def _image_settings(merged: Layers) -> SifImage:
    """Return the start commands, which are Apptainer's run script and the shell, and the labels."""
    entry = (_RUN,) if merged.has(_RUN) else ()
    through = _SHELL if merged.has("/bin/sh") else ()
    return SifImage(entry, through, _labels(merged))


def _labels(merged: Layers) -> tuple[tuple[str, str], ...]:
    """Return the labels that Apptainer has stored; none if they cannot be read."""
    try:
        return labels_of(read_json(merged.read(f"{_OWN}/labels.json", MAX_TEXT) or b"{}"))
    except Refused:
        return ()


# --- the file -------------------------------------------------------------------------------------


def _take(path: Path, digest: str, target: Path) -> None:
    """Read an image file once: extract the system partition, and check the file's digest."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise bad_environment("the image cannot be read") from None
    with os.fdopen(opened, "rb") as file:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise bad_environment("the image is not a plain file")
        head = file.read(_HEAD)
        part = part_of(head, found.st_size)
        with target.open("xb") as kept:
            said = _copied(chain((head,), iter(lambda: file.read(_AT_ONCE), b"")), part, kept)
    if said != digest:
        raise bad_environment("the image does not match its digest")
    with target.open("rb") as kept:
        begins = kept.read(len(_SQUASH_MAGIC))
    if target.stat().st_size != part.size or begins != _SQUASH_MAGIC:
        raise bad_environment("its partition is not a squashfs")


def _copied(pieces: Iterator[bytes], part: Part, kept: IO[bytes]) -> str:
    """Hash all pieces of a file, and write those of the partition to `kept`; return the digest."""
    whole, at = hashlib.sha256(), 0
    for piece in pieces:
        whole.update(piece)
        kept.write(piece[max(0, part.offset - at) : max(0, part.offset + part.size - at)])
        at += len(piece)
    return f"sha256:{whole.hexdigest()}"


def part_of(head: bytes, size: int) -> Part:
    """Find the system partition in an image file, from its first bytes and its size; or refuse."""
    if len(head) < _HEADER.size:
        raise bad_environment("the file is neither an Apptainer image nor an archive of an image")
    _, magic, version, arch, _, _, _, _, count, table, *_ = _HEADER.unpack_from(head)
    if magic != _MAGIC or version != _VERSION:
        raise bad_environment("the file is neither an Apptainer image nor an archive of an image")
    if arch != _AMD64:
        raise bad_environment("the image is not for amd64")
    end = table + count * _DESCRIPTOR.size
    if not 0 < count <= _MAX_OBJECTS or table < _HEADER.size or end > len(head):
        raise bad_environment("its table is too long, or not at its declared place")
    lines = (_DESCRIPTOR.unpack_from(head, table + n * _DESCRIPTOR.size) for n in range(count))
    found = [part for line in lines if (part := _part(line, end, size)) is not None]
    if len(found) != 1:
        raise bad_environment("an image must have one partition, and no overlay")
    return found[0]


def _part(line: tuple[Any, ...], table_end: int, size: int) -> Part | None:
    """Read one descriptor of an image file: return its partition, None to ignore it, or refuse."""
    kind, used, _, _, _, offset, length, *_, extra = line
    if used == 0:
        return None
    if kind in _OCI:
        raise bad_environment("it contains an OCI image; hand that in as a layout")
    if kind in _BESIDE:
        return None
    if kind != _FILES or used != 1:
        raise bad_environment("its table has an unknown kind of line")
    system, of, arch = _PARTITION.unpack_from(extra)
    if system == _ENCRYPTED:
        raise bad_environment("it is encrypted; hand in an image without encryption")
    if (system, of, arch) != (_SQUASHFS, _PRIMARY, _AMD64):
        raise bad_environment("its partition is not a squashfs of an amd64 system")
    is_inside = table_end <= offset and offset + length <= size
    if not is_inside or not _SUPERBLOCK <= length <= MAX_BYTES:
        raise bad_environment("its partition is too large, or outside the file")
    return Part(offset, length)
