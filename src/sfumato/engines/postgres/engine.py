"""PostgreSQL behind the engine's port: prepared by DuckDB, copied in once, asked by a mere reader.

One rule decides what a number is (engines/ingest/cell_sql.py), so a source is prepared by the
embedded engine and the prepared rows are copied into a table of their own. Where the prepared table
would lie, a small file says which table that is. The driver (psycopg) runs in a child process only.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine, statement_json
from sfumato.engines.shared.cell_assembly import Layout
from sfumato.engines.shared.driver_cold_path import lower_cold
from sfumato.engines.shared.driver_process import START_S, HeldDriver
from sfumato.engines.shared.driver_rank_path import Stored, by_ranks, ranked_place
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.person_names import forget_names, publish_names
from sfumato.engines.shared.stream_order import ONE_NUMBER, carried_out, elsewhere
from sfumato.engines.shared.table_copy import order_mark
from sfumato.query.measure import Cells, Measure
from sfumato.query.printing.expressions import Dialect
from sfumato.query.printing.statements import lower
from sfumato.system.durable_files import sync, write_new
from sfumato.vault.engine_port import Described, EngineStopped, Prepared, PrepareOrder, TakeOrder
from sfumato.vault.sealed import Sealed

_GRACE_S: Final = 2.0  # how long the server may take to notice its own timeout
_DEADLINE_S: Final = 60.0
_MOST_S: Final = 5400.0
_ROW_S: Final = 5e-6  # of the slowest question, the windows of query/printing/, on one slow core


@dataclass(frozen=True)
class PostgresPlace:
    """Where the tables lie, and as whom they are made and asked."""

    # the address by which tables are made; of the schema's owner
    owner: str = field(repr=False)
    # the address by which questions are asked; `make_reader` makes the role
    reader: str = field(repr=False)
    role: str  # the reader's name
    schema: str = "sfumato"


@dataclass(frozen=True)
class PostgresLimits:
    """What a question may use: memory per sort on the server, and time.

    Without a deadline of its own, a question has ten times what the slowest would take on as many
    rows as the card lets in (soundness rule 13), but at least a minute and at most an hour and a
    half.
    """

    deadline_s: float | None = None
    work_mem_mb: int = 256
    load_deadline_s: float = 4 * 3600.0

    def deadline_of(self, rows: int) -> float:
        """Return how long a question of so many rows may take; a function of the card alone."""
        if self.deadline_s is not None:
            return self.deadline_s
        return min(max(_DEADLINE_S, 10 * _ROW_S * rows), _MOST_S)


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
        }  # fmt: skip
        self._held = HeldDriver("postgres.worker", start)

    def measure(self, table: str, measure: Measure) -> Sealed[Cells]:
        """Return what the measure adds up over the prepared table (zeros included).

        Whatever goes wrong raises `EngineStopped`, with no other exception in flight.
        """
        layout = Layout.of(measure)
        known = read_marker(table, "postgres")
        sealed = None
        if known is not None:
            names = self._names(known)
            request = measure_request(measure, "postgres", names, known, self._mark)
            deadline_s = self._limits.deadline_of(measure.most_rows)
            request["timeout_ms"] = int(deadline_s * 1000)
            sealed = self._held.measured(request, layout, deadline_s + _GRACE_S)
        if sealed is None:
            raise EngineStopped
        return sealed

    def take(self, order: TakeOrder) -> Sealed[Cells]:
        """Return the exact rows of a stream's block; the target holds who has used how many.

        The server counts each person's rows of the period; what they have used stays here.
        """
        known = read_marker(order.table, "postgres")
        if known is None:
            raise EngineStopped
        deadline_s = self._limits.deadline_of(order.most_rows)
        request = elsewhere(order, "postgres", self._names(known)[0], known)
        request["timeout_ms"] = int(deadline_s * 1000)
        return carried_out(
            order, request, lambda r: self._held.measured(r, ONE_NUMBER, deadline_s + _GRACE_S)
        )

    def _names(self, known: dict[str, Any]) -> tuple[str, ...]:
        schema = self._place.schema
        return tuple(f'"{schema}"."{table["table"]}"' for table in known["tables"])

    def prepare(self, order: PrepareOrder) -> Prepared:
        """Copy a source into a prepared table, once; the owner's act.

        What will be made is written down first, so that whatever stops it, it can be forgotten.
        """
        target, sources = Path(order.target).absolute(), len(order.sources)
        before = read_marker(order.target, "postgres")

        def load(prepared: str, work: str) -> dict[str, Any] | None:
            names = _fresh_names(Path(work), sources)
            text = json.dumps({"engine": "postgres", "tables": [{"table": n} for n in names]})
            write_new(Path(work, "making"), text.encode())
            _publish(Path(work, "making"), _making(target))
            known = self._loaded(prepared, work, names)
            if known is not None and not known["tables"]:  # the server was not reached
                _making(target).unlink()
            return known if known is not None and known["tables"] else None

        made = False
        try:
            prepared = prepare_elsewhere(self._embedded, order, load, ("postgres", self._mark))
            made = True
        finally:
            if not made:
                self._unmake(target)
        _making(target).unlink()
        if before is not None:  # of a table that this one has replaced
            self._dropped(before)
        return prepared

    def _loaded(self, prepared: str, work: str, names: list[str]) -> dict[str, Any] | None:
        request: Header = {"do": "load", "prepared": prepared, "work": work, "names": names}
        answer = self._held.ask(request, START_S + self._limits.load_deadline_s)
        return None if answer is None else dict(json.loads(answer))

    def _unmake(self, target: Path) -> None:
        """Remove what a preparation has begun; where it cannot be now, it stays written down."""
        begun = read_marker(str(_making(target)), "postgres")
        if begun is not None and self._dropped(begun):
            _making(target).unlink()

    def _dropped(self, known: dict[str, Any]) -> bool:
        names = [table["table"] for table in known["tables"]]
        return self._held.ask({"do": "forget", "names": names}, START_S) is not None

    def forget(self, table: str) -> None:
        """Remove a prepared table from the server, then the file that says where it was."""
        for place in (_making(Path(table)), Path(table)):
            known = read_marker(str(place), "postgres")
            if known is not None and not self._dropped(known):
                raise EngineStopped
            place.unlink(missing_ok=True)
        forget_names(Path(table))

    def self_test(self) -> tuple[str, ...]:
        """Return what the reader may do beyond reading prepared tables; constant names."""
        answer = self._held.ask({"do": "probe"}, START_S)
        if answer is None:
            raise EngineStopped
        return tuple(str(name) for name in json.loads(answer))

    def is_ready(self) -> bool:
        """Say whether the server lets the reader in, who may do no more than read."""
        return self._held.can_begin(with_probe=True)

    def make_reader(self, password: str | None) -> tuple[str, ...] | None:
        """Make the schema and its reader; return what this owner was not allowed to close.

        Without a password the role is there already, and only welcomed. None if it cannot be done.
        """
        answer = self._held.ask({"do": "reader", "password": password}, START_S)
        return None if answer is None else tuple(json.loads(answer))

    def unmake_reader(self, *, with_role: bool) -> bool:
        """Remove the empty schema, and the reader if it was made here; say whether it is gone."""
        return self._held.ask({"do": "unreader", "with_role": with_role}, START_S) is not None

    def describe(self, source: str, inner_table: str | None) -> Described:
        """Return what a source's columns seem to be, for the owner's proposed card."""
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
    """Return the order that a driver carries out; measure, card and secret alone say which way."""
    name = names[measure.table]
    stored = Stored.read(known["tables"][measure.table], known["order"] == mark)
    statements = lower(measure, dialect, names)  # what is not ours is refused here, ranked or not
    place = ranked_place(measure, stored)
    cold = None
    if place is not None:
        statements = (by_ranks(measure, place, dialect, name),)
    else:
        cold = lower_cold(measure, stored, dialect, name)
    return {
        "do": "measure",
        "layout": Layout.of(measure).as_json(),
        "statements": [] if cold else [statement_json(statement) for statement in statements],
        "cold": None if cold is None else cold.as_json(),
    }


def prepare_elsewhere(
    embedded: DuckDBEngine,
    order: PrepareOrder,
    load: Callable[[str, str], dict[str, Any] | None],
    engine: tuple[str, str],
) -> Prepared:
    """Prepare with the embedded engine, hand the table to `load`, and say where it is."""
    if order.card.folders is not None:
        raise Refused(
            "bad-card",
            "Folders of people's files are kept by a vault on DuckDB alone.",
            "Leave bids.people out, or use a vault as `sfumato init` makes it by itself.",
        )
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
        known |= publish_names(work, target, _fresh_stem(work))
        text = json.dumps({"engine": name, "order": mark, **known})
        write_new(work / "marker", text.encode())
        for made, place in ((work / "marker", target), (sketch, Path(order.sketch).absolute())):
            _publish(made, place)
        forget_names(target, known.get("people"))  # of a table that this one has replaced
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


def _making(target: Path) -> Path:
    """Return where it says what is being made for a target."""
    return target.with_name(f"{target.name}.making")


def _fresh_names(work: Path, tables: int) -> list[str]:
    """Return tables' names that no others have."""
    return [f"rows_{_fresh_stem(work)}_{place}" for place in range(tables)]


def _fresh_stem(work: Path) -> str:
    """Return a word that nothing else has: of when and where the folder of work was made."""
    made = work.stat()
    said = f"{work}:{made.st_dev}:{made.st_ino}:{made.st_mtime_ns}"
    return hashlib.sha256(said.encode()).hexdigest()[:24]


def _publish(made: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made.replace(target)
    sync(target.parent)


def _not_copied() -> Refused:
    return Refused(
        "engine-unavailable",
        "The prepared rows could not be copied into the engine.",
        "Look at the engine's address, rights and free space.",
    )
