"""The names of people beside a copy that lies elsewhere: `who` of each person, as 32 bytes.

They stay on this machine, in a file that only the vault's owner may read: by them a stream knows a
person again in another version (continual_counting.proof.md), and the engine that counts has no use
for them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sfumato.engines.duckdb.locked_connection import quoted
from sfumato.engines.shared.atomic_publish import publish

if TYPE_CHECKING:
    import duckdb

_FILE: Final = "people.parquet"
_ARE_THERE: Final = "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'people'"


def names_in(work: str) -> Path:
    """Return where a copy writes the names, in its folder of work."""
    return Path(work, _FILE)


def copy_names(connection: duckdb.DuckDBPyConnection, work: str) -> None:
    """Write the names of a prepared table's people; where rows are nobody's there are none."""
    found = connection.execute(_ARE_THERE).fetchone()
    if found == (1,):
        into = f"{quoted(str(names_in(work)))} (FORMAT parquet)"
        connection.execute(f"COPY (SELECT person, who FROM people ORDER BY person) TO {into}")


def publish_names(work: Path, target: Path, stem: str) -> dict[str, str]:
    """Put the names beside the copy's target; return what its marker says of them.

    Each copy's file has a name of its own: persons are numbered anew by every preparation, and a
    number that is looked up in another's file would be somebody else.
    """
    made = names_in(str(work))
    if not made.is_file():
        return {}
    place = target.with_name(f"{target.name}_people_{stem}.parquet")
    publish(made, place)
    return {"people": place.name}


def forget_names(target: Path, keep: object = None) -> None:
    """Remove the names that lie beside a target, but those that its marker says."""
    for left in target.parent.glob(f"{target.name}_people_*.parquet"):
        if left.name != keep:
            left.unlink(missing_ok=True)
