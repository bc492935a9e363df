"""Provide an owner's sources as files: uploads, tables of a database connection, and frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.features.data_sets.card_proposal import (
    proposed_card,
    proposed_folder_card,
    proposed_sidecars,
)
from sfumato.features.data_sets.connection_service import Connections
from sfumato.features.data_sets.service import DataSets
from sfumato.features.data_sets.upload_service import Upload, Uploads
from sfumato.release.guarantees.k_anonymity import OWNER_ONLY
from sfumato.vault.engine_port import Described, FolderDraft
from sfumato.vault.users import Caller
from sfumato.wire.connection_name import read_connection

Fill = Callable[[Path, int], None]  # a function that writes a file of at most that many bytes
TABLE_FILE: Final = "rows.tsv"  # the file name of a fetched table


@dataclass(frozen=True)
class Sources:
    """The sources (files, uploads, connections) from which owners add rows to one vault."""

    data_sets: DataSets
    uploads: Uploads
    connections: Connections

    def describe(self, caller: Caller, source: str, inner_table: str | None) -> Described:
        """Return the names and likely types of a source's columns: a file, or a database table."""
        connection = read_connection(source)
        if connection is None:
            return self.data_sets.describe(source, inner_table)
        return Described(tuple(self.connections.columns(caller, *connection)))

    @contextmanager
    def as_files(
        self, caller: Caller, sources: Mapping[str, str | PathLike[str] | Fill]
    ) -> Iterator[dict[str, str]]:
        """Provide each source of rows as a file during the block.

        A source is a path, a table of a connection, or a function that writes a CSV file.
        """
        with ExitStack() as stack:
            files = {}
            for name, source in sources.items():
                if callable(source):
                    file = self._written(caller, "rows.csv", source)
                    files[name] = stack.enter_context(file)
                    continue
                connection = read_connection(fspath(source))
                files[name] = (
                    fspath(source)
                    if connection is None
                    else stack.enter_context(self.fetched_table(caller, *connection))
                )
            yield files

    @contextmanager
    def fetched_table(self, caller: Caller, connection: str, table: str) -> Iterator[str]:
        """Fetch a database table's rows into a temporary file; delete the file at the end."""

        def fill(path: Path, room: int) -> None:
            self.connections.fetch(caller, connection, table, (path, room))

        with self._written(caller, TABLE_FILE, fill) as file:
            yield file

    @contextmanager
    def _written(self, caller: Caller, name: str, fill: Fill) -> Iterator[str]:
        """Yield the path of a temporary file that `fill` writes; delete the file at the end."""
        upload = self._upload_of(caller, name, fill)
        try:
            yield str(upload.path)
        finally:
            self.uploads.remove([upload.id])

    def _upload_of(self, caller: Caller, name: str, fill: Fill) -> Upload:
        """Create an upload with the content that `fill` writes, and return it.

        Other uploads may run at the same time.
        """
        incoming = self.uploads.begin(caller, name, None)
        is_whole = False
        try:
            with incoming.filling() as path:
                fill(path, incoming.room)
            upload = incoming.kept()
            is_whole = True
        finally:
            incoming.end(is_kept=is_whole)
        return upload


def folder_proposal(name: str, draft: FolderDraft) -> Json:
    """Return as JSON a BIDS folder's columns, a proposed card, and notes for the owner alone."""
    columns = [{"name": column, "type": kind} for column, kind in draft.own.columns]
    sidecars, card = proposed_sidecars(name, draft), proposed_folder_card(name, draft)
    hidden = [
        (f"{path}: {column}", "the draft hides this column")
        for path, fields in draft.sidecars.items()
        for column in fields
        if column not in sidecars[path]
    ]
    return {
        "columns": columns,
        "card": card,
        "tables": {
            name: [list(pair) for pair in one.columns] for name, one in draft.tables.items()
        },
        "label": OWNER_ONLY,
        "notes": [{"where": where, "why": why} for where, why in (*draft.notes, *hidden)],
    }


def proposal(name: str, found: Described) -> Json:
    """Return as JSON a source's columns, and a data card that is proposed for them."""
    columns = [{"name": column, "type": kind} for column, kind in found.columns]
    return {"columns": columns, "card": proposed_card(name, found)}


def name_of(text: str) -> str:
    """Return a valid data set name, made from the name of a file or a table."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in text)[:63] or "data"
