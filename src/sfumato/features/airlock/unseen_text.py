"""Detect data hidden in white space, line ends, quotes and needless escapes of text files.

An invisible character blocks a file (`file_types.py`). Blanks are allowed, but nobody sees whether
a line ends with one blank, two or a tab. Two million of them can encode every row. Programs format
a file consistently, so every place that is formatted differently is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sfumato.features.airlock.cell_numbers import number_of
from sfumato.features.airlock.file_types import TABLES, kind_of, text_of

NOTHING: Final = ("", "-", "na", "n/a", "nan", "none", "null", "inf", "-inf")
_MAX_BLANKS: Final = 100  # blanks at one place of a JSON; more than any indentation
_IN_A_TEXT: Final = re.compile(r"(?<![ \t])[ \t]+$| \t|\t |\n{4,}", re.MULTILINE)
_IN_A_CELL: Final = re.compile(r'^"?[ \t]|[ \t]"?$|[ \t]{2}')
_CELLS: Final = {
    sep: re.compile(rf'("(?:[^"]|"")*+"|[^{sep}"\n]*+)({sep}|\n|$)|[^{sep}\n]*+({sep}|\n|$)')
    for sep in TABLES.values()
}
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+')
_NEEDLESS: Final = re.compile(r"\\u00(?!22|5c)[2-7][0-9a-f]", re.IGNORECASE)
_SLASH: Final = re.compile(r"(?<!\\)/")


def unseen_text(path: str, file: bytes) -> int:
    """Count the places in a text, table or JSON file that could hide data from a reader."""
    text, kind = text_of(file), kind_of(path)
    ends = {found[0] for found in re.finditer(r"\r\n|\r|\n", text)}
    lines = re.sub(r"\r\n?", "\n", text)
    if kind in TABLES:
        found = _in_table(lines, TABLES[kind])
    elif kind == "json":
        found = _in_json(lines)
    else:
        found = (1 for _ in _IN_A_TEXT.finditer(lines))
    return sum(found) + (len(ends) > 1)


def _in_table(lines: str, separator: str) -> Iterator[int]:
    """Yield 1 for each place in a table's cells that could hide data, else 0.

    Such places are a quote in the middle, quotes unlike those of similar cells, and extra blanks.
    """
    usual: dict[tuple[object, ...], bool] = {}
    line = column = 0
    for found in _CELLS[separator].finditer(lines):
        if found.start() == len(lines) and not column:
            break  # an empty match after the last line end is no cell
        yield found[1] is None  # this cell has a quote in its middle
        cell, end = found[1] or "", found[2] or found[3]
        plain = cell.strip('"')
        needs = bool({separator, '"', "\n"} & set(cell[1:-1]))
        kind = number_of(plain) is not None, plain.casefold() in NOTHING, needs
        is_quoted = cell.startswith('"')
        yield usual.setdefault((line == 0, column, *kind), is_quoted) != is_quoted
        yield _IN_A_CELL.search(cell) is not None
        line, column = (line + 1, 0) if end == "\n" else (line, column + 1)


def _in_json(lines: str) -> Iterator[int]:
    """Yield the number of places that could hide data: unusual blanks and needless escapes."""
    usual: dict[tuple[str, str, int], str] = {}
    before, depth, place = "", 0, 0
    for found in _TOKEN.finditer(lines):
        token = found[0]
        sign = token if token in {*"{}[],:"} else "a value"
        depth -= sign in {"}", "]"}
        blanks = lines[place : found.start()]
        is_odd = usual.setdefault((before, sign, depth), blanks) != blanks
        yield is_odd or len(blanks) > _MAX_BLANKS
        yield len(_NEEDLESS.findall(token))
        depth += sign in {"{", "["}
        before, place = sign, found.end()
    yield lines[place:] not in {"", "\n"}
    yield "\\/" in lines and _SLASH.search(lines) is not None
