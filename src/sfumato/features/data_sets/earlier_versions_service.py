"""Rows of earlier versions, which lie on until their owner has them removed: nobody asks them."""

from __future__ import annotations

from pathlib import Path

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.add_report_files import AddReports
from sfumato.release.ledger_guard import Ledger
from sfumato.vault.engine_port import Engine, EngineStopped
from sfumato.vault.ports import Catalogue


def remove_earlier_versions(
    catalogue: Catalogue, engine: Engine, ledger: Ledger, tables: Path, reports: AddReports
) -> int:
    """Remove the tables of rows that no current version has; return how many there were.

    What people are known again by (`people/`) stays: no budget is renewed by forgetting. Whoever is
    killed in between has it done again.
    """
    ever = {Path(sketch).stem for _, sketch in catalogue.people()}  # a table's, and its sketch's
    listings = [catalogue.find(name) for name in catalogue.names()]
    current = {Path(listing.table).stem for listing in listings if listing is not None}
    earlier = [tables / f"{stem}.duckdb" for stem in sorted(ever - current)]
    there = [table for table in earlier if table.exists()]
    if there:
        ledger.note("earlier-rows-removed", {"tables": [table.stem for table in there]})
    for table in earlier:  # of those that are gone something else may have been left
        _forget(engine, table)
        reports.drop(table.stem)
    return len(there)


def _forget(engine: Engine, table: Path) -> None:
    try:
        engine.forget(str(table))
    except EngineStopped:
        raise Refused(
            "engine-unavailable",
            "The engine is out of reach, so rows of earlier versions are still there.",
            "Do it again when it can be reached.",
        ) from None
