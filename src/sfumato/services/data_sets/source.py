"""Where a data set's rows come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sfumato.core.bids import beside
from sfumato.core.card import Card, Table
from sfumato.core.ports import SourceFile
from sfumato.core.refusal import Refused

ROWS: Final = "participants.tsv"


@dataclass(frozen=True)
class Source:
    """Where the rows come from, and how sure the owner is whose they are."""

    path: str
    inner_table: str | None = None
    different_people: str | None = None  # the second person who confirms that they are others
    tables: Mapping[str, str] = field(default_factory=dict)  # the files of the card's other tables

    def files(self, card: Card) -> tuple[SourceFile, ...]:
        """Return the file of each of the card's tables, its own first, or refuse."""
        given = {name.casefold(): path for name, path in self.tables.items()}
        own = SourceFile(self._own(card), self.inner_table)
        files = (own, *(self._file(table, given) for table in card.tables))
        if given:
            raise Refused(
                "source-unreadable",
                f"The card has no table {sorted(given)[0]!r}.",
                "Declare it under [tables] on the card, or leave its file out.",
            )
        return files

    @property
    def folder(self) -> str | None:
        """Return the BIDS folder that the rows come from, if they come from one."""
        return self.path if Path(self.path).is_dir() else None

    def _own(self, card: Card) -> str:
        if self.folder is None:
            return self.path
        if card.folders is None:
            raise Refused(
                "bad-card",
                "The card does not say how many people's folders there are at most.",
                "Put people = NUMBER and files = [...] under [bids] on the card.",
            )
        return str(Path(self.folder, ROWS))

    def _file(self, table: Table, given: dict[str, str]) -> SourceFile:
        path = given.pop(table.name.casefold(), None)
        if path is not None:
            return SourceFile(path)
        if self.folder is not None:
            return SourceFile(str(Path(self.folder, f"{beside(table.name)}.tsv")))
        if self.path.casefold().endswith((".duckdb", ".ddb", ".db")):
            return SourceFile(self.path, table.name)
        raise Refused(
            "source-unreadable",
            f"No file was given for the table {table.name!r}.",
            f"Add --with {table.name}=FILE.",
        )
