"""A Spark that is asked what many questions wait for at once, for tables of a hundred rows.

Of such a question Spark spends all its time on jobs and stages, and none on rows. Here the requests
are those that the engine makes, each is carried out by the driver's own `Asker` in a process with a
JVM of its own, and every statement is run as it stands; but the statements that many questions wait
for are one job, whose rows come back as texts, and a table is one partition from the beginning, so
that a job is one stage. How Spark shuffles is what other tests see.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import pyarrow as pa

from sfumato.engines.shared.cell_assembly import Layout, read_cells
from sfumato.engines.shared.driver_process import DriverHandle
from sfumato.engines.shared.engine_address import SparkAddress
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.spark.engine import SparkEngine
from sfumato.engines.spark.worker import WorkerState
from sfumato.query.measure import Cells
from sfumato.vault.sealed import Sealed
from support.spark_cluster import QUICK, SMALL, need_java

AT_ONCE = 16  # statements in a job
Made = TypeVar("Made")


class WaitsError(Exception):
    """What was asked for is not there yet; it is now known to be wanted."""


def carried_out(acts: Sequence[Callable[[], Made]], fetch: Callable[[], None]) -> list[Made]:
    """Return what the acts return; whenever they can only wait, what they wait for is fetched."""
    found: dict[int, Made] = {}
    while len(found) < len(acts):
        for place, act in enumerate(acts):
            if place not in found:
                with contextlib.suppress(WaitsError):
                    found[place] = act()
        if len(found) < len(acts):
            fetch()
    return [found[place] for place in range(len(acts))]


# --- who asks ------------------------------------------------------------------------------------


class SparkTogether(SparkEngine):
    """The engine as it is, but for its driver."""

    def __init__(self, salt: bytes) -> None:
        """Hold the people's secret."""
        need_java()
        place = SparkAddress("local[2]", conf=(*QUICK, *_ONE_STAGE))
        super().__init__(salt, place, SMALL, memory_mb=1024)
        self._held: Waiting = Waiting("spark_worker", vars(self._held)["_start"])

    def in_turn(self, acts: Sequence[Callable[[], Made]]) -> list[Made]:
        """Return what the acts return, which ask this engine and may be begun several times."""
        found = carried_out(acts, self._held.fetch)
        self._held.known.clear()
        return found


_ONE_STAGE = (
    ("spark.driver.extraJavaOptions", "-XX:+UseSerialGC"),
    ("spark.sql.autoBroadcastJoinThreshold", "-1"),
    ("spark.ui.showConsoleProgress", "false"),
)


class Waiting(DriverHandle):
    """The driver's place: it keeps what is asked until it is to be fetched."""

    def __init__(self, module: str, start: Header) -> None:
        super().__init__(module, start)  # which prepares tables, without a JVM
        self.known: dict[str, bytes | None] = {}
        self.wanted: dict[str, Header] = {}
        self._ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=serve, args=(theirs, start), daemon=True)
        self._process.start()
        theirs.close()

    def measure(self, request: Header, layout: Layout, deadline_s: float) -> Sealed[Cells] | None:
        """Return the driver's answer, if it was fetched."""
        key = json.dumps(request)
        if key not in self.known:
            self.wanted[key] = request
            raise WaitsError
        answer = self.known[key]
        cells = None if answer is None else read_cells(layout, answer)
        return None if cells is None else Sealed(cells)

    def fetch(self) -> None:
        """Have everything answered that is wanted."""
        self._ours.send(list(self.wanted.values()))
        self.known |= zip(self.wanted, self._ours.recv(), strict=True)
        self.wanted.clear()

    def close(self) -> None:
        """Let both processes go, and the JVM."""
        super().close()
        if self._process.is_alive() and self._process.pid is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.join()
        self._ours.close()


# --- in the other process ------------------------------------------------------------------------


def serve(pipe: Connection, start: Header) -> None:
    """Answer lists of requests until the parent hangs up."""
    os.setsid()
    asker = Together(start)
    while True:
        requests = pipe.recv()
        acts = [lambda request=request: asker.answer(request) for request in requests]
        pipe.send(carried_out(acts, asker.fetch))


class Together(WorkerState):
    """The driver's asker over a session that waits."""

    def answer(self, request: Header) -> bytes | None:
        """Return the cells, as bytes; nothing if something goes wrong, as a driver does."""
        try:
            return self.measure(request)
        except WaitsError:
            raise
        except Exception as error:  # noqa: BLE001  # the test says which question it was
            print(f"Spark: {error}"[:2000], flush=True)
            return None

    def fetch(self) -> None:
        """Run what is wanted, many statements in a job."""
        self.session.fetch()

    def _open(self, paths: list[tuple[str, str]]) -> None:
        before = self.tables
        super()._open(paths)
        if not isinstance(self.session, Waited):
            self.session = Waited(self.session)
        if self.tables != before:
            self.session.known.clear()
            for name, path in paths:
                rows = self.session.read.parquet(f"file://{path}").coalesce(1)
                rows.createOrReplaceTempView(name)


class Waited:
    """A session whose statements wait for each other."""

    def __init__(self, session: Any) -> None:  # a SparkSession, which has no types
        self.read = session.read
        self.known: dict[str, pa.Table | Exception] = {}
        self._session = session
        self._wanted: dict[str, tuple[str, Sequence[object]]] = {}

    def sql(self, sql: str, args: Sequence[object] = ()) -> Fetched:
        """Return the rows of a statement."""
        key = json.dumps([sql, *args])
        if key not in self.known:
            self._wanted[key] = sql, args
            raise WaitsError
        found = self.known[key]
        if isinstance(found, Exception):
            raise found
        return Fetched(found)

    def fetch(self) -> None:
        """Run the statements that are wanted."""
        keys = list(self._wanted)
        for start in range(0, len(keys), AT_ONCE):
            some = {key: self._wanted[key] for key in keys[start : start + AT_ONCE]}
            try:
                self.known |= self._run(some)
            except Exception:  # noqa: BLE001  # one of them; by themselves it shows which
                for key, statement in some.items():
                    self.known[key] = self._alone(key, statement)
        self._wanted.clear()

    def _alone(self, key: str, statement: tuple[str, Sequence[object]]) -> pa.Table | Exception:
        try:
            return self._run({key: statement})[key]
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this statement's
            return error

    def _run(self, statements: Mapping[str, tuple[str, Sequence[object]]]) -> dict[str, pa.Table]:
        """Return the rows of each, from one job."""
        from pyspark.sql import functions as f

        frames = [self._session.sql(sql, args=[*args]) for sql, args in statements.values()]
        texts = [
            frame.select(
                f.lit(place).alias("q"),
                f.array(*(frame[name].cast("string") for name in frame.columns)).alias("row"),
            )
            for place, frame in enumerate(frames)
        ]
        whole = texts[0]
        for one in texts[1:]:
            whole = whole.unionAll(one)
        rows: list[list[list[str | None]]] = [[] for _ in frames]
        for place, row in whole.collect():
            rows[place].append(row)
        pairs = zip(frames, rows, strict=True)
        tables = [_typed(frame.schema, some) for frame, some in pairs]
        return dict(zip(statements, tables, strict=True))


class Fetched:
    """What a frame is asked for."""

    def __init__(self, table: pa.Table) -> None:
        self.columns, self._table = table.column_names, table

    def collect(self) -> list[tuple[object, ...]]:
        """Return the rows."""
        return list(zip(*(column.to_pylist() for column in self._table.columns), strict=True))

    def toArrow(self) -> pa.Table:  # noqa: N802  # as Spark calls it
        """Return the columns."""
        return self._table


_READ: Mapping[str, tuple[Callable[[str], object], pa.DataType]] = {
    "bigint": (int, pa.int64()),
    "int": (int, pa.int64()),
    "string": (str, pa.string()),
    "boolean": (lambda text: text == "true", pa.bool_()),
    "date": (date.fromisoformat, pa.date32()),
    "timestamp_ntz": (datetime.fromisoformat, pa.timestamp("us")),
}


def _typed(schema: Any, rows: Sequence[Sequence[str | None]]) -> pa.Table:  # a StructType
    """Return the rows as the statement gave them, by its own types."""
    columns = {}
    for place, field in enumerate(schema.fields):
        read, kind = _READ[field.dataType.simpleString()]
        texts = [row[place] for row in rows]
        columns[field.name] = pa.array([None if t is None else read(t) for t in texts], kind)
    return pa.table(columns)
