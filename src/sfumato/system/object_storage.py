"""Read objects of one place in an S3 bucket; a child process that can be killed reads them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from sfumato.system.child_process import ChildProcess

LISTING_S: Final = 300.0  # the longest time for a listing, or for the size of an object
BATCH: Final = 64  # the most objects of one order to the child process
BATCH_S: Final = 600.0  # the longest time for one order, besides the time for its bytes
LEAST_BYTES_PER_S: Final = 20_000  # a transfer that stalls ends much sooner


class ObjectStorageFailure(Exception):
    """Failure to read objects: a word that the child process sends, or `late`."""


@dataclass(frozen=True)
class BucketPlace:
    """A place in an S3 bucket, and the keys with which it is read; no key reads it anonymously."""

    scheme: str
    netloc: str  # the host, with the port as it was written
    host: str
    port: int
    bucket: str
    prefix: str
    region: str = "us-east-1"
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)

    @property
    def named(self) -> str:
        """Return the address of the place, without keys."""
        return f"{self.scheme}://{self.netloc}/{self.bucket}/{self.prefix}"


@dataclass(frozen=True)
class StoredObject:
    """An object of a listing: its path below the listed one, and its size."""

    path: str
    size: int


class _Child(ChildProcess):
    """The process that reads objects; it is killed at the end."""

    def end(self) -> None:
        """Kill the process, and close the pipes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self.let_go()


@dataclass(frozen=True)
class BucketReader:
    """A running child process that reads one place."""

    child: ChildProcess

    def objects(self, path: str) -> list[StoredObject]:
        """Return the objects below a path."""
        said = self._asked({"do": "list", "path": path}, LISTING_S)
        return [StoredObject(str(found), int(size)) for found, size in said]

    def size(self, path: str) -> int | None:
        """Return the size of an object; None if there is no object of that path."""
        said = self._asked({"do": "size", "path": path}, LISTING_S)
        return None if said is None else int(said)

    def fetch(self, wanted: Sequence[StoredObject], folder: Path) -> list[Path]:
        """Write objects into a folder, and return the file of each; go on with an earlier call.

        Args:
            wanted: The objects, with paths below the place.
            folder: A private folder for these objects alone.

        Raises:
            ObjectStorageFailure: if one of them cannot be read, or changes meanwhile.
        """
        found: list[Path] = []
        for begin in range(0, len(wanted), BATCH):
            batch = wanted[begin : begin + BATCH]
            pairs = [[one.path, one.size] for one in batch]
            place = str(folder.absolute())
            order: dict[str, object] = {"do": "fetch", "folder": place, "objects": pairs}
            limit_s = BATCH_S + sum(one.size for one in batch) / LEAST_BYTES_PER_S
            found += [folder / str(name) for name in self._asked(order, limit_s)]
        return found

    def copy(self, wanted: StoredObject, target: Path) -> None:
        """Write an object into an existing file that is empty."""
        order = {"do": "copy", "target": str(target.absolute()), **asdict(wanted)}
        self._asked(order, BATCH_S + wanted.size / LEAST_BYTES_PER_S)

    def _asked(self, order: dict[str, object], limit_s: float) -> Any:  # JSON of the child
        said: dict[str, Any] = {"why": "late"}
        until = time.monotonic() + limit_s
        with contextlib.suppress(OSError, EOFError, ValueError):  # TimeoutError is an OSError
            self.send(order, until)
            size = int.from_bytes(self.child.read(4, until), "big")
            said = json.loads(self.child.read(size, until))
        if said["why"] is not None:
            raise ObjectStorageFailure(said["why"])
        return said.get("answer")

    def send(self, order: dict[str, object], until: float) -> None:
        """Send a message to the process; raise TimeoutError if it is not sent by then."""
        text = json.dumps(order).encode()
        self.child.write(len(text).to_bytes(4, "big") + text, until)


@contextmanager
def bucket_reader(place: BucketPlace, most: int) -> Iterator[BucketReader]:
    """Start a process that reads a place, and end it with the block.

    Args:
        place: The place and its keys, which the process gets by its pipe.
        most: The most bytes of one file that it may write.
    """
    child = _Child("system.object_storage_worker")
    try:
        reader = BucketReader(child)
        with contextlib.suppress(OSError):  # it has ended; the first order says so
            reader.send({**asdict(place), "most": most}, time.monotonic() + LISTING_S)
        yield reader
    finally:
        child.end()
