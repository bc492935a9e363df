"""Child process of the Spark engine, which runs the Spark driver; its JVM ends with it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from sfumato.engines.duckdb.stream_period import count_remote_period
from sfumato.engines.kernel.packed_rows import Extent, extent_sql
from sfumato.engines.shared.cell_assembly import Assembly, Columns, Layout, cells_bytes
from sfumato.engines.shared.cold_path import KernelPlan
from sfumato.engines.shared.driver_process import RequestHandler, serve
from sfumato.engines.shared.locked_connection import Room
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.table_copy import copy_out, copying_of
from sfumato.engines.spark.row_ranges import add_up, fetched

_SILENT: Final = "rootLogger.level = off\n"
_CONF: Final = {
    "spark.app.name": "sfumato",
    "spark.ui.enabled": "false",
    "spark.eventLog.enabled": "false",
    "spark.io.encryption.enabled": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.files.maxPartitionBytes": "16m",
    "spark.sql.files.minPartitionNum": "2",
    "spark.sql.legacy.allowNonEmptyLocationInCTAS": "false",
    "spark.redaction.regex": "(?i)secret|password|token|salt",
    # Without these two settings, the SQL parser's caches grow for ever, by 5 kB per entry.
    "spark.sql.parser.manageParserCaches": "true",
    "spark.sql.parser.parserDfaCacheFlushThreshold": "20000",
}
_TUNED: Final = "spark.sql.files."  # settings of file partitions, which an owner may override


@dataclass
class WorkerState:
    """State of the child between requests: start message, session, registered tables, extents."""

    start: Header
    session: Any = None  # a SparkSession; pyspark is imported late and has no types
    tables: tuple[object, ...] = ()
    extents: dict[str, Extent] = field(default_factory=dict)

    def measure(self, request: Header) -> bytes:
        """Compute the exact counts and sums of a query; return them as bytes."""
        assembly = Assembly(Layout.read(request["layout"]))
        tables: Any = request["tables"]  # Any: a message of the parent process
        self._open(tables)
        if request["cold"] is not None:
            cold = KernelPlan.read(request["cold"])
            assembly.add(range(len(cold.tallies)), self._added_up(cold))
            return assembly.as_bytes()
        statements: Any = request["statements"]
        for statement in statements:
            assembly.add(statement["tallies"], self._run_statement(statement))
        return assembly.as_bytes()

    def count_period(self, request: Header) -> bytes:
        """Count one period of a stream; return the count as bytes.

        Spark counts the rows of each person, and this process limits them.
        """
        tables: Any = request["tables"]  # Any: a message of the parent process
        given: Any = request["parameters"]
        self._open(tables)

        def ask(low: int, high: int) -> Columns:
            return fetched(self.session, str(request["sql"]), [*given, low, high])

        room = Room(int(str(self.start["memory_mb"])), 2, "", ())
        return cells_bytes(count_remote_period(room, request, ask))

    def load(self, request: Header) -> bytes:
        """Write each prepared table as Parquet; return what a marker file has to say of each table.

        A marker file is a small file that names the tables' Parquet files.
        """
        copies = copy_out(copying_of(request, self.start, "parquet"))
        return json.dumps({"tables": [copied.as_json() for copied in copies]}).encode()

    def probe(self, _request: Header) -> bytes:
        """Return the Spark settings whose actual value differs from the wanted one.

        Settings that only tune Spark are ignored.
        """
        if self.session is None:
            self.session = _session(self.start)
        given: Any = self.start["conf"]  # Any: a message of the parent process
        fixed = {name: value for name, value in _CONF.items() if not name.startswith(_TUNED)}
        wanted = {**given, **fixed}
        conf = self.session.sparkContext.getConf()
        return json.dumps([name for name in wanted if conf.get(name) != wanted[name]]).encode()

    def _run_statement(self, statement: Mapping[str, Any]) -> Columns:
        bound = [self.start["salt"] if p is None else p for p in statement["parameters"]]
        frame = self.session.sql(statement["sql"], args=bound)
        names = list(frame.columns)
        rows = frame.collect()
        columns = zip(*rows, strict=True) if rows else ((),) * len(names)
        return {n: _array(n, values) for n, values in zip(names, columns, strict=True)}

    def _added_up(self, cold: KernelPlan) -> Columns:
        """Run a kernel plan; table extents are cached as long as the tables stay the same."""
        asked = extent_sql(cold)
        if asked not in self.extents:
            (found,) = self.session.sql(asked).collect()
            self.extents[asked] = Extent(*map(int, found))
        return add_up(self.session, cold, self.extents[asked], str(self.start["salt"]))

    def _open(self, paths: list[tuple[str, str]]) -> None:
        """Register the Parquet files as temporary views, unless they are registered already."""
        if self.session is None:
            self.session = _session(self.start)
        found = [(name, path, Path(path).stat()) for name, path in paths]
        tables = tuple((name, path, s.st_ino, s.st_mtime_ns) for name, path, s in found)
        if self.tables != tables:
            for name, path, _ in found:
                self.session.read.parquet(f"file://{path}").createOrReplaceTempView(name)
            self.tables, self.extents = tables, {}


def _array(name: str, values: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    if name[0] == "g" and name[1:].isdigit():
        keys = np.empty(len(values), dtype=object)
        keys[:] = values
        return keys
    return np.array([int(value) for value in values], dtype=np.int64)


def _session(start: Header) -> Any:  # a SparkSession
    _set_environment(start)
    import pyarrow  # noqa: F401  # rows arrive by Arrow: fail now if it is missing, not in a query
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def _set_environment(start: Header) -> None:
    """Write the configuration to a private folder; any user could read a command line."""
    base = Path(str(start["folder"]))
    for old in base.iterdir():  # left by a killed driver whose JVM may still be ending
        shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(dir=base))  # 0700
    conf, local = folder / "conf", folder / "local"
    for path in (conf, local):
        path.mkdir(mode=0o700)
    given: Any = start["conf"]  # Any: a message of the parent process
    settings = {**_CONF, "spark.sql.warehouse.dir": str(folder / "none"), **given}
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (conf / "spark-defaults.conf").write_text("".join(lines))
    (conf / "log4j2.properties").write_text(_SILENT)
    os.environ.update(
        {
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_DIRS": str(local),
            "SPARK_LOCAL_IP": str(start["host"]),
            "PYSPARK_PYTHON": sys.executable,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "TMPDIR": str(local),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={local}",
        }
    )
    if start["java_home"]:
        os.environ["JAVA_HOME"] = str(start["java_home"])


def _start_worker(start: Header) -> Mapping[str, RequestHandler]:
    state = WorkerState(start)
    return {
        "measure": state.measure, "take": state.count_period, "load": state.load,
        "probe": state.probe,
    }  # fmt: skip


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    serve(_start_worker)
