"""What the statements of a measure returned, put together as cells; the same for every engine."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.measure import Cells, Measure
from sfumato.engines.frames import Header

Columns = Mapping[str, NDArray[Any]]  # by name, as an engine hands them out
_LENGTH: Final = struct.Struct("<Q")


@dataclass(frozen=True)
class Layout:
    """How the cells of a measure lie: dense if every key is public, else as they are found."""

    cells: int | None
    keys: int
    sizes: tuple[int, ...]  # per tally: codes of a histogram, 0 for a plain number

    @staticmethod
    def of(measure: Measure) -> Layout:
        """Return the layout of the measure's answer."""
        sizes = tuple(t.size if t.kind == "histogram" else 0 for t in measure.tallies)
        cells = measure.cells if measure.is_public else None
        if measure.wanted is not None:
            cells = len(measure.wanted)
        return Layout(cells, len(measure.keys), sizes)

    def as_json(self) -> Header:
        """Return the layout as it travels to a worker."""
        return {"cells": self.cells, "keys": self.keys, "sizes": list(self.sizes)}

    @staticmethod
    def read(shape: Any) -> Layout:  # a header of our own parent
        """Return the layout again."""
        return Layout(shape["cells"], shape["keys"], tuple(shape["sizes"]))


class Assembly:
    """Cells in the making; fed with the columns of one statement after the other."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._known: list[tuple[object, ...]] | None = None
        self._places: dict[tuple[object, ...], int] = {}
        self._parts: dict[int, NDArray[np.int64]] = {}

    def add(self, tallies: Sequence[int], columns: Columns) -> None:
        """Take what one statement returned, for those tallies."""
        where = self._where(columns)
        for place, tally in enumerate(tallies):
            numbers = np.asarray(columns[f"t{place}"], dtype=np.int64)
            size = self._layout.sizes[tally]
            part = self._empty(size)
            if size:
                part[where, np.asarray(columns["code"], dtype=np.int64)] = numbers
            else:
                part[where] = numbers
            self._parts[tally] = part

    def cells(self) -> Cells:
        """Return the cells."""
        parts = tuple(self._parts[place] for place in range(len(self._layout.sizes)))
        return Cells(parts, None if self._layout.cells is not None else tuple(self._known or ()))

    def _where(self, columns: Columns) -> NDArray[np.int64]:
        if self._layout.cells is not None:
            return np.asarray(columns["cell"], dtype=np.int64)
        named = [_plain(columns[f"g{i}"]) for i in range(self._layout.keys)]
        keys = list(zip(*named, strict=True))
        if self._known is None:  # the first statement meets every cell that there is
            self._known = sorted(set(keys), key=repr)
            self._places = {key: place for place, key in enumerate(self._known)}
        return np.array([self._places[key] for key in keys], dtype=np.int64)

    def _empty(self, size: int) -> NDArray[np.int64]:
        known = len(self._known or ()) if self._layout.cells is None else self._layout.cells
        return np.zeros((known, size) if size else known, dtype=np.int64)


def _plain(column: NDArray[Any]) -> list[object]:
    """Return private keys as texts, whole numbers and truth values."""
    if column.dtype.kind == "M":  # a date or timestamp; some are beyond what Python's own can be
        return [text.replace("T", " ") for text in np.datetime_as_string(column, "us").tolist()]
    return [_plain_key(value) for value in column.tolist()]


def _plain_key(value: Any) -> object:  # whatever an engine hands out
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, date):  # a date becomes its midnight: not every engine tells them apart
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        return moment.isoformat(sep=" ", timespec="microseconds")
    raise TypeError


# --- over the pipe -------------------------------------------------------------------------------


def cells_bytes(cells: Cells) -> bytes:
    """Return the cells as bytes; for public keys as many as the layout says, whatever the rows."""
    text = b"" if cells.keys is None else json.dumps(cells.keys).encode("ascii")
    numbers = b"".join(part.astype("<i8").tobytes() for part in cells.parts)
    return _LENGTH.pack(len(text)) + text + numbers


def read_cells(layout: Layout, message: bytes) -> Cells | None:
    """Return the cells again, or None if the bytes are not of that layout."""
    if len(message) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(message[: _LENGTH.size])
    text, rest = message[_LENGTH.size :][:length], message[_LENGTH.size + length :]
    keys: tuple[tuple[object, ...], ...] | None = None
    count = layout.cells
    if count is None:
        keys = tuple(tuple(key) for key in json.loads(text))
        count = len(keys)
    lengths = [count * (size or 1) for size in layout.sizes]
    if len(rest) != 8 * sum(lengths):
        return None
    parts, start = [], 0
    for size, numbers in zip(layout.sizes, lengths, strict=True):
        part = np.frombuffer(rest, dtype="<i8", count=numbers, offset=8 * start).astype(np.int64)
        parts.append(part.reshape(count, size) if size else part)
        start += numbers
    return Cells(tuple(parts), keys)
