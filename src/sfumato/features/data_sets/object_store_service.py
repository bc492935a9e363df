"""Objects in an S3 bucket as sources: a table's file, or a BIDS folder; the vault fetches them.

The operator allows a place by a connection file, whose address begins with `s3+https://` and names
the host, the bucket, and a path in it. An owner names the connection and a path below that place. A
process of its own reads the objects. It contacts only that host and follows no redirect. Of a
folder, what was fetched is kept for a day if fetching or adding fails.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.fetched_folder_service import FetchedFolders
from sfumato.features.data_sets.folder_archive import (
    ROWS,
    SPARE_BYTES,
    PartFile,
    free_bytes,
    is_hidden,
    no_space,
    unpack,
    unreadable,
)
from sfumato.system.folder_stream import archive_kind
from sfumato.system.git_annex import is_loopback_host
from sfumato.system.object_storage import (
    BucketPlace,
    BucketReader,
    ObjectStorageFailure,
    StoredObject,
    bucket_reader,
)
from sfumato.system.optional_packages import need_package
from sfumato.system.row_files import row_suffix
from sfumato.vault.card.bids_patterns import is_listed

PREFIX: Final = "s3+"
KEYS: Final = frozenset({"region", "access_key", "secret_key", "anonymous"})  # of the file
_MAX_PATH: Final = 200  # characters of a path that an owner names
_PATH: Final = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9 ._=+-]*/)*[A-Za-z0-9][A-Za-z0-9 ._=+-]*")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_REGION: Final = re.compile(r"[a-z0-9-]{1,40}")
_WHY: Final[Mapping[str, tuple[str, str, str]]] = {
    "absent": (
        "source-unreadable",
        "The connection has nothing of that name, or it was removed while it was read.",
        "Check the name: the path of a file or a folder below the place of the connection.",
    ),
    "denied": (
        "source-unreadable",
        "The object storage does not let the connection read there.",
        "Check the name. Ask the operator to check the connection's keys and what they may read.",
    ),
    "changed": (
        "source-unreadable",
        "An object changed while it was read.",
        "Try again when nobody writes there.",
    ),
    "elsewhere": (
        "engine-unavailable",
        "The object storage sent the connection to another host, where it may not go.",
        "Ask the operator to correct the address or the region of the connection. Without a "
        "connection, set AWS_REGION to the bucket's region.",
    ),
    "unreachable": (
        "engine-unavailable",
        "The object storage of the connection cannot be reached.",
        "Try again later, or tell the operator. What was fetched of a folder is kept for a day.",
    ),
    "too-many": (
        "too-large",
        "There are more objects at that place than a data set may have.",
        "Name a folder with fewer files.",
    ),
    "failed": (
        "source-unreadable",
        "The object storage did not send all that was asked for.",
        "Try again, or tell the operator. What was fetched of a folder is kept for a day.",
    ),
}


def is_object_store(address: str) -> bool:
    """Return True if a connection's address is a place in an S3 bucket."""
    return address.startswith(PREFIX)


def is_file(path: str) -> bool:
    """Return True if a path is of one table's file, by its name, and not of a folder."""
    return row_suffix(path) is not None and archive_kind(path) is None


def place_of(address: str, said: Mapping[str, object]) -> BucketPlace:
    """Return the place of a connection, with its keys; refuse one that is not safe.

    Args:
        address: s3+https://HOST/BUCKET/PATH; plain http is for this machine alone.
        said: The connection file, which may have `region`, and keys. Without keys, those of the
            service's environment are taken.
    """
    parts = urlsplit(address.removeprefix(PREFIX))
    bucket, _, prefix = parts.path.removeprefix("/").partition("/")
    prefix, host = prefix.removesuffix("/"), parts.hostname or ""
    region = said.get("region", "us-east-1")
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(host))
    is_plain = host and not parts.query and not parts.fragment and "@" not in parts.netloc
    is_place = _BUCKET.fullmatch(bucket) and (not prefix or _PATH.fullmatch(prefix))
    if not (is_safe and is_plain and is_place and (port := _port(parts.netloc, parts.scheme))):
        raise _unusable(
            "The connection's address is not a place in an S3 bucket.",
            "Give s3+https://HOST/BUCKET or s3+https://HOST/BUCKET/PATH, without keys in it.",
        )
    if not isinstance(region, str) or not _REGION.fullmatch(region):
        raise _unusable(
            "The connection's region is not the name of a region.",
            'Give the region of the bucket, such as region = "eu-central-1".',
        )
    access, secret, token = _keys(said)
    return BucketPlace(
        parts.scheme, parts.netloc, host, port, bucket, prefix, region, access, secret, token
    )


def _port(netloc: str, scheme: str) -> int | None:
    number = netloc.rpartition("]")[2].partition(":")[2]
    if not number:
        return None if netloc.endswith(":") else (443 if scheme == "https" else 80)
    is_port = number.isascii() and number.isdigit() and 0 < int(number[:6]) <= 65_535
    return int(number) if is_port else None


def _keys(said: Mapping[str, object]) -> tuple[str, str, str]:
    """Return the access key, the secret key and the token; empty ones read anonymously."""
    given = said.get("access_key"), said.get("secret_key")
    if said.get("anonymous", False) is True and given == (None, None):
        return "", "", ""
    if given == (None, None) and said.get("anonymous", False) is False:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        access, secret, token = (os.environ.get(name, "") for name in names)
        if access and secret:
            return access, secret, token
        raise _unusable(
            "The connection has no keys: neither in its file nor in the service's environment.",
            "Write access_key and secret_key into the file, or anonymous = true for a public "
            "bucket, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    access, secret = (one if isinstance(one, str) else "" for one in given)
    if not (access and secret) or "anonymous" in said:
        raise _unusable(
            "The connection's keys do not go together.",
            "Write both access_key and secret_key into the file, or only anonymous = true.",
        )
    return access, secret, ""


def check_path(path: str) -> None:
    """Refuse a path that is not below a place."""
    if len(path) > _MAX_PATH or not _PATH.fullmatch(path):
        raise Refused(
            "source-unreadable",
            "This is not the path of a file or a folder: letters, digits, spaces, '.', '_', '-', "
            "'=', '+', and '/' between.",
            "Name it by its path below the place of the connection.",
        )


def check_installed() -> None:
    """Refuse if PyArrow, which reads objects, is not installed."""
    need_package("pyarrow", "frames")


Pick = Callable[[BucketReader], list[tuple[str, StoredObject]]]


@dataclass(frozen=True)
class ObjectStores:
    """The objects that one vault is fetching on this machine."""

    folders: FetchedFolders

    @contextmanager
    def draft(self, owner: str, place: BucketPlace, path: str) -> Iterator[tuple[str, list[str]]]:
        """Yield a folder that has participants.tsv, and the paths of all files."""
        with self.folders.lock:
            kept = self._place(owner, place, path)
            try:
                if archive_kind(path) is not None:
                    folder = Path(self._unpacked(kept, place, path))
                    found = (one for one in folder.rglob("*") if one.is_file())
                    yield str(folder), [one.relative_to(folder).as_posix() for one in found]
                else:
                    yield self._fetched(kept, place, path, lambda inner: inner == ROWS)
            finally:
                _tidy(kept)

    @contextmanager
    def fetched(
        self, owner: str, place: BucketPlace, path: str, patterns: tuple[str, ...]
    ) -> Iterator[str]:
        """Yield a folder with the files that a card with these patterns lists.

        Delete it at the end; keep what was fetched if the block fails.
        """
        with self.folders.lock:
            kept = self._place(owner, place, path)
            try:
                if archive_kind(path) is not None:
                    yield self._unpacked(kept, place, path)
                else:
                    yield self._fetched(
                        kept, place, path, lambda inner: is_listed(inner, patterns)
                    )[0]
            finally:
                _tidy(kept)
            shutil.rmtree(kept, ignore_errors=True)

    def has_people(self, place: BucketPlace, path: str) -> bool:
        """Return True if a path is of a BIDS folder, and not of a folder of Parquet files."""
        with _reading(place, self.folders.most) as reader:
            return reader.size(f"{path}/{ROWS}") is not None

    def tables(self, owner: str, place: BucketPlace, path: str, pick: Pick) -> str:
        """Return a folder with the files of tables that `pick` finds; it is kept for a day.

        Args:
            owner: Who asks.
            place: The place.
            path: What is fetched, by which a second call finds what the first has fetched.
            pick: The objects that are wanted, with the path of each in the folder.
        """
        with self.folders.lock:
            kept = self._place(owner, place, path)
            tree = kept / "tree"
            shutil.rmtree(tree, ignore_errors=True)
            try:
                with _reading(place, self.folders.most) as reader:
                    picked = pick(reader)
                    if not picked:
                        raise Refused(*_WHY["absent"])
                    self.folders.check_room([one.size for _, one in picked])
                    found = reader.fetch([one for _, one in picked], kept / "contents")
                for (name, _), file in zip(picked, found, strict=True):
                    (tree / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    (tree / name).hardlink_to(file)
            except Refused:
                _tidy(kept)
                raise
            return str(tree)

    def forget(self, owner: str, place: BucketPlace, path: str) -> None:
        """Delete what was fetched of a path."""
        with self.folders.lock:
            shutil.rmtree(self.folders.place(owner, f"{place.named}/{path}"), ignore_errors=True)

    def sweep(self) -> None:
        """Delete what was fetched more than a day ago."""
        self.folders.sweep()

    def _place(self, owner: str, place: BucketPlace, path: str) -> Path:
        kept = self.folders.place(owner, f"{place.named}/{path}")
        if not (kept / "contents").is_dir():
            self.folders.begin(kept)
            (kept / "contents").mkdir(mode=0o700)
        return kept

    def _fetched(
        self, kept: Path, place: BucketPlace, path: str, is_wanted: Callable[[str], bool]
    ) -> tuple[str, list[str]]:
        """Fetch the wanted files of a folder; return a folder with them, and the paths of all."""
        contents = kept / "contents"
        with _reading(place, self.folders.most) as reader:
            listed = _files(reader, path)
            wanted = [one for one in listed if is_wanted(one.path)]
            self.folders.check_room([one.size for one in wanted])
            whole = [StoredObject(f"{path}/{one.path}", one.size) for one in wanted]
            found = reader.fetch(whole, contents)
        pairs = [(one.path, file) for one, file in zip(wanted, found, strict=True)]
        return self.folders.copied(kept, pairs, contents), [one.path for one in listed]

    def _unpacked(self, kept: Path, place: BucketPlace, path: str) -> str:
        """Fetch a zip or tar file, and return the folder that it holds."""
        kind, tree = archive_kind(path), kept / "tree"
        with _reading(place, self.folders.most) as reader:
            size = _size(reader, path)
            self.folders.check_room([size])
            (file,) = reader.fetch([StoredObject(path, size)], kept / "contents")
        shutil.rmtree(tree, ignore_errors=True)
        with PartFile.of(file) as opened:
            return str(unpack(kind or "zip", opened, tree, self.folders.most).root)


def _tidy(kept: Path) -> None:
    """Delete the folder of a place, and the whole place if nothing was fetched."""
    shutil.rmtree(kept / "tree", ignore_errors=True)
    if not any((kept / "contents").iterdir()):
        shutil.rmtree(kept, ignore_errors=True)


def one_object(path: str) -> Pick:
    """Return what picks the object of a path, under its last name."""

    def pick(reader: BucketReader) -> list[tuple[str, StoredObject]]:
        return [(path.rpartition("/")[2], StoredObject(path, _size(reader, path)))]

    return pick


def objects_below(base: str, is_wanted: Callable[[str], bool]) -> Pick:
    """Return what picks the wanted objects below a path, by their paths from there."""

    def pick(reader: BucketReader) -> list[tuple[str, StoredObject]]:
        above = f"{base}/" if base else ""
        return [
            (one.path, StoredObject(f"{above}{one.path}", one.size))
            for one in _files(reader, base)
            if is_wanted(one.path)
        ]

    return pick


def fetch_file(place: BucketPlace, path: str, target: Path, room: int) -> None:
    """Write an object into an existing file; refuse one of more than `room` bytes."""
    with _reading(place, room) as reader:
        size = _size(reader, path)
        if size > room:
            raise Refused(
                "too-large",
                f"The file is larger than {room} bytes, the upload space that you have left.",
                "Add what you have uploaded, split the file, or ask the operator for --max-upload.",
            )
        if free_bytes(target.parent) < size + SPARE_BYTES:
            raise no_space()
        reader.copy(StoredObject(path, size), target)


@contextmanager
def _reading(place: BucketPlace, most: int) -> Iterator[BucketReader]:
    """Read a place during the block; a failure becomes a refusal that quotes nothing of it."""
    check_installed()
    why: str | None = None
    with bucket_reader(place, most) as reader:
        try:
            yield reader
        except ObjectStorageFailure as failure:
            why = str(failure)
    if why == "no-space":
        raise no_space()
    if why is not None:
        raise Refused(*_WHY.get(why, _WHY["failed"]))


def _files(reader: BucketReader, path: str) -> list[StoredObject]:
    """Return the files of a folder but hidden ones; refuse names that could lead out of it."""
    found = [one for one in reader.objects(path) if not is_hidden(one.path.split("/"))]
    if not found:
        raise Refused(*_WHY["absent"])
    odd = sum(1 for one in found if not _is_plain(one.path))
    if odd:
        raise unreadable(
            f"{odd} objects of the folder have names that a file cannot have.",
            "Rename them: no empty name between two '/', no '\\' and no control characters.",
        )
    return sorted(found, key=lambda one: one.path)


def _is_plain(path: str) -> bool:
    return path.isprintable() and "\\" not in path and all(path.split("/"))


def _size(reader: BucketReader, path: str) -> int:
    size = reader.size(path)
    if size is None:
        raise Refused(*_WHY["absent"])
    return size


def _unusable(cause: str, next_step: str) -> Refused:
    return Refused("engine-unavailable", cause, next_step)
