"""The PostgreSQL engine: DuckDB prepares tables, PostgreSQL holds a copy, a read-only role queries.

DuckDB prepares every source, so that all engines parse cells by the same rules
(engines/ingest/cell_sql.py). The prepared rows are then copied into a table on the server. Where
the prepared table would be, a small marker file names the table on the server. The driver (psycopg)
runs only in a child process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.shared.cell_assembly import Layout
from sfumato.engines.shared.driver_process import START_S, DriverHandle, deadline_of
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.person_names import forget_names
from sfumato.engines.shared.remote_tables import (
    fresh_stem,
    measure_request,
    prepare_remote_table,
    publish,
    read_marker,
)
from sfumato.engines.shared.stream_order import ONE_NUMBER, carried_out, remote_request
from sfumato.engines.shared.table_copy import order_mark
from sfumato.query.measure import Cells, Measure
from sfumato.system.durable_files import write_new
from sfumato.vault.engine_port import (
    CountPeriodOrder,
    Described,
    EngineStopped,
    FolderDraft,
    Prepared,
    PrepareOrder,
)
from sfumato.vault.sealed import Sealed

_GRACE_S: Final = 2.0  # seconds that the server may take to notice its own timeout
_DEADLINE_S: Final = 60.0


@dataclass(frozen=True)
class PostgresServer:
    """Addresses, role and schema of the PostgreSQL server that holds prepared tables."""

    # address of the schema's owner, who creates the tables
    owner: str = field(repr=False)
    # address of the read-only role, which runs the queries; `make_reader` creates it
    reader: str = field(repr=False)
    role: str  # name of the read-only role (the reader)
    schema: str = "sfumato"


@dataclass(frozen=True)
class PostgresLimits:
    """Limits of a query: memory per sort on the server, and time.

    The default deadline is ten times what the slowest query takes on the most rows that the card
    allows (soundness rule 13). It is at least a minute and at most an hour and a half.
    """

    deadline_s: float | None = None
    work_mem_mb: int = 256
    load_deadline_s: float = 4 * 3600.0

    def deadline_of(self, rows: int) -> float:
        """Return the deadline, in seconds, of a query on a table with at most `rows` rows.

        Only the card decides it.
        """
        return deadline_of(rows, _DEADLINE_S) if self.deadline_s is None else self.deadline_s


class PostgresEngine:
    """Engine of one vault whose tables are in PostgreSQL; it runs one query at a time."""

    def __init__(
        self,
        salt: bytes,
        place: PostgresServer,
        limits: PostgresLimits = PostgresLimits(),  # frozen
        *,
        memory_mb: int = 4096,
    ) -> None:
        """Store the secret salt, which decides which rows of each person count; connect later."""
        self._embedded = DuckDBEngine(salt, memory_mb=memory_mb)
        self._place = place
        self._limits = limits
        self._mark = order_mark(salt.hex())
        start: Header = {
            "salt": salt.hex(), "reader": place.reader, "owner": place.owner, "role": place.role,
            "schema": place.schema, "work_mem_mb": limits.work_mem_mb, "memory_mb": memory_mb,
        }  # fmt: skip
        self._held = DriverHandle("postgres.worker", start)

    def measure(self, table: str, measure: Measure) -> Sealed[Cells]:
        """Compute the exact counts and sums of a query on a prepared table; return them sealed.

        A sealed value can't be printed or compared. Groups of public keys that have no rows are
        zero. Any failure raises `EngineStopped`, without a chained exception.
        """
        layout = Layout.of(measure)
        known = read_marker(table, "postgres")
        sealed = None
        if known is not None:
            names = self._names(known)
            request = measure_request(measure, "postgres", names, known, self._mark)
            deadline_s = self._limits.deadline_of(measure.max_table_rows)
            request["timeout_ms"] = int(deadline_s * 1000)
            sealed = self._held.measure(request, layout, deadline_s + _GRACE_S)
        if sealed is None:
            raise EngineStopped
        return sealed

    def count_period(self, order: CountPeriodOrder) -> Sealed[Cells]:
        """Count a stream's rows in the periods `order.first` to `order.end`; return it sealed.

        The server counts each person's rows of the period. How many rows each person has used stays
        on this machine, in the order's target file. A sealed value can't be printed or compared.
        """
        known = read_marker(order.table, "postgres")
        if known is None:
            raise EngineStopped
        deadline_s = self._limits.deadline_of(order.most_rows)
        request = remote_request(order, "postgres", self._names(known)[0], known)
        request["timeout_ms"] = int(deadline_s * 1000)
        return carried_out(
            order, request, lambda r: self._held.measure(r, ONE_NUMBER, deadline_s + _GRACE_S)
        )

    def _names(self, known: dict[str, Any]) -> tuple[str, ...]:
        schema = self._place.schema
        return tuple(f'"{schema}"."{table["table"]}"' for table in known["tables"])

    def prepare(self, order: PrepareOrder) -> Prepared:
        """Prepare an owner's source with DuckDB, and copy its tables to the server.

        The names of the new tables are written to a file first. So after any interruption, `forget`
        can still remove them.
        """
        target, sources = Path(order.target).absolute(), len(order.sources)
        before = read_marker(order.target, "postgres")

        def load(prepared: str, work: str) -> dict[str, Any] | None:
            names = _fresh_names(Path(work), sources)
            text = json.dumps({"engine": "postgres", "tables": [{"table": n} for n in names]})
            write_new(Path(work, "making"), text.encode())
            publish(Path(work, "making"), _making(target))
            known = self._loaded(prepared, work, names)
            if known is not None and not known["tables"]:  # the server was not reached
                _making(target).unlink()
            return known if known is not None and known["tables"] else None

        made = False
        try:
            prepared = prepare_remote_table(
                self._embedded.prepare, order, load, ("postgres", self._mark)
            )
            made = True
        finally:
            if not made:
                self._unmake(target)
        _making(target).unlink()
        if before is not None:  # the new table has replaced an older one
            self._dropped(before)
        return prepared

    def _loaded(self, prepared: str, work: str, names: list[str]) -> dict[str, Any] | None:
        request: Header = {"do": "load", "prepared": prepared, "work": work, "names": names}
        answer = self._held.ask(request, START_S + self._limits.load_deadline_s)
        return None if answer is None else dict(json.loads(answer))

    def _unmake(self, target: Path) -> None:
        """Drop the server's tables of an interrupted preparation.

        If that fails, keep the file with their names, so that `forget` can drop them later.
        """
        begun = read_marker(str(_making(target)), "postgres")
        if begun is not None and self._dropped(begun):
            _making(target).unlink()

    def _dropped(self, known: dict[str, Any]) -> bool:
        names = [table["table"] for table in known["tables"]]
        return self._held.ask({"do": "forget", "names": names}, START_S) is not None

    def forget(self, table: str) -> None:
        """Drop a prepared table on the server, then delete its local files."""
        for place in (_making(Path(table)), Path(table)):
            known = read_marker(str(place), "postgres")
            if known is not None and not self._dropped(known):
                raise EngineStopped
            place.unlink(missing_ok=True)
        forget_names(Path(table))

    def self_test(self) -> tuple[str, ...]:
        """Return the reader role's excess privileges: all beyond reading the prepared tables."""
        return self._held.self_test()

    def is_ready(self) -> bool:
        """Say whether the reader role can connect and has no excess privileges."""
        return self._held.can_start(with_probe=True)

    def make_reader(self, password: str | None) -> tuple[str, ...] | None:
        """Create the schema and the reader role, which may only read the prepared tables.

        Return the restrictions that could not be set, because the owner role may lack the right to
        set them. Without a password, the reader must exist already, and only gets access to the
        schema. Return None on failure.
        """
        answer = self._held.ask({"do": "reader", "password": password}, START_S)
        return None if answer is None else tuple(json.loads(answer))

    def unmake_reader(self, *, with_role: bool) -> bool:
        """Drop the empty schema, and the reader role if `with_role`; return whether it worked."""
        return self._held.ask({"do": "unreader", "with_role": with_role}, START_S) is not None

    def describe(self, source: str, inner_table: str | None) -> Described:
        """Guess the column names and types of a source, for a proposed data card."""
        return self._embedded.describe(source, inner_table)

    def draft_folder(self, folder: str) -> Sealed[FolderDraft]:
        """Draft what a card can publish of a BIDS folder; for its owner alone, so it is sealed."""
        return self._embedded.draft_folder(folder)

    def close(self) -> None:
        """Stop the worker processes of PostgreSQL's driver and of DuckDB."""
        self._held.close()
        self._embedded.close()

    def worker_pid(self) -> int | None:
        """Return the id of the driver's process, or None if none runs."""
        return self._held.pid()


def _making(target: Path) -> Path:
    """Return the path of the file that lists the tables of a preparation in progress."""
    return target.with_name(f"{target.name}.making")


def _fresh_names(work: Path, tables: int) -> list[str]:
    """Return unique names for new tables on the server."""
    return [f"rows_{fresh_stem(work)}_{place}" for place in range(tables)]
