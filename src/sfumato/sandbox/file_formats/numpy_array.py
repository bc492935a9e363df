"""Parse untrusted .npy files; the header is matched by a regular expression, never evaluated."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MAX_HEADER: Final = 1024  # most bytes of a header; a file with a longer one is invalid
_HEADER: Final = re.compile(
    rb"\{'descr': '([<|])([iuf])([1248])', 'fortran_order': (True|False), "
    rb"'shape': \(((?:[0-9]{1,7}, ?)*(?:[0-9]{1,7})?)\), \} *\n"
)
_FORMS: Final = {
    "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q",
    "f2": "e", "f4": "f", "f8": "d",
}  # fmt: skip


@dataclass(frozen=True)
class NumpyFile:
    """An array inside an untrusted file: shape, number type, memory order, and first byte."""

    shape: tuple[int, ...]
    kind: str
    is_first_fastest: bool
    start: int
    found: bytes

    def number(self, at: tuple[int, ...]) -> object:
        """Return the array's number at an index, or raise ValueError or struct.error."""
        form = struct.Struct("<" + _FORMS[self.kind])
        return form.unpack_from(self.found, self.start + self._offset(at) * form.size)[0]

    def numbers(self) -> NDArray[np.float64]:
        """Return all numbers of the array, flattened in C order, or raise ValueError."""
        count = int(np.prod(self.shape, dtype=np.int64))
        flat = np.frombuffer(self.found, dtype="<" + self.kind, count=count, offset=self.start)
        values = flat.astype(np.float64)
        if self.is_first_fastest:
            return values.reshape(self.shape[::-1]).transpose().ravel()
        return values

    def _offset(self, at: tuple[int, ...]) -> int:
        if len(at) != len(self.shape):
            raise ValueError
        pairs = list(zip(self.shape, at, strict=True))
        place = 0
        for size, index in reversed(pairs) if self.is_first_fastest else pairs:
            if index >= size:
                raise ValueError
            place = place * size + index
        return place


def read_npy(found: bytes) -> NumpyFile:
    """Return the array in an .npy file, or raise ValueError, LookupError or struct.error."""
    if found[:6] != b"\x93NUMPY" or found[6] not in (1, 2):
        raise ValueError
    start = 10 if found[6] == 1 else 12
    length = int.from_bytes(found[8:start], "little")
    header = _HEADER.fullmatch(found[start : start + length]) if length <= _MAX_HEADER else None
    if header is None:
        raise ValueError
    _, kind, size, is_fortran, dims = (part.decode() for part in header.groups())
    shape = tuple(int(part) for part in dims.split(",") if part.strip())
    if kind + size not in _FORMS:
        raise ValueError
    return NumpyFile(shape, kind + size, is_fortran == "True", start + length, found)
