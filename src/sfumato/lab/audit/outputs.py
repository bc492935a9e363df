"""Many outputs of a mechanism as named columns of numbers, whatever the outputs are.

Numbers keep their value. What is no number (a text, a set of keys, a refusal) becomes a mark: a
number that is the same only for the same thing. What is missing in a run is NaN there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Refused
from sfumato.lab.audit.output_parts import EXACT, LAST, OUTPUT, WHOLE, Parts

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Columns = dict[str, Floats]
MOST_KEPT: Final = 1 << 27  # numbers of all runs: a gigabyte
_PRIME: Final = np.uint64(0x9E3779B97F4A7C15)
_LOW: Final = np.uint64((1 << 12) - 1)
_KEPT: Final = np.uint64(12)  # bits dropped of a 64-bit hash, so that a float holds it exactly


@dataclass(frozen=True, eq=False)
class Outputs:
    """A row for each run: numbers, and marks."""

    runs: int
    numbers: Columns
    marks: Columns

    def column(self, name: str) -> Floats:
        """Return a column; of one that never appeared here, NaN throughout."""
        found = self.numbers.get(name)
        found = self.marks.get(name) if found is None else found
        return np.full(self.runs, np.nan) if found is None else found

    def at(self, places: Places | slice) -> Outputs:
        """Return some of the runs."""
        numbers = {name: column[places] for name, column in self.numbers.items()}
        marks = {name: column[places] for name, column in self.marks.items()}
        runs = len(np.arange(self.runs)[places])
        return Outputs(runs, numbers, marks)


def merged(parts: Sequence[tuple[Places, Outputs]]) -> Outputs:
    """Return the runs of several outputs, each at its places."""
    runs = sum(part.runs for _, part in parts)
    return Outputs(
        runs,
        _scattered(runs, [(places, part.numbers) for places, part in parts]),
        _scattered(runs, [(places, part.marks) for places, part in parts]),
    )


def _scattered(runs: int, parts: Sequence[tuple[Places, Columns]]) -> Columns:
    made: Columns = {}
    for places, columns in parts:
        for name, column in columns.items():
            made.setdefault(name, np.full(runs, np.nan))[places] = column
    return made


def joined(parts: Sequence[Outputs]) -> Outputs:
    """Return the runs of several outputs, one after the other."""
    placed, start = [], 0
    for part in parts:
        placed.append((np.arange(start, start + part.runs), part))
        start += part.runs
    return merged(placed)


def read_outputs(found: object, runs: int) -> Outputs:
    """Return the outputs of so many runs: an array with a row for each, or one object for each."""
    found = _unmasked(found)
    if isinstance(found, np.ndarray) and found.dtype.kind in "biuf":
        return _of_array(found, runs)
    if not isinstance(found, (Sequence, np.ndarray)) or len(found) != runs:
        raise ValueError("a mechanism returns one output for each run")
    table = _as_numbers(found) if isinstance(found, list) else None
    return _of_objects(list(found)) if table is None else _of_array(table, runs)


def _unmasked(found: object) -> object:
    """Return a masked array as a list of what is shown and what is under the mask."""
    if not isinstance(found, np.ma.MaskedArray):
        return found
    return list(zip(found.tolist(), found.data.tolist(), strict=True))


def read_sides(parts: Sequence[tuple[Places, object]]) -> Outputs:
    """Return the outputs of both sides of a pair, each at its places, all read alike.

    Read apart, one rare text among the numbers of a side would change how all the others of that
    side look, and sides that luck alone sets apart would be told apart.
    """
    places = np.concatenate([where for where, _ in parts])
    rows = [_counted(_unmasked(found), where.size) for where, found in parts]
    return read_outputs(_as_one(rows), places.size).at(np.argsort(places))


def _counted(found: object, runs: int) -> Sequence[object] | NDArray[Any]:
    is_scalar = isinstance(found, np.ndarray) and not found.ndim
    if is_scalar or not isinstance(found, (Sequence, np.ndarray)) or len(found) != runs:
        raise ValueError("a mechanism returns one output for each run")
    return found


def _as_one(sides: Sequence[Sequence[object] | NDArray[Any]]) -> object:
    """Return one array where all are numbers in rows of the same shape, else one list.

    An array has one kind of number for a whole side, by its rarest: it tells nothing of a run.
    """
    arrays = [one for one in sides if isinstance(one, np.ndarray) and one.dtype.kind in "biuf"]
    if len(arrays) == len(sides) and len({one.shape[1:] for one in arrays}) == 1:
        return np.concatenate(arrays)
    listed = (one.tolist() if isinstance(one, np.ndarray) else one for one in sides)
    return [row for one in listed for row in one]


def _as_numbers(found: list[object]) -> Floats | None:
    """Return plain numbers of one kind, or rows of as many of them, as an array; else None.

    Whole numbers on one side and others beside them are told apart by their kind.
    """
    kinds = set(map(type, found))
    rows = [cast("list[object]", one) for one in found] if kinds == {list} else None
    if rows is not None and len(set(map(len, rows))) == 1:
        kinds = {type(one) for row in rows for one in row}
    if kinds not in ({int}, {float}):
        return None
    try:
        table = np.array(found, dtype=np.float64)
    except OverflowError:
        return None
    return None if int in kinds and (np.abs(table) >= EXACT).any() else table


def _of_array(found: NDArray[Any], runs: int) -> Outputs:
    if not found.ndim or len(found) != runs:
        raise ValueError("a mechanism returns a row for each run")
    rows = found.reshape(runs, -1)
    names = _names(rows.shape[1])
    with np.errstate(over="ignore"):
        numbers = {name: rows[:, i].astype(np.float64) for i, name in enumerate(names)}
    marks = {WHOLE: _hashes(rows), "how many numbers": np.full(runs, float(rows.shape[1]))}
    if found.dtype.kind == "f":
        marks |= {f"the bits of {n}": odd for n, one in numbers.items() if (odd := _odd(one)).any()}
        numbers |= _beyond(rows, numbers)
    if found.dtype.kind in "iu" and any(np.abs(one).max() >= EXACT for one in numbers.values()):
        last = {f"the last bits of {name}": rows[:, i] % LAST for i, name in enumerate(names)}
        marks |= {name: column.astype(np.float64) for name, column in last.items()}
    return Outputs(runs, numbers, marks)


def _names(count: int) -> list[str]:
    return [OUTPUT] if count == 1 else [f"output {i + 1}" for i in range(count)]


def _odd(numbers: Floats) -> Floats:
    """Return a mark of the bits where equal numbers may have others: 0, below 0, and no number."""
    bits: NDArray[np.uint64] = numbers.view(np.uint64)
    is_odd = (numbers == 0) & np.signbit(numbers) | np.isnan(numbers)
    return np.where(is_odd, (bits >> _KEPT) + (bits & _LOW) + np.uint64(1), 0).astype(np.float64)


def _beyond(rows: NDArray[Any], numbers: Columns) -> Columns:
    """Return what numbers that are longer than a float have beyond it."""
    if rows.dtype.itemsize <= 8:
        return {}
    with np.errstate(invalid="ignore", over="ignore"):
        rest = {name: rows[:, place] - one for place, (name, one) in enumerate(numbers.items())}
        return {f"{name} beyond a float": one.astype(np.float64) for name, one in rest.items()}


def _hashes(rows: NDArray[Any]) -> Floats:
    """Return a mark of the exact bits of each row."""
    wide = rows.astype(np.float64 if rows.dtype.kind == "f" else np.int64, order="C")
    words: NDArray[np.uint64] = wide.view(np.uint64)
    mark = np.zeros(len(rows), dtype=np.uint64)
    for column in words.T:
        mark = (mark ^ column) * _PRIME
        mark ^= mark >> np.uint64(29)
    return np.asarray((mark >> _KEPT).astype(np.float64))


def _of_objects(found: Sequence[object]) -> Outputs:
    parts = [Parts(one) for one in found]
    numbers = _as_columns([one.numbers for one in parts])
    return Outputs(len(found), numbers, _as_columns([one.marks for one in parts]))


def _as_columns(rows: Sequence[Mapping[str, float]]) -> Columns:
    made: Columns = {}
    for place, row in enumerate(rows):
        for name, value in row.items():
            made.setdefault(name, np.full(len(rows), np.nan))[place] = value
        if len(made) * len(rows) > MOST_KEPT:
            raise Refused(
                "bad-request",
                "The auditor cannot look at so many parts of so many outputs.",
                "Return fewer numbers, and no keys that noise has chosen, or ask for fewer runs.",
            )
    return made
