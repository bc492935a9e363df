"""Split the people of local data into blocks by person, as a run on real rows does.

A run's key is secret and new for each run. A trial's key is public and fixed, so that the same data
always have the same blocks.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.vault.card.bids import PERSON

MAX_BLOCKS: Final = 10_000
_KEY: Final = b"sfumato pipeline try"
_FOLDER: Final = re.compile(r"sub-[A-Za-z0-9]+")
_TABLES: Final = {".tsv": "\t", ".csv": ","}
_NOBODY: Final = ("", "n/a")
Files = Mapping[str, bytes]
Block = tuple[int, dict[str, bytes]]  # the number of people, and their files


def split_files(files: Files, blocks: int, person: str | None) -> list[Block]:
    """Return the number of people and the files of each block; or refuse data without people.

    A row is in the block of the person whom it names, and a file or folder that is called by a
    person is in that person's block. Rows without a person are in no block. Files about nobody are
    in every block.

    Args:
        files: The files of the data by their paths.
        blocks: How many blocks there are.
        person: The column that names the person; by default participant_id, or else the first
            column of a single table.
    """
    if not 1 <= blocks <= MAX_BLOCKS:
        raise _bad_split(f"there must be 1 to {MAX_BLOCKS:,} blocks")
    tables = {path: _rows(path, text) for path, text in files.items() if _comma(path)}
    column = _column(tables, person, is_alone=len(files) == 1)
    places = {path: rows[0].index(column) for path, rows in tables.items() if column in _head(rows)}
    named = {_cell(row, place) for path, place in places.items() for row in tables[path][1:]}
    owners = {path: _owner(path, named) for path in files}
    people = sorted((named | set(owners.values())) - set(_NOBODY))
    if not people:
        raise _bad_split(f"nobody is named in a column {column!r}, and no folder is called sub-...")
    mine: list[set[str]] = [set() for _ in range(blocks)]
    for name in people:
        mine[block_of(name, blocks)].add(name)
    return [(len(own), dict(_files_of(own, files, owners, places))) for own in mine]


def block_of(person: str, blocks: int) -> int:
    """Return the block of a person, by a hash with a public key."""
    text = person.encode("utf-8", "surrogateescape")
    found = hashlib.blake2b(text, digest_size=16, key=_KEY).digest()
    return int.from_bytes(found, "big") % blocks


def _files_of(
    own: set[str], files: Files, owners: Mapping[str, str], places: Mapping[str, int]
) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a block with these people: their own, and their rows of each table."""
    for path, text in files.items():
        if owners[path] and owners[path] not in own:
            continue
        yield path, _rows_of(own, path, text, places[path]) if path in places else text


def _rows_of(own: set[str], path: str, text: bytes, place: int) -> bytes:
    """Return a table with the rows of these people alone."""
    head, *rows = _rows(path, text)
    kept = [head, *(row for row in rows if _cell(row, place) in own)]
    if _comma(path) == "\t":
        said = "".join("\t".join(row) + "\n" for row in kept)
    else:
        made = io.StringIO()
        csv.writer(made, lineterminator="\n").writerows(kept)
        said = made.getvalue()
    return said.encode("utf-8", "surrogateescape")


def _rows(path: str, text: bytes) -> list[list[str]]:
    """Return the rows of a table, its head first."""
    said = text.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    if _comma(path) == "\t":
        return [line.rstrip("\r").split("\t") for line in said.split("\n") if line.rstrip("\r")]
    return [row for row in csv.reader(io.StringIO(said, newline="")) if row]


def _column(
    tables: Mapping[str, Sequence[Sequence[str]]], person: str | None, *, is_alone: bool
) -> str:
    """Return the column that names people; refuse a wanted one that no table has."""
    heads = [_head(rows) for rows in tables.values()]
    if person is not None:
        if not any(person in head for head in heads):
            raise _bad_split(f"no table has a column {person!r}")
        return person
    if is_alone and heads and heads[0] and PERSON not in heads[0]:
        return heads[0][0]
    return PERSON


def _owner(path: str, named: set[str]) -> str:
    """Return the person by whom a file or one of its folders is called, or "" for nobody."""
    for part in PurePosixPath(path).parts:
        first = re.split(r"[_.]", part)[0]
        for name in (part, first):
            if name in named and name not in _NOBODY:
                return name
        if _FOLDER.fullmatch(first):
            return first
    return ""


def _head(rows: Sequence[Sequence[str]]) -> Sequence[str]:
    return rows[0] if rows else ()


def _cell(row: Sequence[str], place: int) -> str:
    return row[place].strip() if place < len(row) else ""


def _comma(path: str) -> str:
    return _TABLES.get(PurePosixPath(path).suffix, "")


def _bad_split(says: str) -> Refused:
    return Refused(
        "bad-pipeline",
        f"The people of these data cannot be split into blocks: {says}.",
        "Name the column that says whose each row is, with --person COLUMN, or leave out --blocks.",
    )
