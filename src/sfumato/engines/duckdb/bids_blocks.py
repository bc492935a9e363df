"""Split a BIDS data set into blocks of persons, and into one folder per person; in a worker.

A block is a BIDS folder with all the people of the block. A turn is the slot of one person's own
(participant-level) run, which comes before the runs of the blocks.

The content and the name of a person's folder depend on no other person. Neither does the stored
result of the person's own run (soundness rule 29). There are as many turns as the card allows
persons, and persons get them at random. So a turn reveals nothing about other persons
(dp/sampling/sampling_in_blocks.proof.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from sfumato.engines.duckdb.block_files import header_line, line_of, shows
from sfumato.engines.ingest.bids_folders import files_of
from sfumato.engines.ingest.cell_sql import secret_number
from sfumato.engines.ingest.prepare_order import folders_of, kept_of, path_of_block, path_of_turn
from sfumato.engines.ingest.source_files import paths_of
from sfumato.engines.shared.locked_connection import Room
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.segments import open_prepared
from sfumato.query.printing.from_clause import table_name
from sfumato.sandbox.ports import KEPT_PROGRAMS, MAX_KEPT, output_path
from sfumato.vault.card.bids import phenotype_path
from sfumato.vault.folder_archive_format import FILE, SAID, record

ROWS: Final = "participants.tsv"
_ROOM: Final = ".room"
_PAGE: Final = 4096
_MAX_ON_DISK: Final = MAX_KEPT + 2 * _PAGE
# first byte of a complete stored result; after a power failure the byte is missing
_WHOLE: Final = b"K"
Body = dict[str, Any]  # Any: a message of the parent process


@dataclass(frozen=True)
class _Person:
    """A person in a study: pseudonym, internal id (a keyed hash), block, and rows as text."""

    name: str
    who: str
    block: int
    lot: int  # keyed hash that orders the persons of a block
    lines: dict[str, list[str]] = field(default_factory=dict)  # rows as text, by table path


def split_people(room: Room, salt: str, request: Header) -> None:
    """Write one input file per turn, for the runs of a program on one person's data each.

    A turn is the slot of one person's run; there are as many as the card allows persons. The file
    holds the person's BIDS folder. It is empty if nobody has the turn, or if the person's result is
    stored already.
    """
    body: Body = request
    _take_room(body)
    for turn in range(body["study"][0]):
        Path(path_of_turn(body["target"], turn)).touch()
    for person, turn in _with_turns(_people(room, salt, body), body):
        place = Path(path_of_turn(body["target"], turn))
        with place.open("wb") as file:
            file.writelines(_alone(person, body))
        if body["study"][1] and _is_held(_kept(person, salt, body), _held(body, turn)):
            os.truncate(place, 0)


def split_study(room: Room, salt: str, request: Header) -> None:
    """Write one BIDS folder per block of persons, also for empty blocks.

    First store the new results of the per-person runs, because each block's folder contains them.
    """
    body: Body = request
    people = _people(room, salt, body)
    said = _said(people, salt, body) if body["study"][1] else {}
    for block in range(body["blocks"]):
        mine = [person for person in people if person.block == block]
        with open(path_of_block(body["target"], block), "wb") as file:
            file.writelines(_folder(mine, body, said))


def _tables(body: Body) -> list[Body]:
    """Return all tables of a study: path, index on the card, person column and columns.

    A study is a program that runs over people's BIDS folders.
    """
    own = {"path": ROWS, "place": 0, "person": body["person"], "columns": body["columns"]}
    return [own] + [
        {
            "path": f"{phenotype_path(name)}.tsv",
            "place": place,
            "person": person,
            "columns": columns,
        }
        for name, place, person, columns in body["study"][2]
    ]


def _people(room: Room, salt: str, body: Body) -> list[_Person]:
    """Return all persons of the study with their rows, sorted by block, then by a keyed hash.

    A person with rows in only one of the tables is included, without rows in the others.
    """
    room = replace(room, spill=body["spill"], paths=tuple(paths_of(body["table"])))
    connection = open_prepared(body["table"], room)
    found: dict[str, _Person] = {}
    try:
        for table in _tables(body):
            shown = shows(table)
            rows = connection.execute(_sql(table), [body["key"], body["blocks"], body["key"]])
            for block, lot, who, *values in rows.fetchall():
                person = found.setdefault(who, _Person(_name(who, salt), who, block, lot))
                lines = person.lines.setdefault(table["path"], [])
                lines.append(line_of(person.name, shown, values))
    finally:
        connection.close()
    return sorted(found.values(), key=lambda person: (person.block, person.lot, person.who))


def _sql(table: Body) -> str:
    values = "".join(f", v{place}" for _, place, _, _ in table["columns"])
    block = f"CAST({secret_number('block', 'hex(who)')} % ? AS INTEGER)"
    order = secret_number("in block", "hex(who)")
    return (
        f"SELECT block, lot, lower(hex(who)){values} FROM"
        f" (SELECT person, who, {block} AS block, {order} AS lot FROM people)"
        f" JOIN {table_name('duckdb', table['place'])} USING (person) ORDER BY who, rr"
    )


def _name(who: str, salt: str) -> str:
    """Return a person's pseudonym, which is the same in every study.

    It is a keyed hash, so it doesn't reveal who the person is.
    """
    return "sub-" + _hashed(salt, b"name", who.encode()).hexdigest()[:16]


def _hashed(salt: str, what: bytes, text: bytes) -> hashlib.blake2b:
    return hashlib.blake2b(text, key=bytes.fromhex(salt), person=what)


def _with_turns(people: list[_Person], body: Body) -> list[tuple[_Person, int]]:
    """Assign each person a turn (the slot of the person's own run) at random.

    The permutation is uniform, and a key of the run decides it.
    """
    turns, key = range(body["study"][0]), body["key"]
    dealt = sorted(turns, key=lambda turn: _hashed(key, b"turn", b"%d" % turn).digest())
    if len(people) > len(dealt):
        raise ValueError
    return list(zip(people, dealt, strict=False))


# --- contents of a folder -------------------------------------------------------------------------


def _alone(person: _Person, body: Body) -> Iterator[bytes]:
    return _folder([person], body)


def _folder(
    people: list[_Person], body: Body, said: Mapping[str, bytes] | None = None
) -> Iterator[bytes]:
    """Yield the records of a BIDS folder: these persons' rows, files and results of own runs."""
    for table in _tables(body):
        path = table["path"]
        lines = chain.from_iterable(person.lines.get(path, ()) for person in people)
        rows = (header_line(table) + "".join(lines)).encode()
        yield record(FILE, path, len(rows)) + rows
    for person in people:
        yield from files_of(folders_of(body["table"]) / person.who, person.name)
        text = (said or {}).get(person.who, b"")
        yield record(SAID, person.name, len(text)) + text


# --- stored results of per-person runs ------------------------------------------------------------


def _kept(person: _Person, salt: str, body: Body) -> Path:
    """Return the path of the stored (kept) result of a program's run on one person's data.

    The path holds a hash of the person's folder, so changed data get a new run. There is one result
    per program.
    """
    digest = _hashed(salt, b"kept", b"")
    for piece in _alone(person, body):
        digest.update(piece)
    program = str(body["study"][1])
    return kept_of(body["table"]) / program / digest.hexdigest()[:48]


def _said(people: list[_Person], salt: str, body: Body) -> dict[str, bytes]:
    """Collect what the per-person runs returned: new results, and those of earlier studies.

    Store the new ones. A run that was stopped has no result: the person is missing this time, and
    runs again next time.
    """
    found = {}
    _take_room(body, _sizes(body["target"], body["study"][0]))
    for person, turn in _with_turns(people, body):
        kept = _kept(person, salt, body)
        fresh = Path(output_path(path_of_turn(body["target"], turn)))
        held = _held(body, turn)
        if fresh.exists() and not _is_whole(kept):
            _keep(kept, fresh)
        if _is_whole(held) or _is_held(kept, held):
            found[person.who] = held.read_bytes().removeprefix(_WHOLE)
    _take_room(body)
    # read here, where nobody can observe how long it takes
    for done in Path(body["target"]).glob("turn-*"):
        done.unlink()
    return found


def _take_room(body: Body, about_to_come: int = 0) -> None:
    """Reserve the most disk space that a program's per-person results can take.

    So the results always fit on the disk, and the free space reveals nothing about them. Only the
    four programs of a data set that ran last (KEPT_PROGRAMS) keep their reservation and results.
    """
    if not body["study"][1]:
        return
    folder = kept_of(body["table"])
    own = folder / str(body["study"][1])
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    room = own.with_suffix(_ROOM)
    room.touch(mode=0o600)
    os.utime(room)
    for other in sorted(folder.glob(f"*{_ROOM}"), key=_last_run)[:-KEPT_PROGRAMS]:
        shutil.rmtree(other.with_suffix(""), ignore_errors=True)
        other.unlink(missing_ok=True)
    taken = about_to_come + sum(map(_on_disk, own.iterdir()))
    left = max(0, body["study"][0] * _MAX_ON_DISK - taken)
    os.truncate(room, min(left, room.stat().st_size))
    if left:
        with room.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, left)


def _sizes(target: str, turns: int) -> int:
    """Return the disk space, in bytes, that the new results of the per-person runs would take."""
    said = (Path(output_path(path_of_turn(target, turn))) for turn in range(turns))
    return sum(_on_disk(one) for one in said if one.exists())


def _on_disk(kept: Path) -> int:
    return -(-(len(_WHOLE) + kept.stat().st_size) // _PAGE) * _PAGE


def _last_run(room: Path) -> int:
    return room.stat().st_mtime_ns


def _held(body: Body, turn: int) -> Path:
    """Return the path of a hard link to the stored result of a turn (one person's own run).

    The link keeps the result if the stored results are cleaned up.
    """
    return Path(path_of_turn(body["target"], turn) + ".held")


def _is_held(kept: Path, held: Path) -> bool:
    """Hard-link a person's stored result for this run; return whether it exists and is complete."""
    held.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.link(kept, held)
    return _is_whole(held)


def _is_whole(kept: Path) -> bool:
    return kept.exists() and kept.stat().st_size > 0


def _keep(kept: Path, fresh: Path) -> None:
    """Store the new result of a per-person run atomically.

    The draft of a killed worker is deleted with the run's folder.
    """
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = fresh.with_suffix(".whole")
    with draft.open("wb") as file:
        file.write(_WHOLE + fresh.read_bytes())
        file.flush()
        os.fsync(file.fileno())
    draft.replace(kept)
