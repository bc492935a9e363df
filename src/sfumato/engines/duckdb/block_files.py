"""Split a table into one file per block of persons, for sample and aggregate; in a worker.

A keyed hash of the person decides the block of the person and the order within the block. So a
person's block and rows depend on no other person (soundness rules 26 and 29).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import duckdb

from sfumato.engines.ingest.cell_sql import secret_number
from sfumato.engines.ingest.prepare_order import path_of_block
from sfumato.engines.ingest.source_files import paths_of
from sfumato.engines.shared.locked_connection import Room, open_locked, quoted
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.segments import open_prepared
from sfumato.query.printing.from_clause import table_name

MISSING: Final = "n/a"  # the missing value of BIDS, which pandas recognises
_AT_ONCE: Final = 20_000


def split(room: Room, request: Header) -> None:
    """Write a table's rows to one file per block of persons, also for empty blocks."""
    body: dict[str, Any] = request  # Any: a message of the parent process
    room = replace(room, spill=body["spill"], paths=tuple(paths_of(body["table"])))
    connection = open_prepared(body["table"], room)
    try:
        _write(connection, body)
    finally:
        connection.close()


def split_copy(room: Room, request: Header) -> None:
    """Write one file per block of persons, from a table that was exported for Spark.

    Such a table identifies persons only by a 64-bit keyed number. Two persons with the same number
    are in the same block under one name. Whether this happens to a person does not depend on third
    persons.
    """
    body: dict[str, Any] = request  # Any: a message of the parent process
    room = replace(room, spill=body["spill"], paths=(body["table"],))
    connection = open_locked(":memory:", room, read_only=False)
    rows = f"read_parquet({quoted(body['table'])})"
    try:
        connection.execute(f"CREATE TEMP VIEW {table_name('duckdb', 0)} AS SELECT * FROM {rows}")
        connection.execute(
            f"CREATE TEMP VIEW people AS SELECT DISTINCT person, person_key AS who FROM {rows}"
        )
        _write(connection, body)
    finally:
        connection.close()


def _write(connection: duckdb.DuckDBPyConnection, body: dict[str, Any]) -> None:
    shown = shows(body)
    head = header_line(body)
    rows = connection.execute(_sql([place for _, place, _, _ in body["columns"]]), [
        body["key"], body["blocks"], body["key"],
    ])  # fmt: skip
    writer = _Writer(body["target"], body["blocks"], head)
    while found := rows.fetchmany(_AT_ONCE):
        for block, person, *values in found:
            writer.write(block, line_of(f"p{person}", shown, values))
    writer.close()


Show = Callable[[Any], str]  # Any: a cell as DuckDB returns it


def shows(body: dict[str, Any]) -> list[Show]:  # Any: a message of the parent process
    """Return one function per column, which formats the column's values as text."""
    return [_shown(kind, Fraction(step)) for _, _, kind, step in body["columns"]]


def header_line(body: dict[str, Any]) -> str:  # Any: a message of the parent process
    """Return the header line of a block's file: the person column and the other column names."""
    heads = [body["person"], *(name for name, _, _, _ in body["columns"])]
    return "\t".join(_plain(name) for name in heads) + "\n"


def line_of(person: str, shown: Sequence[Show], values: Sequence[object]) -> str:
    """Return a row as a tab-separated line: the person, then the formatted values."""
    cells = (
        MISSING if value is None else show(value) for show, value in zip(shown, values, strict=True)
    )
    return "\t".join((person, *cells)) + "\n"


def _sql(places: Sequence[int]) -> str:
    """Return the SELECT of all rows by block, in the order of a keyed hash of the person.

    Within a block, persons are numbered.
    """
    values = "".join(f", v{place}" for place in places)
    block = f"CAST({secret_number('block', 'hex(who)')} % ? AS INTEGER)"
    order = secret_number("in block", "hex(who)")
    return (
        "SELECT block, dense_rank() OVER (PARTITION BY block ORDER BY lot, who) AS number"
        f"{values} FROM (SELECT person, who, {block} AS block, {order} AS lot FROM people)"
        f" JOIN {table_name('duckdb', 0)} USING (person) ORDER BY block, lot, who, rr"
    )


class _Writer:
    """Writer of the files of all blocks; it buffers lines and writes one block after the other."""

    def __init__(self, target: str, blocks: int, head: str) -> None:
        for block in range(blocks):
            Path(path_of_block(target, block)).write_text(head, encoding="utf-8")
        self._target, self._block, self._lines = target, -1, [""]

    def write(self, block: int, line: str) -> None:
        if block != self._block or len(self._lines) > _AT_ONCE:
            self.close()
            self._block = block
        self._lines.append(line)

    def close(self) -> None:
        if self._block >= 0:
            path = path_of_block(self._target, self._block)
            with open(path, "a", encoding="utf-8") as file:
                file.writelines(self._lines)
        self._lines = []


def _shown(kind: str, step: Fraction) -> Show:
    if kind in ("integer", "number"):
        return lambda steps: decimal_text(steps * step)
    if kind == "boolean":
        return lambda value: "true" if value else "false"
    return lambda value: _plain(str(value))


def decimal_text(value: Fraction) -> str:
    """Return a number's exact decimal text.

    The number must have finitely many decimals, as all multiples of a card's steps have.
    """
    digits, scaled = 0, value
    while scaled.denominator != 1:
        digits, scaled = digits + 1, scaled * 10
    text = str(abs(int(scaled))).rjust(digits + 1, "0")
    sign = "-" if value < 0 else ""
    return sign + (f"{text[:-digits]}.{text[-digits:]}" if digits else text)


def _plain(text: str) -> str:
    """Replace tabs and line breaks by spaces, so that a text stays in one cell of the TSV file."""
    return "".join(" " if c in "\t\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029" else c for c in text)
