"""Metadata of a prepared table: how it is stored; derived from the card, never from the rows.

Preparation writes it to a small JSON file next to the table. A table without this file was prepared
by an older version. It has no stored ranks, so plain SQL answers every query.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from sfumato.engines.shared.stored_parts import StoredPartsSpec, parts_of
from sfumato.query.printing.from_clause import stored_name
from sfumato.vault.card.columns import Column, ColumnType
from sfumato.vault.card.data_card import Card, Table

VERSION: Final = 3
CROWD_BITS: Final = 4  # rows are counted per 2**4 persons, to split work into ranges of equal size


@dataclass(frozen=True)
class PreparedTable:
    """Facts of the data card about one table, which decide the path of a query."""

    table: int
    by_person: bool
    types: tuple[ColumnType, ...]
    keyed: tuple[bool, ...]  # per column: whether the card declares its keys
    parts: StoredPartsSpec | None = (
        None  # precomputed per-person sums; None if rows belong to no person
    )
    # whether the codes of private texts are in the order of the texts; after an append, they are
    # in the order in which the texts came
    has_ordered_codes: bool = True

    def is_coded(self, place: int) -> bool:
        """Say whether a column's private texts are stored as codes of a dictionary table.

        For column 3, the codes are the column `c3`, and the dictionary is the table `texts3`.
        """
        return self.by_person and self.types[place] == "text" and not self.keyed[place]

    def is_ranked(self, place: int) -> bool:
        """Say whether a column has stored ranks of groups and rows (`gr3`, `rr3` for column 3)."""
        return self.by_person and (self.keyed[place] or self.types[place] == "text")

    def texts(self, place: int) -> str:
        """Return the name of the dictionary table of a column's private texts."""
        return stored_name(f"texts{place}", self.table)


def prepared_table(card: Card) -> tuple[PreparedTable, ...]:
    """Return the metadata of all tables of a data card."""
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
    """Return the indexes of text columns without declared keys, whose texts are private."""
    return tuple(i for i, c in enumerate(columns) if c.type == "text" and c.keys is None)


def path_of(table: Path) -> Path:
    """Return the path of the metadata file of a prepared table."""
    return table.with_name(f"{table.name}.json")


def write_prepared_table(path: Path, known: tuple[PreparedTable, ...]) -> None:
    """Write the metadata of prepared tables as JSON."""
    shape = {"version": VERSION, "tables": [asdict(table) for table in known]}
    path.write_text(json.dumps(shape), "ascii")


def read_prepared_table(table: Path) -> tuple[PreparedTable, ...]:
    """Read the metadata of prepared tables; empty if it is missing or of another version."""
    path = path_of(table)
    try:
        found = path.stat()
    except OSError:
        return ()
    return _known_at(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=256)
def _known_at(path: Path, _file: tuple[int, ...]) -> tuple[PreparedTable, ...]:
    """Read a metadata file of prepared tables, through a cache.

    The cache key includes the file's identity, so a replaced file is read again.
    """
    try:
        shape: Any = json.loads(path.read_text("ascii"))  # our own file, so it is trusted
    except (OSError, ValueError):
        return ()
    if shape.get("version") != VERSION:
        return ()
    return tuple(_read(table) for table in shape["tables"])


def _read(shape: Any) -> PreparedTable:  # from our own file, so it is trusted
    parts = shape["parts"]
    return PreparedTable(
        shape["table"],
        shape["by_person"],
        tuple(shape["types"]),
        tuple(shape["keyed"]),
        None if parts is None else StoredPartsSpec(**{**parts, "summed": tuple(parts["summed"])}),
        shape.get("has_ordered_codes", True),
    )


# --- appended versions: a prepared table of several files


def appended_table(known: tuple[PreparedTable, ...]) -> tuple[PreparedTable, ...]:
    """Return the metadata of prepared tables to which rows were appended.

    A stored part is the sum of all rows of a person in a group, so new rows would change it. Stored
    ranks of rows never change, so they answer instead.
    """
    return tuple(replace(table, parts=None, has_ordered_codes=False) for table in known)


def write_segments(path: Path, known: tuple[PreparedTable, ...], names: tuple[str, ...]) -> None:
    """Write the metadata of an appended version, with the names of its files, oldest first."""
    tables = [asdict(table) for table in known]
    path.write_text(
        json.dumps({"version": VERSION, "tables": tables, "segments": list(names)}), "ascii"
    )


def segments_of(table: Path) -> tuple[Path, ...]:
    """Return the files of a prepared table, oldest first; the last is the table's own file."""
    return appended_segments(table) or (table,)


def appended_segments(table: Path) -> tuple[Path, ...]:
    """Return the files of a table that an append wrote; empty for a table that was added whole."""
    try:
        shape: Any = json.loads(path_of(table).read_text("ascii"))  # our own file: trusted
    except (OSError, ValueError):
        return ()
    return tuple(table.with_name(name) for name in shape.get("segments", ()))
