"""The verbs by which an owner takes rows from a table of a connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final

from sfumato.faces.body import Body, text_of
from sfumato.services.access import Caller
from sfumato.services.data_sets import proposed_card
from sfumato.services.uploads import Upload
from sfumato.wire import Json, read_connection

if TYPE_CHECKING:
    from sfumato.faces.desk import Desk

Verb = Callable[["Desk", Caller, Body], Json]
FETCHED: Final = "rows.tsv"  # as which a table's rows lie here, until they are added


def _proposed_table(desk: Desk, caller: Caller, body: Body) -> Json:
    connection, table = text_of(body, "connection"), text_of(body, "table")
    columns = desk.connections.columns(caller, connection, table)
    return {
        "connection": connection,
        "table": table,
        "name": table,
        "columns": [{"name": name, "type": kind} for name, kind in columns],
        "card": proposed_card(name_of(table.rpartition(".")[2]), columns),
    }


def name_of(text: str) -> str:
    """Return a name that a data set may have, made of a file's or a table's."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in text)[:63] or "data"


@contextmanager
def fetched(desk: Desk, caller: Caller, connection: str, table: str) -> Iterator[str]:
    """Hold the table's rows as a file; it is gone when the block ends, however that ends."""
    upload = _upload_of(desk, caller, connection, table)
    try:
        yield str(upload.path)
    finally:
        desk.uploads.remove([upload.id])


def _upload_of(desk: Desk, caller: Caller, connection: str, table: str) -> Upload:
    """Return the table's rows as an upload, which another may come in beside."""
    incoming = desk.uploads.begin(caller, FETCHED, None)
    is_whole = False
    try:
        with incoming.filling() as place:
            desk.connections.fetch(caller, connection, table, (place, incoming.room))
        upload = incoming.kept()
        is_whole = True
    finally:
        incoming.end(is_kept=is_whole)
    return upload


@contextmanager
def taken(
    desk: Desk, caller: Caller, sources: Mapping[str, str | PathLike[str]]
) -> Iterator[dict[str, str]]:
    """Hold the rows as files: each source, if it is one, or what a connection's table holds."""
    with ExitStack() as held:
        files = {}
        for name, source in sources.items():
            there = read_connection(fspath(source))
            files[name] = (
                fspath(source)
                if there is None
                else held.enter_context(fetched(desk, caller, *there))
            )
        yield files


def columns_of(
    desk: Desk, caller: Caller, source: str, inner_table: str | None
) -> list[tuple[str, str]]:
    """Return the names and likely types of a source's columns."""
    there = read_connection(source)
    if there is None:
        return desk.data_sets.describe(source, inner_table)
    return list(desk.connections.columns(caller, *there))


CONNECTION_VERBS: Final[Mapping[str, Verb]] = {
    "connections": lambda desk, caller, _: {"connections": desk.connections.names(caller)},
    "proposed-table": _proposed_table,
}
