"""Convert a mechanism's outputs of any type to named numeric columns, with one row per run.

Numbers keep their value. Everything else (a text, a set of keys, a refusal) becomes a mark: a hash
that is equal for equal things. A part that a run does not have is NaN there.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from types import MemberDescriptorType
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Refused

# --- One output of a mechanism, split into parts: numbers, and marks of everything else
#
# Each part that a caller could see gets a name. Outputs that cannot be inspected are refused: if
# nobody reads an output, it passes every audit.


WHOLE: Final = "the whole output"
OUTPUT: Final = "the output"
EXACT: Final = 1 << 53  # from this size on, an integer loses its last bits as a float
LAST: Final = 256  # such an integer keeps its remainder modulo LAST as a mark
IN_A_TEXT: Final = 8  # the most numbers in a text that become parts of their own
LONGEST: Final = 10_000  # the most characters of a text that are searched for numbers
BEHIND: Final = 8  # the most errors that are read from an error's chain
MAX_PARTS: Final = 1 << 17  # the most marks of one output
# errors of outputs that are recursive or too long
_UNREADABLE: Final = (RecursionError, NotImplementedError, ValueError)
_NUMBER: Final = re.compile(  # a separate number: the digits inside a digest are none
    r"(?<![\w.])[-+]?\d{1,40}(?:\.\d{1,40})?(?:[eE][-+]?\d\d?)?(?![\w.]*\w)"
)
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_EPOCH: Final = date(1970, 1, 1).toordinal()


class Parts:
    """One output of a mechanism, split into named numbers, and hash codes of everything else."""

    def __init__(self, one: object) -> None:
        self.numbers: dict[str, float] = {}
        self.codes: dict[str, float] = {WHOLE: 0.0}
        try:
            self._add(one, OUTPUT)
            self.codes[WHOLE] = code_of(_spelled(one))
        except _UNREADABLE as error:
            raise _unreadable(one) from error

    def _add(self, one: object, name: str) -> None:
        if len(self.codes) >= MAX_PARTS:
            raise _unreadable(one)
        self.codes[f"the kind of {name}"] = code_of(type(one).__name__)
        match one:
            case str() | bytes() | bytearray():
                self._add_text(one, name)
            case complex() | np.complexfloating():
                self._add_number(one.real, f"the real part of {name}")
                self._add_number(one.imag, f"the other part of {name}")
            case np.void():
                self._add(one.item(), name)
            case np.ma.MaskedArray():
                self._add(one.data, name)
                self._add(np.ma.getmaskarray(one), f"the mask of {name}")
            case np.ndarray() if not one.ndim:
                self._add(one[()], name)
            case bool() | int() | float() | Decimal() | Fraction() | np.generic():
                self._add_number(one, name)
            case date() | timedelta():
                self.codes[name] = code_of(repr(one))
                self.numbers[f"the days of {name}"] = _days(one)
            case BaseException():
                self._add_error(one, name)
            case _:
                self._add_many(one, name)
        if isinstance(one, (str, bytes, int, float, Mapping, Sequence)):
            for key, value in getattr(one, "__dict__", {}).items():
                self._add(value, f"{name}.{key}")

    def _add_number(self, one: Any, name: str) -> None:  # Any: any argument of float()
        number = self.numbers[name] = _number(one)
        if isinstance(one, (int, np.integer)) and abs(int(one)) >= EXACT:
            self.codes[f"the last bits of {name}"] = float(int(one) % LAST)
        if isinstance(one, (Decimal, Fraction)):
            self.codes[f"how long {name} is"] = float(len(str(one)))
        if number == 0 or math.isnan(number):
            self.codes[f"the bits of {name}"] = code_of(struct.pack(">d", number).hex())

    def _add_text(self, one: str | bytes | bytearray, name: str) -> None:
        text = one if isinstance(one, str) else repr(one)
        self.codes[name] = code_of(text)
        self.codes[f"the length of {name}"] = float(len(one))
        numbers = list(islice(_NUMBER.finditer(text[:LONGEST]), IN_A_TEXT))
        for place, found in enumerate(numbers):
            self.numbers[f"number {place + 1} of {name}"] = float(found.group())
        if numbers:
            self.codes[f"the words of {name}"] = code_of(_NUMBER.sub("#", text[:LONGEST]))

    def _add_error(self, one: BaseException, name: str) -> None:
        self._add_text(_spelled(one), name)
        if isinstance(one, Refused):
            self._add_text(f"{one} {one.facts}", f"the words of {name}")
        self._add_text("\n".join(_behind(one)), f"what is behind {name}")

    def _add_many(self, one: object, name: str) -> None:
        match one:
            case Mapping():
                self._add_text(_written(list(one)), f"the keys of {name}")
                self.codes[f"the length of {name}"] = float(len(one))
                for key, value in _by_name(one).items():
                    self._add(value, f"{name}[{key}]")
            case Sequence() | np.ndarray():
                self.codes[f"the length of {name}"] = float(len(one))
                for place, value in enumerate(one):
                    self._add(value, f"{name}[{place}]")
            case Set():
                self._add_text(" ".join(sorted(map(_written, one))), name)
                self.codes[f"the length of {name}"] = float(len(one))
            case _:
                self._add_thing(one, name)

    def _add_thing(self, one: object, name: str) -> None:
        """Add the attributes of an output object and its repr.

        Refuse an object whose repr shows only its address.
        """
        has = _has(one)
        if not has and _ADDRESS.search(repr(one)):
            raise _unreadable(one)
        self._add_text(_spelled(one), name)
        for key, value in has.items():
            self._add(value, f"{name}.{key}")


def _unreadable(one: object) -> Refused:
    return Refused(
        "bad-request",
        f"The auditor cannot read values of the type {type(one).__name__}.",
        "Return numbers, texts, lists, dicts, or exceptions.",
    )


def _by_name(one: Mapping[Any, object]) -> dict[str, object]:  # Any: keys of any kind
    """Return a mapping's values by their keys as text; a repeated text gets its position added."""
    named: dict[str, object] = {}
    for place, (key, value) in enumerate(one.items()):
        name = _ADDRESS.sub("", str(key))
        named[f"{name}, at place {place}" if name in named else name] = value
    return named


def _has(one: object) -> dict[str, object]:
    """Return an object's attributes and slots by name, because each of them may reveal a row.

    Classes and built-in types give none.
    """
    if isinstance(one, type) or type(one).__module__ in ("builtins", "datetime"):
        return {}
    kinds = (vars(kind).items() for kind in type(one).__mro__)
    slots = [key for kind in kinds for key, kept in kind if isinstance(kept, MemberDescriptorType)]
    has = {slot: getattr(one, slot) for slot in slots if hasattr(one, slot)}
    own: dict[str, object] = getattr(one, "__dict__", {})
    return has | own


def _number(one: Any) -> float:  # Any: a numpy scalar may be a date, which is no number
    try:
        return float(one)
    except (OverflowError, TypeError, ValueError):
        return code_of(str(one))


def _days(one: date | timedelta) -> float:
    if isinstance(one, timedelta):
        return one / timedelta(days=1)
    day = float(one.toordinal() - _EPOCH)
    if isinstance(one, datetime):
        day += (one - one.replace(hour=0, minute=0, second=0, microsecond=0)) / timedelta(days=1)
    return day


def _behind(error: BaseException) -> list[str]:
    """Return the texts that an error carries besides its message, because they may reveal a row.

    These are its notes, its attributes, and the errors in its chain.
    """
    said: list[str] = []
    waiting, seen = [error], {id(error)}
    while waiting and len(seen) <= BEHIND:
        one = waiting.pop(0)
        if one is not error:
            said.append(_spelled(one))
        said += [f"{key} {value}" for key, value in vars(one).items() if _is_plain(value)]
        for other in (one.__cause__, one.__context__):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)
    return said


def _is_plain(value: object) -> bool:
    """Return True if a value's text identifies it, as for numbers, texts and lists of them."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, bytes, int, float, Decimal, Fraction))


def _spelled(one: object) -> str:
    """Return a text that identifies an output: an error's type and message, a refusal's code."""
    if isinstance(one, Refused):
        return f"refused {one.code}"
    if isinstance(one, BaseException):
        return _ADDRESS.sub("", f"{type(one).__name__} {one}")
    return _written(one)


def _written(one: object) -> str:
    """Return the repr without memory addresses, which are random and not part of the output."""
    return _ADDRESS.sub("", repr(one))


@lru_cache(maxsize=1 << 16)
def code_of(text: str) -> float:
    """Hash a text to a number below 2**48, which a float holds exactly."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return float(int.from_bytes(digest, "big"))


Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Columns = dict[str, Floats]
MAX_NUMBERS: Final = 1 << 27  # the most numbers of all runs together; they take a gigabyte
_PRIME: Final = np.uint64(0x9E3779B97F4A7C15)
_LOW: Final = np.uint64((1 << 12) - 1)
_KEPT: Final = np.uint64(12)  # bits dropped of a 64-bit hash, so that a float holds it exactly


@dataclass(frozen=True, eq=False)
class Outputs:
    """The outputs of many runs, as named columns of numbers and of hash codes, one row per run."""

    runs: int
    numbers: Columns
    codes: Columns

    def column(self, name: str) -> Floats:
        """Return a column by name; a name that never occurred gives a column of NaN."""
        found = self.numbers.get(name)
        found = self.codes.get(name) if found is None else found
        return np.full(self.runs, np.nan) if found is None else found

    def at(self, places: Places | slice) -> Outputs:
        """Return the outputs of the runs at these indices."""
        numbers = {name: column[places] for name, column in self.numbers.items()}
        marks = {name: column[places] for name, column in self.codes.items()}
        runs = len(np.arange(self.runs)[places])
        return Outputs(runs, numbers, marks)


def merged(parts: Sequence[tuple[Places, Outputs]]) -> Outputs:
    """Merge the outputs of several groups of runs; each run goes to its given index."""
    runs = sum(part.runs for _, part in parts)
    return Outputs(
        runs,
        _scattered(runs, [(places, part.numbers) for places, part in parts]),
        _scattered(runs, [(places, part.codes) for places, part in parts]),
    )


def _scattered(runs: int, parts: Sequence[tuple[Places, Columns]]) -> Columns:
    made: Columns = {}
    for places, columns in parts:
        for name, column in columns.items():
            made.setdefault(name, np.full(runs, np.nan))[places] = column
    return made


def joined(parts: Sequence[Outputs]) -> Outputs:
    """Concatenate the runs of several outputs into one."""
    placed, start = [], 0
    for part in parts:
        placed.append((np.arange(start, start + part.runs), part))
        start += part.runs
    return merged(placed)


def read_outputs(found: object, runs: int) -> Outputs:
    """Read the outputs of `runs` runs: an array with one row per run, or one object per run."""
    found = _unmasked(found)
    if isinstance(found, np.ndarray) and found.dtype.kind in "biuf":
        return _of_array(found, runs)
    if not isinstance(found, (Sequence, np.ndarray)) or len(found) != runs:
        raise ValueError("a mechanism returns one output for each run")
    table = _as_numbers(found) if isinstance(found, list) else None
    return _of_objects(list(found)) if table is None else _of_array(table, runs)


def _unmasked(found: object) -> object:
    """Make the values under a masked array's mask visible: return pairs of shown and hidden value.

    Anything else is returned unchanged.
    """
    if not isinstance(found, np.ma.MaskedArray):
        return found
    return list(zip(found.tolist(), found.data.tolist(), strict=True))


def read_sides(parts: Sequence[tuple[Places, object]]) -> Outputs:
    """Read the outputs on both data sets (the two sides) together, and put each run at its index.

    Both sides need the same columns. Otherwise one rare text among a side's numbers would change
    the columns of that whole side. Sides that differ only by luck would look different.
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
    """Concatenate numeric arrays whose rows have the same shape; return anything else as one list.

    An array has one dtype for a whole side, so its dtype says nothing about a single run.
    """
    arrays = [one for one in sides if isinstance(one, np.ndarray) and one.dtype.kind in "biuf"]
    if len(arrays) == len(sides) and len({one.shape[1:] for one in arrays}) == 1:
        return np.concatenate(arrays)
    listed = (one.tolist() if isinstance(one, np.ndarray) else one for one in sides)
    return [row for one in listed for row in one]


def _as_numbers(found: list[object]) -> Floats | None:
    """Return a list of ints or of floats (or of equally long rows of them) as an array, else None.

    A list with both ints and floats gives None, so that the types remain visible.
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
    """Return a code for each -0.0 and NaN, because equal comparisons hide their bits; else 0.

    As numbers, -0.0 equals 0.0, and no NaN equals another.
    """
    bits: NDArray[np.uint64] = numbers.view(np.uint64)
    is_odd = (numbers == 0) & np.signbit(numbers) | np.isnan(numbers)
    return np.where(is_odd, (bits >> _KEPT) + (bits & _LOW) + np.uint64(1), 0).astype(np.float64)


def _beyond(rows: NDArray[Any], numbers: Columns) -> Columns:
    """Return, for floats of more than 64 bits, what a 64-bit float loses of them, by column."""
    if rows.dtype.itemsize <= 8:
        return {}
    with np.errstate(invalid="ignore", over="ignore"):
        rest = {name: rows[:, place] - one for place, (name, one) in enumerate(numbers.items())}
        return {f"{name} beyond a float": one.astype(np.float64) for name, one in rest.items()}


def _hashes(rows: NDArray[Any]) -> Floats:
    """Hash each row's numbers to one number, by their exact bits.

    So two runs can be compared as a whole.
    """
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
    return Outputs(len(found), numbers, _as_columns([one.codes for one in parts]))


def _as_columns(rows: Sequence[Mapping[str, float]]) -> Columns:
    made: Columns = {}
    for place, row in enumerate(rows):
        for name, value in row.items():
            made.setdefault(name, np.full(len(rows), np.nan))[place] = value
        if len(made) * len(rows) > MAX_NUMBERS:
            raise Refused(
                "bad-request",
                "The outputs of all runs together have too many numbers for the auditor.",
                "Return fewer numbers, return no keys that depend on noise, or give fewer runs.",
            )
    return made
