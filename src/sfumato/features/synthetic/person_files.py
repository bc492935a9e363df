"""Write the files of synthetic people in a BIDS folder, from the card alone.

A table, such as `events.tsv`, gets invented rows. Its columns are those that BIDS requires, and
those that a JSON sidecar on the card describes. Every other file is empty, because a card does not
describe images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.features.synthetic.schema_twin import MISSING
from sfumato.features.synthetic.seeded_numbers import Seeded
from sfumato.vault.card.bids import SUBJECT, derivative_of, person_path, with_sidecars
from sfumato.vault.card.bids_files import file_json
from sfumato.vault.card.bids_metadata import TOOL
from sfumato.vault.card.data_card import Card

NOT_AVAILABLE: Final = "n/a"  # how BIDS writes a missing value
ROWS: Final = 12  # of each synthetic table of a person
_TABLE: Final = ".tsv"
# the columns that BIDS requires in a person's tables, by the suffix of the file
_REQUIRED: Final = {
    "events": ("onset", "duration"),
    "channels": ("name", "type", "units"),
    "electrodes": ("name", "x", "y", "z"),
}
# the first column of tables that list something of a person, by the suffix of the file
_LISTS: Final = {"scans": "filename", "sessions": "session_id"}
_NO_COLUMNS: Final = ("StimulusPresentation", TOOL)  # objects in sidecars that are no columns
_SECONDS: Final = 2  # between two synthetic events


def person_files(card: Card, kind: str, person: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each of a synthetic person's files in a BIDS folder.

    Tables have invented rows, JSON sidecars have the kind of the twin, and other files are empty.
    """
    for pattern in with_sidecars(card.bids or ()):
        path = person_path(pattern, person)
        if path.endswith(".json"):
            yield path, file_json({"Twin": kind})
            continue
        columns, listed = _columns(card, pattern), _listed(card, pattern)
        cells = [cell.replace(SUBJECT, person) for cell in listed]
        yield path, _table(columns, cells, Seeded(kind, path)) if columns else ""


def person_files_json(card: Card) -> Json:
    """Return which patterns of a card become tables with invented rows, and which empty files."""
    patterns = [one for one in card.bids or () if not one.endswith(".json")]
    tables = [one for one in patterns if _columns(card, one)]
    empty = [one for one in patterns if one not in tables]
    return {
        **({"invented_files": tables} if tables else {}),
        **({"empty_files": empty} if empty else {}),
    }


def _columns(card: Card, pattern: str) -> dict[str, Mapping[str, object]]:
    """Return the columns of a person's table, each with its meaning; none for another file."""
    if not pattern.endswith(_TABLE):
        return {}
    entities, suffix = _parts(pattern)
    required = _REQUIRED.get(suffix, ())
    if suffix in _LISTS and _listed(card, pattern):
        required = (_LISTS[suffix],)
    found: dict[str, Mapping[str, object]] = {name: {} for name in required}
    for path, _ in card.metadata.sidecars:
        own, of = _parts(path)
        is_near = _folder(path) in ("", _folder(pattern))
        if of == suffix and own <= entities and is_near and path.endswith(".json"):
            said = card.metadata.sidecar(path)
            found |= {
                name: one
                for name, one in said.items()
                if isinstance(one, dict) and _is_column(name)
            }
    return found


def _listed(card: Card, pattern: str) -> list[str]:
    """Return the rows of a table that lists a person's files (`scans.tsv`) or sessions."""
    folder, suffix = PurePosixPath(pattern).parent, _parts(pattern)[1]
    raw = [one for one in card.bids or () if derivative_of(one) is None]
    inside = [PurePosixPath(one) for one in raw if PurePosixPath(one).is_relative_to(folder)]
    if suffix == "scans":
        files = (one.relative_to(folder) for one in inside if one.parent != folder)
        return [str(one) for one in files if not one.name.endswith((_TABLE, ".json"))]
    if suffix == "sessions":
        return sorted({part for one in inside for part in one.parts if part.startswith("ses-")})
    return []


def _is_column(name: str) -> bool:
    """Say whether a field of a sidecar that is an object describes a column."""
    return name.isprintable() and name not in _NO_COLUMNS


def _folder(path: str) -> str:
    """Return the derivative to which a file of a card belongs; an empty text for raw data."""
    parts = PurePosixPath(path).parts
    return derivative_of(path) or (parts[1] if parts[0] == "derivatives" and parts[1:] else "")


def _parts(path: str) -> tuple[frozenset[str], str]:
    """Return the entities and the suffix of a BIDS file's name: task-rest, and events."""
    *entities, suffix = PurePosixPath(path).name.partition(".")[0].split("_")
    return frozenset(entities) - {SUBJECT}, suffix


def _table(
    columns: Mapping[str, Mapping[str, object]], listed: Sequence[str], stream: Seeded
) -> str:
    """Return a table with invented rows; `listed` has the cells of the first column, if any."""
    first = [list(listed)] if listed else []
    count = len(listed) or ROWS
    rest = list(columns.items())[len(first) :]
    drawn = [*first, *(_values(name, meaning, stream, count) for name, meaning in rest)]
    lines = [tuple(columns), *zip(*drawn, strict=True)]
    return "".join("\t".join(line) + "\n" for line in lines)


def _values(name: str, meaning: Mapping[str, object], stream: Seeded, count: int) -> Sequence[str]:
    """Return the cells of a column: required ones are whole, and others lack some values."""
    match name:
        case "onset":
            return [str(_SECONDS * place) for place in range(count)]
        case "duration":
            return ["1"] * count
        case "name":
            return [f"ch{place:02d}" for place in range(1, count + 1)]
        case "type":
            return ["MISC"] * count
        case "x" | "y" | "z":
            return _numbers(stream, count)
    levels = meaning.get("Levels")
    gone = (stream.uniforms(count) < float(MISSING)).tolist()
    gone[-1] = True  # so that a program meets a missing value, however few rows there are
    if isinstance(levels, dict) and levels:
        cells = [_cell(stream.one_of(list(levels))) for _ in range(count)]
    elif "Units" in meaning:
        cells = _numbers(stream, count)
    else:
        return [NOT_AVAILABLE] * count
    return [NOT_AVAILABLE if is_gone else cell for cell, is_gone in zip(cells, gone, strict=True)]


def _numbers(stream: Seeded, count: int) -> list[str]:
    return [str(float(Fraction(n, 1000))) for n in stream.integers(1000, count).tolist()]


def _cell(level: object) -> str:
    return " ".join(str(level).split()) or NOT_AVAILABLE
