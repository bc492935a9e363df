"""Read JSON lines: one object on each line, whose names are the columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sfumato.engines.ingest.source_errors import unreadable
from sfumato.system.typed_rows import TypedRows

_LONGEST: Final = 8 << 20  # the most characters of a line
_COLUMNS: Final = 20_000


def json_lines(source: str) -> TypedRows:
    """Return the rows; the columns are the names of all lines, in the order of their appearance.

    The file is read twice: for the names, and for the rows.
    """
    names: dict[str, None] = {}
    for shape in _objects(source):
        names.update(dict.fromkeys(shape))
        if len(names) > _COLUMNS:
            raise unreadable(
                f"The objects have more than {_COLUMNS:,} different names, which would be columns.",
                "Write one object for each row, with the same names in all objects.",
            )
    return TypedRows(tuple(names), _rows(source, tuple(names)))


def _rows(source: str, names: Sequence[str]) -> Iterator[Sequence[object]]:
    for shape in _objects(source):
        yield [shape.get(name) for name in names]


def _objects(source: str) -> Iterator[dict[str, object]]:
    """Yield each line's object; a refusal names the line's number, but not its content."""
    with Path(source).open("rb") as file:
        number = 0
        while line := file.readline(_LONGEST + 1):
            number += 1
            if not line.strip(b" \t\r\n\xef\xbb\xbf"):
                continue
            yield _object(line, number)


def _object(line: bytes, number: int) -> dict[str, object]:
    shape: object = None
    if len(line) <= _LONGEST:
        try:
            shape = json.loads(
                line.decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_none
            )
        except (ValueError, RecursionError):
            shape = None
    if not isinstance(shape, dict):
        raise unreadable(
            f"Line {number} is no JSON object in UTF-8, or has a name twice.",
            "Write one object on each line.",
        )
    return shape


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError
    return made


def _none(_text: str) -> None:
    """Return None for NaN and Infinity, which are no numbers."""
