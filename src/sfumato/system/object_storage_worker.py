"""Child process that reads objects of one place in an S3 bucket, with PyArrow.

It gets the credentials by its pipe, and has no others: its environment is empty, and it asks no
metadata service. It reports failures as words of our own, because texts of the server may quote
keys. When the parent ends, it ends at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Final

from sfumato.system.durable_files import is_written
from sfumato.system.single_host_proxy import SingleHostProxy

PIECE: Final = 8 << 20  # bytes that are read and written at once
AT_ONCE: Final = 8  # objects that are read at the same time
MAX_OBJECTS: Final = 200_000  # the most objects of one listing
MAX_FRAME: Final = 256 << 20
MAX_MEMORY: Final = 2 << 30  # bytes of this process; a listing without end ends there
_TRIES: Final = 3  # how often a request is sent, if the server fails
_REFUSED: Final = (
    "ACCESS_DENIED", "SIGNATURE_DOES_NOT_MATCH", "INVALID_ACCESS_KEY_ID", "HTTP status 401",
    "HTTP status 403", "INVALID_CLIENT_TOKEN_ID", "EXPIRED_TOKEN",
)  # fmt: skip
_ABSENT: Final = ("NO_SUCH_BUCKET", "NO_SUCH_KEY", "RESOURCE_NOT_FOUND")
Order = Mapping[str, Any]  # Any: the parent's JSON


class ReportedFailure(Exception):
    """Failure that is reported to the parent process as one of our own constant words."""


class Reader:
    """Reads objects of one place in a bucket."""

    def __init__(self, place: Order) -> None:
        """Prepare to read; nothing is sent yet.

        Args:
            place: The address, the credentials and the limits, as the parent sends them.
        """
        from pyarrow import fs

        self._proxy = SingleHostProxy(place["scheme"], place["host"], place["port"])
        self._root = "/".join(one for one in (place["bucket"], place["prefix"]) if one)
        self._selector = fs.FileSelector
        self._file = fs.FileType.File
        keys = {"access_key": place["access_key"], "secret_key": place["secret_key"]}
        keys = {**keys, "session_token": place["session_token"] or None}
        self._files = fs.S3FileSystem(
            **(keys if place["access_key"] else {"anonymous": True}),
            region=place["region"],
            scheme=place["scheme"],
            endpoint_override=place["netloc"],
            proxy_options=self._proxy.options,
            connect_timeout=20,
            request_timeout=60,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
        )

    def listed(self, order: Order) -> object:
        """Return the path and size of each object below a path."""
        base = "/".join(one for one in (self._root, order["path"]) if one)
        with self._reported():
            wanted = self._selector(base, recursive=True, allow_not_found=True)
            found = self._files.get_file_info(wanted)
        if len(found) > MAX_OBJECTS:
            raise ReportedFailure("too-many")
        cut = len(base) + 1
        return [[one.path[cut:], one.size] for one in found if one.type == self._file]

    def size(self, order: Order) -> object:
        """Return the size of an object; None if there is none."""
        with self._reported():
            found = self._files.get_file_info(f"{self._root}/{order['path']}")
        return found.size if found.type == self._file else None

    def fetched(self, order: Order) -> object:
        """Write objects into a folder, under names that their versions have; return the names.

        What an earlier call has written of the same version is not read again.
        """
        folder = Path(order["folder"])

        def one(wanted: Sequence[Any]) -> str:
            return self._one_fetched(wanted[0], wanted[1], folder)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(one, order["objects"]))

    def copied(self, order: Order) -> object:
        """Write an object into an existing file."""
        with Path(order["target"]).open("r+b", buffering=0) as file:
            self._copy(self._opened(order["path"], order["size"]), order["path"], file)
        return None

    def _one_fetched(self, path: str, size: int, folder: Path) -> str:
        source = self._opened(path, size)
        stem = hashlib.sha256(path.encode()).hexdigest()[:32]
        name = f"{stem}.{hashlib.sha256(_version(source)).hexdigest()[:32]}"
        place, half = folder / name, folder / f"{name}.half"
        if place.is_file() and place.stat().st_size == size:
            return name
        for old in folder.glob(f"{stem}.*"):
            if old != half:
                old.unlink()
        try:
            with half.open("r+b" if half.exists() else "xb", buffering=0) as file:
                self._copy(source, path, file)
                os.fsync(file.fileno())
        except ReportedFailure as failure:
            if str(failure) == "changed":
                half.unlink()
            raise
        half.replace(place)
        return name

    def _opened(self, path: str, size: int) -> Any:  # a file of PyArrow
        with self._reported():
            source = self._files.open_input_file(f"{self._root}/{path}")
            if source.size() == size:
                return source
        raise ReportedFailure("changed")

    def _copy(self, source: Any, path: str, file: IO[bytes]) -> None:
        """Write an object behind what the file has of it; refuse if the object changes."""
        version, size = _version(source), source.size()
        place = file.seek(0, os.SEEK_END)
        while place < size:
            with self._reported():
                piece = source.read_at(min(PIECE, size - place), place)
            if not piece:
                raise ReportedFailure("changed")
            if not is_written(file.fileno(), piece):
                raise ReportedFailure("no-space")
            place += len(piece)
        with self._reported():
            again = self._files.open_input_file(f"{self._root}/{path}")
            is_same = place == size == again.size() and _version(again) == version
        if not is_same:
            raise ReportedFailure("changed")

    @contextlib.contextmanager
    def _reported(self) -> Any:  # an iterator that has no value
        """Turn what PyArrow raises into a word; its text may quote keys, so nobody sees it."""
        why = None
        try:
            yield
        except (OSError, ValueError, NotImplementedError) as error:
            why = self._why(error)
        if why is not None:
            raise ReportedFailure(why)

    def _why(self, error: Exception) -> str:
        text = str(error)
        if self._proxy.is_led_away:
            return "elsewhere"
        if self._proxy.is_unreachable or "NETWORK_CONNECTION" in text:
            return "unreachable"
        if isinstance(error, FileNotFoundError) or any(word in text for word in _ABSENT):
            return "absent"
        return "denied" if any(word in text for word in _REFUSED) else "failed"


def _version(source: Any) -> bytes:
    """Return what tells versions of an object apart: its ETag and the time of its last change."""
    found = source.metadata() or {}
    etag, changed = found.get("ETag", b""), found.get("Last-Modified", b"")
    if not etag:
        raise ReportedFailure("failed")
    return bytes(etag + b" " + changed)


# --- the pipe


def _answer(order: Order, doing: Mapping[str, Callable[[Order], object]]) -> None:
    said: dict[str, object] = {"why": "failed"}  # stays so if PyArrow or the disk raises another
    try:
        said = {"why": None, "answer": doing[order["do"]](order)}
    except ReportedFailure as failure:
        said = {"why": str(failure)}
    finally:
        text = json.dumps(said).encode()
        if len(text) > MAX_FRAME:
            text = json.dumps({"why": "too-many"}).encode()
        sys.stdout.buffer.write(len(text).to_bytes(4, "big") + text)
        sys.stdout.buffer.flush()


def _order() -> Order | None:
    head = sys.stdin.buffer.read(4)
    size = int.from_bytes(head, "big")
    text = sys.stdin.buffer.read(size) if len(head) == 4 and size <= MAX_FRAME else b""
    if not text or len(text) < size:
        return None
    read: dict[str, Any] = json.loads(text)
    return read


def main() -> None:
    """Serve the parent's orders until the parent closes the pipe."""
    begin = _order()
    if begin is None:
        return
    os.umask(0o077)
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (begin["most"], begin["most"]))
    reader = Reader(begin)
    doing = {
        "list": reader.listed,
        "size": reader.size,
        "fetch": reader.fetched,
        "copy": reader.copied,
    }
    while (order := _order()) is not None:
        threading.Thread(target=_answer, args=(order, doing), daemon=True).start()
    os._exit(0)  # what is being read is of use to nobody
