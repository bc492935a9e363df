"""Build blocks of synthetic people for trials: their rows, or folders from a schema twin.

The blocks depend on card, program and seed alone; no row is read. In folders, only tables have
content.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sfumato.features.pipelines.program_plan import Program
from sfumato.features.synthetic.person_files import NOT_AVAILABLE, person_files
from sfumato.features.synthetic.schema_twin import (
    TwinTable,
    columns_without_missing_share,
    default_missing_share,
    most_rows,
    schema_tables,
)
from sfumato.features.synthetic.twin_files import twin_files
from sfumato.sandbox.block_columns import folder_tables
from sfumato.vault.card.bids import phenotype_path
from sfumato.vault.card.data_card import Card
from sfumato.vault.folder_archive_format import FILE, SAID, whole

KIND: Final = "schema-twin"  # the label inside their files


@dataclass(frozen=True)
class Lines:
    """A table in the format of block files: its path, its header line, and each person's lines."""

    path: str
    head: str
    of: Mapping[str, Sequence[str]]

    def text(self, people: Collection[str]) -> bytes:
        """Return the text of the table with only the lines of these people."""
        return (self.head + "".join("".join(self.of.get(name, ())) for name in people)).encode()


@dataclass(frozen=True)
class SyntheticBlocks:
    """Synthetic people and their tables, for the trial of a program."""

    card: Card
    people: tuple[str, ...]
    tables: tuple[Lines, ...]
    is_study: bool

    def block(self, people: Collection[str], left: Mapping[str, bytes]) -> bytes:
        """Return the input of a block of these people.

        `left` has the results of their per-person runs.
        """
        if not self.is_study:
            return self.tables[0].text(people)
        parts = [whole(FILE, table.path, table.text(people)) for table in self.tables]
        for person in people:
            files = person_files(self.card, KIND, person)
            parts += [whole(FILE, path, text.encode()) for path, text in files]
            parts.append(whole(SAID, person, left.get(person, b"")))
        return b"".join(parts)


def synthetic_blocks(card: Card, program: Program, people: int, seed: str) -> SyntheticBlocks:
    """Create synthetic people, with rows in every table of people that the program sees."""
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
            f"{phenotype_path(one.name)}.tsv" if one.place else "participants.tsv",
            [column.name for column in one.columns],
        )
        for one in folder_tables(card, program.columns)
    )
    return SyntheticBlocks(card, names, shown, is_study=True)


def undeclared_missing(card: Card, columns: Collection[str]) -> tuple[tuple[str, ...], float]:
    """Return the columns of which a card declares no share of missing values, and the twin's share.

    `columns` has the columns that a program sees.
    """
    return columns_without_missing_share(card, columns), float(default_missing_share(card))


def values_of(card: Card, people: int) -> int:
    """Estimate the number of cells in the tables of so many synthetic people."""
    tables = [table for table in card.every_table if not table.is_public]
    return sum(people * (1 + most_rows(t)) * (1 + len(t.columns)) // 2 for t in tables)


def _lines(table: TwinTable, path: str, names: Sequence[str]) -> Lines:
    """Return rows in the format of block files (engines/duckdb/block_files.py)."""
    places = [table.columns.index(name) for name in names]
    found: dict[str, list[str]] = {}
    for row in table.rows:
        cells = (NOT_AVAILABLE if row[p] is None else twin_files(row[p]) for p in places)
        line = "\t".join((str(row[0]), *(_plain(cell) for cell in cells)))
        found.setdefault(str(row[0]), []).append(line + "\n")
    return Lines(path, "\t".join((table.columns[0], *names)) + "\n", found)


def _plain(text: str) -> str:
    return " ".join(text.split()) if not text.isprintable() else text
