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

from sfumato.engines.shared.message_frames import Header
from sfumato.query.measure import Cells, Measure

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
        self._named: list[list[object]] | None = None  # a list for each place of a private key
        self._found = 0  # private keys
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
        keys = None if self._named is None else tuple(zip(*self._named, strict=True))
        return Cells(self._in_order(), keys)

    def as_bytes(self) -> bytes:
        """Return the cells as they go over the pipe; with many keys, without a tuple for each."""
        return _bytes(self._named, self._in_order())

    def _in_order(self) -> tuple[NDArray[np.int64], ...]:
        return tuple(self._parts[place] for place in range(len(self._layout.sizes)))

    def _where(self, columns: Columns) -> NDArray[np.int64]:
        if self._layout.cells is not None:
            return np.asarray(columns["cell"], dtype=np.int64)
        named = [_plain(columns[f"g{i}"]) for i in range(self._layout.keys)]
        if self._named is None:  # the first statement meets every cell that there is
            unlike = set(named[0] if len(named) == 1 else zip(*named, strict=True))
            self._named, self._found = named, len(unlike)
            if self._found == len(named[0]):
                return np.arange(self._found, dtype=np.int64)
            self._named = _unlike(named)
        if not self._places:
            keys = zip(*self._named, strict=True)
            self._places = {key: place for place, key in enumerate(keys)}
        return np.array([self._places[key] for key in zip(*named, strict=True)], dtype=np.int64)

    def _empty(self, size: int) -> NDArray[np.int64]:
        cells = self._found if self._layout.cells is None else self._layout.cells
        return np.zeros((cells, size) if size else cells, dtype=np.int64)


def _unlike(named: Sequence[list[object]]) -> list[list[object]]:
    keys = dict.fromkeys(zip(*named, strict=True))
    return [list(place) for place in zip(*keys, strict=True)]


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
    named = None if cells.keys is None else [list(place) for place in zip(*cells.keys, strict=True)]
    return _bytes(named, cells.parts)


def _bytes(named: Sequence[list[object]] | None, parts: Sequence[NDArray[np.int64]]) -> bytes:
    text = b"" if named is None else json.dumps(named).encode("ascii")
    return _LENGTH.pack(len(text)) + text + b"".join(part.astype("<i8").tobytes() for part in parts)


def read_cells(layout: Layout, message: bytes) -> Cells | None:
    """Return the cells again, or None if the bytes are not of that layout."""
    if len(message) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(message[: _LENGTH.size])
    text, rest = message[_LENGTH.size :][:length], message[_LENGTH.size + length :]
    keys: tuple[tuple[object, ...], ...] | None = None
    count = layout.cells
    if count is None:
        keys = tuple(zip(*json.loads(text), strict=True))  # one list for each place of a key
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
