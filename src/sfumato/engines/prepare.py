"""Copying a source into a prepared table; runs in a worker of its own, at the owner's word.

The table's order, codes and keys tell nothing of the source's order: rows lie by keyed hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb

from sfumato.core.columns import Column
from sfumato.core.refusal import Refused
from sfumato.engines.frames import Header
from sfumato.engines.known import CROWD_BITS, coded
from sfumato.engines.locked import Room, open_locked
from sfumato.engines.orders import Order, read_order
from sfumato.engines.prepare_sql import (
    group_key,
    rank_type,
    ranks,
    secret_number,
    spelled,
    stored,
    without_nulls,
)
from sfumato.engines.sketch import domains_alike, write_sketch
from sfumato.engines.sketching import take_sketch
from sfumato.engines.sources import open_source, paths_of

_UNIT = "id"


def prepared(room: Room, salt: str, message: Header) -> Header:
    """Return whose people these seem to be, the table and the sketch made; or the refusal."""
    order = read_order(message)
    room = replace(room, paths=paths_of(order.source))
    connection = open_locked(str(Path(order.work, "rows.duckdb")), room, read_only=False)
    try:
        return {"same_people": list(_made(connection, order, salt))}
    except Refused as refused:
        return {"refused": [refused.code, refused.cause, refused.next_step]}
    finally:
        connection.close()


def _made(connection: duckdb.DuckDBPyConnection, order: Order, salt: str) -> tuple[str, ...]:
    source = open_source(connection, order)
    places = [source.place(column.name) for column in order.columns]
    unit = None if order.unit is None else source.place(order.unit)
    connection.execute(f"CREATE TEMP VIEW texts AS {source.sql}")
    _check_size(connection, order.limits.rows)
    sketch = take_sketch(connection, order, len(source.names), unit, salt)
    write_sketch(Path(order.work, "people.json"), sketch)
    _stage(connection, order, places, unit)
    if unit is None:
        _write_rows(connection, order, salt)
    else:
        _write_people(connection, order, salt)
    return domains_alike(sketch, order.sketches)


def _check_size(connection: duckdb.DuckDBPyConnection, most: int) -> None:
    counted = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM texts LIMIT {most + 1})"
    ).fetchone()
    if counted is None or counted[0] > most:
        raise Refused(
            "source-too-large",
            f"The source has more than the {most} rows of the card's limits.rows.",
            "Raise limits.rows on the card, or hand in less.",
        )


# --- staging: texts become values and key codes --------------------------------------------------


def _stage(
    connection: duckdb.DuckDBPyConnection, order: Order, places: Sequence[int], unit: int | None
) -> None:
    texts = [f"{without_nulls(f'c{place}', order.nulls)} AS x{i}" for i, place in enumerate(places)]
    values = [
        f"{stored(column, f'x{i}', order.limits.text_length)} AS v{i}"
        for i, column in enumerate(order.columns)
    ]
    where = ""
    if unit is not None:  # an empty identifier is nobody, and nobody's rows are dropped (rule 12)
        texts.append(f"{without_nulls(f'c{unit}', order.nulls)} AS {_UNIT}")
        values.append(_UNIT)
        where = f" WHERE {_UNIT} <> ''"
    if not values:
        texts, values = ["NULL AS x"], ["NULL AS nothing"]
    keyed = [(i, column) for i, column in enumerate(order.columns) if column.keys is not None]
    for i, column in keyed:
        _load_keys(connection, i, column)
    codes = "".join(f", codes{i}.code AS k{i}" for i, _ in keyed)
    joins = "".join(f" LEFT JOIN codes{i} ON codes{i}.value = v.v{i}" for i, _ in keyed)
    connection.execute(
        f"CREATE TEMP TABLE staged AS SELECT v.*{codes} FROM ("
        f"SELECT {', '.join(values)} FROM (SELECT {', '.join(texts)} FROM texts){where}"
        f") AS v{joins}"
    )


def _load_keys(connection: duckdb.DuckDBPyConnection, place: int, column: Column) -> None:
    """Make the little table that gives every declared key its code, in the card's order."""
    keys = column.keys or ()
    numeric = column.is_numeric
    values = [int(key.number / column.step) if numeric else key.text for key in keys]
    kind = {"text": "VARCHAR", "boolean": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMP"}
    stored_as = "BIGINT" if numeric else kind[column.type]
    listed = "BIGINT[]" if numeric else "VARCHAR[]"
    connection.execute(
        f"CREATE TEMP TABLE codes{place} AS SELECT CAST(value AS {stored_as}) AS value, code"
        f" FROM (SELECT unnest(CAST(? AS {listed})) AS value,"
        f" CAST(unnest(range({len(values)})) AS INTEGER) AS code)",
        [values],
    )


# --- writing: rows by hash, people by hash -------------------------------------------------------


def _stored_columns(order: Order) -> list[str]:
    values = [f"v{i}" for i in range(len(order.columns))]
    return values + [f"k{i}" for i, column in enumerate(order.columns) if column.keys is not None]


def _content(order: Order) -> str:
    return spelled([f"v{i}" for i in range(len(order.columns))]) or "''"


def _write_rows(connection: duckdb.DuckDBPyConnection, order: Order, salt: str) -> None:
    columns = ", ".join(("row_key", *_stored_columns(order)))
    connection.execute(
        f'CREATE TABLE "rows" AS SELECT {columns} FROM ('
        f"SELECT *, {secret_number('row', _content(order))} AS row_key FROM staged"
        ") ORDER BY row_key",
        [salt],
    )


def _write_people(connection: duckdb.DuckDBPyConnection, order: Order, salt: str) -> None:
    """Write the rows, person by person in the order of their keyed hashes, each cut to the limit.

    `person` is a dense code and changes when others come or go; it only tells people apart.
    Whatever has an order is ordered by `person_key` and `row_key`, which depend on nobody else.
    """
    connection.execute(
        f"CREATE TEMP TABLE persons AS SELECT {_UNIT}, person_key,"
        " CAST(row_number() OVER (ORDER BY person_key, id) - 1 AS UINTEGER) AS person"
        f" FROM (SELECT {_UNIT}, {secret_number('person', _UNIT)} AS person_key"
        f" FROM (SELECT DISTINCT {_UNIT} FROM staged))",
        [salt],
    )
    connection.execute(
        "CREATE TABLE people AS SELECT person, person_key FROM persons ORDER BY person"
    )
    _number_rows(connection, order, salt)
    for place in coded(order.columns):
        _write_texts(connection, place, salt)
    _write_ranked(connection, order, salt)
    connection.execute(
        f"CREATE TABLE crowds AS SELECT person >> {CROWD_BITS} AS few, count(*) AS n"
        " FROM numbered GROUP BY few ORDER BY few"
    )


def _number_rows(connection: duckdb.DuckDBPyConnection, order: Order, salt: str) -> None:
    """Give every row its place among its person's, by keyed hash, then content; cut the rest."""
    columns = _stored_columns(order)
    key = secret_number("row", "CAST(person_key AS VARCHAR)", _content(order))
    ranking = ", ".join(("row_key", *columns))
    connection.execute(
        f"CREATE TEMP TABLE numbered AS SELECT"
        f" {', '.join(('person', 'person_key', 'row_key', *columns))},"
        f" CAST(row_number() OVER (PARTITION BY person ORDER BY {ranking}) AS UINTEGER) AS rr"
        f" FROM (SELECT *, {key} AS row_key FROM staged JOIN persons USING ({_UNIT}))"
        f" QUALIFY rr <= {order.limits.rows_per_person}",
        [salt],
    )
    connection.execute("DROP TABLE staged")


def _write_texts(connection: duckdb.DuckDBPyConnection, place: int, salt: str) -> None:
    """Write the dictionary of a column of private texts, codes in value order.

    Codes shift when a text comes or goes with a person; `text_key` does not, and so it is what
    orders are made of (ranks.proof.md).
    """
    connection.execute(
        f"CREATE TABLE texts{place} AS SELECT"
        " CAST(row_number() OVER (ORDER BY value) - 1 AS UINTEGER) AS code, value,"
        f" {secret_number('text', 'value')} AS text_key"
        f" FROM (SELECT DISTINCT v{place} AS value FROM numbered WHERE v{place} IS NOT NULL)"
        " ORDER BY code",
        [salt],
    )


def _write_ranked(connection: duckdb.DuckDBPyConnection, order: Order, salt: str) -> None:
    """Write the table, each row with its stored ranks (ranks.proof.md)."""
    texts = coded(order.columns)
    codes = {i: f"k{i}" for i, column in enumerate(order.columns) if column.keys is not None}
    codes |= {i: f"c{i}" for i in texts}
    joins = "".join(f" LEFT JOIN texts{i} ON texts{i}.value = n.v{i}" for i in texts)
    given = ["n.*", *(f"texts{i}.code AS c{i}" for i in texts)]
    hashed = ["*", *(f"{group_key(i, code)} AS h{i}" for i, code in codes.items())]
    kind = rank_type(order.limits.rows_per_person)
    columns = ["person", "person_key", "row_key", f"CAST(rr AS {kind}) AS rr"]
    columns += [*_stored_columns(order), *(f"c{i}" for i in texts)]
    columns += [text for i, code in codes.items() for text in ranks(i, code, kind)]
    connection.execute(
        f'CREATE TABLE "rows" AS SELECT {", ".join(columns)} FROM ('
        f"SELECT {', '.join(hashed)} FROM (SELECT {', '.join(given)} FROM numbered AS n{joins}))"
        " ORDER BY person_key, person, rr",
        [salt] * len(codes),
    )
