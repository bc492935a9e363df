"""Read the tables of a BIDS folder: participants.tsv and phenotype/, with their JSON files.

Types and levels come from participants.json, never from the rows. People's own files are not taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.ready_made.export_files import column_names
from sfumato.features.data_sets.ready_made.ready_made_card import (
    ROWS_PER_PERSON,
    ExportTable,
    ReadExport,
    Terms,
    check_only,
    most_tables,
)

UNIT: Final = "participant_id"
MAX_ROWS: Final = 5  # sessions of a person that count in one group
OWN: Final = "participants.tsv"
_INTEGER: Final = re.compile(r"-?(0|[1-9]\d{0,14})")
_AGE: Final[Json] = {"type": "number", "lower": 0, "upper": 120, "step": Decimal("0.1")}
_NUMBER: Final[Json] = {"type": "number", "step": Decimal("0.01")}
_FORMATS: Final[Mapping[str, Json]] = {
    "integer": {"type": "integer"},
    "index": {"type": "integer"},
    "number": _NUMBER,
    "boolean": {"type": "boolean"},
}
Fields = Mapping[str, Any]  # Any: JSON of the owner's file


def read_bids(folder: Path, work: Path, terms: Terms) -> ReadExport:
    """Return the tables of a BIDS folder.

    Args:
        folder: The folder, or one with the folder in it.
        work: Not used; no table is rewritten.
        terms: What the owner says about the folder.

    Returns:
        The tables, what was assumed, and what is not taken.

    Raises:
        Refused: `source-unreadable` if there is no participants.tsv, or a JSON file is damaged.
    """
    del work
    found = sorted(folder.rglob(OWN), key=lambda path: len(path.parts))
    if not found:
        raise Refused(
            "source-unreadable",
            f"The folder has no {OWN}.",
            f"Give the folder that contains {OWN}.",
        )
    root = found[0].parent
    others = {path.stem: path for path in sorted(root.glob("phenotype/*.tsv"))}
    check_only(terms, list(others))
    notes: dict[str, list[str]] = {}
    tables = [_table("", found[0], notes)]
    tables += [_table(name, path, notes) for name, path in others.items() if terms.takes(name)]
    taken, beyond = most_tables(tables)
    left_out = [f"{why}: {', '.join(names)}" for why, names in notes.items() if why != _UNBOUNDED]
    left_out += [f"tables beyond the twenty of a card: {', '.join(beyond)}"] if beyond else []
    return ReadExport(
        "bids",
        UNIT,
        taken,
        ("", "n/a"),
        tuple(_assumed(notes.get(_UNBOUNDED, []))),
        (*left_out, "recordings, sessions and all other files of people"),
    )


_UNBOUNDED: Final = "without a range"


def _assumed(unbounded: list[str]) -> Iterator[str]:
    yield "Levels in the JSON files are the keys. Rows with another value are in no group."
    yield "age is between 0 and 120 years. Other numbers have no bounds in BIDS."
    if unbounded:
        yield (
            f"SUM and AVG of {', '.join(unbounded)} are refused until you write lower and upper on "
            "the card, from knowledge."
        )


def _table(name: str, path: Path, notes: dict[str, list[str]]) -> ExportTable:
    names = [one for one in column_names(path) if one]
    if UNIT not in names:
        raise Refused(
            "source-unreadable",
            f"{path.name} has no column {UNIT}.",
            "Each table of a BIDS folder names its participants so.",
        )
    fields = _fields(path.with_suffix(".json"))
    columns, comments = {}, {}
    for column in names:
        said = fields.get(column)
        if column == UNIT:
            continue
        if not isinstance(said, Mapping):
            notes.setdefault(f"not described in {path.stem}.json", []).append(column)
            continue
        columns[column] = _column(column, said)
        levels = said.get("Levels")
        if isinstance(levels, Mapping):
            comments[column] = ", ".join(f"{key} = {_label(what)}" for key, what in levels.items())
        if columns[column]["type"] in ("integer", "number") and not (
            {"lower", "keys"} & set(columns[column])
        ):
            notes.setdefault(_UNBOUNDED, []).append(column)
    # a table of phenotype/ may have a row for each session
    most = (MAX_ROWS, ROWS_PER_PERSON) if "session_id" in names else (1, 1)
    return ExportTable(name, str(path), columns, *most, comments=comments)


def _column(name: str, said: Fields) -> Json:
    """Return the card of a column from what its JSON file says: levels, format or units."""
    levels = said.get("Levels")
    if isinstance(levels, Mapping | list) and levels:
        return _keyed([str(level) for level in levels])
    if name.casefold() == "age":
        return dict(_AGE)
    if said.get("Format") in _FORMATS:
        return dict(_FORMATS[said["Format"]])
    return dict(_NUMBER) if said.get("Units") else {"type": "text"}


def _keyed(levels: list[str]) -> Json:
    known = list(dict.fromkeys(level.strip() for level in levels))
    known = [level for level in known if level not in ("", "n/a")]
    if not known:
        return {"type": "text"}
    if not all(_INTEGER.fullmatch(level) for level in known):
        return {"type": "text", "keys": known}
    numbers = [int(level) for level in known]
    bounds = {"lower": min(numbers), "upper": max(numbers)} if len(numbers) > 1 else {}
    return {"type": "integer", "keys": numbers, **bounds}


def _label(what: object) -> str:
    """Return the label of a level: a text, or a description in an object."""
    return str(what.get("Description", "")) if isinstance(what, Mapping) else str(what)


def _fields(path: Path) -> Fields:
    if not path.is_file():
        return {}
    fields: object = None
    try:
        fields = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError):
        fields = None
    if not isinstance(fields, Mapping):
        raise Refused(
            "source-unreadable",
            f"{path.name} is no JSON file with what the columns mean.",
            "Correct it, or remove it from the folder.",
        )
    return fields
