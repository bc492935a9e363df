"""Count one period of a stream: the request to the worker, and the file with the stream's state.

All engines store the state of a stream in the same way: in a DuckDB file next to the tables, which
the engine's worker writes. PostgreSQL and Spark only count rows per person. They never receive how
many rows a person has used, nor the person's stable pseudonym.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sfumato.engines.shared.atomic_publish import is_whole
from sfumato.engines.shared.cell_assembly import Layout
from sfumato.engines.shared.message_frames import Header
from sfumato.query.measure import Cells
from sfumato.query.printing.expressions import Dialect, print_predicate
from sfumato.system.durable_files import sync
from sfumato.vault.engine_port import CountPeriodOrder, EngineStopped
from sfumato.vault.sealed import Sealed

ONE_NUMBER: Final = Layout(1, 0, (0,))


def carried_out(
    order: CountPeriodOrder, request: Header, ask: Callable[[Header], Sealed[Cells] | None]
) -> Sealed[Cells]:
    """Ask a worker to count one period of a stream; return the exact count of the block, sealed.

    The block is `order.first` to `order.end`. Its count is returned once the file with the stream's
    new state is complete and durable.
    """
    target = Path(order.target).absolute()
    spill = target.with_name("spill")
    spill.mkdir(mode=0o700)
    sealed = None
    try:
        sealed = ask({**_common_request(order, target, spill), **request})
    finally:
        shutil.rmtree(spill, ignore_errors=True)
    if sealed is None or not is_whole(target):
        raise EngineStopped
    target.chmod(0o600)
    sync(target)
    return sealed


def _common_request(order: CountPeriodOrder, target: Path, spill: Path) -> Header:
    return {
        "do": "take",
        "rows": order.rows,
        "end": order.end,
        "first": order.first,
        "before": None if order.before is None else str(Path(order.before).absolute()),
        "target": str(target),
        "spill": str(spill),
    }


def local_request(order: CountPeriodOrder) -> Header:
    """Return the fields of a period's request that only DuckDB needs: table file and filter."""
    where = print_predicate(order.where, "duckdb")
    return {
        "table": str(Path(order.table).absolute()),
        "where": where.sql,
        "parameters": list(where.bound),
    }


def remote_request(
    order: CountPeriodOrder, dialect: Dialect, name: str, known: dict[str, Any]
) -> Header:
    """Return the fields of a period's request that PostgreSQL or Spark needs.

    They are the counting SQL, whose last two parameters are a range of persons, and the pseudonym
    file. A copy made by an older version has no pseudonym file. Then the rows that a person has
    used cannot be found, and `EngineStopped` is raised.
    """
    names = known.get("people")
    if not isinstance(names, str):
        raise EngineStopped
    where = print_predicate(order.where, dialect)
    return {
        "sql": f"SELECT person, count(*) AS n FROM {name} WHERE ({where.sql})"
        " AND person >= ? AND person < ? GROUP BY person",
        "parameters": list(where.bound),
        "people": str(Path(order.table).absolute().with_name(names)),
    }
