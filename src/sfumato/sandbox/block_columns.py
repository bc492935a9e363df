"""Select the columns that a program sees: of the card's main table, or of all tables for folders.

The name of a column of a further table includes its table: `moods.score`. On a card with several
tables, no column name contains a point, so names are unambiguous.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sfumato.dp.refusal import Refused
from sfumato.sandbox.ports import BlockColumn, BlockTable
from sfumato.sandbox.program_outputs import bad_pipeline
from sfumato.vault.card.data_card import Card, Table


@dataclass(frozen=True)
class _Named:
    """A column of a table, with the name by which programs, rules and owners call it."""

    name: str
    table: int  # index of the table on the card
    column: BlockColumn


def block_columns(card: Card, wanted: object) -> tuple[BlockColumn, ...]:
    """Return the columns of the card's main table that a program sees, or refuse.

    They are the columns that the program names, or all if it names none.
    """
    return tuple(one.column for one in _seen(list(_of_table(card.every_table[0], 0)), wanted))


def folder_columns(card: Card, wanted: object) -> tuple[str, ...]:
    """Return the names of all columns that a program over people's folders sees, or refuse.

    They are the columns that the program names, or all if it names none. Public tables are left
    out, because their rows belong to no person.
    """
    return tuple(one.name for one in _seen(_of_people(card), wanted))


def folder_tables(card: Card, names: Sequence[str]) -> tuple[BlockTable, ...]:
    """Return the tables to write for a program that sees these columns, the main table first.

    The main table is always included. Any other table is included only if the program sees one of
    its columns.
    """
    seen = _seen(_of_people(card), names)
    found = []
    for place, table in enumerate(card.every_table):
        columns = tuple(one.column for one in seen if one.table == place)
        if table.unit is not None and (columns or place == 0):
            found.append(BlockTable(table.name, place, table.unit, columns, table.limits.rows))
    return tuple(found)


def listed_column(card: Card, name: str) -> str:
    """Return the name of a column that programs of this card can see, or refuse."""
    if card.folders is None:
        return card.column(name).name
    return folder_columns(card, [name])[0]


def _of_people(card: Card) -> list[_Named]:
    tables = enumerate(card.every_table)
    return [one for place, table in tables if table.unit for one in _of_table(table, place)]


def _of_table(table: Table, place: int) -> Iterator[_Named]:
    before = f"{table.name}." if place else ""
    for number, column in enumerate(table.columns):
        seen = BlockColumn(column.name, number, column.type, column.step)
        yield _Named(before + column.name, place, seen)


def _seen(every: Sequence[_Named], wanted: object) -> list[_Named]:
    """Return the wanted columns in the order asked for, or all if none are named; or refuse."""
    if wanted is None:
        wanted = [one.name for one in every]
    if not isinstance(wanted, list | tuple) or not wanted:
        raise bad_pipeline("name the columns that the program reads")
    known = {one.name.casefold(): one for one in every}
    found = [known.get(name.casefold()) if isinstance(name, str) else None for name in wanted]
    there = [one for one in found if one is not None]
    if len(there) < len(found):
        name = str(wanted[found.index(None)])[:60]
        raise Refused(
            "unknown-column",
            f"The program reads the column {name!r}, which the data card does not name.",
            "Name only columns of the data card.",
        )
    if len(set(there)) < len(there):
        raise bad_pipeline("a column is named twice")
    return there
