"""Dispatch the verbs by which owners read rows from a table of a database connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sfumato.features.data_sets.card_proposal import proposed_card
from sfumato.features.data_sets.upload_service import Upload
from sfumato.vault.engine_port import Described
from sfumato.vault.users import Caller
from sfumato.wire.connection_name import read_connection
from sfumato.wire.query_json import Json
from sfumato.wire.request_fields import Body, text_of

if TYPE_CHECKING:
    from sfumato.server.dispatch import Dispatcher

Verb = Callable[["Dispatcher", Caller, Body], Json]
Fill = Callable[[Path, int], None]  # writes a file of at most that many bytes
FETCHED: Final = "rows.tsv"  # the name of a fetched table's file


def _proposed_table(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    connection, table = text_of(body, "connection"), text_of(body, "table")
    columns = desk.connections.columns(caller, connection, table)
    name, found = name_of(table.rpartition(".")[2]), Described(tuple(columns))
    return {"connection": connection, "table": table, "name": table, **proposal(name, found)}


def proposal(name: str, found: Described) -> Json:
    """Return a source's columns and a proposed card."""
    columns = [{"name": column, "type": kind} for column, kind in found.columns]
    return {"columns": columns, "card": proposed_card(name, found)}


def name_of(text: str) -> str:
    """Make a valid data set name from the name of a file or a table."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in text)[:63] or "data"


@contextmanager
def fetched(desk: Dispatcher, caller: Caller, connection: str, table: str) -> Iterator[str]:
    """Fetch a table's rows into a temporary file, which is deleted when the block ends."""

    def fill(place: Path, room: int) -> None:
        desk.connections.fetch(caller, connection, table, (place, room))

    with written(desk, caller, FETCHED, fill) as path:
        yield path


@contextmanager
def written(desk: Dispatcher, caller: Caller, name: str, fill: Fill) -> Iterator[str]:
    """Let `fill` write a temporary file, which is deleted when the block ends."""
    upload = _upload_of(desk, caller, name, fill)
    try:
        yield str(upload.path)
    finally:
        desk.uploads.remove([upload.id])


def _upload_of(desk: Dispatcher, caller: Caller, name: str, fill: Fill) -> Upload:
    """Create an upload from what `fill` writes; other uploads may run at the same time."""
    incoming = desk.uploads.begin(caller, name, None)
    is_whole = False
    try:
        with incoming.filling() as place:
            fill(place, incoming.room)
        upload = incoming.kept()
        is_whole = True
    finally:
        incoming.end(is_kept=is_whole)
    return upload


@contextmanager
def taken(
    desk: Dispatcher, caller: Caller, sources: Mapping[str, str | PathLike[str] | Fill]
) -> Iterator[dict[str, str]]:
    """Provide each source as a file during the block: a path, or a table of a connection.

    A source can also be a function that writes a CSV file.
    """
    with ExitStack() as held:
        files = {}
        for name, source in sources.items():
            if callable(source):
                files[name] = held.enter_context(written(desk, caller, "rows.csv", source))
                continue
            there = read_connection(fspath(source))
            files[name] = (
                fspath(source)
                if there is None
                else held.enter_context(fetched(desk, caller, *there))
            )
        yield files


def described(desk: Dispatcher, caller: Caller, source: str, inner_table: str | None) -> Described:
    """Return the names and likely types of a source's columns."""
    there = read_connection(source)
    if there is None:
        return desk.data_sets.describe(source, inner_table)
    return Described(tuple(desk.connections.columns(caller, *there)))


CONNECTION_VERBS: Final[Mapping[str, Verb]] = {
    "connections": lambda desk, caller, _: {"connections": desk.connections.names(caller)},
    "proposed-table": _proposed_table,
}
