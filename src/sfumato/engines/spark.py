"""Spark behind the engine's port: prepared by DuckDB, written as Parquet, asked in SQL.

Works in one process (`local[*]`) and against a standalone cluster whose machines see the folder of
the tables at the same path. The driver, its JVM and all that they say run in a child process.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfumato.core.measure import Cells, Measure
from sfumato.core.ports import EngineStopped, Prepared, PrepareOrder
from sfumato.core.sealed import Sealed
from sfumato.engines.assembled import Layout
from sfumato.engines.duckdb import DuckDBEngine
from sfumato.engines.frames import Header
from sfumato.engines.postgres import measure_request, prepare_elsewhere, read_marker
from sfumato.engines.postgres_child import Held
from sfumato.engines.postgres_copy import order_mark
from sfumato.plan.lower_from import stored_name, table_name


@dataclass(frozen=True)
class SparkPlace:
    """Which Spark computes, and how the driver is reached by it."""

    master: str = "local[*]"
    host: str = "127.0.0.1"  # the driver binds to this address only
    secret: str | None = None  # spark.authenticate.secret of a standalone cluster
    conf: tuple[tuple[str, str], ...] = ()  # more of Spark's settings


@dataclass(frozen=True)
class SparkLimits:
    """What a question may use: the driver's memory, partitions of a shuffle, and time."""

    memory_mb: int = 2048
    partitions: int = field(default_factory=lambda: 2 * (os.cpu_count() or 1))
    deadline_s: float = 300.0
    load_deadline_s: float = 4 * 3600.0


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
        folder = tempfile.mkdtemp(prefix="sfumato-spark-")  # 0700: settings, spilled (encrypted)
        self._gone = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        place = place or SparkPlace()
        start: Header = {
            "salt": salt.hex(), "folder": folder, "host": place.host, "memory_mb": memory_mb,
            "conf": _settings(place, self._limits), "java_home": os.environ.get("JAVA_HOME", ""),
        }  # fmt: skip
        self._held = Held("spark_worker", start, self._limits.deadline_s)

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
            target = Path(table).absolute()
            request["tables"] = [
                [stored_name("rows", place), str(_rows_of(target, place))] for place in places
            ]
            sealed = self._held.measured(request, Layout.of(measure))
        if sealed is None:
            raise EngineStopped
        return sealed

    def prepare(self, order: PrepareOrder) -> Prepared:
        """Copy a source into a prepared table, once; the owner's act."""
        target, tables = Path(order.target).absolute(), len(order.sources)

        def load(prepared: str, work: str) -> dict[str, Any] | None:
            request: Header = {"do": "load", "prepared": prepared, "work": work, "tables": tables}
            answer = self._held.ask(request, self._limits.load_deadline_s)
            if answer is None:
                return None
            for place in range(tables):
                made = Path(work, f"{stored_name('rows', place)}.parquet")
                made.replace(_rows_of(target, place))
            return dict(json.loads(answer))

        return prepare_elsewhere(self._embedded, order, load, ("spark", self._mark))

    def describe(self, source: str, inner_table: str | None) -> tuple[tuple[str, str], ...]:
        """Return the name and likely type of each column, for the owner's proposed card."""
        return self._embedded.describe(source, inner_table)

    def close(self) -> None:
        """Let the driver and its JVM go, and the folder of their settings."""
        self._held.close()
        self._embedded.close()
        self._gone()

    def worker_pid(self) -> int | None:
        """Return the process id of the driver, if there is one."""
        return self._held.pid()


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
