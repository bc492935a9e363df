"""Validate the files of an airlock program: allowed types, and content that matches the type.

All content is untrusted. Nothing here executes, follows or unpickles anything. A file that is not
exactly of its type is never released, whatever the votes are.
"""

from __future__ import annotations

import csv
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from xml.parsers import expat

import numpy as np

from sfumato.dp.refusal import Refused
from sfumato.sandbox.file_formats.numpy_array import NumpyFile, read_npy
from sfumato.sandbox.hidden_characters import is_hidden

# --- PNG: only known chunks are allowed, and every byte of the image data must be a pixel ---------


MAX_PIXELS: Final = 64 * 1024 * 1024  # bytes of the decompressed image
_MAGIC: Final = b"\x89PNG\r\n\x1a\n"
_END: Final = b"IEND"
# the allowed lengths of ancillary chunks; a longer one could hide data
_BESIDE: Final = {
    b"tRNS": range(1, 257), b"gAMA": range(4, 5), b"cHRM": range(32, 33), b"sRGB": range(1, 2),
    b"pHYs": range(9, 10), b"sBIT": range(1, 5), b"bKGD": range(1, 7),
}  # fmt: skip
_SAMPLES: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # samples per pixel, by colour type
_DEPTHS: Final = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_WHOLE: Final = ((0, 0, 1, 1),)
_LACED: Final = (
    (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
    (0, 1, 1, 2),
)  # fmt: skip

_Part = tuple[bytes, bytes]


def png_fault(file: bytes) -> str | None:
    """Return why a file is not an acceptable PNG, or None.

    Raises struct.error if the file is truncated.
    """
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
    """Return what is wrong with the kinds or the order of a PNG's chunks, or None.

    Faults are an unknown, repeated or misplaced chunk, and a missing header, image or end chunk.
    """
    other = [name for name in names if name not in {b"IHDR", b"PLTE", b"IDAT", _END, *_BESIDE}]
    if other:
        return (
            f"the picture has a chunk {other[0].decode('ascii', 'replace')!r} that is not image "
            "data"
        )
    pixels = names.count(b"IDAT")
    once = [name for name in names if name != b"IDAT"]
    if names[:1] != [b"IHDR"] or names[-1:] != [_END] or not pixels:
        return "it is no whole PNG"
    if len(set(once)) < len(once) or names[-1 - pixels : -1] != [b"IDAT"] * pixels:
        return "its parts are not in the order of a picture's"
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
    """Return, for each interlace pass of a PNG, its number of lines and the bytes of a line.

    The bytes of a line include its filter byte. They give the exact size that the image data must
    have.
    """
    found = []
    for left, top, across, down in passes:
        wide, high = -(-(width - left) // across), -(-(height - top) // down)
        if wide > 0 and high > 0:
            found.append((high, 1 + -(-wide * bits // 8)))
    return found


def _pixels_fault(packed: bytes, rows: list[tuple[int, int]]) -> str | None:
    """Return what is wrong with a PNG's image data, or None; it must be exactly the pixels."""
    size = sum(high * line for high, line in rows)
    if not 0 < size <= MAX_PIXELS:
        return "the picture has no pixels, or too many to be checked"
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


MAX_FILES: Final = 16
MAX_BYTES: Final = 2 * 1024 * 1024  # of all files together
KINDS: Final = ("png", "svg", "csv", "tsv", "json", "txt", "npy", "safetensors")
TABLES: Final = {"csv": ",", "tsv": "\t"}
_PATH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,7}")
# device names on Windows
_RESERVED: Final = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.I)
_HEAD: Final = struct.Struct("<HQ")
_SVG_TAGS: Final = frozenset(
    {
        "svg", "g", "path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text",
        "tspan", "defs", "clipPath", "use", "style", "title", "desc", "linearGradient",
        "radialGradient", "stop", "marker", "symbol", "pattern", "mask",
    }
)  # fmt: skip
_REACHES_OUT: Final = re.compile(
    r"url\s*\(\s*['\"]?(?!#)|@import|expression\s*\(|image(-set)?\(|\\", re.I
)
_MAX_SPACE: Final = 60  # letters of an XML namespace
_SIGNED: Final = re.compile(r"[+-]([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]inf|-", re.I | re.A)
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # a tensor, too short for a row
_APART: Final = re.compile("[,;\t]")  # separators that some spreadsheet might use
_MAX_SIGNED: Final = 60  # letters of a signed number; longer ones would make the regex slow
_MAX_DEPTH: Final = 32  # of nested JSON; each level makes the checks slower
_TENSOR: Final = frozenset({"dtype", "shape", "data_offsets"})
_SIZES: Final = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1,
    "BOOL": 1,
}  # fmt: skip


def kind_of(path: str) -> str:
    """Return the type of a file: its lower-case extension."""
    return path.rsplit(".", 1)[-1].lower() if "." in path else ""


def is_airlock_path(path: str) -> bool:
    """Return True if a path has an allowed file type and is safe to save on any system."""
    if len(path) > 200 or not _PATH.fullmatch(path) or kind_of(path) not in KINDS:
        return False
    return not any(part.endswith(".") or _RESERVED.fullmatch(part) for part in path.split("/"))


def do_clash(paths: Sequence[str]) -> bool:
    """Return True if two paths collide: they differ only in case, or one is the other's folder."""
    plain = [path.casefold() for path in paths]
    inside = any(one.startswith(f"{two}/") for one in plain for two in plain)
    return inside or len(set(plain)) < len(plain)


def bad_airlock(cause: str) -> Refused:
    """Return the refusal of an invalid airlock request, with its cause."""
    return Refused(
        "bad-airlock",
        f"The airlock request is not declared correctly: {cause}.",
        "Correct this, and send the request again.",
    )


# --- output of the sandbox ------------------------------------------------------------------------


def joined(said: bytes, pieces: tuple[str, ...]) -> bytes:
    """Join the numbered pieces of a program's output, which the sandbox sent, into one archive.

    Malformed output gives empty bytes. Never raises.
    """
    try:
        body = json.loads(said)
        return b"".join(bytes.fromhex(body[name]) for name in pieces if name in body)
    except (ValueError, LookupError, TypeError, RecursionError):
        return b""


def unpacked(whole: bytes, paths: tuple[str, ...]) -> dict[str, bytes]:
    """Unpack a program's joined output; return its complete declared files, by path.

    Never raises.
    """
    found: dict[str, bytes] = {}
    place = 0
    while place < len(whole):
        try:
            length, size = _HEAD.unpack_from(whole, place)
            start = place + _HEAD.size + length
            path = whole[start - length : start].decode("ascii")
        except (ValueError, struct.error):
            break
        place = start + size
        if place <= len(whole) and path in paths:
            found.setdefault(path, whole[start:place])
    return found


# --- content checks by type -----------------------------------------------------------------------


def fault_of(path: str, file: bytes) -> str | None:
    """Return why a file does not match the type of its name, or None."""
    check = _CHECKS.get(kind_of(path))
    if check is None:
        return "it is of no kind that is let out"
    if not file:
        return "it is empty"
    try:
        return check(file)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError):
        return "it is malformed"
    except (struct.error, expat.ExpatError):
        return "it is malformed"


def _svg(file: bytes) -> str | None:
    drawing = _Drawing()
    # namespaces are not expanded, because expansion can multiply the length of names
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler = drawing.begin
    parser.EndElementHandler = drawing.end
    parser.CharacterDataHandler = drawing.within
    parser.EntityDeclHandler = drawing.declares
    parser.ProcessingInstructionHandler = drawing.declares
    parser.StartDoctypeDeclHandler = drawing.defines
    parser.CommentHandler = drawing.comments
    parser.XmlDeclHandler = drawing.is_written
    try:
        parser.Parse(file, True)
    except _Defines:
        return drawing.fault()
    return drawing.fault()


class _Defines(Exception):
    """The exception that stops the parsing of an SVG at a document type definition (DOCTYPE)."""


class _Drawing:
    """The handlers for an XML parser (expat) that collect the faults of one SVG."""

    def __init__(self) -> None:
        self._faults: list[str] = []
        self._inside: list[str] = []
        self._texts: list[str] = []  # joined before the check, as expat may split a text
        self._styles: list[str] = []
        self._values: list[str] = []

    def begin(self, name: str, attributes: Mapping[str, str]) -> None:
        tag = name.rsplit(":", 1)[-1]
        self._inside.append(tag)
        if tag not in _SVG_TAGS:
            self._faults.append(f"it has an element {tag[:40]!r}")
        for key, value in attributes.items():
            self._values.append(value)
            if key == "xmlns" or key.startswith("xmlns:"):
                self._names(value)
                continue
            short = key.rsplit(":", 1)[-1].lower()
            if short.startswith("on") or _REACHES_OUT.search(value) or "://" in value:
                self._faults.append("it has a script, or reaches out of itself")
            if short == "base" or (short == "href" and not value.startswith("#")):
                self._faults.append("it points out of itself")
            if short.startswith("data-"):
                self._faults.append("it carries what no picture shows")

    def end(self, _name: str) -> None:
        self._inside.pop()

    def within(self, text: str) -> None:
        (self._styles if self._inside[-1] == "style" else self._texts).append(text)

    def declares(self, *_: object) -> None:
        self._faults.append("it declares a document type, entities or instructions")

    def defines(self, *_: object) -> None:
        """Stop parsing at a DOCTYPE, because entities could expand exponentially."""
        self.declares()
        raise _Defines

    def _names(self, space: str) -> None:
        if len(space) > _MAX_SPACE:
            self._faults.append("it carries what no picture shows")

    def is_written(self, _version: str, letters: str | None, _alone: int) -> None:
        if letters is not None and letters.lower() not in ("utf-8", "us-ascii"):
            self._faults.append("the file declares another encoding than UTF-8")

    def comments(self, _text: str) -> None:
        self._faults.append("it has comments, which no picture shows")

    def fault(self) -> str | None:
        """Return the first fault of the SVG, or None; raise ValueError for invisible characters."""
        _seen("".join((*self._texts, *self._styles, *self._values)))
        texts, styles = "".join(self._texts), "".join(self._styles)
        if _REACHES_OUT.search(texts) or _REACHES_OUT.search(styles) or "://" in styles:
            self._faults.append("it reaches out of itself")
        return self._faults[0] if self._faults else None


def text_of(file: bytes) -> str:
    """Decode a file as UTF-8; raise ValueError for invalid or invisible characters."""
    return _seen(file.decode("utf-8"))


def _seen(text: str) -> str:
    """Check that a reader can see all characters of a text; return the text unchanged.

    Raises ValueError for invisible characters, which could hide data.
    """
    for letter in set(text) - {" ", "\t", "\n", "\r"}:
        if is_hidden(letter):
            raise ValueError
    return text


def rows_of(path: str, file: bytes) -> list[list[str]]:
    """Parse a CSV or TSV file; raise ValueError if it is malformed or not rectangular."""
    lines = text_of(file).splitlines()
    try:
        read = list(csv.reader(lines, delimiter=TABLES[kind_of(path)], strict=True))
    except csv.Error:
        read = None
    if not read or any(len(row) != len(read[0]) for row in read):
        raise ValueError
    return read


def _table(path: str) -> Callable[[bytes], str | None]:
    def check(file: bytes) -> str | None:
        rows = rows_of(path, file)
        heads = [head.strip().casefold() for head in rows[0]]
        if len(set(heads)) < len(heads):
            return "two of its columns have one name"
        for row in rows:
            for cell in row:
                if any(map(_is_formula, _cells_in(cell))):
                    return "a cell begins like a formula, which a spreadsheet would run"
        return None

    return check


def _cells_in(cell: str) -> Iterator[str]:
    """Yield the cell, and the cells into which a spreadsheet with another separator would split it.

    Brackets and per cent signs at the ends of those parts are removed, so that the ends of an
    interval parse as numbers.
    """
    yield cell.strip()
    for part in _APART.split(cell)[1:]:
        yield part.strip(' "').rstrip(")]}% ")


def _is_formula(cell: str) -> bool:
    """Return True if a spreadsheet would run the stripped cell as a formula."""
    is_signed = len(cell) <= _MAX_SIGNED and _SIGNED.fullmatch(cell) is not None
    return cell[:1] in ("=", "@") or (cell[:1] in ("+", "-") and not is_signed)


def _text(file: bytes) -> str | None:
    text_of(file)
    return None


def json_of(file: bytes) -> object:
    """Parse a JSON file; raise ValueError for repeated keys or invisible characters.

    NaN, infinity and deep nesting also raise ValueError.
    """
    said: object = json.loads(
        text_of(file),
        parse_constant=_no_number, parse_float=Decimal, object_pairs_hook=_once,
    )  # fmt: skip
    for text in _texts_of(said):
        _seen(text)
    return said


def _texts_of(said: object, depth: int = 0) -> Iterator[str]:
    """Yield all keys and strings of a parsed JSON, to check them for invisible characters.

    Raises ValueError if the JSON is nested too deeply.
    """
    if depth > _MAX_DEPTH:
        raise ValueError
    if isinstance(said, str):
        yield said
    for one in said if isinstance(said, dict | list) else ():
        yield from _texts_of(one, depth + 1)
    if isinstance(said, dict):
        for one in said.values():
            yield from _texts_of(one, depth + 1)


def _json(file: bytes) -> str | None:
    json_of(file)
    return None


def _no_number(_text: str) -> None:
    raise ValueError


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build a dictionary from a JSON object's pairs of key and value; refuse a repeated key.

    Most readers keep only the last value of a repeated key, so the others would stay unseen. Raises
    ValueError.
    """
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError
    return dict(pairs)


def _npy(file: bytes) -> str | None:
    array = read_npy(file)
    width = int(array.kind[1:])
    count = 1
    for side in array.shape:
        count *= side
    if array.start + width * count != len(file) or file[7]:
        return "there is more behind the array"
    return "it hides something in what is no number" if _hides(array.kind, file, array) else None


def _hides(kind: str, file: bytes, array: NumpyFile) -> bool:
    """Return True if an array of floats has a NaN with unusual bits, which could hide data."""
    if kind[0] != "f":
        return False
    found = np.frombuffer(file, dtype=f"<{kind}", offset=array.start)
    bits = np.frombuffer(file, dtype=f"<u{kind[1:]}", offset=array.start)
    usual = np.array([np.nan], dtype=f"<{kind}").view(f"<u{kind[1:]}")[0]
    sign = np.array([1 << (8 * int(kind[1:]) - 1)], dtype=f"<u{kind[1:]}")[0]
    return bool(np.any((bits[np.isnan(found)] | sign) != (usual | sign)))


def _safetensors(file: bytes) -> str | None:
    (size,) = struct.unpack_from("<Q", file)
    if size > min(100_000, len(file) - 8):
        return "its head is longer than a model's"
    said = file[8 : 8 + size].decode().rstrip(" ")
    head: Any = json.loads(said, object_pairs_hook=_once)  # Any: untrusted JSON
    if not isinstance(head, dict):
        return "it is malformed"
    if said not in (json.dumps(head), json.dumps(head, separators=(",", ":"))):
        return "its head carries blanks, or letters spelled in more than one way"
    if any(set(one) != _TENSOR for one in head.values()) or not all(map(_NAME.fullmatch, head)):
        return "its head carries texts beside the tensors"
    place = 0
    for one in sorted(head.values(), key=lambda one: int(one["data_offsets"][0])):
        count = _SIZES[one["dtype"]]
        for side in one["shape"]:
            if type(side) is not int or side < 0:
                return "it is malformed"
            count *= side
        begin, end = one["data_offsets"]
        if (begin, end) != (place, place + count):
            return "its tensors do not lie one behind the other"
        place = end
    return None if 8 + size + place == len(file) else "there is more behind the tensors"


_CHECKS: Final[Mapping[str, Callable[[bytes], str | None]]] = {
    "png": png_fault, "svg": _svg, "csv": _table("t.csv"), "tsv": _table("t.tsv"), "json": _json,
    "txt": _text, "npy": _npy, "safetensors": _safetensors,
}  # fmt: skip
