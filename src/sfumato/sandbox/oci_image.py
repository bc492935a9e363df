"""Read a container image from an OCI image layout on disk, and verify the digest of every blob.

Nothing is downloaded, and nothing of the image is run. The format is the specification of the Open
Container Initiative: image-layout.md and layer.md. Archives are in image_archive.py, and registries
in image_registry.py.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final

from sfumato.dp.refusal import Refused
from sfumato.sandbox.image_user import own_uid_settings
from sfumato.sandbox.oci_layers import MAX_BYTES, merged_layers
from sfumato.sandbox.program_environment import bad_environment

DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
MAX_TEXT: Final = 4 << 20  # most bytes of an index, a manifest or a configuration
MAX_LAYERS: Final = 128
_MAX_NESTED: Final = 3  # most levels of nested indexes
# most bytes of the unpacked tars of all layers together, with padding
MAX_UNPACKED: Final = 2 * MAX_BYTES
INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
PLAIN, GZIP, ZSTD = "plain", "gzip", "zstd"
_LAYERS: Final[Mapping[object, str]] = {
    "application/vnd.oci.image.layer.v1.tar": PLAIN,
    "application/vnd.oci.image.layer.v1.tar+gzip": GZIP,
    "application/vnd.oci.image.layer.v1.tar+zstd": ZSTD,
    "application/vnd.docker.image.rootfs.diff.tar": PLAIN,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": GZIP,
    "application/vnd.docker.image.rootfs.diff.tar.zstd": ZSTD,
}
_MAX_LABELS, _MAX_LABEL = 100, 1000
AT_ONCE: Final = 1 << 20
Json = dict[str, Any]  # Any: untrusted JSON, validated piece by piece


@dataclass(frozen=True)
class Image:
    """What a container image says about itself, and how its program starts.

    `digest` is that of the manifest, "" if an archive has none; `config` that of the configuration.
    `user` is the image's `User`; what of it is honoured is in `settings` (image_user.py).
    """

    digest: str
    config: str
    entry: tuple[str, ...]
    settings: tuple[str, ...]
    folder: str = ""
    user: str = ""
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Packed:
    """A layer as it is stored: how to open it, how it is packed, and its digest if one is known."""

    opened: Callable[[], AbstractContextManager[IO[bytes]]]
    packing: str
    digest: str | None


def read_image(layout: Path, digest: str, target: Path) -> Image:
    """Unpack the OCI image of that digest to the target and return its settings; or refuse.

    The digest names a manifest, or an index of manifests for several platforms.
    """
    if DIGEST.fullmatch(digest) is None:
        raise bad_environment("the name of an image must be sha256: and 64 hexadecimal digits")
    digest = _manifest_of(layout, digest)
    manifest = _json_at(layout, {"digest": digest})
    said, layers = manifest.get("config"), manifest.get("layers")
    if not isinstance(layers, list):
        raise bad_environment("its manifest is malformed")
    config = str(object_of(said).get("digest")), _json_at(layout, said)
    return unpack_image(digest, config, [_packed(layout, one) for one in layers], target)


def unpack_image(
    digest: str, config: tuple[str, Json], layers: Sequence[Packed], target: Path
) -> Image:
    """Unpack an image's layers to the target, as its configuration lists them; or refuse."""
    said = config[1]
    if said.get("architecture") != "amd64" or said.get("os") != "linux":
        raise bad_environment(
            f"the image is for {_platform(said)}, and this machine runs images for linux/amd64"
        )
    whole = object_of(said.get("rootfs")).get("diff_ids")
    if not isinstance(whole, list) or len(layers) != len(whole):
        raise bad_environment("the image does not list all its layers both packed and unpacked")
    if not 1 <= len(layers) <= MAX_LAYERS:
        raise bad_environment(f"an image must have 1 to {MAX_LAYERS} layers")
    started = object_of(said.get("config"))
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        pairs, room = zip(layers, whole, strict=True), _Room()
        tree = merged_layers((_layer(one, tar, room) for one, tar in pairs), Path(folder))
        user = _text(started.get("User"))
        image = _image(digest, config[0], started, own_uid_settings(user, tree))
        tree.write(target)
    return image


def _manifest_of(layout: Path, digest: str) -> str:
    """Return the digest of the manifest for Linux on amd64 to which a digest leads; or refuse."""
    for found in _listed(layout, _json_of(layout / "index.json")):
        if found.get("digest") != digest:
            continue
        if found.get("mediaType") in MANIFESTS:
            return digest
        below = _json_at(layout, found)
        manifests = (one for one in _listed(layout, below) if one.get("mediaType") in MANIFESTS)
        return str(chosen(manifests, below).get("digest"))
    raise bad_environment("the layout's index has no image for Linux on amd64 of that digest")


def chosen(manifests: Iterable[Json], index: Json) -> Json:
    """Return the descriptor that fits Linux on amd64 best, as container tools choose; or refuse.

    One that names this platform comes before one without a platform, the plain amd64 before its
    variants, and the first before the others.
    """

    def order(one: Json) -> tuple[bool, bool]:
        place = object_of(one.get("platform"))
        return "architecture" not in place, bool(place.get("variant"))

    found = min(manifests, key=order, default=None)
    if found is None:
        places = (object_of(object_of(one).get("platform")) for one in _entries(index))
        named = sorted({_platform(place) for place in places if place})[:10]
        raise bad_environment(
            "its index lists no image for linux/amd64"
            + (f", only for {', '.join(named)}" if named else "")
        )
    return found


def _listed(layout: Path, index: Json) -> Iterator[Json]:
    """Yield the descriptors of an OCI index and its nested indexes, of images that could fit.

    Each index is read once, even if it is listed several times.
    """
    seen: set[str] = set()
    level: Iterable[Json] = [index]
    for _ in range(_MAX_NESTED):
        below: list[Json] = []
        for found in chain.from_iterable(map(fitting, level)):
            digest, kind = str(found.get("digest")), found.get("mediaType")
            if kind in MANIFESTS or (kind in INDEXES and digest not in seen):
                yield found
            if kind in INDEXES and digest not in seen:
                seen.add(digest)
                below.append(found)
        level = (_json_at(layout, found) for found in below)


def fitting(index: Json) -> Iterator[Json]:
    """Yield the entries of an OCI index for Linux on amd64, or without a platform."""
    for one in _entries(index):
        place = object_of(object_of(one).get("platform"))
        if place.get("architecture", "amd64") == "amd64" and place.get("os", "linux") == "linux":
            yield object_of(one)


def _entries(index: Json) -> list[object]:
    listed = index.get("manifests")
    return listed if isinstance(listed, list) else []


def _platform(said: Json) -> str:
    named = f"{said.get('os')}/{said.get('architecture')}"
    return named if re.fullmatch(r"[a-z0-9/]{1,40}", named) else "an unknown platform"


def _image(digest: str, config: str, said: Json, of_user: Mapping[str, str]) -> Image:
    # our arguments replace Cmd after an Entrypoint; without one, Cmd is the command
    entry = _texts(said.get("Entrypoint")) or _texts(said.get("Cmd"))
    settings = [one for one in _texts(said.get("Env")) if "=" in one]
    has = {one.partition("=")[0] for one in settings}
    settings += [f"{name}={value}" for name, value in of_user.items() if name not in has]
    folder, user = _text(said.get("WorkingDir")), _text(said.get("User"))
    if any("\0" in text for text in (*entry, *settings, folder)):
        raise bad_environment("its configuration is malformed")
    labels = labels_of(said.get("Labels"))
    return Image(digest, config, tuple(entry), tuple(settings), folder, user, labels)


def labels_of(said: object) -> tuple[tuple[str, str], ...]:
    """Return an image's labels, sorted; long ones are cut, and of very many the first are kept."""
    found = sorted((key, one) for key, one in object_of(said).items() if isinstance(one, str))
    return tuple((key[:_MAX_LABEL], one[:_MAX_LABEL]) for key, one in found[:_MAX_LABELS])


def _text(value: object) -> str:
    if not isinstance(value or "", str):
        raise bad_environment("its configuration is malformed")
    return str(value or "")


def _texts(value: object) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise bad_environment("its configuration is malformed")
    return value


def object_of(value: object) -> Json:
    """Return a value of untrusted JSON if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


# --- blobs ----------------------------------------------------------------------------------------


def _json_at(layout: Path, said: object) -> Json:
    """Read the JSON blob that a descriptor names, and verify its digest; or refuse."""
    with _blob(layout, said) as file:
        text = file.read(MAX_TEXT + 1)
    if f"sha256:{hashlib.sha256(text).hexdigest()}" != object_of(said).get("digest"):
        raise not_its_digest()
    return read_json(text)


def _json_of(path: Path) -> Json:
    try:
        with plain_file(path) as file:
            text = file.read(MAX_TEXT + 1)
    except OSError:
        text = b""
    return read_json(text)


def read_json(text: bytes) -> Json:
    """Parse a JSON object of an image; or refuse."""
    try:
        found = json.loads(text) if len(text) <= MAX_TEXT else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise bad_environment("there is no image layout, or its JSON is malformed")
    return found


class _Room:
    """The budget of unpacked bytes of one image; a layer that is listed twice counts twice."""

    def __init__(self) -> None:
        self._left = MAX_UNPACKED

    def take(self, size: int) -> None:
        """Subtract `size` bytes from the budget, or refuse if too few are left."""
        self._left -= size
        if self._left < 0:
            raise bad_environment(f"its layers are more than {MAX_UNPACKED >> 30} GB")


def _packed(layout: Path, said: object) -> Packed:
    """Return a layer of a layout by its descriptor; or refuse."""
    packing = _LAYERS.get(str(object_of(said).get("mediaType")))
    if packing is None:
        raise bad_environment("a layer must be a tar file, plain, or packed by gzip or zstd")
    return Packed(lambda: _blob(layout, said), packing, str(object_of(said).get("digest")))


def is_layer(said: object) -> bool:
    """Return True if a descriptor is of a layer that can be unpacked."""
    return str(object_of(said).get("mediaType")) in _LAYERS


@contextmanager
def _layer(packed: Packed, whole: object, room: _Room) -> Iterator[IO[bytes]]:
    """Yield a layer's unpacked tar, after verifying its packed and unpacked digests; or refuse.

    The layer is unpacked to an anonymous temporary file, and verified before it is parsed.
    """
    with tempfile.TemporaryFile() as tar:
        with packed.opened() as file:
            counted = _Counted(file)
            is_read = _READERS[packed.packing](counted, tar, whole, room)
            counted.drain()
        is_same = packed.digest in (None, f"sha256:{counted.hash.hexdigest()}")
        if not is_read or not is_same:
            raise not_its_digest()
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
        while self.read(AT_ONCE):
            pass


def _from_gzip(packed: _Counted, tar: IO[bytes], whole: object, room: _Room) -> bool:
    """Unpack a gzip blob into the file, within the budget of unpacked bytes.

    Return True if the unpacked bytes have the expected digest.
    """
    try:
        with gzip.GzipFile(fileobj=packed, mode="rb") as file:
            return _copied(file, tar, whole, room)
    except (OSError, EOFError, zlib.error):
        return False


def _from_zstd(packed: _Counted, tar: IO[bytes], whole: object, room: _Room) -> bool:
    """Unpack a zstd blob into the file, as `_from_gzip` does; without pyarrow, refuse.

    A frame that needs more than 128 MB of memory to be unpacked is refused by the library.
    """
    try:
        import pyarrow
    except ImportError:
        raise bad_environment(
            "a layer is packed by zstd, which needs pyarrow: pip install 'sfumato[frames]', or "
            "pack the image anew: skopeo copy --dest-compress-format gzip"
        ) from None
    try:
        file = pyarrow.CompressedInputStream(pyarrow.PythonFile(packed, mode="r"), "zstd")
        return _copied(file, tar, whole, room)
    except OSError:
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
    while piece := source.read(AT_ONCE):
        room.take(len(piece))
        plain.update(piece)
        tar.write(piece)
    return f"sha256:{plain.hexdigest()}" == whole


_READERS: Final = {PLAIN: _copied, GZIP: _from_gzip, ZSTD: _from_zstd}


@contextmanager
def _blob(layout: Path, said: object) -> Iterator[IO[bytes]]:
    """Open the blob (content-addressed file) of a descriptor; the caller verifies its digest."""
    digest = object_of(said).get("digest")
    if not isinstance(digest, str) or DIGEST.fullmatch(digest) is None:
        raise bad_environment("the name of a blob is not a sha256 digest")
    path = layout / "blobs" / "sha256" / digest.removeprefix("sha256:")
    try:
        file = plain_file(path)
    except OSError:
        raise bad_environment("a blob is missing") from None
    with file:
        yield file


def plain_file(path: Path) -> IO[bytes]:
    """Open a regular file; refuse a link, a device or a pipe."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise FileNotFoundError
    return os.fdopen(opened, "rb")


def not_its_digest() -> Refused:
    """Return the refusal of a blob whose bytes are not those that its digest names."""
    return bad_environment("a blob does not match its digest")
