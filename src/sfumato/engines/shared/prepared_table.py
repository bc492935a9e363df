"""What the engine knows of a prepared table before it reads a row: of its card, never of its rows.

It lies beside the table as a small file, written at preparation. A table without one was prepared
by an older house: it has no ranks, and every question goes the plain way.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from sfumato.engines.shared.stored_parts import Parts, parts_of
from sfumato.query.printing.from_clause import stored_name
from sfumato.vault.card.columns import Column, ColumnType
from sfumato.vault.card.data_card import Card, Table

VERSION: Final = 3
CROWD_BITS: Final = 4  # rows are counted for every 2**4 persons, so that work can be shared out


@dataclass(frozen=True)
class PreparedTable:
    """The card's promises of one table, that decide how a question is answered."""

    table: int
    by_person: bool
    types: tuple[ColumnType, ...]
    keyed: tuple[bool, ...]  # which columns have declared keys
    parts: Parts | None = None  # what is added up beforehand; nothing where rows are nobody's

    def is_coded(self, place: int) -> bool:
        """Say whether the column's private texts lie in a dictionary: c3, and the table texts3."""
        return self.by_person and self.types[place] == "text" and not self.keyed[place]

    def is_ranked(self, place: int) -> bool:
        """Say whether a person's groups of this column are in a stored order: gr3 and rr3."""
        return self.by_person and (self.keyed[place] or self.types[place] == "text")

    def texts(self, place: int) -> str:
        """Return the name of a column's dictionary."""
        return stored_name(f"texts{place}", self.table)


def prepared_table(card: Card) -> tuple[PreparedTable, ...]:
    """Return what is known of the tables prepared by this card."""
    return tuple(_known(i, table, card.max_groups) for i, table in enumerate(card.every_table))


def _known(place: int, table: Table, max_groups: int) -> PreparedTable:
    return PreparedTable(
        place,
        table.unit is not None,
        tuple(column.type for column in table.columns),
        tuple(column.keys is not None for column in table.columns),
        None if table.unit is None else parts_of(table.columns, max_groups, table.max_rows),
    )


def coded(columns: tuple[Column, ...]) -> tuple[int, ...]:
    """Return the places of the text columns without declared keys."""
    return tuple(i for i, c in enumerate(columns) if c.type == "text" and c.keys is None)


def path_of(table: Path) -> Path:
    """Return where it lies, beside the table."""
    return table.with_name(f"{table.name}.json")


def write_prepared_table(path: Path, known: tuple[PreparedTable, ...]) -> None:
    """Write it down."""
    shape = {"version": VERSION, "tables": [asdict(table) for table in known]}
    path.write_text(json.dumps(shape), "ascii")


def read_prepared_table(table: Path) -> tuple[PreparedTable, ...]:
    """Return what is known of the tables; nothing where they have no ranks."""
    path = path_of(table)
    try:
        found = path.stat()
    except OSError:
        return ()
    return _known_at(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=256)
def _known_at(path: Path, _file: tuple[int, ...]) -> tuple[PreparedTable, ...]:
    """Return what is known; read once for each file that has lain there."""
    try:
        shape: Any = json.loads(path.read_text("ascii"))  # a file of our own
    except (OSError, ValueError):
        return ()
    if shape.get("version") != VERSION:
        return ()
    return tuple(_read(table) for table in shape["tables"])


def _read(shape: Any) -> PreparedTable:  # of a file of our own
    parts = shape["parts"]
    return PreparedTable(
        shape["table"],
        shape["by_person"],
        tuple(shape["types"]),
        tuple(shape["keyed"]),
        None if parts is None else Parts(**{**parts, "summed": tuple(parts["summed"])}),
    )
