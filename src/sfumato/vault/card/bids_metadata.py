"""The files of a whole BIDS data set (README, sidecars), as the data card publishes them.

Programs and synthetic twins get these files from the card alone, with the same bytes. So no file of
the owner's folder that tells about all people reaches a program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.vault.card.bids import (
    DERIVATIVES,
    DESCRIPTION,
    read_json_object,
)
from sfumato.vault.card.columns import Column
from sfumato.vault.card.field_readers import as_table, bad_card

MAX_TEXT: Final = 131_072  # bytes of one text or sidecar
MAX_METADATA: Final = 262_144  # bytes of all texts and sidecars of a card
MAX_SIDECARS: Final = 100
README: Final = "README"
TEXT_NAME: Final = re.compile(r"(README|CHANGES|LICENSE)(\.(md|rst|txt))?|CITATION\.cff")
# the key of a phenotype file that describes the whole measurement, not a column
TOOL: Final = "MeasurementToolMetadata"
_NAME: Final = r"(?!sub-)[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}"
_SIDECAR: Final = re.compile(
    rf"(?:{_NAME}\.json|phenotype/{_NAME}\.json|{DERIVATIVES}/{_NAME}/{_NAME}\.json)"
)
_TAKEN: Final = {DESCRIPTION.casefold(), "twin.json"}
# what a sidecar of columns may describe: its path, then the person column and the columns
Described = Mapping[str, tuple[str | None, tuple[Column, ...]]]


@dataclass(frozen=True)
class BidsMetadata:
    """The public files of a whole BIDS data set, beside its dataset_description.json."""

    texts: tuple[tuple[str, str], ...] = ()  # name and text: README, CHANGES, LICENSE
    sidecars: tuple[tuple[str, str], ...] = ()  # path and JSON text of an object

    def sidecar(self, path: str) -> Json:
        """Return the fields that the card publishes for a JSON file; empty if there are none."""
        found: Json = json.loads(dict(self.sidecars).get(path, "{}"))
        return found

    def as_json(self) -> Json:
        """Return each file's path with its text or its fields."""
        fields = {path: json.loads(text) for path, text in self.sidecars}
        return {**dict(self.texts), **fields}


# --- reading ----------------------------------------------------------------------------------


def read_metadata(shape: object, described: Described) -> BidsMetadata:
    """Read the texts and sidecars under [bids] of a card; refuse other files and columns.

    A level (category) that a column's keys don't list is left out.

    Args:
        shape: The card's table `bids`.
        described: The path of each table's sidecar, with the columns that it may describe.
    """
    body = as_table(shape, "bids", None)
    texts = dict(_texts(as_table(body.get("texts", {}), "bids.texts", None)))
    sidecars = dict(_sidecars(as_table(body.get("sidecars", {}), "bids.sidecars", None), described))
    names = [name.casefold() for name in (*texts, *sidecars)]
    if len(sidecars) > MAX_SIDECARS or len(set(names)) < len(names):
        raise bad_card(f"bids.sidecars must be at most {MAX_SIDECARS} files, each once")
    if sum(len(text.encode()) for text in (*texts.values(), *sidecars.values())) > MAX_METADATA:
        raise bad_card(
            f"bids.texts and bids.sidecars are larger than {MAX_METADATA >> 10} kB together"
        )
    if sum(name.startswith(README) for name in texts) > 1:
        raise bad_card("bids.texts has more than one README")
    return BidsMetadata(tuple(texts.items()), tuple(sidecars.items()))


def _texts(shape: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, text in shape.items():
        if not TEXT_NAME.fullmatch(name):
            raise bad_card(
                f"bids.texts may have README, CHANGES, LICENSE and CITATION.cff, not {name[:40]!r}"
            )
        if not isinstance(text, str) or not is_plain_text(text):
            raise bad_card(f"bids.texts.{name} must be a text without control characters")
        if len(text.encode()) > MAX_TEXT:
            raise bad_card(f"bids.texts.{name} must have at most {MAX_TEXT >> 10} kB")
        yield name, text


def is_plain_text(text: str) -> bool:
    """Say whether a text can be shown and stored: it has no control characters but line ends."""
    return not any(
        (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000
        for c in text
    )


def is_sidecar_path(path: str) -> bool:
    """Say whether a JSON file of this path is about a whole data set, so that a card can have it.

    The names of people's files begin with `sub-`, so no such file is one.
    """
    is_kind = _SIDECAR.fullmatch(path) is not None and ".." not in path
    return is_kind and path.casefold() not in _TAKEN


def _sidecars(shape: Mapping[str, object], described: Described) -> Iterator[tuple[str, str]]:
    for path, value in shape.items():
        if not is_sidecar_path(path):
            raise bad_card(
                f"bids.sidecars has {path[:60]!r}, but a sidecar of the whole data set is called "
                "like task-rest_bold.json, phenotype/TABLE.json or derivatives/NAME/FILE.json"
            )
        fields = json.loads(read_json_object(value, f"bids.sidecars.{path}", MAX_TEXT))
        if path in described:
            fields = _of_columns(fields, path, *described[path])
        elif path.startswith("phenotype/"):
            raise bad_card(f"bids.sidecars describes {path!r}, but the card has no such table")
        yield path, json.dumps(fields, ensure_ascii=False)


def _of_columns(fields: Json, path: str, unit: str | None, declared: tuple[Column, ...]) -> Json:
    """Return what a sidecar says of a table's columns; refuse columns that the card lacks."""
    columns = {column.name: column for column in declared}
    for name in fields:
        if name not in columns and name not in (unit, TOOL):
            raise bad_card(
                f"bids.sidecars.{path} describes {name[:60]!r}, which is no column of the card"
            )
    return {
        name: meaning if name not in columns else _declared_meaning(columns[name], meaning)
        for name, meaning in fields.items()
    }


def _declared_meaning(column: Column, meaning: object) -> object:
    """Return what a sidecar says of a column, without levels that are not keys of the card."""
    levels = meaning.get("Levels") if isinstance(meaning, dict) else None
    if not isinstance(meaning, dict) or not isinstance(levels, dict):
        return meaning
    if column.keys is None or column.type == "boolean":
        return meaning
    named = {_key_of(column, level): of for level, of in levels.items()}
    return {**meaning, "Levels": {key: of for key, of in named.items() if key is not None}}


def _key_of(column: Column, level: str) -> str | None:
    """Return the key that a level of a sidecar means, as text; None if the card has no such key."""
    keys = column.keys or ()
    if not column.is_numeric:
        return level.strip() if level.strip() in {key.text for key in keys} else None
    try:
        number = Fraction(level.strip())
    except (ValueError, ZeroDivisionError):
        return None
    if number not in {key.number for key in keys}:
        return None
    return str(int(number) if number.denominator == 1 else float(number))
