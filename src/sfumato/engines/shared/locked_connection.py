"""Open a locked DuckDB connection, which can access only its own files; used in workers only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.dp.refusal import Bug

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class Room:
    """Limits of a DuckDB connection: memory, threads, spill folder (or ''), and readable files."""

    memory_mb: int
    threads: int
    spill: str
    paths: tuple[str, ...]  # files that it may open besides its own database, such as the sources


def open_locked(database: str, room: Room, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB connection that can open no other file and whose settings are locked."""
    import duckdb  # late, because only workers load it

    connection = duckdb.connect(database, read_only=read_only)
    for statement in lock_statements(room):
        connection.execute(statement)
    return connection


def checkpoint(connection: duckdb.DuckDBPyConnection) -> None:
    """Write all data of a DuckDB connection into the database file; fail if the disk is full.

    Closing the connection would checkpoint too, but ignores a failure. The rest would then stay in
    the write-ahead log, which is lost when the file is moved.
    """
    connection.execute("CHECKPOINT")


def lock_statements(room: Room) -> tuple[str, ...]:
    """Return the SET statements that lock a DuckDB connection, in the order that they need.

    For example, `temp_directory` cannot be set once external access is disabled.
    """
    paths = ", ".join(quoted(path) for path in room.paths)
    return (
        f"SET temp_directory = {quoted(room.spill)}",
        "SET autoinstall_known_extensions = false",
        "SET autoload_known_extensions = false",
        "SET allow_community_extensions = false",
        "SET allow_persistent_secrets = false",
        "SET python_enable_replacements = false",
        f"SET allowed_paths = [{paths}]",
        "SET enable_external_access = false",
        f"SET memory_limit = '{room.memory_mb} MiB'",
        f"SET threads = {room.threads}",
        # DuckDB 2.0 rewrites row_number() <= k to an arg_min, which is up to three times slower.
        # Its statistics propagation makes some CASE conditions fail or select other rows, depending
        # on *other people's* rows (decision 0010). So both optimisers are disabled.
        "SET disabled_optimizers = 'top_n_window_elimination,statistics_propagation'",
        "SET enable_progress_bar = false",
        "SET lock_configuration = true",
    )


def quoted(text: str) -> str:
    """Return a text as a quoted SQL literal; raise Bug if it contains NUL."""
    if "\0" in text:
        raise Bug("a text with a NUL cannot be quoted")
    return "'" + text.replace("'", "''") + "'"


def listed(texts: Sequence[str]) -> str:
    """Return texts as quoted SQL literals with commas between them."""
    return ", ".join(map(quoted, texts))


def named(name: str) -> str:
    """Return a name as a quoted SQL identifier; raise Bug if it contains NUL."""
    if "\0" in name:
        raise Bug("a name with a NUL cannot be quoted")
    return '"' + name.replace('"', '""') + '"'
