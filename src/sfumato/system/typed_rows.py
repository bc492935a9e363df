"""Write rows whose cells have types as a CSV file, and say which columns are texts.

A card's formats apply to texts only. In a spreadsheet the number 1.125 is not `1.125` as a German
text file means it, so a column with any other value than texts is read without formats.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.system.csv_writer import NO_VALUE, write_rows

_DIGIT: Final = re.compile("[0-9]")


@dataclass(frozen=True)
class TypedRows:
    """Rows from a file format with types: the column names, and an iterator over the rows."""

    names: tuple[str, ...]
    rows: Iterable[Sequence[object]]
    # True if the format itself separates names from rows, so that no row can be taken for names
    has_schema: bool = True
    # the cells that were taken for names, if the format does not say which they are
    first: Sequence[object] = ()

    def named(self, names: Sequence[str]) -> TypedRows:
        """Return the rows under the names of a card: the first row has values then.

        There are fewer names than the card's if the rows have fewer cells.
        """
        kept = tuple(names[: len(self.first)])
        return TypedRows(kept, chain([self.first], self.rows), has_schema=False)


@dataclass
class CellKinds:
    """Which cells a column has: other values than texts, and texts with digits."""

    values: bool = False
    numerals: bool = False


def write_typed(
    found: TypedRows, target: Path, most: int | None = None, *, has_names: bool = True
) -> tuple[CellKinds, ...]:
    """Write rows separated by tabs, at most `most` of them; say which cells each column has."""
    kinds = tuple(CellKinds() for _ in found.names)
    with target.open("w", encoding="utf-8", newline="") as file:
        write_rows(file, [[*found.names]] if has_names else [], "\t")
        write_rows(file, _spelled(islice(found.rows, most), kinds), "\t")
    return kinds


def _spelled(rows: Iterable[Sequence[object]], kinds: Sequence[CellKinds]) -> Iterable[list[str]]:
    """Yield each row's cells as texts; note which cells the columns have."""
    width = len(kinds)
    for row in rows:
        if any(value is not None for value in row[width:]):
            raise Refused(
                "no-header",
                "A row has a cell to the right of the last column name.",
                "Write a name above each column, and remove the lines before the names.",
            )
        cells = []
        for place in range(width):
            value, kind = row[place] if place < len(row) else None, kinds[place]
            if isinstance(value, str):
                kind.numerals = kind.numerals or _DIGIT.search(value) is not None
                cells.append(value)
                continue
            text = spell(value)
            cells.append(text)
            kind.values = kind.values or text != NO_VALUE
        yield cells


def spell(value: object) -> str:
    """Return a cell's text as the card's types read it."""
    match value:
        case None:
            return NO_VALUE
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float(value)
        case Decimal():
            return f"{value:f}" if value.is_finite() else NO_VALUE
        case datetime():
            moment = value.replace(tzinfo=None)
            at_midnight = moment.time() == time()
            return moment.date().isoformat() if at_midnight else moment.isoformat(" ")
        case date() | time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case dict() | list():
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        case _:
            return str(value)


def _float(value: float) -> str:
    if math.isnan(value):
        return NO_VALUE
    if value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return repr(value)
