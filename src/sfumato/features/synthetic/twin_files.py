"""Write a synthetic twin as files with a stamp: CSV tables, or a BIDS folder for BIDS cards."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.features.synthetic.column_values import Value
from sfumato.features.synthetic.person_files import (
    NOT_AVAILABLE,
    person_files,
    person_files_json,
)
from sfumato.features.synthetic.schema_twin import TwinTable
from sfumato.system.csv_writer import write_rows
from sfumato.vault.card.bids import DESCRIPTION, phenotype_path
from sfumato.vault.card.bids_files import data_set_files, description_of, file_json
from sfumato.vault.card.data_card import Card

STAMP: Final = "TWIN.json"  # the file that describes the twin


@dataclass(frozen=True)
class Stamp:
    """The description of how a synthetic twin was made, so that nobody mistakes it for the data."""

    kind: str  # schema-twin or dp-twin; part of every name
    data_set: str
    version: str
    guarantee: str
    says: str
    more: Json

    @property
    def name(self) -> str:
        """Return the synthetic twin's name: the data set's name and the kind of twin."""
        return f"{self.data_set}.{self.kind}"

    def as_json(self) -> Json:
        """Return the synthetic twin's stamp (how it was made) as JSON."""
        return {
            "twin": self.kind,
            "of": self.data_set,
            "version": self.version,
            "guarantee": self.guarantee,
            "says": self.says,
            **self.more,
        }


def twin_json(card: Card, stamp: Stamp, tables: Sequence[TwinTable]) -> Json:
    """Return the synthetic twin as the JSON of a reply: its name, its stamp, and every file."""
    files, said = dict(_files(card, stamp, tables)), {**stamp.as_json(), **person_files_json(card)}
    files[STAMP] = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
    return {"name": stamp.name, "stamp": said, "files": files}


def _files(card: Card, stamp: Stamp, tables: Sequence[TwinTable]) -> Iterator[tuple[str, str]]:
    if card.bids is not None:
        yield from _bids(card, stamp, tables)
        return
    null = next(iter(card.nulls), "")
    for table in tables:
        yield f"{table.name}.{stamp.kind}.csv", _text(table, ",", null)


def _text(table: TwinTable, separator: str, null: str) -> str:
    made = io.StringIO(newline="")
    lines = ([null if value is None else twin_files(value) for value in row] for row in table.rows)
    write_rows(made, chain((table.columns,), lines), separator)
    return made.getvalue()


def twin_files(value: Value) -> str:
    """Format one value as text for a cell in a synthetic twin's files.

    Numbers become decimals, and a missing value becomes an empty cell.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case Fraction() if value.denominator == 1:
            return str(value.numerator)
        case Fraction():
            return format(Decimal(value.numerator) / Decimal(value.denominator), "f")
        case str():
            return value.removesuffix(".000000") if len(value) == 26 else value
        case None:
            return ""


# --- BIDS -----------------------------------------------------------------------------------------


def _bids(card: Card, stamp: Stamp, tables: Sequence[TwinTable]) -> Iterator[tuple[str, str]]:
    """Yield a twin as files of a BIDS folder (a standard layout of studies), as path and text."""
    yield from {
        **data_set_files(card),
        DESCRIPTION: file_json(_twin_description(card, stamp)),
        ".bidsignore": f"{STAMP}\n",
    }.items()
    for place, table in enumerate(tables):
        stem = "participants" if place == 0 else phenotype_path(table.name)
        yield f"{stem}.tsv", _text(table, "\t", NOT_AVAILABLE)
    for person in dict.fromkeys(str(row[0]) for row in tables[0].rows):
        yield from person_files(card, stamp.kind, person)


def _twin_description(card: Card, stamp: Stamp) -> Json:
    """Return the BIDS description of a twin, with its kind in the name and in GeneratedBy."""
    own = description_of(card)
    before = own.get("GeneratedBy")
    made = {"Name": "sfumato", "Description": stamp.guarantee}
    return {
        **own,
        "Name": f"{own['Name']} ({stamp.name}: {stamp.says})",
        "GeneratedBy": [*(before if isinstance(before, list) else []), made],
    }
