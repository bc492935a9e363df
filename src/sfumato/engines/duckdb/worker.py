"""The DuckDB worker process: the only process that reads rows of the embedded engine.

`worker_process.py` starts and kills it. It runs SQL that our own code prints, such as
`query/printing/statements.py`. It answers with integers and keys, or with `{"ok": false}`. DuckDB's
error texts quote cells, so they never leave this process.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb

from sfumato.engines.duckdb.sealed_rows import (
    described_sealed,
    in_memory,
    prepared_sealed,
    rest_of,
    taken_sealed,
)
from sfumato.engines.kernel.contribution_bounding import add_up
from sfumato.engines.shared.cell_assembly import Assembly, Layout, cells_bytes
from sfumato.engines.shared.cold_path import KernelPlan
from sfumato.engines.shared.disk_full import NO_SPACE, is_full
from sfumato.engines.shared.locked_connection import Room
from sfumato.engines.shared.message_frames import Header, framed
from sfumato.engines.shared.segments import open_prepared
from sfumato.engines.shared.worker_pipe import open_worker_pipe
from sfumato.vault.encryption_at_rest import AtRest

if TYPE_CHECKING:
    from sfumato.engines.duckdb.training import Kept

_TRIM, _MMAP, _ARENAS = -1, -3, -8  # of mallopt(3)
_RESERVE_MB: Final = 1024  # address space of the interpreter and the libraries
_PER_THREAD_MB: Final = 256  # stacks and arenas: mostly address space, hardly any memory


@dataclass
class Worker:
    """State of the DuckDB worker process: its limits, the secret salt, and the open table."""

    room: Room
    salt: str
    table: tuple[object, ...] = ()
    connection: duckdb.DuckDBPyConnection | None = None
    learnt_from: Kept = field(default_factory=dict)  # training cache of the open table
    rest: AtRest | None = None  # the key of a vault that is encrypted at rest
    in_memory: int = -1  # descriptor of the open table's decrypted memory file, or -1

    def open(self, path: str) -> duckdb.DuckDBPyConnection:
        """Return a read-only connection to a prepared table; keep only the last table open."""
        found = Path(path).stat()
        table = (path, found.st_dev, found.st_ino, found.st_mtime_ns)
        if self.connection is None or self.table != table:
            self.close()
            self.connection = open_prepared(self.readable(path), self.room)
            self.table = table
        return self.connection

    def readable(self, path: str) -> str:
        """Return a path from which DuckDB can read the table until `close`.

        If the vault is encrypted, the table is decrypted to memory first.
        """
        if self.rest is None:
            return path
        self.in_memory = in_memory(self.rest, path)
        return f"/proc/self/fd/{self.in_memory}"

    def close(self) -> None:
        """Close the open table, and clear the cache of its training rows."""
        if self.connection is not None:
            self.connection.close()
        if self.in_memory >= 0:
            os.close(self.in_memory)
        self.connection, self.table, self.in_memory = None, (), -1
        self.learnt_from.clear()


def main() -> None:
    """Serve the parent's requests until the parent closes the pipe."""
    pipe = open_worker_pipe(os._exit)
    _keep_pages()
    worker = _start_worker(pipe.receive())
    pipe.send(framed({"ok": True}))
    while True:
        pipe.send(_answer(worker, pipe.receive()))


def _keep_pages() -> None:
    """Make malloc keep freed memory; otherwise page faults in the kernel take half of the time."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc
        for what, value in ((_TRIM, 1 << 30), (_MMAP, 1 << 30), (_ARENAS, 1)):
            libc.mallopt(what, value)


def _start_worker(start: Header) -> Worker:
    room = Room(
        int(str(start["memory_mb"])), int(str(start["threads"])), str(start.get("spill", "")), ()
    )
    space = (room.memory_mb + _RESERVE_MB + _PER_THREAD_MB * room.threads) << 20
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    return Worker(room, str(start["salt"]), rest=rest_of(start))


def _answer(worker: Worker, request: Header) -> bytes:
    try:
        return _HANDLERS[str(request["do"])](worker, request)
    except Exception:  # noqa: BLE001  # any error text may quote a value, so none is passed on
        return framed({"ok": False})


def _measure(worker: Worker, request: Header) -> bytes:
    connection = worker.open(str(request["table"]))
    assembly = Assembly(Layout.read(request["layout"]))
    if request.get("cold") is not None:
        cold = KernelPlan.read(request["cold"])
        tallies = range(len(cold.tallies))
        assembly.add(tallies, add_up(connection, cold, worker.salt, worker.room.threads))
    for statement in _list(request["statements"]):
        bound = [worker.salt if p is None else p for p in statement["parameters"]]
        assembly.add(statement["tallies"], connection.execute(statement["sql"], bound).fetchnumpy())
    return framed({"ok": True}, assembly.as_bytes())


def _prepare(worker: Worker, request: Header) -> bytes:
    from sfumato.engines.ingest.prepare import prepare

    room, salt, rest = worker.room, worker.salt, worker.rest
    if rest is not None:
        return _report_full_disk(lambda: prepared_sealed(rest, room, salt, request))
    return _report_full_disk(lambda: prepare(room, salt, request))


def _append(worker: Worker, request: Header) -> bytes:
    from sfumato.engines.ingest.append import append

    return _report_full_disk(lambda: append(worker.room, worker.salt, request))


def _withdraw(worker: Worker, request: Header) -> bytes:
    from sfumato.engines.ingest.withdrawal import withdraw

    return _report_full_disk(lambda: withdraw(worker.room, worker.salt, request))


def _report_full_disk(work: Callable[[], Header]) -> bytes:
    """Run an owner's request; if the disk is full, answer with a refusal that says so.

    Otherwise the owner would think that the source is wrong.
    """
    answer = NO_SPACE
    try:
        answer = work()
    except (OSError, duckdb.Error) as error:
        if not is_full(error):
            raise
    return framed({"ok": True, **answer})


def _take(worker: Worker, request: Header) -> bytes:
    from sfumato.engines.duckdb.stream_period import count_period

    worker.close()  # one process cannot open a table twice
    if worker.rest is not None:
        return framed({"ok": True}, cells_bytes(taken_sealed(worker.rest, worker.room, request)))
    return framed({"ok": True}, cells_bytes(count_period(worker.room, request)))


def _split(worker: Worker, request: Header) -> bytes:
    from sfumato.engines.duckdb.bids_blocks import split_study
    from sfumato.engines.duckdb.block_files import split

    worker.close()  # one process cannot open a table twice
    if request["study"] is None:
        split(worker.room, {**request, "table": worker.readable(str(request["table"]))})
        worker.close()
    else:
        split_study(worker.room, worker.salt, request)
    return framed({"ok": True})


def _split_copy(worker: Worker, request: Header) -> bytes:
    from sfumato.engines.duckdb.block_files import split_copy

    split_copy(worker.room, request)
    return framed({"ok": True})


def _split_people(worker: Worker, request: Header) -> bytes:
    from sfumato.engines.duckdb.bids_blocks import split_people

    worker.close()  # one process cannot open a table twice
    split_people(worker.room, worker.salt, request)
    return framed({"ok": True})


def _learn(worker: Worker, request: Header) -> bytes:
    from sfumato.engines.duckdb.training import read_learn, train

    connection = worker.open(str(request["table"]))
    order, threads = read_learn(request), worker.room.threads
    found = train(connection, order, worker.learnt_from, threads)
    return framed({"ok": True}, found.astype("<i8").tobytes())


def _probe(worker: Worker, _request: Header) -> bytes:
    from sfumato.engines.duckdb.lockdown_probes import open_probes

    return framed({"ok": True, "open": list(open_probes(worker.room))})


def _describe(worker: Worker, request: Header) -> bytes:
    from sfumato.engines.ingest.column_types import column_types

    room, rest = worker.room, worker.rest
    if rest is not None:
        return _report_full_disk(lambda: described_sealed(rest, room, request))
    return _report_full_disk(lambda: column_types(room, request))


def _draft_folder(_worker: Worker, request: Header) -> bytes:
    from sfumato.engines.ingest.bids_draft import folder_draft

    return _report_full_disk(lambda: folder_draft(request))


def _count(worker: Worker, request: Header) -> bytes:
    from sfumato.engines.ingest.value_census import value_census

    header, body = value_census(worker.room, request)
    return framed({"ok": True, **header}, body)


_HANDLERS: Final[dict[str, Callable[[Worker, Header], bytes]]] = {
    "measure": _measure,
    "prepare": _prepare,
    "append": _append,
    "withdraw": _withdraw,
    "describe": _describe,
    "draft-folder": _draft_folder,
    "count": _count,
    "probe": _probe,
    "take": _take,
    "split": _split,
    "split-copy": _split_copy,
    "split-people": _split_people,
    "learn": _learn,
}


def _list(value: object) -> list[Any]:  # from a message of the parent process
    return value if isinstance(value, list) else []
