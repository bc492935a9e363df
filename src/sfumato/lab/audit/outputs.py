"""Many outputs of a mechanism as named columns of numbers, whatever the outputs are.

Numbers keep their value. What is no number (a text, a set of keys, a refusal) becomes a mark: a
number that is the same only for the same thing. What is missing in a run is NaN there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.core.refusal import Refused

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Columns = dict[str, Floats]
WHOLE: Final = "the whole output"
EXACT: Final = 1 << 53  # whole numbers from here on lose their last bits as floats
LAST: Final = 256  # what is kept of them as a mark: the rest after so many
_PRIME: Final = np.uint64(0x9E3779B97F4A7C15)
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
    if isinstance(found, np.ndarray) and found.dtype.kind in "biuf":
        return _of_array(found, runs)
    if not isinstance(found, (Sequence, np.ndarray)) or len(found) != runs:
        raise ValueError("a mechanism returns one output for each run")
    table = _as_numbers(found) if isinstance(found, list) else None
    return _of_objects(list(found)) if table is None else _of_array(table, runs)


def read_sides(parts: Sequence[tuple[Places, object]]) -> Outputs:
    """Return the outputs of both sides of a pair, each at its places, all read alike.

    Read apart, one rare text among the numbers of a side would change how all the others of that
    side look, and sides that luck alone sets apart would be told apart.
    """
    places = np.concatenate([where for where, _ in parts])
    rows = [_counted(found, where.size) for where, found in parts]
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
    if found.dtype.kind in "iu" and any(np.abs(one).max() >= EXACT for one in numbers.values()):
        last = {f"the last bits of {name}": rows[:, i] % LAST for i, name in enumerate(names)}
        marks |= {name: column.astype(np.float64) for name, column in last.items()}
    return Outputs(runs, numbers, marks)


def _names(count: int) -> list[str]:
    return ["the output"] if count == 1 else [f"output {i + 1}" for i in range(count)]


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
    numbers: list[dict[str, float]] = []
    marks: list[dict[str, float]] = []
    for one in found:
        numbers.append({})
        marks.append({WHOLE: mark_of(_spelled(one))})
        _flatten(one, "the output", numbers[-1], marks[-1])
    return Outputs(len(found), _as_columns(numbers), _as_columns(marks))


def _as_columns(rows: Sequence[Mapping[str, float]]) -> Columns:
    made: Columns = {}
    for place, row in enumerate(rows):
        for name, value in row.items():
            made.setdefault(name, np.full(len(rows), np.nan))[place] = value
    return made


def _flatten(one: object, name: str, numbers: dict[str, float], marks: dict[str, float]) -> None:
    """Put one output, part by part, under names of its own."""
    marks[f"the kind of {name}"] = mark_of(type(one).__name__)
    match one:
        case bool() | int() | float() | np.generic():
            numbers[name] = _number(one)
            if isinstance(one, (int, np.integer)) and abs(int(one)) >= EXACT:
                marks[f"the last bits of {name}"] = float(int(one) % LAST)
        case str() | bytes():
            marks[name] = mark_of(one if isinstance(one, str) else repr(one))
            marks[f"the length of {name}"] = float(len(one))
        case Mapping():
            marks[f"the keys of {name}"] = mark_of(repr([str(key) for key in one]))
            marks[f"the length of {name}"] = float(len(one))
            for key, value in one.items():
                _flatten(value, f"{name}[{key}]", numbers, marks)
        case Sequence() | np.ndarray():
            marks[f"the length of {name}"] = float(len(one))
            for place, value in enumerate(one):
                _flatten(value, f"{name}[{place}]", numbers, marks)
        case Refused():
            marks[name] = mark_of(_spelled(one))
            marks[f"the words of {name}"] = mark_of(f"{one} {one.facts}")
        case _:
            marks[name] = mark_of(_spelled(one))


def _number(one: object) -> float:
    try:
        return float(one)  # type: ignore[arg-type]  # a complex number or a date is no number
    except (OverflowError, TypeError, ValueError):
        return mark_of(str(one))


def _spelled(one: object) -> str:
    """Return what tells an output from another; of an error, its code and its words."""
    if isinstance(one, Refused):
        return f"refused {one.code}"
    return f"{type(one).__name__} {one}" if isinstance(one, BaseException) else repr(one)


@lru_cache(maxsize=1 << 16)
def mark_of(text: str) -> float:
    """Return a number below 2**48 that is the same for the same text."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return float(int.from_bytes(digest, "big"))
