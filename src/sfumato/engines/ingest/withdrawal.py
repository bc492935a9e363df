"""Copy a prepared table without the rows of one person; in a separate worker.

What is left of everybody else is the same: a rank depends on rows of one person only
(engines/kernel/ranks.proof.md). Numbers of persons and codes of texts close up, and a text that
only this person had is gone. The copy is one file, also if the table had several.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb

from sfumato.dp.refusal import Refused
from sfumato.engines.ingest.cell_sql import rank_type, secret_name
from sfumato.engines.ingest.prepare_order import TableOrder, read_order
from sfumato.engines.shared.locked_connection import Room, checkpoint, open_locked
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.prepared_table import CROWD_BITS, coded
from sfumato.engines.shared.segments import attach_prepared, files_of
from sfumato.engines.shared.stored_parts import parts_of, write_parts
from sfumato.query.printing.from_clause import stored_name, table_name

_BEFORE: Final = "before"  # the database with the rows of the version before
_OTHERS: Final = "SELECT *, CAST(person - CAST(person > ? AS INTEGER) AS UINTEGER) AS new"


def withdraw(room: Room, salt: str, message: Header) -> Header:
    """Copy a table without a person's rows to the work folder. A refusal is returned, not raised.

    The only message that names the person is the one to this worker.
    """
    order, before = read_order(message), str(message["before"])
    room = Room(room.memory_mb, room.threads, room.spill, files_of(before))
    connection = open_locked(str(Path(order.work, "rows.duckdb")), room, read_only=False)
    try:
        attach_prepared(connection, before, _BEFORE)
        person = _person(connection, str(message["person"]).strip(), salt)
        _copy_people(connection, person)
        for table in order.tables:
            _copy(connection, table, person)
        checkpoint(connection)
        return {}
    except Refused as refused:
        return {"refused": [refused.code, refused.cause, refused.next_step]}
    finally:
        connection.close()


def _person(connection: duckdb.DuckDBPyConnection, name: str, salt: str) -> int:
    """Return the number of the person with this identifier; refuse an unknown one."""
    who = secret_name("who", "CAST(? AS VARCHAR)")
    found = connection.execute(
        f"SELECT person FROM {_BEFORE}.people WHERE who = {who}", [salt, name]
    ).fetchone()
    if found is None:
        raise Refused(
            "not-allowed",
            "The current version of the data set has no rows of this person.",
            "Write the person's identifier as in the person column of your file. If an earlier run "
            "was interrupted, run sfumato forget-earlier, which deletes the earlier rows.",
        )
    return int(found[0])


def _copy_people(connection: duckdb.DuckDBPyConnection, person: int) -> None:
    connection.execute(
        "CREATE TABLE people AS SELECT new AS person, person_key, who FROM"
        f" ({_OTHERS} FROM {_BEFORE}.people WHERE person <> ?) ORDER BY person",
        [person, person],
    )


def _copy(connection: duckdb.DuckDBPyConnection, table: TableOrder, person: int) -> None:
    """Copy the rows of one table, its dictionaries, row counts and stored sums."""
    rows = table_name("duckdb", table.place)
    if table.unit is None:
        connection.execute(
            f"CREATE TABLE {rows} AS SELECT * EXCLUDE (rowid) FROM {_BEFORE}.{rows}"
            " ORDER BY row_key"
        )
        return
    others = f"({_OTHERS} FROM {_BEFORE}.{rows} WHERE person <> ?)"
    texts = coded(table.columns)
    for place in texts:
        name = stored_name(f"texts{place}", table.place)
        connection.execute(
            f"CREATE TEMP TABLE kept{place} AS SELECT code AS old, value, text_key,"
            " CAST(row_number() OVER (ORDER BY value) - 1 AS UINTEGER) AS code"
            f" FROM {_BEFORE}.{name} SEMI JOIN (SELECT DISTINCT c{place} AS code FROM"
            f" {_BEFORE}.{rows} WHERE person <> ?) USING (code)",
            [person],
        )
        connection.execute(
            f"CREATE TABLE {name} AS SELECT code, value, text_key FROM kept{place} ORDER BY code"
        )
    new = ["r.new AS person", *(f"kept{place}.code AS c{place}" for place in texts)]
    joins = "".join(f" LEFT JOIN kept{place} ON kept{place}.old = r.c{place}" for place in texts)
    connection.execute(
        f"CREATE TABLE {rows} AS SELECT r.* EXCLUDE (new, rowid) REPLACE ({', '.join(new)})"
        f" FROM {others} AS r{joins} ORDER BY r.new, r.rr",
        [person, person],
    )
    for place in texts:
        connection.execute(f"DROP TABLE kept{place}")
    crowds = stored_name("crowds", table.place)
    connection.execute(
        f"CREATE TABLE {crowds} AS SELECT person >> {CROWD_BITS} AS few, count(*) AS n"
        f" FROM {rows} GROUP BY few ORDER BY few"
    )
    kind = rank_type(table.limits.rows_per_person)
    parts = parts_of(table.columns, *table.bounds)
    for statement in write_parts(table.columns, parts, table.place, kind):
        connection.execute(statement)
