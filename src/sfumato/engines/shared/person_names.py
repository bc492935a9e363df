"""Stable pseudonyms of persons (`who`, 32 bytes), kept locally for a copy on PostgreSQL or Spark.

A stream needs pseudonyms to recognise a person in another version of the data
(continual_counting.proof.md). The remote engine does not need them. They stay on this machine, in a
file that only the vault's owner may read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sfumato.engines.shared.atomic_publish import publish
from sfumato.engines.shared.locked_connection import quoted

if TYPE_CHECKING:
    import duckdb

_FILE: Final = "people.parquet"
_ARE_THERE: Final = "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'people'"


def names_in(work: str) -> Path:
    """Return the path of the persons' pseudonym file in the work folder of a table copy."""
    return Path(work, _FILE)


def copy_names(connection: duckdb.DuckDBPyConnection, work: str) -> None:
    """Export the persons' pseudonyms of a prepared table; do nothing if it has no persons."""
    found = connection.execute(_ARE_THERE).fetchone()
    if found == (1,):
        into = f"{quoted(str(names_in(work)))} (FORMAT parquet)"
        connection.execute(f"COPY (SELECT person, who FROM people ORDER BY person) TO {into}")


def publish_names(work: Path, target: Path, stem: str) -> dict[str, str]:
    """Move the persons' pseudonym file next to a copied table.

    Return its entry for the marker file, which names the copied table. Each copy has its own file
    name. Every preparation numbers persons anew, so a number belongs to different persons in
    different copies.
    """
    made = names_in(str(work))
    if not made.is_file():
        return {}
    place = target.with_name(f"{target.name}_people_{stem}.parquet")
    publish(made, place)
    return {"people": place.name}


def forget_names(target: Path, keep: object = None) -> None:
    """Delete the persons' pseudonym files next to a table, except the one named `keep`."""
    for left in target.parent.glob(f"{target.name}_people_*.parquet"):
        if left.name != keep:
            left.unlink(missing_ok=True)
