"""Spark behind the engine's port: prepared by DuckDB, written as Parquet, asked in SQL.

Works in one process (`local[*]`) and against a standalone cluster whose machines see the folder of
the tables at the same path. The driver, its JVM and all that they say run in a child process.
"""

from __future__ import annotations

import json
import os
import weakref
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.postgres.engine import measure_request, prepare_elsewhere, read_marker
from sfumato.engines.shared.cell_assembly import Layout
from sfumato.engines.shared.driver_process import START_S, HeldDriver
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.stream_order import ONE_NUMBER, carried_out, elsewhere
from sfumato.engines.shared.table_copy import order_mark
from sfumato.query.measure import Cells, Measure
from sfumato.query.printing.from_clause import stored_name, table_name
from sfumato.sandbox.ports import SplitOrder
from sfumato.system.temporary_folders import TemporaryFolder
from sfumato.vault.engine_port import Described, EngineStopped, Prepared, PrepareOrder, TakeOrder
from sfumato.vault.sealed import Sealed

_DEADLINE_S: Final = 300.0  # starting a JVM is part of the first question
_MOST_S: Final = 5400.0
_ROW_S: Final = 5e-6  # of the slowest question, the windows of query/printing/, on one slow core


@dataclass(frozen=True)
class SparkPlace:
    """Which Spark computes, and how the driver is reached by it."""

    master: str = "local[*]"
    host: str = "127.0.0.1"  # the driver binds to this address only
    secret: str | None = field(
        default=None, repr=False
    )  # spark.authenticate.secret of a standalone cluster
    conf: tuple[tuple[str, str], ...] = ()  # more of Spark's settings


@dataclass(frozen=True)
class SparkLimits:
    """What a question may use: the driver's memory, partitions of a shuffle, and time."""

    memory_mb: int = 2048
    partitions: int = field(default_factory=lambda: 2 * (os.cpu_count() or 1))
    deadline_s: float | None = None
    load_deadline_s: float = 4 * 3600.0

    def deadline_of(self, rows: int) -> float:
        """Return how long a question of so many rows may take; a function of the card alone."""
        if self.deadline_s is not None:
            return self.deadline_s
        return min(max(_DEADLINE_S, 10 * _ROW_S * rows), _MOST_S)


class SparkEngine:
    """The engine of one vault that asks Spark; it holds one driver, started when first needed."""

    def __init__(
        self,
        salt: bytes,
        place: SparkPlace | None = None,
        limits: SparkLimits | None = None,
        *,
        memory_mb: int = 4096,
    ) -> None:
        """Hold the people's secret, which orders their rows and cells; start nothing yet."""
        self._embedded = DuckDBEngine(salt, memory_mb=memory_mb)
        self._limits = limits or SparkLimits()
        self._mark = order_mark(salt.hex())
        held = TemporaryFolder()  # settings, spilled (encrypted)
        folder = str(held.place)
        self._gone = weakref.finalize(self, held.remove)
        place = place or SparkPlace()
        start: Header = {
            "salt": salt.hex(), "folder": folder, "host": place.host, "memory_mb": memory_mb,
            "conf": _settings(place, self._limits), "java_home": os.environ.get("JAVA_HOME", ""),
        }  # fmt: skip
        self._held = HeldDriver("spark.worker", start)

    def measure(self, table: str, measure: Measure) -> Sealed[Cells]:
        """Return what the measure adds up over the prepared table (zeros included).

        Whatever goes wrong raises `EngineStopped`, with no other exception in flight.
        """
        known = read_marker(table, "spark")
        sealed = None
        if known is not None:
            places = range(len(known["tables"]))
            names = tuple(table_name("spark", place) for place in places)
            request = measure_request(measure, "spark", names, known, self._mark)
            request["tables"] = _files(table, known)
            deadline_s = self._limits.deadline_of(measure.most_rows)
            sealed = self._held.measured(request, Layout.of(measure), deadline_s)
        if sealed is None:
            raise EngineStopped
        return sealed

    def split(self, order: SplitOrder) -> tuple[str, ...]:
        """Write one file of rows a block, here, and not by Spark; return their paths.

        Whatever goes wrong raises `EngineStopped`, and folders of people are not kept here.
        """
        if read_marker(order.table, "spark") is None or order.study is not None:
            raise EngineStopped
        rows = _rows_of(Path(order.table).absolute(), 0)
        return self._embedded.split_copy(replace(order, table=str(rows)))

    def split_people(self, order: SplitOrder) -> tuple[str, ...]:
        """Raise: nobody has a folder of files here."""
        raise EngineStopped

    def room(self, table: str) -> int:
        """Return the bytes of disk that are free where a table lies."""
        return self._embedded.room(table)

    def take(self, order: TakeOrder) -> Sealed[Cells]:
        """Return the exact rows of a stream's block; the target holds who has used how many.

        Spark counts each person's rows of the period; what they have used stays with the driver.
        """
        known = read_marker(order.table, "spark")
        if known is None:
            raise EngineStopped
        deadline_s = self._limits.deadline_of(order.most_rows)
        request = elsewhere(order, "spark", table_name("spark", 0), known)
        request["tables"] = _files(order.table, known)
        return carried_out(order, request, lambda r: self._held.measured(r, ONE_NUMBER, deadline_s))

    def prepare(self, order: PrepareOrder) -> Prepared:
        """Copy a source into a prepared table, once; the owner's act."""
        target, tables = Path(order.target).absolute(), len(order.sources)

        def load(prepared: str, work: str) -> dict[str, Any] | None:
            names = [stored_name("rows", place) for place in range(tables)]
            request: Header = {"do": "load", "prepared": prepared, "work": work, "names": names}
            answer = self._held.ask(request, self._limits.load_deadline_s)
            if answer is None:
                return None
            target.unlink(missing_ok=True)  # it says whose the rows were that go now
            for place, name in enumerate(names):
                Path(work, f"{name}.parquet").replace(_rows_of(target, place))
            return dict(json.loads(answer))

        made, is_new = False, not target.exists()
        try:
            prepared = prepare_elsewhere(self._embedded, order, load, ("spark", self._mark))
            made = True
        finally:
            if is_new and not made:
                self.forget(order.target)
        return prepared

    def describe(self, source: str, inner_table: str | None) -> Described:
        """Return what a source's columns seem to be, for the owner's proposed card."""
        return self._embedded.describe(source, inner_table)

    def forget(self, table: str) -> None:
        """Remove a prepared table: its rows, then the file that says what they are."""
        target = Path(table).absolute()
        for pattern in (f"{target.name}.parquet", f"{target.name}_*.parquet", target.name):
            for place in target.parent.glob(pattern):
                place.unlink(missing_ok=True)

    def self_test(self) -> tuple[str, ...]:
        """Return the names of settings that a started Spark has otherwise than they were said."""
        answer = self._held.ask({"do": "probe"}, START_S)
        if answer is None:
            raise EngineStopped
        return tuple(str(name) for name in json.loads(answer))

    def is_ready(self) -> bool:
        """Say whether a driver can be started; a JVM is not, as it is large."""
        return self._held.can_begin(with_probe=False)

    def close(self) -> None:
        """Let the driver and its JVM go, and the folder of their settings."""
        self._held.close()
        self._embedded.close()
        self._gone()

    def worker_pid(self) -> int | None:
        """Return the process id of the driver, if there is one."""
        return self._held.pid()


def _files(table: str, known: dict[str, Any]) -> list[list[str]]:
    """Return the names by which tables are asked, and where their rows lie."""
    target, places = Path(table).absolute(), range(len(known["tables"]))
    return [[stored_name("rows", place), str(_rows_of(target, place))] for place in places]


def _rows_of(target: Path, place: int) -> Path:
    """Return where a table's rows lie, beside the file that says what they are."""
    return target.with_name(f"{stored_name(target.name, place)}.parquet")


def _settings(place: SparkPlace, limits: SparkLimits) -> dict[str, str]:
    settings = {
        "spark.master": place.master,
        "spark.driver.host": place.host,
        "spark.driver.bindAddress": place.host,
        "spark.driver.memory": f"{limits.memory_mb}m",
        "spark.sql.shuffle.partitions": str(limits.partitions),
    }
    if place.secret is not None:
        settings |= {
            "spark.authenticate": "true",
            "spark.authenticate.secret": place.secret,
            "spark.network.crypto.enabled": "true",
        }
    return {**settings, **dict(place.conf)}
