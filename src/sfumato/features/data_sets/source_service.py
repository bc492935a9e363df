"""Provide an owner's sources as files: uploads, tables of a database connection, and frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Final, cast

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.bucket_address_service import (
    base_of,
    is_parquet_part,
    read_bucket_address,
)
from sfumato.features.data_sets.card_proposal import (
    proposed_card,
    proposed_folder_card,
    proposed_sidecars,
)
from sfumato.features.data_sets.connection_service import Connections
from sfumato.features.data_sets.folder_archive import ROWS
from sfumato.features.data_sets.folder_upload_service import FolderUploads
from sfumato.features.data_sets.object_store_service import (
    ObjectStores,
    fetch_file,
    is_file,
    objects_below,
    one_object,
)
from sfumato.features.data_sets.repository_service import Repositories, files_of
from sfumato.features.data_sets.service import DataSets
from sfumato.features.data_sets.upload_service import Upload, Uploads
from sfumato.release.guarantees.k_anonymity import OWNER_ONLY
from sfumato.system.folder_stream import archive_kind
from sfumato.system.object_storage import BucketPlace
from sfumato.system.row_files import parquet_files, row_suffix
from sfumato.system.zip_listing import is_folder_archive
from sfumato.vault.card.bids_patterns import file_patterns, listed_patterns
from sfumato.vault.engine_port import Described, FolderDraft
from sfumato.vault.users import Caller
from sfumato.wire.connection_name import is_bucket, read_connection

Fill = Callable[[Path, int], None]  # a function that writes a file of at most that many bytes
TABLE_FILE: Final = "rows.tsv"  # the file name of a fetched table


@dataclass(frozen=True)
class Sources:
    """The sources (files, uploads, connections) from which owners add rows to one vault."""

    data_sets: DataSets
    uploads: Uploads
    connections: Connections
    folders: FolderUploads
    repositories: Repositories
    stores: ObjectStores

    def describe(self, caller: Caller, source: str, inner_table: str | None) -> Described:
        """Return the names and likely types of a source's columns: a file, or a database table."""
        connection = read_connection(source)
        if connection is not None:
            return self._draft(caller, *connection, inner_table).columns
        if is_bucket(source):
            with self._of_bucket(caller, source, None) as there:
                return self.describe(caller, there, inner_table)
        if is_folder_archive(source):
            with self.folders.unpacked(Path(source)) as folder:
                return self.describe(caller, folder, inner_table)
        rows = Path(source, ROWS)
        return self.data_sets.describe(str(rows) if rows.is_file() else source, inner_table)

    def proposed(self, caller: Caller, name: str, source: str, inner_table: str | None) -> Json:
        """Return a source's columns and a proposed data card; of a folder, also the owner's notes.

        Args:
            caller: Who asks.
            name: The name of the future data set.
            source: A file, a folder, an archive, or a table of a connection.
            inner_table: The table to read, if the file has several.
        """
        connection = read_connection(source)
        if connection is not None:
            made = self.proposed_of(caller, *connection, inner_table)
            return {**made, "card": {**cast("Json", made["card"]), "people": name}}
        if is_bucket(source):
            place, path = read_bucket_address(source)
            if self._has_people(place, path):
                with self.stores.draft(caller.user, place, path) as (folder, paths):
                    rows = self.data_sets.describe(str(Path(folder, ROWS)), None)
                    return with_patterns(proposal(name, rows), paths)
            with self._of_bucket(caller, source, None) as found:
                return self.proposed(caller, name, found, inner_table)
        if is_folder_archive(source):
            with self.folders.unpacked(Path(source)) as folder:
                return self.proposed(caller, name, folder, inner_table)
        if Path(source).is_dir() and not parquet_files(source):
            return folder_proposal(name, self.data_sets.draft_folder(source))
        return proposal(name, self.describe(caller, source, inner_table))

    # --- connections to databases, to DataLad data sets and to S3 buckets

    def proposed_of(
        self, caller: Caller, connection: str, table: str, inner_table: str | None = None
    ) -> Json:
        """Return a proposed data card for a connection's table or data set.

        Args:
            caller: Who asks.
            connection: The name of the connection.
            table: The table, data set, file or folder of the connection.
            inner_table: The table to read, if that is a file with several.
        """
        draft = self._draft(caller, connection, table, inner_table)
        made = proposal(name_of(draft.name), draft.columns)
        return made if draft.paths is None else with_patterns(made, draft.paths)

    def _draft(
        self, caller: Caller, connection: str, table: str, inner_table: str | None
    ) -> _Draft:
        """Return what a card is proposed from; of a database, no row is read."""
        if inner_table is not None:
            self.check_file(caller, connection, table)
        last = table.rpartition("/")[2]
        url = self.connections.repository(caller, connection, table)
        if url is not None:
            with self.repositories.draft(caller.user, url) as clone:
                found = self.data_sets.describe(str(clone.with_name("tree") / ROWS), None)
                return _Draft(last, found, files_of(clone))
        place = self.connections.bucket(caller, connection, table)
        if place is None:
            found = Described(tuple(self.connections.columns(caller, connection, table)))
            return _Draft(table.rpartition(".")[2], found)
        if is_file(table):
            with self._fetched_file(caller, place, table) as file:
                return _Draft(last.rpartition(".")[0], self.data_sets.describe(file, inner_table))
        with self.stores.draft(caller.user, place, table) as (folder, paths):
            found = self.data_sets.describe(str(Path(folder, ROWS)), None)
            return _Draft(last.partition(".")[0], found, paths)

    def check_there(self, caller: Caller, connection: str, table: str) -> None:
        """Refuse a table or data set of a connection that the caller may not read."""
        if self.is_database(caller, connection, table):
            self.connections.there(caller, connection, table)

    def check_file(self, caller: Caller, connection: str, table: str) -> None:
        """Refuse a table or sheet of what is no file in a bucket: a database table has none."""
        if self.connections.bucket(caller, connection, table) is None or not is_file(table):
            raise Refused(
                "source-unreadable",
                "A table or sheet of a file is named, but the connection's source is no file in a "
                "bucket.",
                "Leave --table out, or inner_table. Of a database, name the table in the source: "
                "connection:NAME/SCHEMA.TABLE.",
            )

    def check_alone(self, caller: Caller, connection: str, table: str) -> None:
        """Refuse a folder of a connection among several tables: it has its own."""
        if self.is_folder(caller, connection, table):
            raise Refused(
                "source-unreadable",
                "A data set that is a folder brings its own tables, from its folder phenotype.",
                "Leave the other tables out (--with).",
            )

    def is_folder(self, caller: Caller, connection: str, table: str) -> bool:
        """Return True if a connection's source is a folder: of DataLad, or in a bucket."""
        if self.connections.repository(caller, connection, table) is not None:
            return True
        is_object = self.connections.bucket(caller, connection, table) is not None
        return is_object and not is_file(table)

    def is_database(self, caller: Caller, connection: str, table: str) -> bool:
        """Return True if a connection's source is a table of a database: its values have types."""
        if self.connections.repository(caller, connection, table) is not None:
            return False
        return self.connections.bucket(caller, connection, table) is None

    # --- uploads of files and of folders

    def upload(self, caller: Caller, upload: str) -> Upload:
        """Return one of the caller's uploads: a file, or a folder that is unpacked."""
        if self.folders.has(upload):
            return self.folders.one(caller, upload)
        return self.uploads.one(caller, upload)

    def holds(self, uploads: list[str]) -> bool:
        """Return True if all uploads with these ids are on this machine."""
        return self.uploads.holds([one for one in uploads if not self.folders.holds(one)])

    def remove(self, uploads: list[str]) -> None:
        """Delete the uploads with these ids."""
        self.uploads.remove(uploads)
        self.folders.remove(uploads)

    @contextmanager
    def as_files(
        self,
        caller: Caller,
        sources: Mapping[str, str | PathLike[str] | Fill],
        card: Mapping[str, object],
    ) -> Iterator[dict[str, str]]:
        """Provide each source of rows as a file during the block.

        A source is a path, a table of a connection, or a function that writes a CSV file. A zip or
        tar file is unpacked. Of a connection's folder, the files that the card lists are fetched.
        """
        with ExitStack() as stack:
            files = {}
            for name, source in sources.items():
                if callable(source):
                    file = self._written(caller, TABLE_FILE, source)
                    files[name] = stack.enter_context(file)
                    continue
                connection = read_connection(fspath(source))
                if connection is not None:
                    if len(sources) > 1:
                        self.check_alone(caller, *connection)
                    fetched = self.fetched_table(caller, *connection, card)
                    files[name] = stack.enter_context(fetched)
                    continue
                there = fspath(source)
                if is_bucket(there):
                    there = stack.enter_context(self._of_bucket(caller, there, card))
                if is_folder_archive(there):
                    there = stack.enter_context(self.folders.unpacked(Path(there)))
                files[name] = there
            yield files

    @contextmanager
    def _of_bucket(
        self, caller: Caller, source: str, card: Mapping[str, object] | None
    ) -> Iterator[str]:
        """Fetch a file, folder or pattern of an S3 bucket; delete it when its rows were added.

        For a draft, `card` is None, and what was fetched is kept for a day.
        """
        place, path = read_bucket_address(source)
        base, pattern = base_of(path)
        is_one = row_suffix(path) is not None or archive_kind(path) is not None
        if not pattern and is_one and self.folders.is_sealed:
            with self._fetched_file(caller, place, path) as file:
                yield file
            return
        if card is not None and self._has_people(place, path):
            with self.stores.fetched(caller.user, place, path, listed_patterns(card)) as folder:
                yield folder
            return
        if is_one and not pattern:
            folder = self.stores.tables(caller.user, place, path, one_object(path))
            yield str(Path(folder, path.rpartition("/")[2]))
        else:
            pick = objects_below(base, lambda inner: is_parquet_part(inner, pattern))
            yield self.stores.tables(caller.user, place, path, pick)
        if card is not None:
            self.stores.forget(caller.user, place, path)

    def _has_people(self, place: BucketPlace, path: str) -> bool:
        """Return True if a path of a bucket is of a BIDS folder."""
        is_folder = row_suffix(path) is None and archive_kind(path) is None and not base_of(path)[1]
        return is_folder and self.stores.has_people(place, path)

    @contextmanager
    def fetched_table(
        self, caller: Caller, connection: str, table: str, card: Mapping[str, object]
    ) -> Iterator[str]:
        """Fetch a database table's rows into a temporary file; delete the file at the end.

        Of a folder, fetch the files that the card lists into a temporary folder.
        """
        url = self.connections.repository(caller, connection, table)
        if url is not None:
            with self.repositories.fetched(caller.user, url, listed_patterns(card)) as folder:
                yield folder
            return
        place = self.connections.bucket(caller, connection, table)
        if place is not None:
            patterns = listed_patterns(card)
            with (
                self._fetched_file(caller, place, table)
                if is_file(table)
                else self.stores.fetched(caller.user, place, table, patterns)
            ) as there:
                yield there
            return

        def fill(path: Path, room: int) -> None:
            self.connections.fetch(caller, connection, table, (path, room))

        with self._written(caller, TABLE_FILE, fill) as file:
            yield file

    @contextmanager
    def _fetched_file(self, caller: Caller, place: BucketPlace, path: str) -> Iterator[str]:
        """Fetch a table's file from a bucket into a temporary file; delete it at the end."""

        def fill(target: Path, room: int) -> None:
            fetch_file(place, path, target, room)

        with self._written(caller, path.rpartition("/")[2], fill) as file:
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


@dataclass(frozen=True)
class _Draft:
    """What a card is proposed from: a name, columns, and of a folder the paths of its files."""

    name: str
    columns: Described
    paths: Sequence[str] | None = None


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
    columns: list[Json] = [
        {"name": column, "type": kind, **({"markers": dict(odd)} if odd else {})}
        for column, kind in found.columns
        for odd in [found.markers.get(column)]
    ]
    return {"columns": columns, "card": proposed_card(name, found)}


def with_patterns(proposed: Json, found: Sequence[str]) -> Json:
    """Add to a proposed card the patterns of the files that at least half of the people have."""
    paths = [path for path in found if path.startswith(("sub-", "derivatives/"))]
    card = cast("Json", proposed["card"])
    return {**proposed, "card": {**card, "bids": {"files": file_patterns(paths)}}}


def name_of(text: str) -> str:
    """Return a valid data set name, made from the name of a file or a table."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in text)[:63] or "data"
