"""Assemble the results of a measure's SQL statements into cells; the same for every engine.

A cell is one group of the answer. Each tally of the measure gives one array over all cells.
"""

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

Columns = Mapping[str, NDArray[Any]]  # an engine's result columns, by name
_LENGTH: Final = struct.Struct("<Q")


@dataclass(frozen=True)
class Layout:
    """Layout of a query's result: its number of groups, of keys, and of numbers per tally.

    The result has every group if the groups are known in advance; else only the groups that exist.
    """

    cells: int | None  # number of cells; None if keys are private
    keys: int  # number of grouping keys
    sizes: tuple[int, ...]  # per tally: number of histogram codes, 0 for a plain number

    @staticmethod
    def of(measure: Measure) -> Layout:
        """Return the layout of a measure's result."""
        sizes = tuple(t.size if t.kind == "histogram" else 0 for t in measure.tallies)
        cells = measure.cells if measure.is_public else None
        if measure.selected_keys is not None:
            cells = len(measure.selected_keys)
        return Layout(cells, len(measure.keys), sizes)

    def as_json(self) -> Header:
        """Return the layout as JSON, to send it to a worker."""
        return {"cells": self.cells, "keys": self.keys, "sizes": list(self.sizes)}

    @staticmethod
    def read(shape: Any) -> Layout:  # from the parent process, so it is trusted
        """Parse a result layout from its JSON."""
        return Layout(shape["cells"], shape["keys"], tuple(shape["sizes"]))


class Assembly:
    """Builder of a query's result, from the result columns of its SQL statements."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._named: list[list[object]] | None = None  # private keys, one list per key column
        self._found = 0  # number of distinct private keys
        self._places: dict[tuple[object, ...], int] = {}
        self._parts: dict[int, NDArray[np.int64]] = {}

    def add(self, tallies: Sequence[int], columns: Columns) -> None:
        """Add the result columns of one SQL statement, which computed the given tallies."""
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
        """Return the exact counts and sums per group, with the private keys if there are any."""
        keys = None if self._named is None else tuple(zip(*self._named, strict=True))
        return Cells(self._in_order(), keys)

    def as_bytes(self) -> bytes:
        """Return the exact counts and sums per group as bytes, to send them through the pipe."""
        return _bytes(self._named, self._in_order())

    def _in_order(self) -> tuple[NDArray[np.int64], ...]:
        return tuple(self._parts[place] for place in range(len(self._layout.sizes)))

    def _where(self, columns: Columns) -> NDArray[np.int64]:
        if self._layout.cells is not None:
            return np.asarray(columns["cell"], dtype=np.int64)
        named = [_plain(columns[f"g{i}"]) for i in range(self._layout.keys)]
        if self._named is None:  # the first statement returns every cell that exists
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
    """Return private keys as strings, integers and booleans, whatever types the engine returns."""
    if column.dtype.kind == "M":  # a date or timestamp, possibly outside Python's datetime range
        return [text.replace("T", " ") for text in np.datetime_as_string(column, "us").tolist()]
    return [_plain_key(value) for value in column.tolist()]


def _plain_key(value: Any) -> object:  # Any: the type depends on the engine
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, date):  # a date becomes its midnight: some engines return timestamps
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        return moment.isoformat(sep=" ", timespec="microseconds")
    raise TypeError


# --- serialisation for the pipe ------------------------------------------------------------------


def cells_bytes(cells: Cells) -> bytes:
    """Return a query's exact result as bytes, to send it through the pipe.

    For public keys, the length depends only on the layout, not on the rows.
    """
    named = None if cells.keys is None else [list(place) for place in zip(*cells.keys, strict=True)]
    return _bytes(named, cells.parts)


def _bytes(named: Sequence[list[object]] | None, parts: Sequence[NDArray[np.int64]]) -> bytes:
    text = b"" if named is None else json.dumps(named).encode("ascii")
    return _LENGTH.pack(len(text)) + text + b"".join(part.astype("<i8").tobytes() for part in parts)


def read_cells(layout: Layout, message: bytes) -> Cells | None:
    """Parse a query's exact result from bytes; return None if they do not match the layout."""
    if len(message) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(message[: _LENGTH.size])
    text, rest = message[_LENGTH.size :][:length], message[_LENGTH.size + length :]
    keys: tuple[tuple[object, ...], ...] | None = None
    count = layout.cells
    if count is None:
        keys = tuple(zip(*json.loads(text), strict=True))  # the JSON has one list per key column
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
