"""One output of a mechanism, part by part: numbers, and marks of all that is no number.

Whatever a caller could see of it is to be found here under a name. What cannot be looked into is
refused: an output that nobody reads would pass every audit.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from types import MemberDescriptorType
from typing import Any, Final

import numpy as np

from sfumato.dp.refusal import Refused

WHOLE: Final = "the whole output"
OUTPUT: Final = "the output"
EXACT: Final = 1 << 53  # whole numbers from here on lose their last bits as floats
LAST: Final = 256  # what is kept of them as a mark: the rest after so many
IN_A_TEXT: Final = 8  # numbers of a text that are looked at one by one
LONGEST: Final = 10_000  # letters of a text in which numbers are sought
BEHIND: Final = 8  # errors behind an error
MOST_PARTS: Final = 1 << 17  # marks of one output
_UNREADABLE: Final = (RecursionError, NotImplementedError, ValueError)  # endless, or too long
_NUMBER: Final = re.compile(  # of its own: the digits of a digest are none
    r"(?<![\w.])[-+]?\d{1,40}(?:\.\d{1,40})?(?:[eE][-+]?\d\d?)?(?![\w.]*\w)"
)
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_EPOCH: Final = date(1970, 1, 1).toordinal()


class Parts:
    """The numbers and the marks of one output, by name."""

    def __init__(self, one: object) -> None:
        self.numbers: dict[str, float] = {}
        self.marks: dict[str, float] = {WHOLE: 0.0}
        try:
            self._add(one, OUTPUT)
            self.marks[WHOLE] = mark_of(_spelled(one))
        except _UNREADABLE as error:
            raise _unreadable(one) from error

    def _add(self, one: object, name: str) -> None:
        if len(self.marks) >= MOST_PARTS:
            raise _unreadable(one)
        self.marks[f"the kind of {name}"] = mark_of(type(one).__name__)
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
                self.marks[name] = mark_of(repr(one))
                self.numbers[f"the days of {name}"] = _days(one)
            case BaseException():
                self._add_error(one, name)
            case _:
                self._add_many(one, name)
        if isinstance(one, (str, bytes, int, float, Mapping, Sequence)):
            for key, value in getattr(one, "__dict__", {}).items():
                self._add(value, f"{name}.{key}")

    def _add_number(self, one: Any, name: str) -> None:  # Any: whatever float() takes
        number = self.numbers[name] = _number(one)
        if isinstance(one, (int, np.integer)) and abs(int(one)) >= EXACT:
            self.marks[f"the last bits of {name}"] = float(int(one) % LAST)
        if isinstance(one, (Decimal, Fraction)):
            self.marks[f"how long {name} is"] = float(len(str(one)))
        if number == 0 or math.isnan(number):
            self.marks[f"the bits of {name}"] = mark_of(struct.pack(">d", number).hex())

    def _add_text(self, one: str | bytes | bytearray, name: str) -> None:
        text = one if isinstance(one, str) else repr(one)
        self.marks[name] = mark_of(text)
        self.marks[f"the length of {name}"] = float(len(one))
        numbers = list(islice(_NUMBER.finditer(text[:LONGEST]), IN_A_TEXT))
        for place, found in enumerate(numbers):
            self.numbers[f"number {place + 1} of {name}"] = float(found.group())
        if numbers:
            self.marks[f"the words of {name}"] = mark_of(_NUMBER.sub("#", text[:LONGEST]))

    def _add_error(self, one: BaseException, name: str) -> None:
        self._add_text(_spelled(one), name)
        if isinstance(one, Refused):
            self._add_text(f"{one} {one.facts}", f"the words of {name}")
        self._add_text("\n".join(_behind(one)), f"what is behind {name}")

    def _add_many(self, one: object, name: str) -> None:
        match one:
            case Mapping():
                self._add_text(_written(list(one)), f"the keys of {name}")
                self.marks[f"the length of {name}"] = float(len(one))
                for key, value in _by_name(one).items():
                    self._add(value, f"{name}[{key}]")
            case Sequence() | np.ndarray():
                self.marks[f"the length of {name}"] = float(len(one))
                for place, value in enumerate(one):
                    self._add(value, f"{name}[{place}]")
            case Set():
                self._add_text(" ".join(sorted(map(_written, one))), name)
                self.marks[f"the length of {name}"] = float(len(one))
            case _:
                self._add_thing(one, name)

    def _add_thing(self, one: object, name: str) -> None:
        """Put what something of a kind of its own has and says; refuse what says nothing."""
        has = _has(one)
        if not has and _ADDRESS.search(repr(one)):
            raise _unreadable(one)
        self._add_text(_spelled(one), name)
        for key, value in has.items():
            self._add(value, f"{name}.{key}")


def _unreadable(one: object) -> Refused:
    return Refused(
        "bad-request",
        f"The auditor cannot look into a {type(one).__name__}.",
        "Return numbers, texts, lists, dicts, or the error.",
    )


def _by_name(one: Mapping[Any, object]) -> dict[str, object]:  # Any: keys of any kind
    """Return the values by the words of their keys, each by a name of its own."""
    named: dict[str, object] = {}
    for place, (key, value) in enumerate(one.items()):
        name = _ADDRESS.sub("", str(key))
        named[f"{name}, at place {place}" if name in named else name] = value
    return named


def _has(one: object) -> dict[str, object]:
    """Return what something has of its own, by name; of a function or a class, nothing."""
    if isinstance(one, type) or type(one).__module__ in ("builtins", "datetime"):
        return {}
    kinds = (vars(kind).items() for kind in type(one).__mro__)
    slots = [key for kind in kinds for key, kept in kind if isinstance(kept, MemberDescriptorType)]
    has = {slot: getattr(one, slot) for slot in slots if hasattr(one, slot)}
    own: dict[str, object] = getattr(one, "__dict__", {})
    return has | own


def _number(one: Any) -> float:  # Any: a date of numpy's is no number
    try:
        return float(one)
    except (OverflowError, TypeError, ValueError):
        return mark_of(str(one))


def _days(one: date | timedelta) -> float:
    if isinstance(one, timedelta):
        return one / timedelta(days=1)
    day = float(one.toordinal() - _EPOCH)
    if isinstance(one, datetime):
        day += (one - one.replace(hour=0, minute=0, second=0, microsecond=0)) / timedelta(days=1)
    return day


def _behind(error: BaseException) -> list[str]:
    """Return what an error carries along: notes, what it has, and the errors that it came of."""
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
    """Say whether a value is told from another by how it is written."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, bytes, int, float, Decimal, Fraction))


def _spelled(one: object) -> str:
    """Return what tells an output from another; of an error, its code and its words."""
    if isinstance(one, Refused):
        return f"refused {one.code}"
    if isinstance(one, BaseException):
        return _ADDRESS.sub("", f"{type(one).__name__} {one}")
    return _written(one)


def _written(one: object) -> str:
    """Return how it is written but for where it lies in memory, which is chance and no output."""
    return _ADDRESS.sub("", repr(one))


@lru_cache(maxsize=1 << 16)
def mark_of(text: str) -> float:
    """Return a number below 2**48 that is the same for the same text."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return float(int.from_bytes(digest, "big"))
