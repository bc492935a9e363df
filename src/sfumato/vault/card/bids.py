"""The data card's terms for a BIDS folder (brain imaging data): file patterns and folder limits.

Patterns name the files of each person, also those of derivatives: results of an earlier program.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from sfumato.vault.card.field_readers import as_count, as_table, as_texts, bad_card

PERSON: Final = "participant_id"  # the column of participants.tsv that names the person
# placeholder in a file pattern; stands for the name of the person's folder
SUBJECT: Final = "{sub}"
MAX_PATTERNS: Final = 50  # most file patterns
# most folders that are kept; a run has one turn per folder, present or not
MAX_PEOPLE: Final = 2_000
MAX_MB: Final = 1_024
MAX_DESCRIPTION: Final = 32_768  # bytes of a dataset_description.json
DESCRIPTION: Final = "dataset_description.json"
PARTICIPANTS: Final = "participants.json"
DERIVATIVES: Final = "derivatives"  # the BIDS folder for results of earlier programs
_BESIDE: Final = "phenotype"  # the BIDS folder for further tables
_PATTERN: Final = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_.+-]*/)*\{sub\}_[A-Za-z0-9_.+-]+")
_PART: Final = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"
# a file of a person in derivatives/NAME: below a folder {sub}, or a file {sub}.html beside it
_DERIVATIVE: Final = re.compile(
    rf"{DERIVATIVES}/(?P<name>{_PART})/(?:{_PART}/)*(?:\{{sub\}}/(?:{_PART}/)*"
    rf"(?:\{{sub\}}[_.][A-Za-z0-9_.+-]+|{_PART})|\{{sub\}}[_.][A-Za-z0-9_.+-]+)"
)
_IMAGES: Final = (".nii", ".nii.gz")


@dataclass(frozen=True)
class Folders:
    """Public limits of a BIDS folder: the most people, and the most megabytes of one person."""

    people: int
    person_mb: int = 4


def read_description(value: object) -> str:
    """Return the fields of a dataset_description.json as JSON text; refuse other content.

    Args:
        value: The text of such a file, or its fields as a table of the card.
    """
    return read_json_object(value, f"a {DESCRIPTION}", MAX_DESCRIPTION)


def read_json_object(value: object, what: str, most: int) -> str:
    """Return a JSON object as JSON text; refuse other content, or more than `most` bytes.

    Args:
        value: The text of a JSON file, or its fields as a table of the card.
        what: The name of the file, for the refusal.
        most: The most bytes.
    """
    found = None
    try:
        text = value if isinstance(value, str) else json.dumps(value, default=_number)
        if len(text.encode()) <= most:
            found = json.loads(text, parse_constant=_no_number)
            made = json.dumps(found, ensure_ascii=False, allow_nan=False)
            made.encode()
    except (ValueError, TypeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise bad_card(f"{what} must be a JSON object of at most {most >> 10} kB")
    return made


def _number(value: object) -> float:
    if isinstance(value, Decimal | Fraction):
        return float(value)
    raise TypeError


def _no_number(_text: str) -> None:
    raise ValueError


_KEYS: Final = {"files", "people", "person_mb", "description", "texts", "sidecars"}


def read_bids(shape: object, unit: str) -> tuple[tuple[str, ...], Folders | None]:
    """Read from a data card the file patterns of a person's BIDS folder, and the folder limits.

    The pattern `anat/{sub}_T1w.nii.gz` means `sub-01/anat/sub-01_T1w.nii.gz` for the person sub-01.
    A pattern of derivatives is whole: `derivatives/fmriprep/{sub}/anat/{sub}_desc-brain_mask.nii`.
    """
    body = as_table(shape, "bids", _KEYS)
    files = as_texts(body.get("files", []), "bids.files")
    if unit != PERSON:
        raise bad_card(f"a BIDS folder names people by {PERSON}, so that must be the unit")
    if len(files) > MAX_PATTERNS or len(set(files)) < len(files):
        raise bad_card(f"bids.files must be at most {MAX_PATTERNS} patterns, each once")
    for file in files:
        if not is_pattern(file):
            raise bad_card(f"{file[:40]!r} is not a pattern like anat/{SUBJECT}_T1w.nii.gz")
    if "people" not in body:
        return files, None
    counts = {key: as_count(body[key], f"bids.{key}") for key in ("people", "person_mb")
              if key in body}  # fmt: skip
    folders = Folders(**counts)
    if folders.people > MAX_PEOPLE or folders.person_mb > MAX_MB:
        raise bad_card(f"bids.people may be {MAX_PEOPLE} at most, and bids.person_mb {MAX_MB}")
    return files, folders


def is_pattern(text: str) -> bool:
    """Say whether a text is a pattern of a person's file, in the person's folder or derivatives."""
    is_either = _PATTERN.fullmatch(text) or _DERIVATIVE.fullmatch(text)
    return is_either is not None and len(text) <= 200 and ".." not in text


def derivative_of(pattern: str) -> str | None:
    """Return the name of the derivative to which a pattern's files belong; None if to none."""
    found = _DERIVATIVE.fullmatch(pattern)
    return None if found is None else found["name"]


def derivative_names(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the derivatives to which the files of these patterns belong."""
    names = [derivative_of(pattern) for pattern in patterns]
    return tuple(dict.fromkeys(name for name in names if name is not None))


def person_path(pattern: str, person: str) -> str:
    """Return the path of a person's file in a BIDS folder."""
    path = pattern.replace(SUBJECT, person)
    return path if derivative_of(pattern) is not None else f"{person}/{path}"


def phenotype_path(table: str) -> str:
    """Return the path, without suffix, of a further table (`phenotype/TABLE`) in a BIDS folder."""
    return f"{_BESIDE}/{table}"


def with_sidecars(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Insert, after each image pattern of a BIDS folder, the pattern of its JSON sidecar."""
    found: dict[str, None] = {}
    for pattern in patterns:
        found[pattern] = None
        if pattern.endswith(_IMAGES):
            found[pattern.removesuffix(".gz").removesuffix(".nii") + ".json"] = None
    return tuple(found)
