"""Parse untrusted NIfTI-1 images (single file): the fixed header and the voxels, no extensions.

Only little-endian files are accepted, which all current programs write.
"""

from __future__ import annotations

import math
import struct
from typing import Final

import numpy as np

from sfumato.sandbox.file_formats.decompression import GZIP, inflated
from sfumato.sandbox.file_formats.numpy_array import NumpyFile

_HEADER: Final = 348
_KINDS: Final = {
    2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4", 1024: "i8",
    1280: "u8",
}  # fmt: skip


def read_nifti(found: bytes) -> NumpyFile:
    """Return the voxels of a NIfTI image, or raise ValueError, LookupError or struct.error."""
    size, magic = struct.unpack_from("<i", found, 0)[0], found[344:348]
    if size != _HEADER or magic != b"n+1\0":
        raise ValueError
    count, *sizes = struct.unpack_from("<8h", found, 40)
    if not 1 <= count <= 7 or any(one < 1 for one in sizes[:count]):
        raise ValueError
    (code,) = struct.unpack_from("<h", found, 70)
    offset, slope, above = struct.unpack_from("<3f", found, 108)
    # a number that isn't finite raises OverflowError or ValueError
    kind, start = _KINDS[code], int(offset)
    if start != offset or start < _HEADER:
        raise ValueError
    made = NumpyFile(tuple(sizes[:count]), kind, True, start, found)
    is_plain = math.isnan(slope) or slope == 0 or (slope, above) == (1, 0)
    return made if is_plain else _scaled(made, slope, above)


def read_packed_nifti(found: bytes) -> NumpyFile:
    """Return the voxels of a gzipped NIfTI image, or raise as `read_nifti` does."""
    return read_nifti(inflated(found, GZIP))


def _scaled(made: NumpyFile, slope: float, above: float) -> NumpyFile:
    """Scale a NIfTI image's stored values by the slope and intercept of its header."""
    # values that aren't finite later count as the middle of the range
    with np.errstate(all="ignore"):
        values = made.numbers() * slope + above
    return NumpyFile(made.shape, "f8", False, 0, values.astype("<f8").tobytes())
