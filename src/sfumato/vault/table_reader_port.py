"""The port by which an owner's own file is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sfumato.dp.anonymity.coded_table import Table
from sfumato.vault.sealed import Sealed


@dataclass(frozen=True)
class ReadOrder:
    """An owner's order to read a source of their own, for their own eyes."""

    source: str
    columns: tuple[str, ...] | None = None  # None: all
    is_grouped: bool = False  # rows that are alike once, with their number
    inner_table: str | None = None


class TableReader(Protocol):
    """Where an owner's own file is read; it answers sealed codes, never complaints of its rows."""

    def read(self, order: ReadOrder) -> Sealed[Table]:
        """Return the columns as codes, or refuse what cannot be read."""
        ...
