"""What the engine knows of a prepared table before it reads a row: of its card, never of its rows.

It lies beside the table as a small file, written at preparation. A table without one was prepared
by an older house: it has no ranks, and every question goes the plain way.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sfumato.core.card import Card
from sfumato.core.columns import Column, ColumnType

VERSION: Final = 1
CROWD_BITS: Final = 4  # rows are counted for every 2**4 persons, so that work can be shared out


@dataclass(frozen=True)
class Known:
    """The card's promises that decide how a question is answered, and how long it may take."""

    rows: int  # the card's limits.rows
    by_person: bool
    types: tuple[ColumnType, ...]
    keyed: tuple[bool, ...]  # which columns have declared keys

    def is_coded(self, place: int) -> bool:
        """Say whether the column's private texts lie in a dictionary: c3, and the table texts3."""
        return self.by_person and self.types[place] == "text" and not self.keyed[place]

    def is_ranked(self, place: int) -> bool:
        """Say whether a person's groups of this column are in a stored order: gr3 and rr3."""
        return self.by_person and (self.keyed[place] or self.types[place] == "text")


def known_of(card: Card) -> Known:
    """Return what is known of a table prepared by this card."""
    return Known(
        card.limits.rows,
        card.by_person,
        tuple(column.type for column in card.columns),
        tuple(column.keys is not None for column in card.columns),
    )


def coded(columns: tuple[Column, ...]) -> tuple[int, ...]:
    """Return the places of the text columns without declared keys."""
    return tuple(i for i, c in enumerate(columns) if c.type == "text" and c.keys is None)


def path_of(table: Path) -> Path:
    """Return where it lies, beside the table."""
    return table.with_name(f"{table.name}.json")


def write_known(path: Path, known: Known) -> None:
    """Write it down."""
    shape = {
        "version": VERSION,
        "rows": known.rows,
        "by_person": known.by_person,
        "types": known.types,
        "keyed": known.keyed,
    }
    path.write_text(json.dumps(shape), "ascii")


def read_known(table: Path) -> Known | None:
    """Return what is known of the table, or None if nothing is."""
    try:
        shape: Any = json.loads(path_of(table).read_text("ascii"))  # a file of our own
    except (OSError, ValueError):
        return None
    if shape.get("version") != VERSION:
        return None
    return Known(shape["rows"], shape["by_person"], tuple(shape["types"]), tuple(shape["keyed"]))
