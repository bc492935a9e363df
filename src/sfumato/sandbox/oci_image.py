"""Read a container image from an OCI image layout on disk, and verify the digest of every blob.

Nothing is downloaded, and nothing of the image is run. The format is the specification of the Open
Container Initiative: image-layout.md and layer.md.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final

from sfumato.dp.refusal import Refused
from sfumato.sandbox.oci_layers import MAX_BYTES, layers_of
from sfumato.sandbox.program_environment import bad_environment

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_TEXT: Final = 4 << 20  # most bytes of an index, a manifest or a configuration
_MAX_LAYERS: Final = 128
_MAX_NESTED: Final = 3  # most levels of nested indexes
# most bytes of the unpacked tars of all layers together, with padding
_MAX_UNPACKED: Final = 2 * MAX_BYTES
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_MANIFESTS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_PLAIN: Final = ("application/vnd.oci.image.layer.v1.tar",)
_PACKED: Final = (
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
)
_AT_ONCE: Final = 1 << 20
Json = dict[str, Any]  # Any: untrusted JSON, validated piece by piece


@dataclass(frozen=True)
class Image:
    """A container image's digest, start command, environment variables and working directory."""

    digest: str
    entry: tuple[str, ...]
    settings: tuple[str, ...]
    folder: str = ""


def read_image(layout: Path, digest: str, target: Path) -> Image:
    """Unpack the OCI image of that digest to the target and return its settings; or refuse."""
    if _DIGEST.fullmatch(digest) is None:
        raise bad_environment("the name of an image must be sha256: and 64 hexadecimal digits")
    index = _json_of(layout / "index.json")
    if digest not in _manifests(layout, index):
        raise bad_environment("the layout's index has no image for amd64 of that digest")
    manifest = _json_at(layout, {"digest": digest})
    config = _json_at(layout, manifest.get("config"))
    if config.get("architecture") != "amd64" or config.get("os") != "linux":
        raise bad_environment("the image is not for Linux on amd64")
    layers, whole = manifest.get("layers"), _dict(config.get("rootfs")).get("diff_ids")
    if not isinstance(layers, list) or not isinstance(whole, list) or len(layers) != len(whole):
        raise bad_environment("the image does not list all its layers both packed and unpacked")
    if not 1 <= len(layers) <= _MAX_LAYERS:
        raise bad_environment(f"an image must have 1 to {_MAX_LAYERS} layers")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        pairs, room = zip(layers, whole, strict=True), _Room()
        layers_of((_layer(layout, one, tar, room) for one, tar in pairs), target, Path(folder))
    return _said(digest, _dict(config.get("config")))


def _manifests(layout: Path, index: Json) -> Iterator[str]:
    """Yield the digests of all image manifests in an OCI index and its nested indexes.

    Each index is read once, even if it is listed several times.
    """
    seen: set[str] = set()
    level: Iterable[Json] = [index]
    for _ in range(_MAX_NESTED):
        below: list[Json] = []
        for found in chain.from_iterable(map(_named, level)):
            digest = str(found.get("digest"))
            if found.get("mediaType") in _MANIFESTS:
                yield digest
            elif found.get("mediaType") == _INDEX and digest not in seen:
                seen.add(digest)
                below.append(found)
        level = (_json_at(layout, found) for found in below)


def _named(index: Json) -> Iterator[Json]:
    """Yield the entries of an OCI index for Linux on amd64, or without a platform."""
    listed = index.get("manifests")
    for one in listed if isinstance(listed, list) else ():
        place = _dict(_dict(one).get("platform"))
        if place.get("architecture", "amd64") == "amd64" and place.get("os", "linux") == "linux":
            yield _dict(one)


def _said(digest: str, config: Json) -> Image:
    # our arguments replace Cmd after an Entrypoint; without one, Cmd is the command
    entry = _texts(config.get("Entrypoint")) or _texts(config.get("Cmd"))
    settings = [one for one in _texts(config.get("Env")) if "=" in one]
    folder = config.get("WorkingDir") or ""
    if not isinstance(folder, str) or any("\0" in text for text in (*entry, *settings, folder)):
        raise bad_environment("its configuration is malformed")
    return Image(digest, tuple(entry), tuple(settings), folder)


def _texts(value: object) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise bad_environment("its configuration is malformed")
    return value


def _dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


# --- blobs ----------------------------------------------------------------------------------------


def _json_at(layout: Path, said: object) -> Json:
    """Read the JSON blob that a descriptor names, and verify its digest; or refuse."""
    with _blob(layout, said) as file:
        text = file.read(_MAX_TEXT + 1)
    if f"sha256:{hashlib.sha256(text).hexdigest()}" != _dict(said).get("digest"):
        raise _not_its_digest()
    return _read_json(text)


def _json_of(path: Path) -> Json:
    try:
        with _plain(path) as file:
            text = file.read(_MAX_TEXT + 1)
    except OSError:
        text = b""
    return _read_json(text)


def _read_json(text: bytes) -> Json:
    try:
        found = json.loads(text) if len(text) <= _MAX_TEXT else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise bad_environment("there is no image layout, or its JSON is malformed")
    return found


class _Room:
    """The budget of unpacked bytes of one image; a layer that is listed twice counts twice."""

    def __init__(self) -> None:
        self._left = _MAX_UNPACKED

    def take(self, size: int) -> None:
        """Subtract `size` bytes from the budget, or refuse if too few are left."""
        self._left -= size
        if self._left < 0:
            raise bad_environment(f"its layers are more than {_MAX_UNPACKED >> 30} GB")


@contextmanager
def _layer(layout: Path, said: object, whole: object, room: _Room) -> Iterator[IO[bytes]]:
    """Yield a layer's unpacked tar, after verifying its packed and unpacked digests; or refuse.

    The layer is unpacked to an anonymous temporary file, and verified before it is parsed.
    """
    kind = _dict(said).get("mediaType")
    if kind not in (*_PLAIN, *_PACKED):
        raise bad_environment("a layer must be a tar file, plain or gzipped")
    with tempfile.TemporaryFile() as tar:
        with _blob(layout, said) as file:
            packed = _Counted(file)
            read = _unpacked if kind in _PACKED else _copied
            is_read = read(packed, tar, whole, room)
            packed.drain()
        if not is_read or f"sha256:{packed.hash.hexdigest()}" != _dict(said).get("digest"):
            raise _not_its_digest()
        tar.seek(0)
        yield tar


class _Counted(io.RawIOBase):
    """A file wrapper that hashes the bytes as they are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.hash, self._file = hashlib.sha256(), file

    def readable(self) -> bool:
        """Return True, because the wrapped file can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read and hash up to `size` bytes of the file."""
        found = self._file.read(size)
        self.hash.update(found)
        return found

    def drain(self) -> None:
        """Read and hash the rest of the file, so that the hash covers all of it."""
        while self.read(_AT_ONCE):
            pass


def _unpacked(packed: _Counted, tar: IO[bytes], whole: object, room: _Room) -> bool:
    """Unpack a gzip blob into the file, within the budget of unpacked bytes.

    Return True if the unpacked bytes have the expected digest.
    """
    try:
        with gzip.GzipFile(fileobj=packed, mode="rb") as file:
            return _copied(file, tar, whole, room)
    except (OSError, EOFError, zlib.error):
        return False


def _copied(
    source: Any,  # Any: an object with `read`
    tar: IO[bytes],
    whole: object,
    room: _Room,
) -> bool:
    """Copy a layer's bytes into the file, within the budget of unpacked bytes.

    Return True if the bytes have the expected digest.
    """
    plain = hashlib.sha256()
    while piece := source.read(_AT_ONCE):
        room.take(len(piece))
        plain.update(piece)
        tar.write(piece)
    return f"sha256:{plain.hexdigest()}" == whole


@contextmanager
def _blob(layout: Path, said: object) -> Iterator[IO[bytes]]:
    """Open the blob (content-addressed file) of a descriptor; the caller verifies its digest."""
    digest = _dict(said).get("digest")
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        raise bad_environment("the name of a blob is not a sha256 digest")
    path = layout / "blobs" / "sha256" / digest.removeprefix("sha256:")
    try:
        file = _plain(path)
    except OSError:
        raise bad_environment("a blob is missing") from None
    with file:
        yield file


def _plain(path: Path) -> IO[bytes]:
    """Open a regular file; refuse a link, a device or a pipe."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise FileNotFoundError
    return os.fdopen(opened, "rb")


def _not_its_digest() -> Refused:
    return bad_environment("a blob does not match its digest")
