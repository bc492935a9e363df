"""Parse untrusted Excel workbooks (.xlsx): the texts and numbers in cells, and nothing else.

A workbook is a zip archive of XML files. All parts together are decompressed up to a size limit,
and have a limited number of XML elements. A document type (DTD) is refused, so there are no
entities to expand. Formulas, styles, links and macros are not read.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat  # a DTD is refused, and nothing outside of the file is opened

from sfumato.sandbox.file_formats.decompression import MOST

_MAX_TEXT: Final = 256  # letters of a text that cells may share; a longer one is no number or name
_MAX_SHEETS: Final = 64
MAX_ELEMENTS: Final = 4_000  # most XML elements of all parts together; it limits the time
_MAX_DIRECTORY: Final = 16_384  # most bytes of the archive's list of files
_END: Final = struct.Struct("<4s4H2LH")  # the end of that list: the last bytes of the archive
_END_OF_64: Final = b"PK\x06\x07"  # where an archive of over 4 GB has the place of its list
_CELL: Final = re.compile(r"([A-Z]{1,3})([1-9][0-9]{0,6})")
_ROW: Final = re.compile(r"[1-9][0-9]{0,6}")
_FAILURES: Final = (
    zipfile.BadZipFile, zlib.error, expat.ExpatError, EOFError, OSError, RuntimeError,
    struct.error, UnicodeError,
)  # fmt: skip
# A sheet's cells by row and column, both from 0: {row: {column: text}}
Sheet = Mapping[int, Mapping[int, str]]


@dataclass(frozen=True)
class Workbook:
    """The sheets of a workbook in their order, with their names."""

    names: tuple[str, ...]
    sheets: tuple[Sheet, ...]

    def sheet(self, which: str | int) -> Sheet:
        """Return a sheet by its name, or by its place from 0; raise LookupError or ValueError."""
        return self.sheets[self.names.index(which) if isinstance(which, str) else which]


def place_of(cell: str) -> tuple[int, int]:
    """Return the row and column, from 0, of a cell such as "B3"; raise ValueError if invalid."""
    found = _CELL.fullmatch(cell)
    if found is None:
        raise ValueError
    column = 0
    for letter in found[1]:
        column = 26 * column + ord(letter) - 64
    return int(found[2]) - 1, column - 1


def read_workbook(found: bytes) -> Workbook:
    """Return the cells of a workbook, or raise ValueError or LookupError."""
    made = None
    try:
        made = _read(found)
    except _FAILURES:
        made = None
    if made is None:
        raise ValueError
    return made


def _read(found: bytes) -> Workbook:
    _check_directory(found)
    with zipfile.ZipFile(io.BytesIO(found)) as archive:
        parts = _Parts(archive)
        links, listed, texts = _Links(), _Listed(), _SharedTexts()
        parts.parse("xl/_rels/workbook.xml.rels", links)
        parts.parse("xl/workbook.xml", listed)
        if "xl/sharedStrings.xml" in archive.NameToInfo:
            parts.parse("xl/sharedStrings.xml", texts)
        sheets = []
        for _, link in listed.sheets:
            sheet = _Cells(texts.texts)
            parts.parse(links.targets[link], sheet)
            sheets.append(sheet.rows)
    return Workbook(tuple(name for name, _ in listed.sheets), tuple(sheets))


def _check_directory(found: bytes) -> None:
    """Refuse an archive with a long list of files, before `zipfile` reads that list."""
    mark, disk, first, here, count, size, _, comment = _END.unpack(found[-_END.size :])
    is_plain = mark == b"PK\x05\x06" and (disk, first, comment) == (0, 0, 0) and here == count
    if not is_plain or size > _MAX_DIRECTORY or _END_OF_64 in found[-_END.size - 20 : -_END.size]:
        raise ValueError


@dataclass
class _Document:
    """A reader of one part: it is told each XML element, and the text of the wanted ones."""

    is_wanted: bool = False  # whether text is collected now
    text: list[str] = field(default_factory=list)

    def start(self, name: str, given: Mapping[str, str]) -> None:
        """Read the start of an element, with its attributes."""

    def end(self, name: str) -> None:
        """Read the end of an element."""

    def taken(self) -> str:
        """Return the text that was collected, and begin anew."""
        made = "".join(self.text)
        self.text.clear()
        return made


@dataclass
class _Parts:
    """The parts of an archive, with how many bytes and elements all of them may still have."""

    archive: zipfile.ZipFile
    bytes_left: int = MOST
    elements_left: int = MAX_ELEMENTS

    def parse(self, name: str, document: _Document) -> None:
        """Parse one part; raise ValueError, LookupError or one of _FAILURES."""
        text = self._text(name)
        # the encoding that the file itself declares is not used
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True

        def start(tag: str, given: dict[str, str]) -> None:
            self.elements_left -= 1
            if self.elements_left < 0:
                raise ValueError
            document.start(_local(tag), given)

        def characters(said: str) -> None:
            if document.is_wanted:
                document.text.append(said)

        parser.StartDoctypeDeclHandler = _refuse
        parser.EntityDeclHandler = _refuse
        parser.StartElementHandler = start
        parser.EndElementHandler = lambda tag: document.end(_local(tag))
        parser.CharacterDataHandler = characters
        parser.Parse(text, True)

    def _text(self, name: str) -> bytes:
        info = self.archive.getinfo(name)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError
        with self.archive.open(info) as part:
            text = part.read(self.bytes_left + 1)
        self.bytes_left -= len(text)
        if self.bytes_left < 0:
            raise ValueError
        return text


def _refuse(*_: object) -> None:
    raise ValueError


def _local(tag: str) -> str:
    """Return an element's or an attribute's name without the prefix of its namespace."""
    return tag.rpartition(":")[2]


@dataclass
class _Links(_Document):
    """The links of a workbook to its parts: paths in the archive, by the id of the link."""

    targets: dict[str, str] = field(default_factory=dict)

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name == "Relationship":
            target = given.get("Target", "")
            path = target[1:] if target.startswith("/") else f"xl/{target}"
            self.targets[given.get("Id", "")] = path


@dataclass
class _Listed(_Document):
    """The list of a workbook's sheets: the name of each, and the id of its link."""

    sheets: list[tuple[str, str]] = field(default_factory=list)

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name == "sheet":
            if len(self.sheets) >= _MAX_SHEETS:
                raise ValueError
            ids = [value for key, value in given.items() if key.endswith(":id")]
            self.sheets.append((given["name"], ids[0]))


@dataclass
class _SharedTexts(_Document):
    """The texts that cells share: a cell has the place of its text in this list."""

    texts: list[str] = field(default_factory=list)
    is_phonetic: bool = False  # inside a reading aid, which is not part of the text

    def start(self, name: str, _: Mapping[str, str]) -> None:
        self.is_phonetic = self.is_phonetic or name == "rPh"
        self.is_wanted = name == "t" and not self.is_phonetic

    def end(self, name: str) -> None:
        self.is_wanted = False
        self.is_phonetic = self.is_phonetic and name != "rPh"
        if name == "si":
            text = self.taken().strip()
            self.texts.append(text if len(text) <= _MAX_TEXT else "")


@dataclass
class _Cells(_Document):
    """The cells of one sheet. Truth values, dates as text and errors are left out."""

    shared: list[str] = field(default_factory=list)
    rows: dict[int, dict[int, str]] = field(default_factory=dict)
    row: int = -1
    column: int = -1
    kind: str = "n"

    def __init__(self, shared: list[str]) -> None:
        super().__init__()
        self.shared, self.rows = shared, {}

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name == "row":
            self.row, self.column = self._next_row(given.get("r")), -1
        elif name == "c":
            place = given.get("r")
            self.column += 1
            if place is not None:
                self.row, self.column = place_of(place)
            self.kind = given.get("t", "n")
            self.taken()
        self.is_wanted = name == "v" or (name == "t" and self.kind == "inlineStr")

    def end(self, name: str) -> None:
        self.is_wanted = False
        if name == "c" and self.row >= 0:
            said = self.taken()
            if self.kind == "s":
                said = self.shared[int(said)] if said.isascii() and said.isdigit() else ""
            if self.kind in ("n", "s", "str", "inlineStr"):
                self.rows.setdefault(self.row, {})[self.column] = said

    def _next_row(self, said: str | None) -> int:
        if said is None:
            return self.row + 1
        if not _ROW.fullmatch(said):
            raise ValueError
        return int(said) - 1
