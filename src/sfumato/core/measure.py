"""What an engine is asked to add up: integers only, over a prepared table; no text of the asker's.

Columns are physical (`v3`, `k3`), constants are whole steps, dates or texts that go in as bound
parameters. Each row carries at most one cell; cells are numbered by the public keys alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sfumato.core.question import Predicate


@dataclass(frozen=True)
class Tally:
    """One integer per cell: rows, rows with a value, people, or the sum of scale*v + offset."""

    kind: Literal["rows", "values", "people", "sum"]
    column: str = ""
    scale: int = 1
    offset: int = 0


@dataclass(frozen=True)
class KeyColumn:
    """A grouping column: its code column in the table and how many keys the card declares."""

    column: str
    size: int


@dataclass(frozen=True)
class Measure:
    """Integers to be added up, with every person's part bounded before."""

    where: Predicate | None
    keys: tuple[KeyColumn, ...]
    tallies: tuple[Tally, ...]
    by_person: bool
    max_groups: int
    max_rows: int

    @property
    def cells(self) -> int:
        """Return how many cells every answer has, empty ones included."""
        count = 1
        for key in self.keys:
            count *= key.size
        return count
