"""Delete the rows of data sets' earlier versions, which no query reads any more."""

from __future__ import annotations

from pathlib import Path

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.add_report_files import AddReports
from sfumato.release.ledger_guard import Ledger
from sfumato.vault.engine_port import AppendEngine, Engine, EngineStopped
from sfumato.vault.ports import Catalogue


def remove_earlier_versions(  # noqa: PLR0913, PLR0917  # a vault's parts
    catalogue: Catalogue,
    engine: Engine,
    ledger: Ledger,
    tables: Path,
    reports: AddReports,
    name: str | None = None,
) -> int:
    """Delete prepared tables that no current version uses; return how many were deleted.

    With a name, only those of that data set are deleted. The sketches in `people/`, which recognise
    people, stay, so deleting rows renews no budget.
    After a crash, run it again.
    """
    # a table and its sketch have the same stem
    versions = zip(catalogue.cards(), catalogue.people(), strict=True)
    ever = {Path(sketch).stem for card, (_, sketch) in versions if name in (None, card.name)}
    listings = [catalogue.find(name) for name in catalogue.names()]
    tables_now = [listing.table for listing in listings if listing is not None]
    current = {Path(file).stem for table in tables_now for file in files_of(engine, table)}
    earlier = [tables / f"{stem}.duckdb" for stem in sorted(ever - current)]
    there = [table for table in earlier if table.exists()]
    if there:
        ledger.note("earlier-rows-removed", {"tables": [table.stem for table in there]})
    for table in earlier:  # tables that are gone already may have left other files
        _forget(engine, table)
        reports.drop(table.stem)
    return len(there)


def files_of(engine: Engine, table: str) -> tuple[str, ...]:
    """Return the files of a prepared table; after an append, also files of earlier versions."""
    return engine.segments(table) if isinstance(engine, AppendEngine) else (table,)


def _forget(engine: Engine, table: Path) -> None:
    try:
        engine.forget(str(table))
    except EngineStopped:
        raise Refused(
            "engine-unavailable",
            "The vault's engine cannot be reached, so some rows of earlier versions were not "
            "deleted.",
            "Repeat this when the engine runs again.",
        ) from None
