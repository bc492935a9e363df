"""Propose a data card from the names and types of columns, never from their values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.vault.card.bids import PARTICIPANTS, PERSON, phenotype_path
from sfumato.vault.card.bids_metadata import TOOL
from sfumato.vault.engine_port import Described, FolderDraft

NO_UNIT: Final = ""  # an invalid unit: the card is refused until its owner fills it in
_PERSON: Final = frozenset(
    {
        "person", "patient", "participant", "subject", "respondent", "pat", "pt", "proband",
        "probandin", "teilnehmer", "teilnehmerin", "mrn", "pid", "ssn",
    }
)  # fmt: skip
_NUMBER: Final = frozenset(
    {
        "id", "identifier", "no", "nr", "num", "number", "key", "code", "pseudonym", "uid", "uuid",
        "source", "value",
    }
)  # fmt: skip


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
    names = [name for name, _ in columns]
    spoken = [name for name in names if _names_a_person(name)]
    identifiers = [name for name in names if is_identifier(name)]
    both = [name for name in spoken if name in identifiers]
    found = both or spoken or identifiers
    return found[0] if len(found) == 1 else None


def _names_a_person(column: str) -> bool:
    """Return True if a column's name means a person or their number: patient, person_id."""
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", column.strip())  # PatientID -> Patient ID
    words = [word for word in re.split(r"[\W_]+", parts.casefold()) if word]
    rest = [word for word in words if word not in _NUMBER]
    return len(rest) == 1 and (rest[0] in _PERSON or _without_ending(rest[0]) in _PERSON)


def _without_ending(word: str) -> str:
    """Return a word of a column's name without an ending that means "number": patnr, patientid."""
    return re.sub(r"(id|nr|no|nummer|code)$", "", word)


def _column(column: str, kind: str, formats: Mapping[str, str], unit: str | None) -> Json:
    if column == unit or is_identifier(column) or is_name(column) or _names_a_person(column):
        return {"hidden": True}
    return {"type": kind, **formats}


def is_identifier(column: str) -> bool:
    """Return True if a column's name looks like an identifier: id, ssn, or an ending like _id."""
    word = column.strip().casefold()
    return word in ("id", "pid", "ssn") or word.endswith(("_id", " id", "-id"))


def is_name(column: str) -> bool:
    """Return True if a column's name looks like a person's name, e-mail, phone or address."""
    word = column.strip().casefold()
    return word in ("name", "email", "e-mail", "phone", "address") or word.endswith("_name")
