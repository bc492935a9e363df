"""Made-up people as a block has them: their rows, or the folders that a schema twin gives them.

A function of card, program and seed; no row is read. The files of a folder are empty.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sfumato.features.pipelines.program_plan import Program
from sfumato.features.synthetic.schema_twin import TwinTable, most_rows, schema_tables
from sfumato.features.synthetic.twin_files import NOT_AVAILABLE, stubs, twin_files
from sfumato.sandbox.block_columns import folder_tables
from sfumato.vault.card.bids import beside
from sfumato.vault.card.data_card import Card
from sfumato.vault.folder_records import FILE, SAID, whole

KIND: Final = "schema-twin"  # what their files say that they are of


@dataclass(frozen=True)
class Lines:
    """A table as blocks have it: where it lies, its first line, and the lines of each person."""

    path: str
    head: str
    of: Mapping[str, Sequence[str]]

    def text(self, people: Collection[str]) -> bytes:
        """Return the table of these people."""
        return (self.head + "".join("".join(self.of.get(name, ())) for name in people)).encode()


@dataclass(frozen=True)
class SyntheticBlocks:
    """Made-up people, for a program that is to be tried on them."""

    card: Card
    people: tuple[str, ...]
    tables: tuple[Lines, ...]
    is_study: bool

    def block(self, people: Collection[str], left: Mapping[str, bytes]) -> bytes:
        """Return what a block of these is given, with what their own runs have left."""
        if not self.is_study:
            return self.tables[0].text(people)
        parts = [whole(FILE, table.path, table.text(people)) for table in self.tables]
        for person in people:
            files = stubs(self.card, KIND, person)
            parts += [whole(FILE, path, text.encode()) for path, text in files]
            parts.append(whole(SAID, person, left.get(person, b"")))
        return b"".join(parts)


def synthetic_blocks(card: Card, program: Program, people: int, seed: str) -> SyntheticBlocks:
    """Return so many made-up people, with rows in every table of people that is seen."""
    rows = -(-people * (1 + most_rows(card.every_table[0])) // 2)
    tables = schema_tables(card, rows, seed)
    names = tuple(dict.fromkeys(str(row[0]) for row in tables[0].rows))
    if not program.is_study:
        return SyntheticBlocks(
            card, names, (_lines(tables[0], "", program.columns),), is_study=False
        )
    shown = tuple(
        _lines(
            tables[one.place],
            f"{beside(one.name)}.tsv" if one.place else "participants.tsv",
            [column.name for column in one.columns],
        )
        for one in folder_tables(card, program.columns)
    )
    return SyntheticBlocks(card, names, shown, is_study=True)


def values_of(card: Card, people: int) -> int:
    """Return how many values so many made-up people have, about."""
    tables = [table for table in card.every_table if not table.is_public]
    return sum(people * (1 + most_rows(t)) * (1 + len(t.columns)) // 2 for t in tables)


def _lines(table: TwinTable, path: str, names: Sequence[str]) -> Lines:
    """Return rows as blocks have them (engines/duckdb/block_files.py)."""
    places = [table.columns.index(name) for name in names]
    found: dict[str, list[str]] = {}
    for row in table.rows:
        cells = (NOT_AVAILABLE if row[p] is None else twin_files(row[p]) for p in places)
        line = "\t".join((str(row[0]), *(_plain(cell) for cell in cells)))
        found.setdefault(str(row[0]), []).append(line + "\n")
    return Lines(path, "\t".join((table.columns[0], *names)) + "\n", found)


def _plain(text: str) -> str:
    return " ".join(text.split()) if not text.isprintable() else text
