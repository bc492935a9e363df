"""Prepare rows that are appended to a table: the new rows alone; in a separate worker.

A person's new rows come after the person's earlier rows, and new groups after earlier groups. So no
rank of an earlier row changes, and what the earlier rows have used of a contribution bound stays
used. A new row's ranks depend only on rows of the same person (engines/kernel/ranks.proof.md).

Small segments are merged with the new one, so that a table has few segments. Merging copies rows
with their ranks; it computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import duckdb

from sfumato.dp.refusal import Refused
from sfumato.engines.ingest.bids_folders import folders_mark
from sfumato.engines.ingest.cell_report import staged, with_cuts
from sfumato.engines.ingest.cell_sql import group_key, rank_type, secret_name, secret_number
from sfumato.engines.ingest.file_conversion import converted
from sfumato.engines.ingest.person_sketch import (
    NewSketch,
    domains_alike,
    read_sketch,
    united,
    write_sketch,
)
from sfumato.engines.ingest.prepare import (
    ROW_KEY,
    UNIT,
    open_with_staging,
    staged_source,
    stored_columns,
)
from sfumato.engines.ingest.prepare_order import FOLDERS, Order, TableOrder, read_order
from sfumato.engines.ingest.source_errors import two_spellings
from sfumato.engines.ingest.source_files import paths_of
from sfumato.engines.shared.locked_connection import Room, checkpoint, named
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.prepared_table import CROWD_BITS, coded
from sfumato.engines.shared.segments import (
    SCHEMA,
    Segment,
    attach_prepared,
    crowds_sum,
    files_of,
    is_rows,
    union_of,
)
from sfumato.query.printing.from_clause import stored_name, table_name
from sfumato.vault.add_report import TableReport, report_json

_BEFORE: Final = "before"  # the database with the rows of the version before
# A merged segment has at most this many rows, or this share of the table, whichever is more. So no
# append takes long, and a table has few segments.
_MERGED_ROWS: Final = 1 << 20
_MERGED_SHARE: Final = 32
_ALIKE: Final = 2  # a segment is merged if it has at most so many times the rows that follow it


def append(room: Room, salt: str, message: Header) -> Header:
    """Prepare the new rows of an order in its work folder; return the report for the owner.

    `kept` is how many of the earlier segments the new version still needs. A refusal is returned,
    not raised.
    """
    try:
        return _appended(room, salt, message)
    except Refused as refused:
        return {"refused": [refused.code, refused.cause, refused.next_step]}


def _appended(room: Room, salt: str, message: Header) -> Header:
    order, before = read_order(message), str(message["before"])
    order = replace(order, tables=tuple(converted(t, Path(order.work)) for t in order.tables))
    paths = {path: None for table in order.tables for path in paths_of(table.source)}
    files = (*paths, *files_of(before))
    with open_with_staging(room, Path(order.work), files) as connection:
        segments = attach_prepared(connection, before, _BEFORE)
        people, report = _made(connection, order, salt)
        kept = len(segments) - merged(_new_rows(connection, order), [s.size for s in segments])
        write_segment(connection, segments[kept:])
        checkpoint(connection)
    return {"same_people": list(people), "report": report_json(report), "kept": kept}


def _made(
    connection: duckdb.DuckDBPyConnection, order: Order, salt: str
) -> tuple[tuple[str, ...], tuple[TableReport, ...]]:
    """Create temporary tables of all that is new, under the names of stored tables."""
    taken = [
        (table, *staged_source(connection, _with_room(connection, table), salt))
        for table in order.tables
    ]
    people = [table for table in order.tables if table.unit is not None]
    if people:
        _name_persons(connection, people, salt)
    reports = []
    for table, _, found in taken:
        if table.unit is None:
            _write_rows(connection, table)
            reports.append(found[0])
        else:
            _Ranking(connection, table, salt).write()
            reports.append(with_cuts(connection, table, found))
    own = united([sketch for _, sketch, _ in taken])
    own = replace(own, whole=(*own.whole, folders_mark(Path(order.work, FOLDERS), salt)))
    write_sketch(Path(order.work, "people.json"), own)
    earlier = tuple(filter(None, (read_sketch(Path(path)) for path in order.earlier)))
    new = NewSketch(own, united([]), order.different, earlier)
    return domains_alike(new, order.sketches), tuple(reports)


def _with_room(connection: duckdb.DuckDBPyConnection, table: TableOrder) -> TableOrder:
    """Return the order with the number of rows that the card's limit leaves for the new ones."""
    limits = table.limits
    left = limits.rows - number(connection, f"SELECT count(*) FROM {_earlier(table)}")
    if left <= 0:
        raise Refused(
            "source-too-large",
            f"The data set has the {limits.rows} rows of the data card's limits.rows already.",
            "Add the whole table as a new version, with a card that has a larger limits.rows.",
        )
    return replace(table, limits=replace(limits, rows=left))


def _earlier(table: TableOrder) -> str:
    return f"{_BEFORE}.{table_name('duckdb', table.place)}"


def number(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    """Return the one integer that a statement selects."""
    found = connection.execute(sql).fetchone()
    return 0 if found is None or found[0] is None else int(found[0])


# --- what is new: persons, texts and rows --------------------------------------------------------


def _name_persons(
    connection: duckdb.DuckDBPyConnection, tables: Sequence[TableOrder], salt: str
) -> None:
    """Create the table of the persons with new rows; who is new gets the next numbers.

    A person is recognised by `who`, a keyed digest that is the same in every version.
    """
    everybody = " UNION ALL ".join(
        f"SELECT {UNIT} FROM {staged(table)} WHERE {UNIT} IS NOT NULL" for table in tables
    )
    known = number(connection, f"SELECT max(person) + 1 FROM {_BEFORE}.people")
    connection.execute(
        f"CREATE TEMP TABLE persons AS SELECT {UNIT}, n.person_key, n.who,"
        " p.person IS NULL AS is_new, CAST(coalesce(p.person,"
        f" {known} - 1 + row_number() OVER (PARTITION BY p.person IS NULL ORDER BY n.person_key,"
        f" {UNIT})) AS UINTEGER) AS person FROM"
        f" (SELECT {UNIT}, {secret_number('person', UNIT)} AS person_key,"
        f" {secret_name('who', UNIT)} AS who FROM (SELECT DISTINCT {UNIT} FROM ({everybody}))) AS n"
        f" LEFT JOIN {_BEFORE}.people AS p USING (who)",
        [salt, salt],
    )
    _check_spelling(connection, salt)
    connection.execute(
        "CREATE TEMP TABLE people AS SELECT person, person_key, who FROM persons WHERE is_new"
    )


def _check_spelling(connection: duckdb.DuckDBPyConnection, salt: str) -> None:
    """Refuse a new person 7.0 if there is a person 7 already, or the other way round.

    A frame's column of integers becomes one of floats as soon as one cell is empty. Without this
    check, everybody in it would be two persons, each with the contribution bounds of one.
    """
    other = (
        f"CASE WHEN regexp_full_match({UNIT}, '[0-9]+') THEN {UNIT} || '.0'"
        f" WHEN regexp_full_match({UNIT}, '[0-9]+[.]0*') THEN split_part({UNIT}, '.', 1) END"
    )
    found = connection.execute(
        f"SELECT 1 FROM (SELECT {secret_name('who', 'other')} AS who FROM"
        f" (SELECT {other} AS other FROM persons WHERE is_new) WHERE other IS NOT NULL)"
        f" SEMI JOIN (SELECT who FROM {_BEFORE}.people UNION ALL SELECT who FROM persons)"
        " USING (who) LIMIT 1",
        [salt],
    ).fetchone()
    if found is not None:
        raise two_spellings()


def _write_rows(connection: duckdb.DuckDBPyConnection, order: TableOrder) -> None:
    """Create the table of the new rows of a table whose rows belong to no person."""
    columns = ", ".join((f"{ROW_KEY} AS row_key", *stored_columns(order)))
    connection.execute(
        f"CREATE TEMP TABLE {table_name('duckdb', order.place)} AS SELECT {columns}"
        f" FROM {staged(order)}"
    )
    connection.execute(f"DROP TABLE {staged(order)}")


@dataclass(frozen=True)
class _Ranking:
    """Ranks the new rows of a table after the rows that its persons have already."""

    connection: duckdb.DuckDBPyConnection
    order: TableOrder
    salt: str

    @property
    def codes(self) -> dict[int, str]:
        """Return the columns with stored ranks, and the column of their codes."""
        columns = self.order.columns
        declared = {i: f"k{i}" for i, column in enumerate(columns) if column.keys is not None}
        return declared | {i: f"c{i}" for i in coded(columns)}

    def write(self) -> None:
        """Create the temporary tables of new rows, new texts, and row counts."""
        self._find_used()
        self._number_rows()
        for place in coded(self.order.columns):
            self._find_texts(place)
        self._rank()
        crowds = stored_name("crowds", self.order.place)
        self.connection.execute(
            f"CREATE TEMP TABLE {crowds} AS SELECT person >> {CROWD_BITS} AS few, count(*) AS n"
            " FROM numbered GROUP BY few"
        )
        temporary = ["numbered", "earlier", "used", *(f"groups{i}" for i in self.codes)]
        temporary += [f"spoken{i}" for i in coded(self.order.columns)]
        for name in temporary:
            self.connection.execute(f"DROP TABLE {name}")

    def _find_used(self) -> None:
        """Create tables of what earlier rows of the same persons have used: ranks and groups."""
        ranks = [name for i, code in self.codes.items() for name in (code, f"gr{i}", f"rr{i}")]
        lasts = "".join(f", max(gr{i}) AS last{i}" for i in self.codes)
        self.connection.execute(
            f"CREATE TEMP TABLE earlier AS SELECT {', '.join(('person', 'rr', *ranks))}"
            f" FROM {_earlier(self.order)}"
            " WHERE person IN (SELECT person FROM persons WHERE NOT is_new)"
        )
        self.connection.execute(
            f"CREATE TEMP TABLE used AS SELECT person, max(rr) AS rows{lasts} FROM earlier"
            " GROUP BY person"
        )
        for i, code in self.codes.items():
            self.connection.execute(
                f"CREATE TEMP TABLE groups{i} AS SELECT person, {code} AS code,"
                f" max(gr{i}) AS place, max(rr{i}) AS rows FROM earlier"
                f" WHERE {code} IS NOT NULL GROUP BY person, {code}"
            )

    def _number_rows(self) -> None:
        """Number each person's new rows, in the order of a keyed hash, after the earlier ones.

        Rows beyond `rows_per_person` are dropped.
        """
        columns, most = stored_columns(self.order), self.order.limits.rows_per_person
        ranking = ", ".join(("row_key", *columns))
        self.connection.execute(
            f"CREATE TEMP TABLE numbered AS SELECT"
            f" {', '.join(('person', 'person_key', 'row_key', *columns))},"
            " CAST(coalesce(used.rows, 0)"
            f" + row_number() OVER (PARTITION BY person ORDER BY {ranking}) AS UINTEGER) AS rr"
            f" FROM (SELECT *, {ROW_KEY} AS row_key FROM {staged(self.order)}"
            f" JOIN persons USING ({UNIT}))"
            f" LEFT JOIN used USING (person) QUALIFY rr <= {most}"
        )
        self.connection.execute(f"DROP TABLE {staged(self.order)}")

    def _find_texts(self, place: int) -> None:
        """Create the table of a column's new texts with the next codes; map all texts to codes."""
        name = stored_name(f"texts{place}", self.order.place)
        known = number(self.connection, f"SELECT max(code) + 1 FROM {_BEFORE}.{name}")
        values = f"SELECT DISTINCT v{place} AS value FROM numbered WHERE v{place} IS NOT NULL"
        self.connection.execute(
            f"CREATE TEMP TABLE {name} AS SELECT"
            f" CAST({known} - 1 + row_number() OVER (ORDER BY value) AS UINTEGER) AS code, value,"
            f" {secret_number('text', 'value')} AS text_key"
            f" FROM ({values}) ANTI JOIN {_BEFORE}.{name} USING (value)",
            [self.salt],
        )
        self.connection.execute(
            f"CREATE TEMP TABLE spoken{place} AS SELECT code, value FROM temp.{name}"
            f" UNION ALL SELECT code, value FROM {_BEFORE}.{name}"
            f" SEMI JOIN ({values}) USING (value)"
        )

    def _rank(self) -> None:
        """Create the table of the new rows, with the ranks that decide whether a row counts."""
        texts = coded(self.order.columns)
        joins = "".join(f" LEFT JOIN spoken{i} ON spoken{i}.value = n.v{i}" for i in texts)
        given = ["n.*", *(f"spoken{i}.code AS c{i}" for i in texts)]
        hashed = ["*", *(f"{group_key(i, code)} AS h{i}" for i, code in self.codes.items())]
        rows = (
            f"SELECT {', '.join(hashed)} FROM (SELECT {', '.join(given)} FROM numbered AS n{joins})"
        )
        groups = "".join(
            f" LEFT JOIN groups{i} ON groups{i}.person = r.person AND groups{i}.code = r.{code}"
            for i, code in self.codes.items()
        )
        kind = rank_type(self.order.limits.rows_per_person)
        columns = ["r.person", "r.person_key", "r.row_key", f"CAST(r.rr AS {kind}) AS rr"]
        columns += [f"r.{name}" for name in stored_columns(self.order)]
        columns += [f"r.c{i}" for i in texts]
        columns += [text for i, code in self.codes.items() for text in _ranks(i, code, kind)]
        self.connection.execute(
            f"CREATE TEMP TABLE {table_name('duckdb', self.order.place)} AS"
            f" SELECT {', '.join(columns)} FROM ({rows}) AS r"
            f" LEFT JOIN used ON used.person = r.person{groups}",
            [self.salt] * len(self.codes),
        )


def _ranks(place: int, code: str, kind: str) -> tuple[str, str]:
    """Return SQL of two ranks of a new row: of its group for the person, and in its group.

    A group that the person has already keeps its rank. New groups follow in the order of the PRF of
    their keys; equal hashes are in the order of values, as codes of private texts are not.
    """
    tie = f"r.{code}" if code.startswith("k") else f"r.v{place}"
    groups = (
        f"(PARTITION BY r.person, groups{place}.place IS NULL"
        f" ORDER BY r.h{place} NULLS LAST, {tie} NULLS LAST)"
    )
    new = f"coalesce(used.last{place}, 0) + dense_rank() OVER {groups}"
    row = (
        f"coalesce(groups{place}.rows, 0)"
        f" + row_number() OVER (PARTITION BY r.person, r.{code} ORDER BY r.rr)"
    )
    there = f"CASE WHEN r.{code} IS NOT NULL THEN"
    return (
        f"CAST({there} coalesce(groups{place}.place, {new}) END AS {kind}) AS gr{place}",
        f"CAST({there} {row} END AS {kind}) AS rr{place}",
    )


# --- the new segment -----------------------------------------------------------------------------


def _new_rows(connection: duckdb.DuckDBPyConnection, order: Order) -> int:
    names = [f"temp.{table_name('duckdb', table.place)}" for table in order.tables]
    return sum(number(connection, f"SELECT count(*) FROM {name}") for name in names)


def merged(new: int, sizes: Sequence[int]) -> int:
    """Return how many of the last segments are merged with `new` rows.

    A segment is merged if it is not much larger than what follows it. So each row is copied a few
    times at most, however many appends there are.
    """
    most = max(_MERGED_ROWS, (sum(sizes) + new) // _MERGED_SHARE)
    count, total = 0, new
    for size in reversed(sizes):
        if size > _ALIKE * total or total + size > most:
            break
        count, total = count + 1, total + size
    return count


def write_segment(connection: duckdb.DuckDBPyConnection, segments: Sequence[Segment]) -> None:
    """Write all temporary tables of stored names, and the given segments, to one new segment."""
    found = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = 'temp'"
    ).fetchall()
    new = {name for (name,) in found if is_stored(name)}
    names = new | {name for segment in segments for name in segment.rows}
    connection.execute(f"CREATE SCHEMA {SCHEMA}")
    for name in sorted(names):
        parts = [union_of(segments, name)] if any(name in s.rows for s in segments) else []
        parts += [f"SELECT * FROM temp.{named(name)}"] if name in new else []
        union = " UNION ALL BY NAME ".join(f"({part})" for part in parts)
        if name.startswith("crowds"):
            union = crowds_sum(union)
        columns = connection.execute(f"SELECT * FROM ({union}) LIMIT 0").description
        order = _order_of(name, {column[0] for column in columns})
        connection.execute(
            f"CREATE TABLE {SCHEMA}.{named(name)} AS SELECT * FROM ({union}) ORDER BY {order}"
        )


def is_stored(name: str) -> bool:
    """Say whether a temporary table has the name of a stored table."""
    return is_rows(name) or name == "people" or name.startswith(("texts", "crowds"))


def _order_of(name: str, columns: set[str]) -> str:
    """Return the ORDER BY of a stored table: by number, so that a range of persons is together."""
    if name.startswith("texts"):
        return "code"
    if name.startswith("crowds"):
        return "few"
    if "person" not in columns:
        return "row_key"
    return "person, rr" if is_rows(name) else "person"
