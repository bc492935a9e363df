"""Tables on a database server or cluster: prepare and copy one, read its marker, request a measure.

PostgreSQL and Spark share this module.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sfumato.dp.refusal import Refused
from sfumato.engines.shared.cell_assembly import Layout
from sfumato.engines.shared.driver_cold_path import lower_to_kernel
from sfumato.engines.shared.driver_rank_path import Stored, by_ranks, ranked_place
from sfumato.engines.shared.message_frames import Header, statement_json
from sfumato.engines.shared.person_names import forget_names, publish_names
from sfumato.query.measure import Measure
from sfumato.query.printing.expressions import Dialect
from sfumato.query.printing.statements import lower
from sfumato.system.durable_files import sync, write_new
from sfumato.vault.engine_port import Prepared, PrepareOrder


def measure_request(
    measure: Measure, dialect: Dialect, names: tuple[str, ...], known: dict[str, Any], mark: str
) -> Header:
    """Return the message that asks a driver to compute a measure, with the query path.

    Only the measure, the card and the salt decide the path.
    """
    name = names[measure.table]
    stored = Stored.read(known["tables"][measure.table], known["order"] == mark)
    # this also validates the measure, whichever path is used
    statements = lower(measure, dialect, names)
    place = ranked_place(measure, stored)
    cold = None
    if place is not None:
        statements = (by_ranks(measure, place, dialect, name),)
    else:
        cold = lower_to_kernel(measure, stored, dialect, name)
    return {
        "do": "measure",
        "layout": Layout.of(measure).as_json(),
        "statements": [] if cold else [statement_json(statement) for statement in statements],
        "cold": None if cold is None else cold.as_json(),
    }


def prepare_remote_table(
    prepare: Callable[[PrepareOrder], Prepared],
    order: PrepareOrder,
    load: Callable[[str, str], dict[str, Any] | None],
    engine: tuple[str, str],
) -> Prepared:
    """Prepare a source by `prepare`, copy its tables by `load`, and publish their marker file.

    The marker file describes the tables on the server or cluster. Refuse a card with people's BIDS
    folders, which only DuckDB can keep.
    """
    if order.card.folders is not None:
        raise Refused(
            "bad-card",
            "Only a vault on DuckDB can keep folders of people's files.",
            "Leave bids.people out, or use a vault that `sfumato init` makes by default.",
        )
    target = Path(order.target).absolute()
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    work = Path(tempfile.mkdtemp(prefix=".copy-", dir=target.parent))  # 0700
    try:
        middle, sketch = str(work / "prepared.duckdb"), work / "people.json"
        prepared = prepare(replace(order, target=middle, sketch=str(sketch)))
        known = load(middle, str(work))
        if known is None:
            raise not_copied()
        name, mark = engine
        known |= publish_names(work, target, fresh_stem(work))
        text = json.dumps({"engine": name, "order": mark, **known})
        write_new(work / "marker", text.encode())
        for made, place in ((work / "marker", target), (sketch, Path(order.sketch).absolute())):
            publish(made, place)
        forget_names(target, known.get("people"))  # pseudonyms of the table that was replaced
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return prepared


def read_marker(table: str, engine: str) -> dict[str, Any] | None:
    """Read the marker file that names a copied table on the server or cluster.

    Return None if there is no marker file for this engine.
    """
    try:
        known = json.loads(Path(table).read_text("ascii"))
    except (OSError, ValueError):
        return None
    return known if isinstance(known, dict) and known.get("engine") == engine else None


def fresh_stem(work: Path) -> str:
    """Return a unique name, a hash of the work folder's path, inode and mtime."""
    made = work.stat()
    said = f"{work}:{made.st_dev}:{made.st_ino}:{made.st_mtime_ns}"
    return hashlib.sha256(said.encode()).hexdigest()[:24]


def publish(made: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made.replace(target)
    sync(target.parent)


def not_copied() -> Refused:
    return Refused(
        "engine-unavailable",
        "The prepared rows could not be copied to the vault's engine.",
        "Check that the engine runs at its address, accepts writes, and has free disk space.",
    )
