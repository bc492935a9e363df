"""Write the files of a BIDS folder that are about its whole data set, from the data card alone.

A block of people and a synthetic twin have the same files, whoever is among the people (soundness
rule 29).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.vault.card.bids import (
    DERIVATIVES,
    DESCRIPTION,
    PARTICIPANTS,
    derivative_names,
    phenotype_path,
)
from sfumato.vault.card.bids_metadata import README, TOOL
from sfumato.vault.card.card_json import key_value
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card, Table

BIDS_VERSION: Final = "1.10.0"


def description_of(card: Card) -> Json:
    """Return the owner's BIDS dataset_description.json, with all fields that BIDS requires."""
    own: Json = json.loads(card.description) if card.description else {}
    return {"Name": card.name, "BIDSVersion": BIDS_VERSION, "DatasetType": "raw", **own}


def data_set_files(card: Card, seen: Collection[str] | None = None) -> dict[str, str]:
    """Return all files of a BIDS folder that are about its whole data set, from the card alone.

    Args:
        card: The data card.
        seen: The names of the further tables whose columns are described; by default all.
    """
    own, *others = card.every_table
    found = {DESCRIPTION: file_json(description_of(card)), **dict(card.metadata.texts)}
    if not any(name.startswith(README) for name in found):
        found[README] = f"{card.name}\n\nThe data card of this data set has no README.\n"
    found[PARTICIPANTS] = file_json(_sidecar(card, own, PARTICIPANTS))
    for table in others:
        if seen is None or table.name in seen:
            path = f"{phenotype_path(table.name)}.json"
            found[path] = file_json(_sidecar(card, table, path))
    for path, text in card.metadata.sidecars:
        if path != PARTICIPANTS and not path.startswith("phenotype/"):
            found[path] = file_json(json.loads(text))
    for name in derivative_names(card.bids or ()):
        path = f"{DERIVATIVES}/{name}/{DESCRIPTION}"
        found[path] = file_json(_derivative(name, card.metadata.sidecar(path)))
    return found


def _derivative(name: str, own: Json) -> Json:
    """Return the description of a derivative's folder, with all fields that BIDS requires."""
    return {
        "Name": name,
        "BIDSVersion": BIDS_VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": name}],
        **own,
    }


def _sidecar(card: Card, table: Table, path: str) -> Json:
    """Return the description of a table's columns: what the owner's sidecar says, and the card."""
    own = card.metadata.sidecar(path)
    more = {name: own[name] for name in (table.unit, TOOL) if name in own}
    columns = {column.name: _meaning(column, own.get(column.name)) for column in table.columns}
    return {**more, **columns}


def _meaning(column: Column, own: object) -> Json:
    said: Json = own if isinstance(own, dict) else {}
    made: Json = {"Description": f"{column.type}, as the card declares", **said}
    levels = said.get("Levels")
    if column.keys is not None and not (column.type == "boolean" and levels):
        keys = {str(key_value(key)): "declared" for key in column.keys}
        made["Levels"] = {**keys, **(levels if isinstance(levels, dict) else {})}
    if column.is_numeric and column.lower is not None and column.upper is not None:
        made["Minimum"] = float(column.lower * column.step)
        made["Maximum"] = float(column.upper * column.step)
    return made


def file_json(shape: object) -> str:
    """Return the text of a JSON file of a BIDS folder."""
    return json.dumps(shape, indent=2, ensure_ascii=False) + "\n"
