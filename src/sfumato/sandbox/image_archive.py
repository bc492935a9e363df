"""Read a container image from an archive: one tar file, as the usual builders write it.

There are two kinds, and Docker since version 25 writes both in one file. An OCI archive contains an
image layout. In the older kind, `manifest.json` names a configuration and its layers; such an image
is identified by its id, the digest of the configuration, which names the digests of all layers.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import posixpath
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Final  # Any: untrusted JSON

from sfumato.sandbox.oci_image import (
    AT_ONCE,
    DIGEST,
    GZIP,
    MAX_TEXT,
    MAX_UNPACKED,
    PLAIN,
    ZSTD,
    Image,
    Packed,
    object_of,
    plain_file,
    read_image,
    read_json,
    unpack_image,
)
from sfumato.sandbox.oci_layers import Member, parts_of
from sfumato.sandbox.program_environment import bad_environment

_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
_MAX_MEMBERS: Final = 10_000
_MAX_HOPS: Final = 8
_MAX_IMAGES: Final = 100  # the first of an archive that are looked at


def is_archive(path: Path) -> bool:
    """Return True if a path is a tar file, plain or gzipped."""
    try:
        with plain_file(path.resolve()) as file:
            begins = file.read(_TAR_MAGIC_AT + len(_TAR_MAGIC))
    except OSError:
        return False
    return begins.startswith(_GZIP_MAGIC) or begins[_TAR_MAGIC_AT:] == _TAR_MAGIC


def read_archive(path: Path, digest: str, target: Path) -> Image:
    """Unpack the image of that digest from an archive to the target; or refuse.

    The digest names a manifest or an index of an OCI archive, or is the id of an image.
    """
    if DIGEST.fullmatch(digest) is None:
        raise bad_environment("the name of an image must be sha256: and 64 hexadecimal digits")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        place = Path(folder, "archive")
        found = _Saved(place, _unpacked(path, place))
        config = found.config(digest)
        if config is None and not (place / "index.json").exists():
            raise bad_environment(
                "the archive has no image of that digest; `docker image inspect` shows its id"
            )
        if config is None:
            return read_image(place, digest, target)
        said, layers = config
        return unpack_image("", (digest, said), layers, target)


class _Saved:
    """The files of an archive, unpacked to a folder, and its links, which are followed here."""

    def __init__(self, folder: Path, links: Mapping[str, str]) -> None:
        self._folder, self._links = folder, links

    def config(self, image_id: str) -> tuple[dict[str, Any], list[Packed]] | None:
        """Return the configuration and the layers of an image by its id, or None."""
        for one in self._manifests()[:_MAX_IMAGES]:
            text = self._text(object_of(one).get("Config"))
            if f"sha256:{hashlib.sha256(text).hexdigest()}" == image_id:
                names = object_of(one).get("Layers")
                layers = map(self._layer, names if isinstance(names, list) else ())
                return read_json(text), list(layers)
        return None

    def _manifests(self) -> list[Any]:
        """Return the list of images in `manifest.json`; empty if the archive has none."""
        try:
            found = json.loads(self._text("manifest.json") or b"[]")
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list):
            raise bad_environment("the manifest.json of the archive is malformed")
        return found

    def _layer(self, name: object) -> Packed:
        with self._opened(name) as file:
            begins = file.read(len(_ZSTD_MAGIC))
        is_gzip = begins.startswith(_GZIP_MAGIC)
        packing = GZIP if is_gzip else ZSTD if begins == _ZSTD_MAGIC else PLAIN
        return Packed(lambda: self._opened(name), packing, None)

    def _text(self, name: object) -> bytes:
        """Return the first bytes of a file, more than JSON may have; b"" if it is missing."""
        if name == "manifest.json" and not (self._folder / name).exists():
            return b""
        with self._opened(name) as file:
            return file.read(MAX_TEXT + 1)

    def _opened(self, name: object) -> AbstractContextManager[IO[bytes]]:
        path = "/".join(parts_of(str(name)))
        for _ in range(_MAX_HOPS):
            if path not in self._links:
                break
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), self._links[path]))
        try:
            return plain_file(self._folder.joinpath(*parts_of(path)))
        except (OSError, ValueError):  # or its name is no text
            raise bad_environment("a file of the archive is missing") from None


def _unpacked(path: Path, folder: Path) -> dict[str, str]:
    """Write the regular files of an archive to a new folder; return its links; or refuse.

    No link is written, so that none can be followed.
    """
    folder.mkdir()
    try:
        with _plain_tar(path) as file:
            return dict(_written(file, folder))
    except (OSError, EOFError, ValueError, OverflowError, tarfile.TarError, zlib.error):
        pass
    raise bad_environment("the archive is not a whole tar file of an image, or the disk is full")


@contextmanager
def _plain_tar(path: Path) -> Iterator[Any]:  # Any: an object with `read`
    with plain_file(path.resolve()) as file:
        if os.pread(file.fileno(), len(_GZIP_MAGIC), 0) != _GZIP_MAGIC:
            yield file
            return
        with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
            yield unpacked


def _written(file: IO[bytes], folder: Path) -> Iterator[tuple[str, str]]:
    size = count = 0
    with tarfile.open(fileobj=file, mode="r|", tarinfo=Member) as tar:
        for member in tar:
            count, size = count + 1, size + member.size
            if count > _MAX_MEMBERS or size > MAX_UNPACKED:
                raise bad_environment(f"the archive has more than {MAX_UNPACKED >> 30} GB or files")
            parts = parts_of(member.name)
            source = tar.extractfile(member) if member.isreg() else None
            if source is not None and parts:
                place = folder.joinpath(*parts)
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("wb") as made:
                    shutil.copyfileobj(source, made, AT_ONCE)
            elif member.issym():
                yield "/".join(parts), member.linkname
            elif member.islnk():
                yield "/".join(parts), _from_top(parts, member.linkname)
            tar.members.clear()  # type: ignore[attr-defined]  # unknown to typeshed


def _from_top(parts: tuple[str, ...], name: str) -> str:
    """Return the target of a hard link, which is named from the top, relative to the link."""
    return "/".join([".."] * (len(parts) - 1) + list(parts_of(name)))
