"""The source of a data set's rows: files, a database file, or a BIDS folder, with its checks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.system.row_files import OF_TABLES, parquet_files
from sfumato.vault.card.bids import DESCRIPTION, MAX_DESCRIPTION, phenotype_path
from sfumato.vault.card.data_card import Card, Table
from sfumato.vault.engine_port import SourceFile

ROWS: Final = "participants.tsv"


@dataclass(frozen=True)
class Source:
    """The source of a data set's rows, with the owner's statements about people and bad cells."""

    path: str
    inner_table: str | None = None
    different_people: str | None = None  # the second person who confirms that the people are new
    tables: Mapping[str, str] = field(default_factory=dict)  # the files of the card's other tables
    accept_unreadable: tuple[str, ...] = ()  # columns whose unreadable cells count as empty
    # True for rows from a database table or frame, which we wrote as text in our own format
    is_plain: bool = False
    stem: str = ""  # the name of the prepared table's file; a random one if it is empty

    def files(self, card: Card) -> tuple[SourceFile, ...]:
        """Return the file of each of the card's tables, the main one first.

        Refuse a source that doesn't fit the card.
        """
        self._check_formats(card)
        self._check_accepted(card)
        check_keys(card)
        given = {name.casefold(): path for name, path in self.tables.items()}
        own = SourceFile(self._own(card), self.inner_table)
        files = (own, *(self._file(table, given) for table in card.tables))
        _check_left(given)
        return files

    def new_files(self, card: Card) -> dict[int, SourceFile]:
        """Return the files of the tables that get new rows, by the index of the table on the card.

        Refuse a source that doesn't fit the card, and rows for a public table.
        """
        self._check_formats(card)
        self._check_accepted(card)
        given = {name.casefold(): path for name, path in self.tables.items()}
        files = {0: SourceFile(self._own(card), self.inner_table)} if self.path else {}
        # the table or sheet is of the card's own file, or of the only other one
        inner = self.inner_table if not self.path and len(given) == 1 else None
        for place, table in enumerate(card.tables, 1):
            path = given.pop(table.name.casefold(), None)
            if path is not None and table.is_public:
                raise Refused(
                    "not-allowed",
                    f"The table {table.name!r} is public, and a public table gets no new rows.",
                    "Add all of the data set's rows as a new version: sfumato add.",
                )
            if path is not None:
                files[place] = SourceFile(path, inner)
        _check_left(given)
        if not files:
            raise Refused(
                "source-unreadable",
                "No new rows were given.",
                "Give a file for the data card's own table, or for another of its tables.",
            )
        return files

    def _check_formats(self, card: Card) -> None:
        """Refuse a data card with text formats if the rows come from a database or a frame.

        Those values have types already: in a database, `1.500` is not `1500`.
        """
        if self.is_plain and card.names_formats:
            raise Refused(
                "bad-card",
                "decimal, thousands, format, encoding and header are for text files. The values "
                "of a database table or a frame have types already.",
                "Remove them from the data card, and give numbers and dates as such.",
            )

    def _check_accepted(self, card: Card) -> None:
        """Refuse an `accept_unreadable` column that the data card does not have."""
        names = {
            name.casefold()
            for table in card.every_table
            for column in table.columns
            for name in (column.name, f"{table.name}.{column.name}")
        }
        for name in self.accept_unreadable:
            if name.strip().casefold() not in names:
                raise Refused(
                    "unknown-column",
                    f"The data card names no column {name!r}, for which you accept unreadable "
                    "cells.",
                    "Name a column of the card, or TABLE.COLUMN.",
                    column=name,
                )

    @property
    def folder(self) -> str | None:
        """Return the BIDS folder of the rows; None if the rows come from files."""
        is_folder = Path(self.path).is_dir() and not parquet_files(self.path)
        return self.path if is_folder else None

    def with_description(self, shape: Mapping[str, object]) -> Mapping[str, object]:
        """Add the folder's dataset_description.json to the data card, which makes it public.

        A description on the card takes precedence.
        """
        bids = shape.get("bids")
        if self.folder is None or not isinstance(bids, Mapping) or "description" in bids:
            return shape
        place, text = Path(self.folder, DESCRIPTION), None
        if not place.is_file():
            return shape
        with contextlib.suppress(OSError, UnicodeDecodeError), place.open("rb") as file:
            text = file.read(MAX_DESCRIPTION + 1).decode("utf-8-sig")
        if text is None:
            raise Refused(
                "source-unreadable",
                f"The folder's {DESCRIPTION} cannot be read as text.",
                "Save this file as UTF-8, or remove it from the folder.",
            )
        return {**shape, "bids": {**bids, "description": text}}

    def _own(self, card: Card) -> str:
        if self.folder is None:
            return self.path
        if card.folders is None:
            raise Refused(
                "bad-card",
                "The data card does not say how many people's folders there can be.",
                "Put people = NUMBER and files = [...] under [bids] on the card.",
            )
        return str(Path(self.folder, ROWS))

    def _file(self, table: Table, given: dict[str, str]) -> SourceFile:
        path = given.pop(table.name.casefold(), None)
        if path is not None:
            return SourceFile(path)
        if self.folder is not None:
            return SourceFile(str(Path(self.folder, f"{phenotype_path(table.name)}.tsv")))
        if self.path.casefold().endswith(OF_TABLES):
            return SourceFile(self.path, table.name)
        raise Refused(
            "source-unreadable",
            f"No file was given for the table {table.name!r}.",
            f"Add --with {table.name}=FILE.",
        )


def _check_left(given: Mapping[str, str]) -> None:
    """Refuse files of tables that the data card does not have."""
    if given:
        raise Refused(
            "source-unreadable",
            f"The data card has no table {sorted(given)[0]!r}.",
            "Declare it under [tables] on the card, or leave its file out.",
        )


def check_keys(card: Card) -> None:
    """Refuse a public key that is also a missing-value marker, as no cell could match the key.

    Parsing a card does not include this check, because older stored cards must stay readable.
    """
    nulls = {word.strip() for word in card.nulls}
    for table in card.every_table:
        for column in table.columns:
            own = nulls | {word.strip() for word in column.nulls}
            twice = [key.text for key in column.keys or () if key.text.strip() in own]
            if twice:
                raise Refused(
                    "bad-card",
                    f"The data card lists {twice[0]!r} under nulls and as a key of "
                    f"{column.name!r}. Cells with it would count as empty, and the key would "
                    "have none.",
                    "Remove it from the keys or from nulls.",
                )
