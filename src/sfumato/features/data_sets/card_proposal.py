"""Propose a data card from the names and types of columns, never from their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.features.data_sets.identifying_columns import (
    is_identifier,
    is_name,
    names_a_person,
    person_columns,
)
from sfumato.vault.card.bids import PARTICIPANTS, PERSON, phenotype_path
from sfumato.vault.card.bids_metadata import TOOL
from sfumato.vault.engine_port import Described, FolderDraft

NO_UNIT: Final = ""  # an invalid unit: the card is refused until its owner fills it in


def proposed_card(name: str, found: Described) -> Json:
    """Propose a data card for the owner to complete.

    The card is refused until it has a budget. If the names don't show which column identifies the
    person, the unit stays empty. A wrong unit, or a row instead of a person, would weaken the
    guarantee, and nobody would notice.
    """
    unit = _person(found.columns)
    card: Json = {
        "unit": unit or NO_UNIT,
        "people": name,
        "version": "1",
        "nulls": ["", "n/a", "NA"],
        "ask": {"who": ["researchers"]},
        "columns": {
            column: _column(column, kind, found.formats.get(column, {}), unit)
            for column, kind in found.columns
        },
        "max_groups": 1,
        "max_rows": 1,
    }
    if found.encoding != "utf-8":
        card["encoding"] = found.encoding
    return card


def proposed_folder_card(name: str, draft: FolderDraft) -> Json:
    """Propose a data card of a BIDS folder for the owner to complete.

    Its owner adds the most people, which must not be taken from the rows.
    """
    card = {**proposed_card(name, draft.own), "unit": PERSON}
    sidecars = proposed_sidecars(name, draft)
    parts: Json = {
        "files": list(draft.files),
        "description": draft.description,
        "texts": dict(draft.texts),
        "sidecars": {path: fields for path, fields in sidecars.items() if fields},
    }
    card["bids"] = {key: part for key, part in parts.items() if part}
    if draft.tables:
        tables = {table: proposed_card(table, found) for table, found in draft.tables.items()}
        card["tables"] = {
            table: {key: one[key] for key in ("encoding", "max_rows", "columns") if key in one}
            for table, one in tables.items()
        }
    return card


def proposed_sidecars(name: str, draft: FolderDraft) -> dict[str, Json]:
    """Return a BIDS folder's JSON files, without what they say of columns that the card hides."""
    shown = {
        f"{phenotype_path(table)}.json": _shown(proposed_card(table, found))
        for table, found in draft.tables.items()
    }
    shown[PARTICIPANTS] = _shown(proposed_card(name, draft.own))
    return {
        path: {name: said for name, said in fields.items() if name in shown.get(path, fields)}
        for path, fields in draft.sidecars.items()
    }


def _shown(card: Json) -> set[str]:
    """Return what a sidecar may describe: the person, the tool, and columns that aren't hidden."""
    columns = card["columns"]
    found = columns.items() if isinstance(columns, dict) else ()
    return {PERSON, TOOL, *(name for name, of in found if not of.get("hidden"))}


def _person(columns: Sequence[tuple[str, str]]) -> str | None:
    """Return the column that identifies the person, if exactly one looks like it; else None."""
    found = person_columns([name for name, _ in columns])
    return found[0] if len(found) == 1 else None


def _column(
    column: str, kind: str, formats: Mapping[str, str | list[str]], unit: str | None
) -> Json:
    if column == unit or is_identifier(column) or is_name(column) or names_a_person(column):
        return {"hidden": True}
    return {"type": kind, **formats}
