"""Parse untrusted MATLAB files (MAT version 5): named arrays of real numbers only.

Objects, functions, cells, structures and complex numbers are skipped.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Final

from sfumato.sandbox.file_formats.decompression import MOST, ZLIB, inflated
from sfumato.sandbox.file_formats.numpy_array import NumpyFile

_HEADER: Final = 128
_ARRAY, _PACKED = 14, 15
_BYTES, _WORDS, _FLAGS = 1, 5, 6  # element types: a name, dimensions, array flags
_NUMBERS: Final = range(6, 16)  # array classes of real numbers
_COMPLEX: Final = 0x0800
_MOST: Final = 256  # most elements of a file that are parsed
_MOST_DIMENSIONS: Final = 32
_KINDS: Final = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
_FAILURES: Final = (ValueError, LookupError, struct.error)


def read_matlab(found: bytes) -> Mapping[str, NumpyFile]:
    """Return a MATLAB file's arrays by name, or raise ValueError, LookupError or struct.error."""
    if found[124:128] != b"\x00\x01IM":
        raise ValueError
    arrays: dict[str, NumpyFile] = {}
    left = MOST  # how many more decompressed bytes all compressed arrays of the file may give
    for kind, said in _elements(found, _HEADER):
        body = _unfolded(said, left) if kind == _PACKED else said
        if body is None:
            break  # stop: the size of this array is unknown, so the limit cannot be checked
        left -= len(body) if kind == _PACKED else 0
        named = _array(kind, body)
        if named is not None:
            arrays.setdefault(*named)
    return arrays


def _elements(found: bytes, place: int) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the bytes of each data element of a MATLAB file or of an array in it."""
    for _ in range(_MOST):
        if place >= len(found):
            return
        first, size = struct.unpack_from("<2I", found, place)
        if first >> 16:  # small element: type and size share a word, and four bytes of data follow
            yield first & 0xFFFF, found[place + 4 : place + 4 + min(4, first >> 16)]
            place += 8
            continue
        body = found[place + 8 : place + 8 + size]
        if len(body) < size:
            raise ValueError
        yield first, body
        place += 8 + size + (-size % 8 if first != _PACKED else 0)


def _unfolded(said: bytes, most: int) -> bytes | None:
    try:
        return inflated(said, ZLIB, most)
    except ValueError:
        return None


def _array(kind: int, body: bytes) -> tuple[str, NumpyFile] | None:
    """Parse a MATLAB array of numbers and its name; return None for any other element."""
    try:
        if kind == _PACKED:
            kind, body = next(_elements(body, 0))
        return _read_array(list(_elements(body, 0))) if kind == _ARRAY else None
    except (*_FAILURES, StopIteration):
        return None


def _read_array(parts: list[tuple[int, bytes]]) -> tuple[str, NumpyFile]:
    (flags_kind, flags), (dims_kind, dims), (name_kind, name), (kind, numbers), *more = parts
    if (flags_kind, dims_kind, name_kind) != (_FLAGS, _WORDS, _BYTES) or more:
        raise ValueError
    (what,) = struct.unpack_from("<I", flags)
    if what & 0xFF not in _NUMBERS or what & _COMPLEX:
        raise ValueError
    if len(dims) > 4 * _MOST_DIMENSIONS:  # the product of very many takes seconds
        raise ValueError
    shape = struct.unpack(f"<{len(dims) // 4}i", dims)
    if any(size < 1 for size in shape):
        raise ValueError
    stored = _KINDS[kind]
    if math.prod(shape) * int(stored[1:]) != len(numbers):
        raise ValueError
    return name.decode("ascii"), NumpyFile(shape, stored, True, 0, numbers)
