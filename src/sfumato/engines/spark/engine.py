"""The Spark engine: DuckDB prepares tables, Parquet files store them, and Spark SQL queries them.

It supports `local[*]`, and a standalone cluster whose machines see the folder of the tables at the
same path. The driver and its JVM run in a child process, which also keeps their output.
"""

from __future__ import annotations

import json
import os
import weakref
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.shared.cell_assembly import Layout
from sfumato.engines.shared.driver_process import DriverHandle, deadline_of
from sfumato.engines.shared.engine_address import SparkAddress
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.remote_tables import measure_request, prepare_remote_table, read_marker
from sfumato.engines.shared.stream_order import ONE_NUMBER, carried_out, remote_request
from sfumato.engines.shared.table_copy import order_mark
from sfumato.query.measure import Cells, Measure
from sfumato.query.printing.from_clause import stored_name, table_name
from sfumato.sandbox.ports import SplitOrder
from sfumato.system.temporary_folders import TemporaryFolder
from sfumato.vault.engine_port import (
    CountPeriodOrder,
    Described,
    EngineStopped,
    FolderDraft,
    Prepared,
    PrepareOrder,
)
from sfumato.vault.sealed import Sealed

_DEADLINE_S: Final = 300.0  # includes the start of the JVM by the first query


@dataclass(frozen=True)
class SparkLimits:
    """Limits of a Spark query: the driver's memory, shuffle partitions, and time."""

    memory_mb: int = 2048
    partitions: int = field(default_factory=lambda: 2 * (os.cpu_count() or 1))
    deadline_s: float | None = None
    load_deadline_s: float = 4 * 3600.0

    def deadline_of(self, rows: int) -> float:
        """Return the deadline, in seconds, of a query on a table with at most `rows` rows.

        Only the card decides it.
        """
        return deadline_of(rows, _DEADLINE_S) if self.deadline_s is None else self.deadline_s


class SparkEngine:
    """Engine of one vault that queries Spark through a single driver, started on first use."""

    def __init__(
        self,
        salt: bytes,
        place: SparkAddress | None = None,
        limits: SparkLimits | None = None,
        *,
        memory_mb: int = 4096,
    ) -> None:
        """Store the secret salt, which decides which rows of a person count; start no driver."""
        self._embedded = DuckDBEngine(salt, memory_mb=memory_mb)
        self._limits = limits or SparkLimits()
        self._mark = order_mark(salt.hex())
        held = TemporaryFolder()  # settings, and spilled data (encrypted)
        folder = str(held.path)
        self._gone = weakref.finalize(self, held.remove)
        place = place or SparkAddress()
        start: Header = {
            "salt": salt.hex(), "folder": folder, "host": place.host, "memory_mb": memory_mb,
            "conf": _settings(place, self._limits), "java_home": os.environ.get("JAVA_HOME", ""),
        }  # fmt: skip
        self._held = DriverHandle("spark.worker", start)

    def measure(self, table: str, measure: Measure) -> Sealed[Cells]:
        """Compute the exact counts and sums of a query on a prepared table; return them sealed.

        A sealed value can't be printed or compared. Groups of public keys that have no rows are
        zero. Any failure raises `EngineStopped`, without a chained exception.
        """
        known = read_marker(table, "spark")
        sealed = None
        if known is not None:
            places = range(len(known["tables"]))
            names = tuple(table_name("spark", place) for place in places)
            request = measure_request(measure, "spark", names, known, self._mark)
            request["tables"] = _files(table, known)
            deadline_s = self._limits.deadline_of(measure.max_table_rows)
            sealed = self._held.measure(request, Layout.of(measure), deadline_s)
        if sealed is None:
            raise EngineStopped
        return sealed

    def split(self, order: SplitOrder) -> tuple[str, ...]:
        """Write a table's rows to one file per block of persons; return the files' paths.

        DuckDB does it, not Spark. Any failure raises `EngineStopped`. So does a BIDS study, because
        this engine does not store people's folders.
        """
        if read_marker(order.table, "spark") is None or order.study is not None:
            raise EngineStopped
        rows = _rows_of(Path(order.table).absolute(), 0)
        return self._embedded.split_copy(replace(order, table=str(rows)))

    def split_people(self, order: SplitOrder) -> tuple[str, ...]:
        """Raise `EngineStopped`, because this engine stores no BIDS folders of people."""
        raise EngineStopped

    def free_disk_bytes(self, table: str) -> int:
        """Return the free disk space, in bytes, in the folder of a prepared table."""
        return self._embedded.free_disk_bytes(table)

    def count_period(self, order: CountPeriodOrder) -> Sealed[Cells]:
        """Count a stream's rows in the periods `order.first` to `order.end`; return it sealed.

        Spark counts each person's rows of the period. How many rows each person has used stays in
        the driver process, which writes it to the order's target file. A sealed value can't be
        printed or compared.
        """
        known = read_marker(order.table, "spark")
        if known is None:
            raise EngineStopped
        deadline_s = self._limits.deadline_of(order.most_rows)
        request = remote_request(order, "spark", table_name("spark", 0), known)
        request["tables"] = _files(order.table, known)
        return carried_out(order, request, lambda r: self._held.measure(r, ONE_NUMBER, deadline_s))

    def prepare(self, order: PrepareOrder) -> Prepared:
        """Prepare an owner's source with DuckDB, and store its tables as Parquet files."""
        target, tables = Path(order.target).absolute(), len(order.sources)

        def load(prepared: str, work: str) -> dict[str, Any] | None:
            names = [stored_name("rows", place) for place in range(tables)]
            request: Header = {"do": "load", "prepared": prepared, "work": work, "names": names}
            answer = self._held.ask(request, self._limits.load_deadline_s)
            if answer is None:
                return None
            target.unlink(missing_ok=True)  # the marker file of the old rows
            for place, name in enumerate(names):
                Path(work, f"{name}.parquet").replace(_rows_of(target, place))
            return dict(json.loads(answer))

        made, is_new = False, not target.exists()
        try:
            prepared = prepare_remote_table(
                self._embedded.prepare, order, load, ("spark", self._mark)
            )
            made = True
        finally:
            if is_new and not made:
                self.forget(order.target)
        return prepared

    def describe(self, source: str, inner_table: str | None) -> Described:
        """Guess the column names and types of a source, for a proposed data card."""
        return self._embedded.describe(source, inner_table)

    def draft_folder(self, folder: str) -> Sealed[FolderDraft]:
        """Draft what a card can publish of a BIDS folder; for its owner alone, so it is sealed."""
        return self._embedded.draft_folder(folder)

    def forget(self, table: str) -> None:
        """Delete a prepared table: its Parquet files, then its marker file."""
        target = Path(table).absolute()
        for pattern in (f"{target.name}.parquet", f"{target.name}_*.parquet", target.name):
            for place in target.parent.glob(pattern):
                place.unlink(missing_ok=True)

    def self_test(self) -> tuple[str, ...]:
        """Start Spark; return the settings whose actual value isn't the wanted one."""
        return self._held.self_test()

    def is_ready(self) -> bool:
        """Say whether a driver process can be started; start no JVM, which is large."""
        return self._held.can_start(with_probe=False)

    def close(self) -> None:
        """Stop the Spark driver and its JVM, and delete the folder with their settings."""
        self._held.close()
        self._embedded.close()
        self._gone()

    def worker_pid(self) -> int | None:
        """Return the id of the Spark driver's process, or None if none runs."""
        return self._held.pid()


def _files(table: str, known: dict[str, Any]) -> list[list[str]]:
    """Return the name in SQL and the path of the Parquet file of each table."""
    target, places = Path(table).absolute(), range(len(known["tables"]))
    return [[stored_name("rows", place), str(_rows_of(target, place))] for place in places]


def _rows_of(target: Path, place: int) -> Path:
    """Return the path of a table's Parquet file, next to the marker file."""
    return target.with_name(f"{stored_name(target.name, place)}.parquet")


def _settings(place: SparkAddress, limits: SparkLimits) -> dict[str, str]:
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
