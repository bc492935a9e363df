"""A DuckDB connection that can reach its own table and nothing else; used in workers only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.dp.refusal import Bug

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class Room:
    """What a connection may use: memory, threads, a private folder to spill to ('' for none)."""

    memory_mb: int
    threads: int
    spill: str
    paths: tuple[str, ...]  # files it may open besides its own; the sources of a preparation


def open_locked(database: str, room: Room, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Return a connection whose configuration is closed and locked."""
    import duckdb  # by workers alone: the house never loads it

    connection = duckdb.connect(database, read_only=read_only)
    for statement in lock_statements(room):
        connection.execute(statement)
    return connection


def restore_settings(connection: duckdb.DuckDBPyConnection) -> None:
    """Write all that was made into the one file; fails where the disk is full.

    Closing would do so too, but says nothing where it fails: the rest stays in a log beside the
    file, which is left behind when the file is moved to its place.
    """
    connection.execute("CHECKPOINT")


def lock_statements(room: Room) -> tuple[str, ...]:
    """Return the statements that lock a connection, in the one order that holds.

    Once external access is off, `temp_directory` can no longer be set.
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
        # 2.0 makes row_number() <= k an arg_min, up to three times slower. And what it infers from
        # statistics makes some CASE conditions fail, or pick other rows, by what *other people's*
        # rows hold (decision 0010).
        "SET disabled_optimizers = 'top_n_window_elimination,statistics_propagation'",
        "SET enable_progress_bar = false",
        "SET lock_configuration = true",
    )


def quoted(text: str) -> str:
    """Return the text as an SQL literal."""
    if "\0" in text:
        raise Bug("a text with a NUL cannot be quoted")
    return "'" + text.replace("'", "''") + "'"


def named(name: str) -> str:
    """Return the name as an SQL identifier."""
    if "\0" in name:
        raise Bug("a name with a NUL cannot be quoted")
    return '"' + name.replace('"', '""') + '"'
