"""DuckDB, embedded in a worker process that is killed at its deadline.

An interrupt is no limit: it stopped hostile queries up to a minute and a half late.
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
from sfumato.engines.duckdb.worker_process import Child, Turn
from sfumato.engines.ingest.prepare_order import (
    FOLDERS,
    folders_of,
    kept_of,
    order_header,
    path_of_block,
    path_of_turn,
    split_header,
)
from sfumato.engines.ingest.source_errors import (
    items,
    read_described,
    refused_by_worker,
    source_missing,
    stopped,
    unreadable,
)
from sfumato.engines.ingest.value_census import read_census
from sfumato.engines.shared.atomic_publish import publish
from sfumato.engines.shared.cell_assembly import Layout, read_cells
from sfumato.engines.shared.cold_path import lower_cold
from sfumato.engines.shared.memory_scratch import MemoryScratch, check_sealable, work_for
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.prepared_table import (
    PreparedTable,
    path_of,
    prepared_table,
    read_prepared_table,
    write_prepared_table,
)
from sfumato.engines.shared.rank_path import lower_stored
from sfumato.engines.shared.stream_order import ONE_NUMBER, carried_out, here
from sfumato.query.measure import Cells, Measure
from sfumato.query.printing.batched_counts import CountScan, count_scan, counts_of_scan
from sfumato.query.printing.expressions import LONGEST, Secret
from sfumato.query.printing.statements import Statement, lower
from sfumato.sandbox.ports import SplitOrder
from sfumato.system.group_commit import MOST, GroupCommit, Outcome
from sfumato.system.temporary_folders import temporary_folder
from sfumato.vault.add_report import read_report
from sfumato.vault.engine_port import (
    START,
    Described,
    EngineLost,
    EngineStopped,
    Prepared,
    PrepareOrder,
    TakeOrder,
)
from sfumato.vault.sealed import Sealed
from sfumato.vault.table_reader_port import ReadOrder
from sfumato.vault.training_port import LearnOrder

_LONG: Final = LONGEST // 64  # letters of a condition that is looked at alone: 64 lie in one go


@dataclass(frozen=True)
class CountRequest:
    """One COUNT of a prepared table, which has at most so many rows."""

    table: str
    look: CountScan
    most_rows: int


class CountBatcher:
    """The batcher of concurrent counts: one scan of the rows serves all that wait at once.

    It belongs to one engine; `ask` sends a statement to the engine's worker. Each count is what it
    would be alone. Where a scan fails, each of its counts is asked by itself, so that nobody's
    query stops another's. Where the host ended the worker, each is told so.
    """

    def __init__(self, ask: Callable[[str, Statement, Layout, int], bytes | None]) -> None:
        self._ask = ask
        self._together: GroupCommit[CountRequest, Sealed[Cells]] = GroupCommit(
            self._alone, self._several
        )

    def count(self, wanted: CountRequest) -> Sealed[Cells]:
        """Return the counts of one look, made with those of all who wait; or `EngineStopped`."""
        if len(wanted.look.condition.sql) > _LONG:
            return self._alone(wanted)
        return self._together.done(wanted)

    def count_all(self, wanted: Sequence[CountRequest]) -> list[Outcome[Sealed[Cells]]]:
        """Return the counts of several looks, in as few goes as hold them; or what stopped each."""
        ended: list[Outcome[Sealed[Cells]]] = []
        for some in _goes(wanted):
            ended += self._several(some)
        return ended

    def _alone(self, wanted: CountRequest) -> Sealed[Cells]:
        found = self._counted([wanted])
        if found is None:
            raise EngineStopped
        return found[0]

    def _several(self, wanted: Sequence[CountRequest]) -> Sequence[Outcome[Sealed[Cells]]]:
        places: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for place, one in enumerate(wanted):
            places[one.table, one.look.rows].append(place)
        ended: dict[int, Outcome[Sealed[Cells]]] = {}
        for some in places.values():
            ended |= zip(some, self._ended([wanted[place] for place in some]), strict=True)
        return [ended[place] for place in range(len(wanted))]

    def _ended(self, wanted: Sequence[CountRequest]) -> Sequence[Outcome[Sealed[Cells]]]:
        try:
            found = self._counted(wanted)
        except EngineLost as error:
            cause = error.cause
            return [Outcome(error=EngineLost(cause)) for _ in wanted]
        if found is None and len(wanted) > 1:
            return [self._ended([one])[0] for one in wanted]
        if found is None:
            return [Outcome(error=EngineStopped())]
        return [Outcome(cells) for cells in found]

    def _counted(self, wanted: Sequence[CountRequest]) -> list[Sealed[Cells]] | None:
        text = counts_of_scan([one.look for one in wanted])
        total = sum(one.look.times for one in wanted)
        layout = Layout(1, 0, (0,) * total)
        statement = Statement(text.sql, text.bound, tuple(range(total)))
        most_rows = max(one.most_rows for one in wanted)
        answer = self._ask(wanted[0].table, statement, layout, most_rows)
        cells = None if answer is None else read_cells(layout, answer)
        if cells is None:
            return None
        parts = iter(cells.parts)
        return [Sealed(Cells(tuple(next(parts) for _ in range(one.look.times)))) for one in wanted]


def _goes(wanted: Sequence[CountRequest]) -> Iterator[Sequence[CountRequest]]:
    """Yield them in their order, as many at a time as a statement holds; what is long, alone."""
    some: list[CountRequest] = []
    for one in wanted:
        is_long = len(one.look.condition.sql) > _LONG
        if some and (is_long or len(some) == MOST):
            yield some
            some = []
        some.append(one)
        if is_long:
            yield some
            some = []
    if some:
        yield some


# --- What a worker of the embedded engine may use: a function of card and machine alone


_DEADLINE_S: Final = 60.0
_DAY_S: Final = 86_400.0
_ROW_S: Final = 0.5e-6  # of the slowest question, the windows of query/printing/, on one slow core
_MEMORY_MB: Final = 4096
_ROW_B: Final = 100  # of the same question
_MACHINE: Final = 0.75  # the share of the machine's memory that a worker may grow to


@dataclass(frozen=True)
class Limits:
    """What a worker may use: memory, threads, and time for a question or a preparation.

    Without limits of its own, a question has ten times what the slowest would take on as many rows
    as the card lets in, and never less than a minute and 4 GB (soundness rule 13); but never more
    than three quarters of the machine's memory.
    """

    memory_mb: int | None = None
    threads: int = max(1, os.cpu_count() or 1)
    deadline_s: float | None = None
    prepare_deadline_s: float = 4 * 3600.0
    idle_s: float = 300.0  # without a question, after which a worker is let go

    def deadline_of(self, rows: int, row_s: float = _ROW_S) -> float:
        """Return how long a question of so many rows may take; a function of the card alone.

        What is learnt may take longer a row than any question; but never more than a day.
        """
        if self.deadline_s is not None:
            return self.deadline_s
        usual = max(_DEADLINE_S, 10 * _ROW_S * rows)
        return max(usual, min(10 * row_s * rows, _DAY_S))

    def memory_of(self, rows: int) -> int:
        """Return how many megabytes a worker may use; a function of card and machine alone."""
        if self.memory_mb is not None:
            return self.memory_mb
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
        wanted = max(_MEMORY_MB, 10 * _ROW_B * rows >> 20)
        return max(_MEMORY_MB, min(wanted, int(_MACHINE * machine)))


# --- A worker that nobody has asked for a while is let go: after a time that is always the same
#
# What it held goes back to the machine: libraries, pages of tables, the rows of a lesson. The next
# question starts another. When it ends hangs on when it was asked last, and on nothing that it
# read.


class IdleTimeout:
    """Has `end` called once something was not used for so long; has state.

    Whoever uses it, and `end`, hold one lock meanwhile, so that nothing ends in the middle of a
    question. It keeps nobody alive whose method `end` is. A forked process counts for itself.
    """

    def __init__(self, after_s: float, end: Callable[[], None]) -> None:
        self._after_s = after_s
        self._end = weakref.WeakMethod(end)
        self._used = 0.0
        self._waits: threading.Timer | None = None
        self._owner = os.getpid()

    def used(self) -> None:
        """Count from now on."""
        self._used = time.monotonic()
        if self._waits is None or self._owner != os.getpid():
            self._wait(self._after_s)

    def is_over(self) -> bool:
        """Say whether it was not used for so long; if it was, go on counting."""
        left_s = self._used + self._after_s - time.monotonic()
        if left_s > 0:
            self._wait(left_s)
            return False
        self._waits = None
        return True

    def stop(self) -> None:
        """Count no further."""
        waits, self._waits = self._waits, None
        if waits is not None and self._owner == os.getpid():
            waits.cancel()

    def _wait(self, left_s: float) -> None:
        self._owner, self._waits = os.getpid(), None
        waits = threading.Timer(left_s, _call, (self._end,))
        waits.daemon = True
        with contextlib.suppress(RuntimeError):  # no thread is to be had: the next use tries again
            waits.start()
            self._waits = waits


def _call(end: weakref.WeakMethod[Callable[[], None]]) -> None:
    found = end()
    if found is not None:
        found()


SALT_BYTES: Final = 32
_START_S: Final = 60.0


class DuckDBEngine:
    """The embedded engine of one vault; it holds one worker, started when first needed.

    Threads take turns. A forked process starts a worker of its own. The worker ends when this
    process does, however it ends, and when it was asked nothing for `idle_s`.
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
        """Hold the people's secret, which orders their rows and cells; start nothing yet.

        With a shelter, what is kept on the disk is sealed, and open in memory alone.
        """
        self._salt = _secret(salt)
        self._limits = Limits(memory_mb, threads, deadline_s, prepare_deadline_s, idle_s)
        self._idle = IdleTimeout(idle_s, self._rest)
        self._shelter = shelter
        self._turn = Turn()
        self._child: Child | None = None
        self._child_mb = 0  # that the worker was started with
        self._looks = CountBatcher(self._looked)

    def measure(self, table: str, measure: Measure) -> Sealed[Cells]:
        """Return what the measure adds up over the prepared table (zeros included).

        Whatever goes wrong raises `EngineStopped`, or `EngineLost` where the host ended the worker:
        nothing of the failure is kept, and it is raised with no other exception in flight, so that
        none hangs on it.
        """
        look = _look_at(table, measure)
        if look is not None:
            return self._looks.count(look)
        place, layout = str(Path(table).absolute()), Layout.of(measure)
        way = _quick_way(measure, read_prepared_table(Path(table)))
        if way is None:
            way = {"statements": [statement_json(one) for one in lower(measure, "duckdb")]}
        request = _measure_header(place, layout, way)
        sealed = self._measured(request, layout, measure.most_rows)
        if sealed is None:
            raise EngineStopped
        return sealed

    def look(self, wanted: Sequence[tuple[str, Measure]]) -> list[Sealed[Cells] | EngineStopped]:
        """Return what each of these counts of rows is, read once for all; or what stopped it."""
        looks = [_look_at(*one) for one in wanted]
        counted = self._looks.count_all([one for one in looks if one is not None])
        if len(counted) < len(looks):
            raise Bug("what is no count of rows is not counted with others")
        return [_gives(one) for one in counted]

    def take(self, order: TakeOrder) -> Sealed[Cells]:
        """Return the exact rows of a stream's block; the target holds who has used how many."""

        def ask(asked: Header) -> Sealed[Cells] | None:
            with work_for(self._shelter, Path(str(asked["spill"]))) as spill:
                said = {**asked, "spill": str(spill)}
                return self._measured(said, ONE_NUMBER, order.most_rows)

        return carried_out(order, here(order), ask)

    def split(self, order: SplitOrder) -> tuple[str, ...]:
        """Write one file of rows a block into the private target; return their paths."""
        self._write_blocks(order, "split")
        return tuple(path_of_block(order.target, block) for block in range(order.blocks))

    def split_copy(self, order: SplitOrder) -> tuple[str, ...]:
        """Do so with a table that was copied out for another engine."""
        self._write_blocks(order, "split-copy")
        return tuple(path_of_block(order.target, block) for block in range(order.blocks))

    def split_people(self, order: SplitOrder) -> tuple[str, ...]:
        """Write one file a turn, each with a person's folder or nothing; return their paths."""
        self._write_blocks(order, "split-people")
        turns = 0 if order.study is None else order.study.turns
        return tuple(path_of_turn(order.target, turn) for turn in range(turns))

    def room(self, table: str) -> int:
        """Return the bytes of disk that are free where a table and what is kept beside it lie."""
        return shutil.disk_usage(Path(table).parent).free

    def _write_blocks(self, order: SplitOrder, do: str) -> None:
        if self._shelter is not None and order.study is not None:
            raise EngineStopped  # people's folders are kept as they are: a sealed vault has none
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
        """Return the clipped sum of gradients, or a site's update, in units of 2**-30."""
        request = learn_header(order, str(Path(order.table).absolute()))
        rows = order.most_rows
        limits = self._limits.deadline_of(rows, order.row_s), self._limits.memory_of(rows)
        answer = self._ask(request, *limits)
        if answer is None:
            raise EngineStopped
        return Sealed(read_learnt(answer))

    def prepare(self, order: PrepareOrder) -> Prepared:
        """Copy a source into a prepared table and its people's sketch: both, whole, or neither."""
        check_sealable(self._shelter, order.card)
        target, sketch = (Path(path).absolute() for path in (order.target, order.sketch))
        for source in order.sources:
            if not Path(source.path).is_file():
                raise source_missing(source.path)
        for place in (target, sketch):
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        out = Path(tempfile.mkdtemp(prefix=".prepare-", dir=target.parent))  # 0700
        try:
            with work_for(self._shelter, out) as work:
                answer = self._prepared(order, work, out)
            if answer is None:
                raise stopped()
            if answer.get("ok") is not True:
                raise unreadable()
            if "refused" in answer:
                raise refused_by_worker(answer["refused"])
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

    def describe(self, source: str, inner_table: str | None) -> Described:
        """Return what a source's columns seem to be, for a proposed card; never a value."""
        request: Header = {"do": "describe", "source": str(Path(source).absolute())}
        with work_for(self._shelter, Path()) as work:
            request |= {"inner_table": inner_table, "work": str(work)}
            answer = self._once(request, self._limits.deadline_of(0))
        if answer is None or answer[0].get("ok") is not True:
            raise Refused(
                "source-unreadable", "The source cannot be read.", "Hand in CSV, TSV or Parquet."
            )
        if "refused" in answer[0]:
            raise refused_by_worker(answer[0]["refused"])
        return read_described(answer[0])

    def read(self, order: ReadOrder) -> Sealed[Table]:
        """Return the source's columns as codes, for its owner; in a worker of its own.

        What does not fit in the worker's memory goes to a private folder, which is removed.
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
        """Remove a prepared table and what is known of it."""
        for place in (Path(table), path_of(Path(table))):
            place.unlink(missing_ok=True)
        for folder in (folders_of(table), kept_of(table)):
            shutil.rmtree(folder, ignore_errors=True)

    def self_test(self) -> tuple[str, ...]:
        """Return the probes that a locked worker let through; the house opens only if none is."""
        child = self._start(self._limits.memory_of(0))
        try:
            answer = child.ask({"do": "probe"}, _START_S)
        finally:
            child.kill()
        if answer is None or answer[0].get("ok") is not True:
            raise EngineStopped
        return tuple(str(name) for name in items(answer[0]["open"]))

    def is_ready(self) -> bool:
        """Say whether the worker is there, or one can be started; no row is read."""
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
        """Let the worker process go."""
        with self._turn.lock:
            self._idle.stop()
            self._end_worker()

    def _rest(self) -> None:
        """Let the worker go if it was asked nothing for so long."""
        with self._turn.lock:
            if self._idle.is_over():
                self._end_worker()

    def _end_worker(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def worker_pid(self) -> int | None:
        """Return the process id of the worker, if there is one."""
        return None if self._child is None else self._child.pid

    def _once(
        self, request: Header, deadline_s: float, spill: str = ""
    ) -> tuple[Header, bytes] | None:
        """Return the answer of a worker that is started for it and ended after it."""
        child = self._start(self._limits.memory_of(0), spill=spill)
        try:
            return child.ask(request, deadline_s)
        finally:
            child.kill()

    def _looked(self, table: str, statement: Statement, layout: Layout, rows: int) -> bytes | None:
        request = _measure_header(table, layout, {"statements": [statement_json(statement)]})
        return self._ask(request, self._limits.deadline_of(rows), self._limits.memory_of(rows))

    def _measured(self, request: Header, layout: Layout, rows: int) -> Sealed[Cells] | None:
        answer = self._ask(request, self._limits.deadline_of(rows), self._limits.memory_of(rows))
        cells = None if answer is None else read_cells(layout, answer)
        return None if cells is None else Sealed(cells)

    def _ask(self, request: Header, deadline_s: float, memory_mb: int) -> bytes | None:
        """Return the body of the worker's answer, or None; then the worker is gone.

        Raise `EngineLost` where the host ended it, or let none begin.
        """
        with self._turn.lock:
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
        """Return a worker that may use so much memory at least."""
        if self._child is not None and not self._child.is_ready():
            self._child.forget()
            self._child = None
        if self._child is not None and self._child_mb < memory_mb:
            self._child.kill()
            self._child = None
        if self._child is None:
            try:
                self._child, self._child_mb = self._start(memory_mb), memory_mb
            except OSError:  # no process can be started; says nothing of any row
                self._child = None
        return self._child

    def _start(self, memory_mb: int, *, salt: str = "", spill: str = "") -> Child:
        child = Child()
        child.begin(
            {
                "salt": salt or self._salt,  # in a message: arguments, environments can be read
                "memory_mb": memory_mb,
                "threads": self._limits.threads,
                "spill": spill,
                "at_rest": None if self._shelter is None else self._shelter.said(),
            },
            _START_S,
        )
        return child

    def _prepared(self, order: PrepareOrder, work: Path, out: Path) -> Header | None:
        """Return what a worker of its own says of the preparation; None if it was stopped."""
        names = [Path(order.target).name, Path(order.sketch).name]
        request = {**order_header(order, work), "out": str(out), "names": names}
        spill = work / "spill"
        spill.mkdir(mode=0o700)
        memory_mb = self._limits.memory_of(0)
        child = self._start(memory_mb, salt=_secret(order.salt), spill=str(spill))
        try:
            answer = child.ask(request, self._limits.prepare_deadline_s)
        finally:
            child.kill()
        return None if answer is None else answer[0]


def _secret(salt: bytes) -> str:
    """Return the secret as it is bound in SQL; all have one length, so that none begins another."""
    if len(salt) != SALT_BYTES:
        raise Bug(f"a people's secret is {SALT_BYTES} bytes")
    return salt.hex()


def _measure_header(table: str, layout: Layout, way: Header) -> Header:
    return {"do": "measure", "table": table, "layout": layout.as_json(), **way}


def _quick_way(measure: Measure, tables: tuple[PreparedTable, ...]) -> Header | None:
    """Return how the measure is added up by what is stored or by the kernel, if it can be.

    It is chosen by the measure and the card alone: no row decides which way a question goes.
    """
    if not tables:
        return None
    known = tables[measure.table]
    stored = lower_stored(measure, known)
    if stored is not None:
        return {"statements": [statement_json(statement) for statement in stored]}
    cold = lower_cold(measure, known)
    return None if cold is None else {"statements": [], "cold": cold.as_json()}


def _gives(ended: Outcome[Sealed[Cells]]) -> Sealed[Cells] | EngineStopped:
    if ended.gives is not None:
        return ended.gives
    return ended.error if isinstance(ended.error, EngineLost) else EngineStopped()


def _look_at(table: str, measure: Measure) -> CountRequest | None:
    """Return the measure as a look at the table, if it is one: none is added up beforehand."""
    look = count_scan(measure, "duckdb")
    return (
        None if look is None else CountRequest(str(Path(table).absolute()), look, measure.most_rows)
    )


def statement_json(statement: Statement) -> Header:
    """Return the statement as a worker is sent it; where the secret goes, it has nothing."""
    return {
        "sql": statement.sql,
        "parameters": [None if p is Secret.SALT else p for p in statement.parameters],
        "tallies": list(statement.tallies),
    }
