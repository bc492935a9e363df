"""Whether a PNG is a picture and nothing more: its parts, and every byte that becomes a pixel."""

from __future__ import annotations

import struct
import zlib
from typing import Final

MOST_PIXELS: Final = 64 * 1024 * 1024  # bytes of a picture, unpacked
_MAGIC: Final = b"\x89PNG\r\n\x1a\n"
_END: Final = b"IEND"
# how long each part may be that is no picture by itself; what is longer hides something
_BESIDE: Final = {
    b"tRNS": range(1, 257), b"gAMA": range(4, 5), b"cHRM": range(32, 33), b"sRGB": range(1, 2),
    b"pHYs": range(9, 10), b"sBIT": range(1, 5), b"bKGD": range(1, 7),
}  # fmt: skip
_SAMPLES: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # numbers of one pixel, by the kind of colour
_DEPTHS: Final = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_WHOLE: Final = ((0, 0, 1, 1),)
_LACED: Final = (
    (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
    (0, 1, 1, 2),
)  # fmt: skip

_Part = tuple[bytes, bytes]


def png_fault(file: bytes) -> str | None:
    """Return why the file is no PNG, or hides something; raises struct.error where it is cut."""
    if not file.startswith(_MAGIC):
        return "it is no PNG"
    parts, fault = _parts(file)
    return fault or _order_fault([name for name, _ in parts]) or _fault_of(parts)


def _parts(file: bytes) -> tuple[list[_Part], str | None]:
    place = len(_MAGIC)
    parts: list[_Part] = []
    while place < len(file):
        (size,) = struct.unpack_from(">I", file, place)
        name, body = file[place + 4 : place + 8], file[place + 8 : place + 8 + size]
        (check,) = struct.unpack_from(">I", file, place + 8 + size)
        if zlib.crc32(name + body) != check:
            return parts, "a part of it is damaged"
        parts.append((name, body))
        place += 12 + size
        if name == _END and (size or place != len(file)):
            return parts, "there is more behind the picture"
    return parts, None


def _order_fault(names: list[bytes]) -> str | None:
    """Return what is wrong with which parts there are: each once, the pixels together, an end."""
    other = [name for name in names if name not in {b"IHDR", b"PLTE", b"IDAT", _END, *_BESIDE}]
    if other:
        return f"it carries a part {other[0].decode('ascii', 'replace')!r} that is no picture"
    pixels = names.count(b"IDAT")
    once = [name for name in names if name != b"IDAT"]
    if names[:1] != [b"IHDR"] or names[-1:] != [_END] or not pixels:
        return "it is no whole PNG"
    if len(set(once)) < len(once) or names[-1 - pixels : -1] != [b"IDAT"] * pixels:
        return "its parts do not stand as a picture's do"
    return None


def _fault_of(parts: list[_Part]) -> str | None:
    by_name = dict(parts)
    width, height, depth, colour, packing, filters, laced = struct.unpack(
        ">IIBBBBB", by_name[b"IHDR"]
    )
    if depth not in _DEPTHS.get(colour, ()) or (packing, filters) != (0, 0) or laced > 1:
        return "its head is none of a PNG"
    if any(len(body) not in _BESIDE[name] for name, body in parts if name in _BESIDE):
        return "a part of it is longer than it can be"
    colours = by_name.get(b"PLTE")
    if (colours is not None) != (colour == 3):
        return "it has colours that no pixel names" if colours is not None else "it has no colours"
    if colours is not None and (len(colours) % 3 or len(colours) > 3 * 2**depth):
        return "it has more colours than a pixel can name"
    rows = _rows(width, height, depth * _SAMPLES[colour], _LACED if laced else _WHOLE)
    return _pixels_fault(b"".join(body for name, body in parts if name == b"IDAT"), rows)


def _rows(
    width: int, height: int, bits: int, passes: tuple[tuple[int, int, int, int], ...]
) -> list[tuple[int, int]]:
    """Return for each pass how many lines it has, and of how many bytes, the filter's included."""
    found = []
    for left, top, across, down in passes:
        wide, high = -(-(width - left) // across), -(-(height - top) // down)
        if wide > 0 and high > 0:
            found.append((high, 1 + -(-wide * bits // 8)))
    return found


def _pixels_fault(packed: bytes, rows: list[tuple[int, int]]) -> str | None:
    """Return what is wrong with the pixels: as many as the head says, and nothing behind them."""
    size = sum(high * line for high, line in rows)
    if not 0 < size <= MOST_PIXELS:
        return "it has no pixels, or too many to be looked at"
    reader = zlib.decompressobj()
    try:
        found = reader.decompress(packed, size + 1)
    except zlib.error:
        return "its pixels cannot be unpacked"
    if len(found) != size or not reader.eof or reader.unused_data or reader.unconsumed_tail:
        return "there is more, or less, than its pixels"
    place = 0
    for high, line in rows:
        end = place + high * line
        if max(found[place:end:line]) > 4:
            return "its pixels cannot be unpacked"
        place = end
    return None
