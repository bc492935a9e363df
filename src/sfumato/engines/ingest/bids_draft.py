"""Draft what a card can publish of a BIDS folder, for its owner; in a worker.

The draft has the folder's own description, README and sidecars. Fields and lines that contain a
participant's id, or a value of few people, are left out. The owner sees the draft and what was left
out; nobody else does (soundness rule 30).
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.engines.ingest.bids_folders import own_file
from sfumato.engines.ingest.column_types import text_columns
from sfumato.engines.ingest.source_errors import refused_by_worker
from sfumato.engines.ingest.values_of_few import FEW, ValuesOfFew, people_of, values_of_few
from sfumato.engines.shared.message_frames import Header
from sfumato.vault.card.bids import (
    DERIVATIVES,
    DESCRIPTION,
    MAX_DESCRIPTION,
    MAX_PATTERNS,
    PARTICIPANTS,
    PERSON,
    is_pattern,
    with_sidecars,
)
from sfumato.vault.card.bids_metadata import (
    MAX_METADATA,
    MAX_SIDECARS,
    MAX_TEXT,
    README,
    TEXT_NAME,
    TOOL,
    is_plain_text,
    is_sidecar_path,
)
from sfumato.vault.card.bids_patterns import file_patterns, person_and_pattern
from sfumato.vault.card.cell_formats import TRUE
from sfumato.vault.card.data_card import NAME

ROWS: Final = "participants.tsv"
# bounds of a column are on the card itself, and those of a sidecar may come from the rows
_BOUNDS: Final = ("Minimum", "Maximum")
_DEEPEST: Final = 30
_SHOWN: Final = 5  # the most file patterns that a note shows
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"", "utf-8"),
    (b"", "cp1252"),
    (b"", "latin-1"),
)


@dataclass(frozen=True)
class _Draft:
    """A draft in the making: the folder, what must not be in it, and what was left out."""

    folder: Path
    few: ValuesOfFew
    notes: list[tuple[str, str]] = field(default_factory=list)

    def note(self, where: str, why: str) -> None:
        self.notes.append((_printable(where), _printable(why)))

    def near(self, text: str) -> _Draft:
        """Return the draft with the values of few people that may be in the text."""
        return replace(self, few=self.few.within(text))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def folder_draft(message: Header) -> Header:
    """Draft the public files of a BIDS folder and the columns of its tables; or return a refusal.

    Args:
        message: The request, with the path of the folder.
    """
    folder = Path(str(message["folder"])).resolve()
    told = {path: text_columns(str(folder / path)) for path in _paths(folder)}
    tables = {path: one for path, one in told.items() if "refused" not in one}
    if ROWS not in tables:
        return told[ROWS]
    ids = people_of(folder, [folder / path for path in tables])
    types = {path: dict(_types(told)) for path, told in tables.items()}
    draft = _Draft(folder, values_of_few(folder, types, ids))
    beside = {path: told for path, told in tables.items() if _is_fit(path, types[path], draft)}
    for path in sorted(told.keys() - tables.keys()):
        draft.note(path, f"{refused_by_worker(told[path]['refused']).cause} Nothing checks it.")
    texts = dict(_texts(draft))
    sidecars = dict(_sidecars(draft, {path: types[path] for path in (ROWS, *beside)}))
    return {
        "own": tables[ROWS],
        "tables": {Path(path).stem: told for path, told in beside.items()},
        "files": _patterns(draft, ids),
        "description": _object(draft, DESCRIPTION, MAX_DESCRIPTION),
        **_within_limits(draft, texts, sidecars),
        "notes": [list(one) for one in draft.notes],
    }


def _paths(folder: Path) -> list[str]:
    """Return participants.tsv, then the tables under phenotype/."""
    others = sorted(path.name for path in folder.glob("phenotype/*.tsv") if path.is_file())
    return [ROWS, *(f"phenotype/{name}" for name in others)]


def _types(told: Header) -> Iterator[tuple[str, str]]:
    """Return the names and types of a table's columns.

    Words such as ja and nein remain texts here: rows that were not sampled may have rare ones.
    """
    columns = told["columns"]
    for name, kind, formats in columns if isinstance(columns, list) else []:
        is_usual = set(formats.get("true", ())) <= set(TRUE)
        yield str(name), str(kind) if is_usual else "text"


def _is_fit(path: str, types: Mapping[str, str], draft: _Draft) -> bool:
    """Say whether a table under phenotype/ can be a table of the card; note it if not."""
    if path == ROWS:
        return False
    if not NAME.fullmatch(Path(path).stem) or PERSON not in types:
        draft.note(path, f"a table needs a plain name and a column {PERSON}")
        return False
    return True


# --- texts ------------------------------------------------------------------------------------


def _texts(draft: _Draft) -> Iterator[tuple[str, str]]:
    """Yield README, CHANGES and LICENSE, without lines that have a value of few people."""
    names = sorted(path.name for path in draft.folder.iterdir() if TEXT_NAME.fullmatch(path.name))
    readme = next((name for name in names if name.startswith(README)), None)
    for name in names:
        if name.startswith(README) and name != readme:
            draft.note(name, f"{readme} is the README of the card")
            continue
        text = _read(draft, name, MAX_TEXT)
        kept = None if text is None else _without_few(draft, name, _cleaned(text))
        if kept is not None and kept.strip():
            yield name, kept


def _cleaned(text: str) -> str:
    """Return a text with plain line ends and without other control characters."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return lines if is_plain_text(lines) else "".join(filter(is_plain_text, lines))


def _without_few(whole: _Draft, name: str, text: str) -> str | None:
    draft, kept = whole.near(text), []
    for number, line in enumerate(text.split("\n"), 1):
        why = draft.few.why_not(line)
        if why is None:
            kept.append(line)
        else:
            draft.note(f"{name}, line {number}", why)
    made = "\n".join(kept)
    why = draft.few.why_not(made)  # a value over two lines
    if why is not None:
        draft.note(name, why)
        return None
    return made


def _read(draft: _Draft, name: str, most: int) -> str | None:
    """Return the text of a file of the folder; None, with a note, if it can't be taken."""
    path = (draft.folder / name).resolve()
    if not path.is_relative_to(draft.folder):
        draft.note(name, "a link that leads out of the folder")
        return None
    if not path.is_file():
        draft.note(name, "its content is not here (a link to a missing file)")
        return None
    with path.open("rb") as file:
        found = file.read(most + 1)
    if len(found) > most:
        draft.note(name, f"larger than {most >> 10} kB")
        return None
    text, encoding = _decoded(found)
    if encoding in ("cp1252", "latin-1"):
        draft.note(name, f"not UTF-8: read as {encoding}, so check its letters")
    return text


def _decoded(found: bytes) -> tuple[str, str]:
    for mark, encoding in _MARKS:
        if found.startswith(mark):
            try:
                return found.decode(encoding), encoding
            except UnicodeDecodeError:
                continue
    return found.decode("latin-1"), "latin-1"


# --- JSON -------------------------------------------------------------------------------------


def _object(draft: _Draft, name: str, most: int) -> Json:
    """Return a JSON file's fields without values of few people; none if it can't be taken."""
    fields = _fields(draft, name, most)
    return {} if fields is None else _without_values(draft, fields, name)


def _without_values(draft: _Draft, fields: Json, name: str) -> Json:
    return _pruned(draft.near("\n".join(_strings(fields))), fields, name)


def _fields(draft: _Draft, name: str, most: int) -> Json | None:
    if not os.path.lexists(draft.folder / name):
        return None
    text = _read(draft, name, most)
    if text is None:
        return None
    found = None
    try:
        found = json.loads(text, parse_constant=_no_number)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or _depth(found) > _DEEPEST:
        draft.note(name, "no JSON object")
        return None
    return found


def _no_number(_text: str) -> None:
    raise ValueError


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def _pruned(draft: _Draft, fields: Json, where: str) -> Json:
    """Return the fields whose names and values have no id and no value of few people."""
    kept: Json = {}
    for name, value in fields.items():
        place = f"{where}: {name}"
        if isinstance(value, dict) and draft.few.why_not(name) is None:
            inner = _pruned(draft, value, place)
            if inner or not value:
                kept[name] = inner
            continue
        texts = (name, *_strings(value))
        why = next(filter(None, map(draft.few.why_not, texts)), None)
        if why is None:
            kept[name] = value
        else:
            draft.note(place, why)
    return kept


def _strings(value: object) -> Iterator[str]:
    """Yield every text, name and number in a JSON value, as text."""
    match value:
        case dict():
            for name, inner in value.items():
                yield str(name)
                yield from _strings(inner)
        case list():
            for inner in value:
                yield from _strings(inner)
        case bool() | None:
            return
        case _:
            yield str(value)


def _sidecars(draft: _Draft, tables: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, Json]]:
    """Yield the JSON files that are about the whole data set: its own, of tables, of derivatives.

    `tables` has the columns of each table with their types, by the table's path.
    """
    described = {f"{path.removesuffix('.tsv')}.json": path for path in tables}
    for path in _json_files(draft.folder):
        why = draft.few.why_not(path)
        if path == DESCRIPTION:
            continue
        if path.startswith("phenotype/") and path not in described:
            why = why or "it describes no table of the card"
        if why is None and not is_sidecar_path(path):
            why = "not a name of a data set's own file, like task-rest_bold.json"
        if why is not None:
            draft.note(path, why)
            continue
        fields = _fields(draft, path, MAX_TEXT)
        if fields is not None and path in described:
            fields = _of_columns(draft, fields, path, described[path], tables[described[path]])
        made = None if fields is None else _without_values(draft, fields, path)
        if made:
            yield path, made


def _json_files(folder: Path) -> list[str]:
    own = [*folder.glob("*.json"), *folder.glob("phenotype/*.json")]
    found = [*own, *folder.glob(f"{DERIVATIVES}/*/*.json")]
    names = [path.relative_to(folder).as_posix() for path in found]
    return sorted(name for name in names if not Path(name).name.startswith("."))


def _of_columns(
    draft: _Draft, fields: Json, path: str, table: str, columns: Mapping[str, str]
) -> Json:
    """Return what a sidecar says of a table's columns, without bounds and without rare levels."""
    names = {name.strip().casefold(): name for name in columns}
    kept: Json = {}
    for said, meaning in fields.items():
        place = f"{path}: {said}"
        name = TOOL if said == TOOL else names.get(said.strip().casefold())
        if name is None:
            draft.note(place, "no column of the table")
            continue
        kept[name] = meaning
        if not isinstance(meaning, dict) or name == TOOL:
            continue
        bounds = [key for key in _BOUNDS if key in meaning]
        if bounds:
            draft.note(f"{place}: {', '.join(bounds)}", "the card has lower and upper")
        made = {key: value for key, value in meaning.items() if key not in bounds}
        levels = made.get("Levels")
        if isinstance(levels, dict):
            made["Levels"] = _common(draft, levels, place, (table, name.strip()))
        kept[name] = made
    return kept


def _common(draft: _Draft, levels: Json, place: str, column: tuple[str, str]) -> Json:
    """Return the levels of a column without those that only few people have."""
    rare = draft.few.rare.get(column, {})
    for level in levels:
        if level.strip().casefold() in rare:
            draft.note(f"{place}: Levels: {level}", f"fewer than {FEW} people have it")
    return {name: of for name, of in levels.items() if name.strip().casefold() not in rare}


def _within_limits(draft: _Draft, texts: dict[str, str], sidecars: dict[str, Json]) -> Json:
    """Return the files that fit on a card: participants.json first, then the texts."""
    first = {path: sidecars[path] for path in (PARTICIPANTS,) if path in sidecars}
    room, kept = MAX_METADATA, set[str]()
    for path, value in {**first, **texts, **sidecars}.items():
        size = len((value if isinstance(value, str) else json.dumps(value)).encode())
        is_too_many = path in sidecars and len(kept & set(sidecars)) == MAX_SIDECARS
        if size > min(room, MAX_TEXT) or is_too_many:
            draft.note(path, f"the card holds {MAX_METADATA >> 10} kB of such files")
            continue
        room -= size
        kept.add(path)
    return {
        "texts": {name: text for name, text in texts.items() if name in kept},
        "sidecars": {path: fields for path, fields in sidecars.items() if path in kept},
    }


# --- people's files ---------------------------------------------------------------------------


def _patterns(draft: _Draft, ids: frozenset[str]) -> list[str]:
    """Return the patterns of files that at least half of the people have."""
    paths = [path for path in _person_files(draft.folder) if _is_of(path, ids)]
    there = [path for path in paths if own_file(draft.folder, *person_and_pattern(path))]
    if len(there) < len(paths):
        draft.note("people's files", "some are links whose content is not here or not theirs")
    usual = file_patterns(there)
    every = {person_and_pattern(path)[1] for path in there}
    left = sorted(every - set(with_sidecars(tuple(usual))))
    if left:
        draft.note(
            "people's files",
            "kinds that fewer than half of the people have, or that are more than the "
            f"{MAX_PATTERNS} of a card: {', '.join(left[:_SHOWN])}"
            + (f", ... ({len(left)} in all)" if len(left) > _SHOWN else "")
            + ". If programs need them, add them to files",
        )
    return [pattern for pattern in usual if draft.few.why_not(pattern) is None]


def _is_of(path: str, ids: frozenset[str]) -> bool:
    person, pattern = person_and_pattern(path)
    return person in ids and is_pattern(pattern)


def _person_files(folder: Path) -> Iterator[str]:
    """Yield the path of each file of a person, in raw data and in derivatives."""
    for root in sorted((*folder.glob("sub-*"), folder / DERIVATIVES)):
        yield from (path.relative_to(folder).as_posix() for path in _below(root))


def _below(root: Path) -> Iterator[Path]:
    for top, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(top, name) for name in sorted(names) if not name.startswith("."))
