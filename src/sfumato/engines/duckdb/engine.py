"""The DuckDB engine, embedded in a worker process that is killed at its deadline.

DuckDB's own interrupt does not enforce a deadline: it stopped hostile queries up to 90 seconds
late.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sfumato.dp.anonymity.coded_table import Table
from sfumato.dp.ports import IntegerArray
from sfumato.dp.refusal import Bug, Refused
from sfumato.engines.duckdb.training import learn_header, read_learnt
from sfumato.engines.ingest.prepare_order import (
    FOLDERS,
    append_header,
    folders_of,
    kept_of,
    order_header,
    path_of_block,
    path_of_turn,
    split_header,
    withdraw_header,
)
from sfumato.engines.ingest.source_errors import (
    items,
    read_described,
    read_folder_draft,
    refused_by_worker,
    source_missing,
    stopped,
    unreadable,
)
from sfumato.engines.ingest.value_census_reader import read_census
from sfumato.engines.shared.atomic_publish import publish
from sfumato.engines.shared.cell_assembly import Layout, read_cells
from sfumato.engines.shared.cold_path import lower_to_kernel
from sfumato.engines.shared.memory_scratch import MemoryScratch, check_sealable, work_for
from sfumato.engines.shared.message_frames import Header, statement_json
from sfumato.engines.shared.prepared_table import (
    PreparedTable,
    appended_table,
    path_of,
    prepared_table,
    read_prepared_table,
    segments_of,
    write_prepared_table,
    write_segments,
)
from sfumato.engines.shared.rank_path import lower_stored
from sfumato.engines.shared.stream_order import ONE_NUMBER, carried_out, local_request
from sfumato.engines.shared.worker_process import Child, WorkerLock
from sfumato.query.measure import Cells, Measure
from sfumato.query.printing.batched_counts import CountScan, count_scan, counts_of_scan
from sfumato.query.printing.expressions import LONGEST
from sfumato.query.printing.statements import Statement, lower
from sfumato.sandbox.ports import SplitOrder
from sfumato.system.group_commit import MAX_BATCH, GroupCommit, Outcome
from sfumato.system.row_files import KINDS, is_source
from sfumato.system.temporary_folders import temporary_folder
from sfumato.vault.add_report import read_report
from sfumato.vault.engine_port import (
    START,
    AppendOrder,
    CountPeriodOrder,
    Described,
    EngineLost,
    EngineStopped,
    FolderDraft,
    Prepared,
    PrepareOrder,
    WithdrawOrder,
    not_appendable,
    not_withdrawable,
)
from sfumato.vault.sealed import Sealed
from sfumato.vault.table_reader_port import ReadOrder
from sfumato.vault.training_port import LearnOrder

_LONG: Final = LONGEST // 64  # longest condition that is batched: 64 fit in one statement


@dataclass(frozen=True)
class CountRequest:
    """One COUNT query on a prepared table, which has at most `most_rows` rows."""

    table: str
    scan: CountScan
    most_rows: int


class CountBatcher:
    """Batcher that answers concurrent COUNT queries by one scan of the rows.

    It belongs to one engine; `ask` sends a statement to the engine's worker. Each count has the
    same value as if it ran alone. If a scan fails, its counts run one by one, so that no query can
    stop another. If the host ended the worker, each query gets `EngineLost`.
    """

    def __init__(self, ask: Callable[[str, Statement, Layout, int], bytes | None]) -> None:
        self._ask = ask
        self._queue: GroupCommit[CountRequest, Sealed[Cells]] = GroupCommit(
            self._count_one, self._count_batch
        )

    def count(self, wanted: CountRequest) -> Sealed[Cells]:
        """Run one COUNT query, batched with all that wait; raise `EngineStopped` if it fails."""
        if len(wanted.scan.condition.sql) > _LONG:
            return self._count_one(wanted)
        return self._queue.run(wanted)

    def count_all(self, wanted: Sequence[CountRequest]) -> list[Outcome[Sealed[Cells]]]:
        """Run several COUNT queries in as few scans as possible; return a result or error each."""
        ended: list[Outcome[Sealed[Cells]]] = []
        for some in _batches(wanted):
            ended += self._count_batch(some)
        return ended

    def _count_one(self, wanted: CountRequest) -> Sealed[Cells]:
        found = self._counted([wanted])
        if found is None:
            raise EngineStopped
        return found[0]

    def _count_batch(self, wanted: Sequence[CountRequest]) -> Sequence[Outcome[Sealed[Cells]]]:
        places: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for place, one in enumerate(wanted):
            places[one.table, one.scan.rows].append(place)
        ended: dict[int, Outcome[Sealed[Cells]]] = {}
        for some in places.values():
            ended |= zip(
                some, self._count_or_errors([wanted[place] for place in some]), strict=True
            )
        return [ended[place] for place in range(len(wanted))]

    def _count_or_errors(self, wanted: Sequence[CountRequest]) -> Sequence[Outcome[Sealed[Cells]]]:
        try:
            found = self._counted(wanted)
        except EngineLost as error:
            cause = error.cause
            return [Outcome(error=EngineLost(cause)) for _ in wanted]
        if found is None and len(wanted) > 1:
            return [self._count_or_errors([one])[0] for one in wanted]
        if found is None:
            return [Outcome(error=EngineStopped())]
        return [Outcome(cells) for cells in found]

    def _counted(self, wanted: Sequence[CountRequest]) -> list[Sealed[Cells]] | None:
        text = counts_of_scan([one.scan for one in wanted])
        total = sum(one.scan.times for one in wanted)
        layout = Layout(1, 0, (0,) * total)
        statement = Statement(text.sql, text.bound, tuple(range(total)))
        most_rows = max(one.most_rows for one in wanted)
        answer = self._ask(wanted[0].table, statement, layout, most_rows)
        cells = None if answer is None else read_cells(layout, answer)
        if cells is None:
            return None
        parts = iter(cells.parts)
        return [Sealed(Cells(tuple(next(parts) for _ in range(one.scan.times)))) for one in wanted]


def _batches(wanted: Sequence[CountRequest]) -> Iterator[Sequence[CountRequest]]:
    """Split COUNT queries into batches that fit in one SQL statement.

    A query with a long condition runs alone.
    """
    some: list[CountRequest] = []
    for one in wanted:
        is_long = len(one.scan.condition.sql) > _LONG
        if some and (is_long or len(some) == MAX_BATCH):
            yield some
            some = []
        some.append(one)
        if is_long:
            yield some
            some = []
    if some:
        yield some


# --- Limits of a worker: a function of the card and the machine, never of the rows


_DEADLINE_S: Final = 60.0
_DAY_S: Final = 86_400.0
_ROW_S: Final = 0.5e-6  # time per row of the slowest query (window functions) on one slow core
_MEMORY_MB: Final = 4096
_ROW_B: Final = 100  # memory per row of the same query
_MACHINE: Final = 0.75  # largest share of the machine's memory for a worker


@dataclass(frozen=True)
class Limits:
    """Limits of a worker: memory, threads, and time for a query or a preparation.

    By default, the time limit of a query is ten times what the slowest query takes on the most rows
    that the card allows (soundness rule 13). It is at least a minute. The memory limit is at least
    4 GB. Above 4 GB, it is at most three quarters of the machine's memory.
    """

    memory_mb: int | None = None
    threads: int = max(1, os.cpu_count() or 1)
    deadline_s: float | None = None
    prepare_deadline_s: float = 4 * 3600.0
    idle_s: float = 300.0  # idle time after which a worker is stopped

    def deadline_of(self, rows: int, row_s: float = _ROW_S) -> float:
        """Return the deadline, in seconds, of a query on a table with at most `rows` rows.

        It depends only on the card. A training round passes a larger `row_s` (seconds per row),
        which extends the deadline up to one day.
        """
        if self.deadline_s is not None:
            return self.deadline_s
        usual = max(_DEADLINE_S, 10 * _ROW_S * rows)
        return max(usual, min(10 * row_s * rows, _DAY_S))

    def memory_of(self, rows: int) -> int:
        """Return a worker's memory limit, in MB, for tables with at most `rows` rows.

        It depends only on the card and the machine.
        """
        if self.memory_mb is not None:
            return self.memory_mb
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
        wanted = max(_MEMORY_MB, 10 * _ROW_B * rows >> 20)
        return max(_MEMORY_MB, min(wanted, int(_MACHINE * machine)))


# --- Idle timeout: a worker without requests is stopped after a constant time
#
# This frees the memory of its libraries, table pages and cached training rows. The next query
# starts a new worker. When a worker stops depends only on the time of its last request, and on
# nothing that it has read.


class IdleTimeout:
    """Timer that ends an idle worker: it calls `end` after a period without use.

    The user of the worker and `end` must hold the same lock, so that nothing ends in the middle of
    a query. The timer has only a weak reference to the owner of `end`. A forked process has its own
    timer.
    """

    def __init__(self, after_s: float, end: Callable[[], None]) -> None:
        self._after_s = after_s
        self._end = weakref.WeakMethod(end)
        self._used = 0.0
        self._waits: threading.Timer | None = None
        self._owner = os.getpid()

    def used(self) -> None:
        """Restart the idle period, because the worker was used now."""
        self._used = time.monotonic()
        if self._waits is None or self._owner != os.getpid():
            self._wait(self._after_s)

    def is_over(self) -> bool:
        """Return whether the idle period has passed; if not, set the timer for the time left."""
        left_s = self._used + self._after_s - time.monotonic()
        if left_s > 0:
            self._wait(left_s)
            return False
        self._waits = None
        return True

    def stop(self) -> None:
        """Cancel the idle timer."""
        waits, self._waits = self._waits, None
        if waits is not None and self._owner == os.getpid():
            waits.cancel()

    def _wait(self, left_s: float) -> None:
        self._owner, self._waits = os.getpid(), None
        waits = threading.Timer(left_s, _call, (self._end,))
        waits.daemon = True
        with contextlib.suppress(RuntimeError):  # no thread can start: the next use tries again
            waits.start()
            self._waits = waits


def _call(end: weakref.WeakMethod[Callable[[], None]]) -> None:
    found = end()
    if found is not None:
        found()


SALT_BYTES: Final = 32
_START_S: Final = 60.0


class DuckDBEngine:
    """The embedded DuckDB engine of one vault, with one worker process that starts on first use.

    A lock serialises the requests of several threads. A forked process starts its own worker. The
    worker ends when this process ends in any way, or after `idle_s` seconds without a request.
    """

    def __init__(  # noqa: PLR0913  # limits, each by its name
        self,
        salt: bytes,
        *,
        memory_mb: int | None = Limits.memory_mb,
        deadline_s: float | None = Limits.deadline_s,
        threads: int = Limits.threads,
        prepare_deadline_s: float = Limits.prepare_deadline_s,
        idle_s: float = Limits.idle_s,
        shelter: MemoryScratch | None = None,
    ) -> None:
        """Store the secret salt, which decides which rows of a person count; start no worker.

        With a `shelter` (encryption at rest), files on disk are encrypted, and rows are in plain
        text only in memory.
        """
        self._salt = _secret(salt)
        self._limits = Limits(memory_mb, threads, deadline_s, prepare_deadline_s, idle_s)
        self._idle = IdleTimeout(idle_s, self._rest)
        self._encryption = shelter
        self._lock = WorkerLock()
        self._child: Child | None = None
        self._child_mb = 0  # memory limit of the running worker
        self._batcher = CountBatcher(self._run_scan)

    def measure(self, table: str, measure: Measure) -> Sealed[Cells]:
        """Compute the exact counts and sums of a query on a prepared table; return them sealed.

        A sealed value can't be printed or compared. Groups of public keys that have no rows are
        zero. Any failure raises `EngineStopped`, or `EngineLost` if the host ended the worker. The
        exception has no details and no chained exception.
        """
        count = _count_request(table, measure)
        if count is not None:
            return self._batcher.count(count)
        place, layout = str(Path(table).absolute()), Layout.of(measure)
        way = _quick_way(measure, read_prepared_table(Path(table)))
        if way is None:
            way = {"statements": [statement_json(one) for one in lower(measure, "duckdb")]}
        request = _measure_header(place, layout, way)
        sealed = self._measured(request, layout, measure.max_table_rows)
        if sealed is None:
            raise EngineStopped
        return sealed

    def count_batch(
        self, wanted: Sequence[tuple[str, Measure]]
    ) -> list[Sealed[Cells] | EngineStopped]:
        """Run several COUNT queries in as few scans as possible; return a result or error each."""
        looks = [_count_request(*one) for one in wanted]
        counted = self._batcher.count_all([one for one in looks if one is not None])
        if len(counted) < len(looks):
            raise Bug("what is no count of rows is not counted with others")
        return [_gives(one) for one in counted]

    def count_period(self, order: CountPeriodOrder) -> Sealed[Cells]:
        """Count a stream's rows in the periods `order.first` to `order.end`; return it sealed.

        Each person's rows count up to a limit for the whole stream. How many rows each person has
        used is written to the order's target file. A sealed value can't be printed or compared.
        """

        def ask(asked: Header) -> Sealed[Cells] | None:
            with work_for(self._encryption, Path(str(asked["spill"]))) as spill:
                said = {**asked, "spill": str(spill)}
                return self._measured(said, ONE_NUMBER, order.most_rows)

        return carried_out(order, local_request(order), ask)

    def split(self, order: SplitOrder) -> tuple[str, ...]:
        """Write a table's rows to one file per block of persons; return the files' paths."""
        self._write_blocks(order, "split")
        return tuple(path_of_block(order.target, block) for block in range(order.blocks))

    def split_copy(self, order: SplitOrder) -> tuple[str, ...]:
        """Write one file per block of persons, from a table that was exported for Spark.

        Return the files' paths.
        """
        self._write_blocks(order, "split-copy")
        return tuple(path_of_block(order.target, block) for block in range(order.blocks))

    def split_people(self, order: SplitOrder) -> tuple[str, ...]:
        """Write one input file for each run on one person's data; return the files' paths.

        A file is empty if the person's result is stored already, or if it belongs to no person.
        """
        self._write_blocks(order, "split-people")
        turns = 0 if order.study is None else order.study.turns
        return tuple(path_of_turn(order.target, turn) for turn in range(turns))

    def free_disk_bytes(self, table: str) -> int:
        """Return the free disk space, in bytes, in the folder of a prepared table."""
        return shutil.disk_usage(Path(table).parent).free

    def _write_blocks(self, order: SplitOrder, do: str) -> None:
        if self._encryption is not None and order.study is not None:
            # people's folders are never encrypted, so an encrypted vault has none
            raise EngineStopped
        spill = Path(order.target, "spill")
        spill.mkdir(mode=0o700)
        rows = order.most_rows
        limits = self._limits.deadline_of(rows), self._limits.memory_of(rows)
        try:
            is_done = self._ask(split_header(order, spill, do), *limits) is not None
        finally:
            shutil.rmtree(spill, ignore_errors=True)
        if not is_done:
            raise EngineStopped

    def learn(self, order: LearnOrder) -> Sealed[IntegerArray]:
        """Run one round of DP-SGD or DP-FedAvg training, without noise; return the result sealed.

        The result is the clipped gradient sum or the update, in units of 2**-30. A sealed value
        can't be printed or compared.
        """
        request = learn_header(order, str(Path(order.table).absolute()))
        rows = order.most_rows
        limits = self._limits.deadline_of(rows, order.row_s), self._limits.memory_of(rows)
        answer = self._ask(request, *limits)
        if answer is None:
            raise EngineStopped
        return Sealed(read_learnt(answer))

    def prepare(self, order: PrepareOrder) -> Prepared:
        """Prepare an owner's source: write its table, and a sketch of its people, to the vault.

        The work is done in a temporary folder. The finished files are then published atomically.
        """
        check_sealable(self._encryption, order.card)
        target, sketch = (Path(path).absolute() for path in (order.target, order.sketch))
        for source in order.sources:
            if not is_source(source.path):
                raise source_missing(source.path)
        for place in (target, sketch):
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        out = Path(tempfile.mkdtemp(prefix=".prepare-", dir=target.parent))  # 0700
        try:
            with work_for(self._encryption, out) as work:
                answer = self._prepared(order, work, out)
            write_prepared_table(out / "known.json", prepared_table(order.card))
            if order.card.folders is not None:
                (out / FOLDERS).replace(folders_of(str(target)))
            publish(out / "known.json", path_of(target))
            publish(out / "rows.duckdb", target)
            publish(out / "people.json", sketch)
        finally:
            shutil.rmtree(out, ignore_errors=True)
        people = tuple(str(domain) for domain in items(answer["same_people"]))
        return Prepared(people, Sealed(read_report(answer["report"])))

    def append(self, order: AppendOrder) -> Prepared:
        """Prepare new rows alone, and publish them with the files of the version before.

        The files of the version before stay as they are.
        """
        known = read_prepared_table(Path(order.before))
        if self._encryption is not None or order.rows.card.folders is not None or not known:
            raise not_appendable()
        target, sketch = (Path(path).absolute() for path in (order.rows.target, order.rows.sketch))
        for source in order.rows.sources:
            if not is_source(source.path):
                raise source_missing(source.path)
        out = Path(tempfile.mkdtemp(prefix=".prepare-", dir=target.parent))  # 0700
        try:
            request = append_header(order, out)
            answer = self._prepare_once(request, order.rows.salt, out)
            before = segments_of(Path(order.before))[: int(str(answer["kept"]))]
            names = (*(file.name for file in before), target.name)
            write_segments(out / "known.json", appended_table(known), names)
            publish(out / "known.json", path_of(target))
            publish(out / "rows.duckdb", target)
            publish(out / "people.json", sketch)
        finally:
            shutil.rmtree(out, ignore_errors=True)
        people = tuple(str(domain) for domain in items(answer["same_people"]))
        return Prepared(people, Sealed(read_report(answer["report"])))

    def withdraw(self, order: WithdrawOrder) -> None:
        """Copy a prepared table without one person's rows; the table before stays as it is."""
        card, target = order.card, Path(order.target).absolute()
        is_known = bool(read_prepared_table(Path(order.before))) and card.by_person
        if self._encryption is not None or card.folders is not None or not is_known:
            raise not_withdrawable()
        out = Path(tempfile.mkdtemp(prefix=".prepare-", dir=target.parent))  # 0700
        try:
            self._prepare_once(withdraw_header(order, out), order.salt, out)
            write_prepared_table(out / "known.json", prepared_table(card))
            shutil.copyfile(order.sketches[0], out / "people.json")
            publish(out / "known.json", path_of(target))
            publish(out / "rows.duckdb", target)
            publish(out / "people.json", Path(order.sketches[1]).absolute())
        finally:
            shutil.rmtree(out, ignore_errors=True)

    def segments(self, table: str) -> tuple[str, ...]:
        """Return the paths of all files of a prepared table."""
        return tuple(map(str, segments_of(Path(table))))

    def describe(self, source: str, inner_table: str | None) -> Described:
        """Guess the column names and types of a source, for a proposed data card; show no value."""
        request: Header = {"do": "describe", "source": str(Path(source).absolute())}
        with temporary_folder() as plain, work_for(self._encryption, plain) as work:
            request |= {"inner_table": inner_table, "work": str(work)}
            answer = self._once(request, self._limits.deadline_of(0))
        if answer is None or answer[0].get("ok") is not True:
            raise Refused("source-unreadable", "The source cannot be read.", f"Give {KINDS}.")
        if "refused" in answer[0]:
            raise refused_by_worker(answer[0]["refused"])
        return read_described(answer[0])

    def draft_folder(self, folder: str) -> Sealed[FolderDraft]:
        """Draft what a card can publish of a BIDS folder; for its owner alone, so it is sealed."""
        request: Header = {"do": "draft-folder", "folder": str(Path(folder).absolute())}
        answer = self._once(request, self._limits.prepare_deadline_s)
        if answer is None or answer[0].get("ok") is not True:
            raise unreadable()
        if "refused" in answer[0]:
            raise refused_by_worker(answer[0]["refused"])
        return Sealed(read_folder_draft(answer[0]))

    def read(self, order: ReadOrder) -> Sealed[Table]:
        """Return the columns of an owner's source as dictionary codes, sealed.

        A sealed value can't be printed or compared. A separate worker reads the source. DuckDB
        spills to a private temporary folder, which is deleted afterwards.
        """
        request: Header = {
            "do": "count",
            "source": str(Path(order.source).absolute()),
            "inner_table": order.inner_table,
            "columns": None if order.columns is None else list(order.columns),
            "grouped": order.is_grouped,
        }
        with temporary_folder() as spill:
            answer = self._once(request, self._limits.prepare_deadline_s, str(spill))
        if answer is None or answer[0].get("ok") is not True:
            raise unreadable()
        if "refused" in answer[0]:
            raise refused_by_worker(answer[0]["refused"])
        return Sealed(read_census(*answer, is_grouped=order.is_grouped))

    def forget(self, table: str) -> None:
        """Delete a prepared table, its metadata, people's folders and per-person results."""
        for place in (Path(table), path_of(Path(table))):
            place.unlink(missing_ok=True)
        for folder in (folders_of(table), kept_of(table)):
            shutil.rmtree(folder, ignore_errors=True)

    def self_test(self) -> tuple[str, ...]:
        """Return the names of the lockdown probes that succeeded in a worker; there must be none.

        A probe is a statement that the locked DuckDB connection must refuse.
        """
        child = self._start(self._limits.memory_of(0))
        try:
            answer = child.ask({"do": "probe"}, _START_S)
        finally:
            child.kill()
        if answer is None or answer[0].get("ok") is not True:
            raise EngineStopped
        return tuple(str(name) for name in items(answer[0]["open"]))

    def is_ready(self) -> bool:
        """Say whether the worker is alive, or another one can be started; read no row."""
        held = self._child
        if held is not None and held.is_ready():
            return True
        try:
            tried = self._start(self._limits.memory_of(0))
        except OSError:
            return False
        tried.kill()
        return tried.lost is None

    def close(self) -> None:
        """Stop the worker process."""
        with self._lock.lock:
            self._idle.stop()
            self._end_worker()

    def _rest(self) -> None:
        """Stop the worker if its idle period has passed, to free its memory."""
        with self._lock.lock:
            if self._idle.is_over():
                self._end_worker()

    def _end_worker(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def worker_pid(self) -> int | None:
        """Return the process id of the worker, or None if none runs."""
        return None if self._child is None else self._child.pid

    def _once(
        self, request: Header, deadline_s: float, spill: str = ""
    ) -> tuple[Header, bytes] | None:
        """Start a worker for one request only; return its answer, and end the worker."""
        child = self._start(self._limits.memory_of(0), spill=spill)
        try:
            return child.ask(request, deadline_s)
        finally:
            child.kill()

    def _run_scan(
        self, table: str, statement: Statement, layout: Layout, rows: int
    ) -> bytes | None:
        request = _measure_header(table, layout, {"statements": [statement_json(statement)]})
        return self._ask(request, self._limits.deadline_of(rows), self._limits.memory_of(rows))

    def _measured(self, request: Header, layout: Layout, rows: int) -> Sealed[Cells] | None:
        answer = self._ask(request, self._limits.deadline_of(rows), self._limits.memory_of(rows))
        cells = None if answer is None else read_cells(layout, answer)
        return None if cells is None else Sealed(cells)

    def _ask(self, request: Header, deadline_s: float, memory_mb: int) -> bytes | None:
        """Return the body of the worker's answer; None if the worker failed, which is then killed.

        Raise `EngineLost` if the host ended the worker, or if it could not start.
        """
        with self._lock.lock:
            child = self._ready(memory_mb)
            answer = None if child is None else child.ask(request, deadline_s)
            if child is not None and answer is not None and answer[0].get("ok") is True:
                self._idle.used()
                return answer[1]
            if child is not None:
                child.kill()
            self._child = None
            lost = START if child is None else child.lost
        if lost is not None:
            raise EngineLost(lost)
        return None

    def _ready(self, memory_mb: int) -> Child | None:
        """Return a live worker with at least this memory limit; start one if none is live."""
        if self._child is not None and not self._child.is_ready():
            self._child.forget()
            self._child = None
        if self._child is not None and self._child_mb < memory_mb:
            self._child.kill()
            self._child = None
        if self._child is None:
            try:
                self._child, self._child_mb = self._start(memory_mb), memory_mb
            except OSError:  # no process can be started; this depends on no row
                self._child = None
        return self._child

    def _start(self, memory_mb: int, *, salt: str = "", spill: str = "") -> Child:
        child = Child()
        child.begin(
            {
                # sent as a message, because other processes can read argv and environment
                "salt": salt or self._salt,
                "memory_mb": memory_mb,
                "threads": self._limits.threads,
                "spill": spill,
                "at_rest": None if self._encryption is None else self._encryption.said(),
            },
            _START_S,
        )
        return child

    def _prepared(self, order: PrepareOrder, work: Path, out: Path) -> Header:
        """Prepare tables in a separate worker; return its answer."""
        names = [Path(order.target).name, Path(order.sketch).name]
        request = {**order_header(order, work), "out": str(out), "names": names}
        return self._prepare_once(request, order.salt, work)

    def _prepare_once(self, request: Header, salt: bytes, work: Path) -> Header:
        """Start a worker for one request to prepare rows; return its answer, or refuse."""
        spill = work / "spill"
        spill.mkdir(mode=0o700)
        child = self._start(self._limits.memory_of(0), salt=_secret(salt), spill=str(spill))
        try:
            answer = child.ask(request, self._limits.prepare_deadline_s)
        finally:
            child.kill()
        if answer is None:
            raise stopped()
        if answer[0].get("ok") is not True:
            raise unreadable()
        if "refused" in answer[0]:
            raise refused_by_worker(answer[0]["refused"])
        return answer[0]


def _secret(salt: bytes) -> str:
    """Return the salt as hex for SQL; refuse any other length than SALT_BYTES.

    All salts have the same length, so none is a prefix of another.
    """
    if len(salt) != SALT_BYTES:
        raise Bug(f"a people's secret is {SALT_BYTES} bytes")
    return salt.hex()


def _measure_header(table: str, layout: Layout, way: Header) -> Header:
    return {"do": "measure", "table": table, "layout": layout.as_json(), **way}


def _quick_way(measure: Measure, tables: tuple[PreparedTable, ...]) -> Header | None:
    """Choose a fast query path: precomputed sums and stored ranks, else the numpy kernel.

    Return the request to the worker, or None if only plain SQL can answer the measure. Only the
    measure and the card decide the path, never rows.
    """
    if not tables:
        return None
    known = tables[measure.table]
    stored = lower_stored(measure, known)
    if stored is not None:
        return {"statements": [statement_json(statement) for statement in stored]}
    cold = lower_to_kernel(measure, known)
    return None if cold is None else {"statements": [], "cold": cold.as_json()}


def _gives(ended: Outcome[Sealed[Cells]]) -> Sealed[Cells] | EngineStopped:
    if ended.gives is not None:
        return ended.gives
    return ended.error if isinstance(ended.error, EngineLost) else EngineStopped()


def _count_request(table: str, measure: Measure) -> CountRequest | None:
    """Return a measure as a COUNT query for the batcher, or None if it can't be batched."""
    scan = count_scan(measure, "duckdb")
    return (
        None
        if scan is None
        else CountRequest(str(Path(table).absolute()), scan, measure.max_table_rows)
    )
