"""The port that reads an owner's own source file, for k-anonymity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sfumato.dp.anonymity.coded_table import Table
from sfumato.vault.sealed import Sealed


@dataclass(frozen=True)
class ReadOrder:
    """An owner's order to read their own source file; only the owner sees the result."""

    source: str
    columns: tuple[str, ...] | None = None  # None: all
    is_grouped: bool = False  # return equal rows once, with their count
    inner_table: str | None = None


class TableReader(Protocol):
    """Reads an owner's source file.

    Returns sealed (unreadable) codes, and no error message about rows.
    """

    def read(self, order: ReadOrder) -> Sealed[Table]:
        """Return the columns of the source file as integer codes.

        Refuse a file that can't be read.
        """
        ...
