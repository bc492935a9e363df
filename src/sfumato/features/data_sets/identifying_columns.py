"""Recognise columns that identify a person from their names, never from their values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_PERSON: Final = frozenset(
    {
        "person", "patient", "patienten", "patientin", "participant", "subject",
        "respondent", "pat", "pt", "proband", "probandin", "teilnehmer", "teilnehmerin", "mrn",
        "pid", "ssn",
    }
)  # fmt: skip
_NUMBER: Final = frozenset(
    {
        "id", "identifier", "no", "nr", "num", "number", "key", "code", "pseudonym", "uid", "uuid",
        "source", "value",
    }
)  # fmt: skip


def person_columns(names: Sequence[str]) -> list[str]:
    """Return the columns that may identify the person; if it is exactly one, it is proposed."""
    spoken = [name for name in names if names_a_person(name)]
    identifiers = [name for name in names if is_identifier(name)]
    return [name for name in spoken if name in identifiers] or spoken or identifiers


def names_a_person(column: str) -> bool:
    """Return True if a column's name means a person or their number: patient, person_id."""
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", column.strip())  # PatientID -> Patient ID
    words = [word for word in re.split(r"[\W_]+", parts.casefold()) if word]
    rest = [word for word in words if word not in _NUMBER]
    return len(rest) == 1 and (rest[0] in _PERSON or _without_ending(rest[0]) in _PERSON)


def is_identifier(column: str) -> bool:
    """Return True if a column's name looks like an identifier: id, ssn, or an ending like _id."""
    word = column.strip().casefold()
    return word in ("id", "pid", "ssn") or word.endswith(("_id", " id", "-id"))


def is_name(column: str) -> bool:
    """Return True if a column's name looks like a person's name, e-mail, phone or address."""
    word = column.strip().casefold()
    return word in ("name", "email", "e-mail", "phone", "address") or word.endswith("_name")


def _without_ending(word: str) -> str:
    """Return a word of a column's name without an ending that means "number": patnr, patientid."""
    return re.sub(r"(id|nr|no|nummer|code)$", "", word)
