"""An order to take a period of a stream: as a worker is given it, and what becomes of its target.

All engines keep the state of a stream alike, in a file beside the tables that DuckDB writes inside
the engine's own worker. Another engine counts its rows, person by person; what each person has used
never goes there, nor does the name that a person keeps from version to version.
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
from sfumato.vault.engine_port import EngineStopped, TakeOrder
from sfumato.vault.sealed import Sealed

ONE_NUMBER: Final = Layout(1, 0, (0,))


def carried_out(
    order: TakeOrder, request: Header, ask: Callable[[Header], Sealed[Cells] | None]
) -> Sealed[Cells]:
    """Have a worker take the period; return the exact rows of the block, the target being whole."""
    target = Path(order.target).absolute()
    spill = target.with_name("spill")
    spill.mkdir(mode=0o700)
    sealed = None
    try:
        sealed = ask({**_said(order, target, spill), **request})
    finally:
        shutil.rmtree(spill, ignore_errors=True)
    if sealed is None or not is_whole(target):
        raise EngineStopped
    target.chmod(0o600)
    sync(target)
    return sealed


def _said(order: TakeOrder, target: Path, spill: Path) -> Header:
    return {
        "do": "take",
        "rows": order.rows,
        "end": order.end,
        "first": order.first,
        "before": None if order.before is None else str(Path(order.before).absolute()),
        "target": str(target),
        "spill": str(spill),
    }


def here(order: TakeOrder) -> Header:
    """Return which rows the embedded engine takes, of a table that it can open."""
    where = print_predicate(order.where, "duckdb")
    return {
        "table": str(Path(order.table).absolute()),
        "where": where.sql,
        "parameters": list(where.bound),
    }


def elsewhere(order: TakeOrder, dialect: Dialect, name: str, known: dict[str, Any]) -> Header:
    """Return how another engine counts rows of a range of persons, and where their names lie.

    The range are the last two parameters. A copy that an older house made has no names; then
    nobody can tell what a person has used.
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
