"""Parse the name of a table of a database connection: connection:NAME/SCHEMA.TABLE."""

from __future__ import annotations

import re
from typing import Final

from sfumato.dp.refusal import Refused

# any scheme is a database's but those of files; `mssql+pyodbc://` names a driver, too
_DATABASE: Final = re.compile(r"(?!(?:s3|file|https?):)[a-z][a-z0-9_]*(\+[a-z0-9_]+)?://", re.ASCII)
PREFIX: Final = "connection:"


def is_bucket(source: str) -> bool:
    """Return True if a source is in an S3 bucket, which a vault in a folder fetches itself."""
    return source.startswith("s3://")


def read_connection(source: str) -> tuple[str, str] | None:
    """Parse a source: return the database connection and its table, or None for a file.

    A database address is refused, because others could read it in lists of processes.
    """
    if _DATABASE.match(source):
        raise Refused(
            "source-unreadable",
            "Rows are not added from a database address, because other users could read the "
            "address in the list of processes.",
            "Set a connection up (--connection NAME=FILE), and give connection:NAME/SCHEMA.TABLE.",
        )
    if not source.startswith(PREFIX):
        return None
    connection, slash, table = source.removeprefix(PREFIX).partition("/")
    if not (connection and slash and table):
        raise Refused(
            "source-unreadable",
            "A table of a connection is named connection:NAME/SCHEMA.TABLE.",
            "Write the names of the connection, the schema and the table in this form.",
        )
    return connection, table


def no_bucket_here() -> Refused:
    """Return the refusal of a bucket's address at a service."""
    return Refused(
        "source-unreadable",
        "A service does not fetch from an address: it has no keys of yours.",
        "Give connection:NAME/PATH of a bucket that its operator has connected, or send the file.",
    )
