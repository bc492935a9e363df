"""PostgreSQL behind the engine's port: prepared by DuckDB, copied in once, asked by a mere reader.

One rule decides what a number is (prepare_sql.py), so a source is prepared by the embedded engine
and the prepared rows are copied into a table of their own. Where the prepared table would lie, a
small file says which table that is. The driver (psycopg) runs in a child process only.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from sfumato.core.measure import Cells, Measure
from sfumato.core.ports import EngineStopped, Prepared, PrepareOrder
from sfumato.core.refusal import Refused
from sfumato.core.sealed import Sealed
from sfumato.engines.assembled import Layout
from sfumato.engines.duckdb import DuckDBEngine
from sfumato.engines.frames import Header
from sfumato.engines.postgres_child import START_S, Held
from sfumato.engines.postgres_copy import order_mark
from sfumato.engines.postgres_ranks import by_ranks, ranked_key
from sfumato.plan.lower import Statement, lower
from sfumato.plan.print_values import Dialect, Secret

_GRACE_S: Final = 2.0  # how long the server may take to notice its own timeout


@dataclass(frozen=True)
class PostgresPlace:
    """Where the tables lie, and as whom they are made and asked."""

    owner: str  # the address by which tables are made; of the schema's owner
    reader: str  # the address by which questions are asked; `make_reader` makes the role
    role: str  # the reader's name
    schema: str = "sfumato"


@dataclass(frozen=True)
class PostgresLimits:
    """What a question may use: memory per sort on the server, and time."""

    deadline_s: float = 60.0
    work_mem_mb: int = 256
    load_deadline_s: float = 4 * 3600.0


class PostgresEngine:
    """The engine of one vault whose prepared tables lie in a PostgreSQL; one question at a time."""

    def __init__(
        self,
        salt: bytes,
        place: PostgresPlace,
        limits: PostgresLimits = PostgresLimits(),  # frozen
        *,
        memory_mb: int = 4096,
    ) -> None:
        """Hold the people's secret, which orders their rows and cells; connect nowhere yet."""
        self._embedded = DuckDBEngine(salt, memory_mb=memory_mb)
        self._place = place
        self._limits = limits
        self._mark = order_mark(salt.hex())
        start: Header = {
            "salt": salt.hex(), "reader": place.reader, "owner": place.owner, "role": place.role,
            "schema": place.schema, "work_mem_mb": limits.work_mem_mb, "memory_mb": memory_mb,
            "timeout_ms": int(limits.deadline_s * 1000),
        }  # fmt: skip
        self._held = Held("postgres_worker", start, limits.deadline_s + _GRACE_S)

    def measure(self, table: str, measure: Measure) -> Sealed[Cells]:
        """Return what the measure adds up over the prepared table (zeros included).

        Whatever goes wrong raises `EngineStopped`, with no other exception in flight.
        """
        layout = Layout.of(measure)
        known = read_marker(table, "postgres")
        sealed = None
        if known is not None:
            schema = self._place.schema
            names = tuple(f'"{schema}"."{table["table"]}"' for table in known["tables"])
            request = measure_request(measure, "postgres", names, known, self._mark)
            sealed = self._held.measured(request, layout)
        if sealed is None:
            raise EngineStopped
        return sealed

    def prepare(self, order: PrepareOrder) -> Prepared:
        """Copy a source into a prepared table, once; the owner's act."""

        def load(prepared: str, work: str) -> dict[str, Any] | None:
            tables = len(order.sources)
            request: Header = {"do": "load", "prepared": prepared, "work": work, "tables": tables}
            answer = self._held.ask(request, START_S + self._limits.load_deadline_s)
            return None if answer is None else dict(json.loads(answer))

        return prepare_elsewhere(self._embedded, order, load, ("postgres", self._mark))

    def describe(self, source: str, inner_table: str | None) -> tuple[tuple[str, str], ...]:
        """Return the name and likely type of each column, for the owner's proposed card."""
        return self._embedded.describe(source, inner_table)

    def close(self) -> None:
        """Let the worker processes go."""
        self._held.close()
        self._embedded.close()

    def worker_pid(self) -> int | None:
        """Return the process id of the driver, if there is one."""
        return self._held.pid()


# --- what PostgreSQL and Spark share --------------------------------------------------------------


def measure_request(
    measure: Measure, dialect: Dialect, names: tuple[str, ...], known: dict[str, Any], mark: str
) -> Header:
    """Return the order that a driver carries out; ranks serve only under the secret they have."""
    ranked = known["tables"][measure.table]["ranked"] if known["order"] == mark else ()
    place = ranked_key(measure, ranked)
    statements = lower(measure, dialect, names)  # what is not ours is refused here, ranked or not
    if place is not None:
        statements = (by_ranks(measure, place, dialect, names[measure.table]),)
    return {
        "do": "measure",
        "layout": Layout.of(measure).as_json(),
        "statements": [_statement_json(statement) for statement in statements],
    }


def _statement_json(statement: Statement) -> Header:
    return {
        "sql": statement.sql,
        "parameters": [None if p is Secret.SALT else p for p in statement.parameters],
        "tallies": list(statement.tallies),
    }


def prepare_elsewhere(
    embedded: DuckDBEngine,
    order: PrepareOrder,
    load: Callable[[str, str], dict[str, Any] | None],
    engine: tuple[str, str],
) -> Prepared:
    """Prepare with the embedded engine, hand the table to `load`, and say where it is."""
    target = Path(order.target).absolute()
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    work = Path(tempfile.mkdtemp(prefix=".copy-", dir=target.parent))  # 0700
    try:
        middle, sketch = str(work / "prepared.duckdb"), work / "people.json"
        prepared = embedded.prepare(replace(order, target=middle, sketch=str(sketch)))
        known = load(middle, str(work))
        if known is None:
            raise _not_copied()
        name, mark = engine
        text = json.dumps({"engine": name, "order": mark, **known})
        _write(work / "marker", text)
        for made, place in ((work / "marker", target), (sketch, Path(order.sketch).absolute())):
            _publish(made, place)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return prepared


def read_marker(table: str, engine: str) -> dict[str, Any] | None:
    """Return what the file says that lies where the prepared table would; None if nothing."""
    try:
        known = json.loads(Path(table).read_text("ascii"))
    except (OSError, ValueError):
        return None
    return known if isinstance(known, dict) and known.get("engine") == engine else None


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _publish(made: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _not_copied() -> Refused:
    return Refused(
        "source-unreadable",
        "The prepared rows could not be copied into the engine.",
        "Look at the engine's address, rights and free space.",
    )
