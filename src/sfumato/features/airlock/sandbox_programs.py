"""Build the two programs that the airlock runs in the sandbox: the author's, and the counter.

Both run like programs over a folder (`sandbox/study.py`). A Python program has a wrapper around it,
and shares its process. So the wrapper gives no protection, and all of its output is untrusted. The
wrapper and the counter pack their output into pieces of limited size, which the sandbox sends.

An image's program may be in any language, so it has no wrapper. The reader of its block, which runs
after the program has ended, sends the declared files (`sandbox/process_tree.py`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from sfumato.features.airlock.declared_tables import DeclaredFile
from sfumato.features.airlock.file_types import MAX_BYTES, joined, unpacked
from sfumato.features.airlock.program_plan import AirlockProgram

# the size of a piece in bytes, which is the most that the sandbox sends of one file
_PIECE: Final = 65_536
PIECES: Final = tuple(f"piece-{place:03d}" for place in range(MAX_BYTES // _PIECE + 1))
# the most bytes that the sandbox sends: all pieces, or all files, in hexadecimal with their names
MAX_SAID: Final = 2 * len(PIECES) * _PIECE + 4096
MAX_GROUPS: Final = 10_000  # the most groups of one table that the counter counts

_SEND: Final = """
def _send(whole):
    for place, name in enumerate(PIECES):
        piece = whole[place * SIZE : (place + 1) * SIZE]
        if piece:
            with open(os.path.join(sys.argv[2], name), "wb") as file:
                file.write(piece)
"""
_WRAPPER: Final = (
    """
import contextlib, os, struct, sys
"""
    + _SEND
    + """
def _packed():
    parts = []
    for path in PATHS:
        place = os.path.join(sys.argv[2], path)
        if os.path.isfile(place):
            with open(place, "rb") as file:
                text = file.read(MOST + 1)
            parts.append(struct.pack("<HQ", len(path), len(text)) + path.encode() + text)
    return b"".join(parts)
with contextlib.suppress(BaseException):
    exec(compile(SOURCE, "program.py", "exec", dont_inherit=True), {"__name__": "__main__"})
_send(_packed())
"""
)
_COUNT: Final = (
    """
import csv, json, os, sys
from collections import defaultdict
"""
    + _SEND
    + """
def _parts(people):
    parts = sorted((abs(part) for part in people.values()), reverse=True)
    return [len(people), *(parts + [0.0, 0.0])[:2], sum(parts)]
def _part(text):
    try:
        return float(text)
    except ValueError:
        return 0.0
with open(os.path.join(sys.argv[1], "participants.tsv"), newline="") as file:
    rows = csv.reader(file, delimiter="\\t", quoting=csv.QUOTE_NONE)
    heads = next(rows)
    where = {head: place for place, head in enumerate(heads)}
    everybody = set()
    tables = {path: defaultdict(lambda: defaultdict(float)) for path, by, of in TABLES}
    for row in rows:
        everybody.add(row[0])
        for path, by, of in TABLES:
            key = tuple(row[where[name]] for name in by)
            part = _part(row[where[of]]) if of else 0.0
            tables[path][key][row[0]] += part
said = {"people": len(everybody), "tables": {
    path: [[list(key), *_parts(people)] for key, people in list(groups.items())[:GROUPS]]
    for path, groups in tables.items()}}
_send(json.dumps(said).encode())
"""
)


def of_author(program: AirlockProgram) -> dict[str, object]:
    """Return what the sandbox is told of the author's program, and of the files to collect."""
    paths = [one.path for one in program.asked]
    if program.is_image:
        return {"source": program.source, "paths": paths, "room": MAX_BYTES}
    return {"source": wrapped(program.source, paths), "paths": list(PIECES)}


def files_of(program: AirlockProgram, said: bytes) -> dict[str, bytes]:
    """Return the declared files from what the sandbox sent of the author's program, by path.

    What was sent is untrusted. Malformed output gives no file. Never raises.
    """
    paths = tuple(one.path for one in program.asked)
    return _sent(said, paths) if program.is_image else unpacked(joined(said, PIECES), paths)


def of_counter(program: AirlockProgram) -> dict[str, object]:
    """Return what the sandbox is told of the counter, which always runs in our own Python."""
    return {"source": counting(program.asked), "paths": list(PIECES)}


def measured_of(said: bytes) -> str:
    """Return the JSON of the counter from what the sandbox sent of it. Never raises."""
    return joined(said, PIECES).decode("utf-8", "replace")


def _sent(said: bytes, paths: Sequence[str]) -> dict[str, bytes]:
    try:
        body = json.loads(said)
        return {path: bytes.fromhex(body[path]) for path in paths if path in body}
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}


def wrapped(source: str, paths: Sequence[str]) -> str:
    """Return the source of the wrapper, which runs the untrusted program and packs its files.

    `source` is that program, and `paths` are the files that it may leave.
    """
    return _with(_WRAPPER, SOURCE=source, PATHS=list(paths), MOST=MAX_BYTES)


def counting(asked: Sequence[DeclaredFile]) -> str:
    """Return the source of the counter, our program that counts groups in the real rows.

    It counts the people in each group of each table that declares group columns, for the output
    checks.
    """
    tables = [(one.path, list(one.by), one.of) for one in asked if one.is_table and one.by]
    return _with(_COUNT, TABLES=tables, GROUPS=MAX_GROUPS)


def _with(text: str, **names: object) -> str:
    said = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    return f"PIECES = {PIECES!r}\nSIZE = {_PIECE}\n{said}{text}"
