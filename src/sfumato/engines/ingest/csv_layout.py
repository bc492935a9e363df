"""Find a CSV or TSV file's encoding, separator and header, before DuckDB reads the file.

Column names are public. So a first line that looks like a data row is refused, because it would
publish a person's row.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.system.csv_writer import NO_VALUE
from sfumato.system.row_files import TEXT
from sfumato.vault.card.cell_formats import FileFormat

_PIECE: Final = 1 << 20
_LINES: Final = 1000  # lines of the first megabyte that are inspected
_SEPARATORS: Final = (",", ";", "\t", "|")
_HINT: Final = re.compile('"?sep=(.)"?')  # first line of CSV files that some spreadsheets write
_NUMBER: Final = re.compile(
    r"[+-]?(\d+([.,]\d*)?|[.,]\d+|\d{1,3}([., '\u2019\u00a0\u202f]\d{3})+([.,]\d+)?)([eE][+-]?\d+)?"
)
_DAY: Final = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T]\d{1,2}:\d{2}.*)?")
_ADDRESS: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
MISSING_MARKERS: Final = frozenset(  # well-known missing-value markers
    {
        "", "-", "--", ".", "?", "na", "n/a", "#n/a", "#na", "nan", "null", "none", "nil", "nd",
        "n.d.", "missing", "unknown", "k.a.", "k. a.", "k.a", "keine angabe", "unbekannt", "n.b.",
        "s/d", "s.d.", "sd", "nr", "n.r.", "inconnu", "#value!", "#wert!", "#div/0!", "-99", "-999",
        "-9999", "nv", "#nv", "n.v.", "n.a.", "n. a.", "n.a", "<na>", "nat", "(null)", "\\n",
        NO_VALUE,
    }
)  # fmt: skip


@dataclass(frozen=True)
class TextLayout:
    """Layout of a CSV or TSV file: column names, separator, header, and its first rows."""

    names: tuple[str, ...]
    separator: str
    skipped: int  # number of lines before the header or the first row
    has_header: bool
    rows: tuple[tuple[str, ...], ...]  # the first rows, untrimmed


def is_text_file(source: str) -> bool:
    """Say whether a source is CSV or TSV, by its file suffix."""
    return Path(source).suffix.casefold() in TEXT


def in_utf8(source: str, file: FileFormat, copy: Path) -> str:
    """Return the path of a text source in UTF-8: the source itself or a converted copy; or refuse.

    A UTF-8 file whose card names another encoding is refused. Otherwise it would be misread without
    an error.
    """
    if file.encoding == "utf-8":
        check_utf8(source)
        return source
    is_utf8 = _decodes(source, "utf-8")
    if not (is_utf8 and file.encoding != "utf-16"):
        return _recoded(source, file.encoding, copy)
    if not _decodes(source, "ascii"):
        raise Refused(
            "source-unreadable",
            f"The data card declares the encoding {file.encoding}, but the file is UTF-8.",
            'Write encoding = "utf-8" on the card.',
        )
    return source


def check_utf8(source: str) -> None:
    """Refuse a CSV or TSV source that is not UTF-8."""
    if is_text_file(source) and not _decodes(source, "utf-8"):
        raise _not_utf8(source)


def guessed_encoding(source: str) -> str:
    """Return an encoding that decodes a text source; used if the data card names none."""
    start = _start(source)
    is_wide = start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or b"\0" in start
    if is_wide:  # UTF-16 without a byte order mark can also be valid UTF-8, with NUL characters
        return "utf-16" if _decodes(source, "utf-16") else "utf-8"
    known = ("utf-8", "cp1252", "iso8859-1")
    return next((name for name in known if _decodes(source, name)), "utf-8")


def text_layout(
    source: str, file: FileFormat, encoding: str = "utf-8", *, is_ours: bool = False
) -> TextLayout:
    """Return a text file's separator, header and column names; or refuse the file.

    A file that is ours (file_conversion.py) has no line before the header.
    """
    text = _beginning(source, encoding)
    if not is_ours:
        _check_no_other_format(text)
    skipped, only = 0, "\t" if source.casefold().endswith(".tsv") else None
    first, _, rest = text.partition("\n")
    hint = _HINT.fullmatch(first.strip("\r"))
    if hint is not None and not is_ours:
        skipped, only, text = 1, hint[1], rest
    separator = only or _separator(text)
    records = [tuple(record) for record in _records(text, separator)]
    if file.names is not None:
        if records and len(records[0]) != len(file.names):
            raise Refused(
                "source-unreadable",
                f"The data card's header names {len(file.names)} columns, but the file has "
                "another number of columns.",
                "Name every column of the file, in its order. Columns that are not under "
                "[columns] are ignored.",
            )
        if records:
            _check_no_names(records[0], records[1:], file)
        return TextLayout(file.names, separator, skipped, False, tuple(records))
    names = records[0] if records else ()
    if not file.is_header_sure:
        check_header(names, records[1:])
    return TextLayout(names, separator, skipped, True, tuple(records[1:]))


# --- encoding ------------------------------------------------------------------------------------


def _decodes(source: str, encoding: str) -> bool:
    """Say whether the whole file can be decoded in an encoding."""
    is_text = True
    try:
        for _ in _decoded(source, encoding):
            pass
    except UnicodeError:
        is_text = False
    return is_text


def _start(source: str) -> bytes:
    with Path(source).open("rb") as file:
        return file.read(2)


def _codec(source: str, encoding: str) -> str:
    """Return the Python codec of an encoding.

    For UTF-16 without a byte order mark, the codec names the byte order.
    """
    start = _start(source)
    if encoding != "utf-16" or b"\0" not in start:
        return encoding
    return "utf-16-be" if start[:1] == b"\0" else "utf-16-le"


def _decoded(source: str, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(_codec(source, encoding))()
    with Path(source).open("rb") as file:
        while piece := file.read(_PIECE):
            yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)


def _recoded(source: str, encoding: str, copy: Path) -> str:
    is_text = True
    try:
        with copy.open("w", encoding="utf-8", newline="") as target:
            target.writelines(_decoded(source, encoding))
    except UnicodeError:
        is_text = False
    if not is_text:
        raise Refused(
            "source-unreadable",
            f"The data card declares the encoding {encoding}, but the file has another one.",
            "Write the file's encoding on the card, or save the file as UTF-8.",
        )
    return str(copy)


def _not_utf8(source: str) -> Refused:
    guess = guessed_encoding(source)
    likely = 'cp1252" (of Windows in Western Europe)' if guess != "utf-16" else 'utf-16"'
    return Refused(
        "source-unreadable",
        "The file is not UTF-8, and the data card names no other encoding.",
        f'Write encoding = "{likely} or another one on the card, or save the file as UTF-8.',
    )


_OTHERS: Final = (  # how files of other formats begin, and what they are
    ("<!doctype html", "a web page"),
    ("<html", "a web page"),
    ("<?xml", "XML"),
    ("{\\rtf", "a document"),
    ("%pdf", "a PDF document"),
    ("pk\x03\x04", "a workbook or a zip file"),
    ("par1", "a Parquet file"),
    ("sqlite format 3", "an SQLite database"),
    ("\xd0\xcf\x11\xe0", "an old Excel workbook"),
    ("$fl2@(#)", "an SPSS file"),
)


def _check_no_other_format(text: str) -> None:
    """Refuse a file that is called CSV, but whose first characters are those of another format."""
    start = text[:200].lstrip().casefold()
    kind = next((kind for sign, kind in _OTHERS if start.startswith(sign)), None)
    if kind is not None:
        raise Refused(
            "source-unreadable",
            f"The file's name says CSV, but the file is {kind}.",
            "Export the rows again as CSV. If it is the right file, give it the name's ending of "
            "its format.",
        )


# --- cells ---------------------------------------------------------------------------------------


def _beginning(source: str, encoding: str) -> str:
    """Return the decoded text of the file's first megabyte."""
    encoding = "utf-8-sig" if encoding == "utf-8" else _codec(source, encoding)
    decoder = codecs.getincrementaldecoder(encoding)()
    with Path(source).open("rb") as file:
        return decoder.decode(file.read(_PIECE))


def _separator(text: str) -> str:
    """Guess a CSV file's separator: the one that splits all lines into the same number of cells.

    If several do, return the one with the most cells. If none does, return the one that splits the
    first line into the most cells.
    """
    found = {s: [len(record) for record in _records(text, s)] for s in _SEPARATORS}
    whole = {s: sizes[0] for s, sizes in found.items() if sizes and len(set(sizes)) == 1}
    first = {s: sizes[0] for s, sizes in found.items() if sizes}
    candidates = {s: size for s, size in whole.items() if size > 1}
    if not candidates and set(first.values()) == {1}:  # one column, or lines before the header
        _check_beginning(text, found)
        return next(iter(whole), ",")
    candidates = candidates or first or {",": 0}
    return max(candidates, key=lambda s: candidates[s])


def _check_beginning(text: str, found: Mapping[str, Sequence[int]]) -> None:
    """Refuse a file with lines before the header: they would become a column name."""
    cells = [record[0].strip() for record in _records(text, "\0")][1:]
    if all(_NUMBER.fullmatch(cell) or cell.casefold() in MISSING_MARKERS for cell in cells):
        return  # numbers with decimal commas
    for sizes in found.values():
        if sizes[-1] > 1 and sizes.count(sizes[-1]) > len(sizes) / 2:
            raise Refused(
                "no-header",
                "The first line has one cell, but most lines below it have more.",
                "Remove the lines before the line with the column names.",
            )


def _records(text: str, separator: str) -> Iterator[list[str]]:
    """Yield the first 1000 records of a CSV text; omit a last one that may be cut off.

    A text that has only one record yields it in any case.
    """
    is_all = len(text) < _PIECE // 4  # a character has at most four bytes
    before: list[str] | None = None
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    count = 0
    try:
        for record in reader:
            if not record:  # an empty line
                continue
            if before is not None:
                yield before
                count += 1
                if count >= _LINES:
                    return
            before = record
    except csv.Error:  # DuckDB, which reads the whole file, decides
        return
    if before is not None and (is_all or count == 0):
        yield before


# --- header --------------------------------------------------------------------------------------


def check_header(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Refuse a header line that looks like a row of data, because column names are public.

    It looks so if a name occurs as a value in its text column. It also does if the names of all
    number and date columns are numbers and dates themselves. So does a name that is an email
    address, or that is a number or date in a file without further rows. The check does not detect a
    data row of text columns whose values never occur again (sharp-edges.md).
    """
    cells = [name.strip() for name in names]
    columns = [
        {row[place].strip() for row in rows if place < len(row)} for place in range(len(cells))
    ]
    kinds = [_kind(column) for column in columns]
    typed = [
        (cell, kind)
        for cell, kind in zip(cells, kinds, strict=True)
        if kind is not None and cell.casefold() not in MISSING_MARKERS
    ]
    is_all_typed = bool(typed) and all(_is_of(cell, kind) for cell, kind in typed)
    recurs = any(
        kind is None and cell.casefold() not in MISSING_MARKERS and cell in column
        for cell, kind, column in zip(cells, kinds, columns, strict=True)
    )
    is_row_alone = not rows and any(_NUMBER.fullmatch(c) or _DAY.fullmatch(c) for c in cells)
    has_address = any(_ADDRESS.fullmatch(cell) for cell in cells)
    if is_all_typed or recurs or is_row_alone or has_address:
        raise Refused(
            "no-header",
            "The first line looks like a row of data, not like column names, and column names "
            "are public.",
            "Write a first line with the column names, or name the columns on the data card: "
            'header = ["person", "age", …]. If the first line does have names, write header = '
            "true on the card.",
        )


def check_column_names(names: Sequence[str], columns: Sequence[Sequence[str]]) -> None:
    """Refuse a source for a proposed card if a column has no name, or two share a name.

    A column without a name and without cells is allowed.
    """
    plain = [name.strip().casefold() for name in names]
    twice = sorted({name for name in plain if name and plain.count(name) > 1})
    is_nameless = any(not n and any(c) for n, c in zip(plain, columns, strict=True))
    if not any(plain) and not is_nameless:
        raise Refused(
            "source-unreadable",
            "The file has no column names.",
            "Give a file whose first line has the column names.",
        )
    if twice or is_nameless:
        raise Refused(
            "source-unreadable",
            f"Several columns are called {twice[0]!r}, apart from letter case and spaces."
            if twice
            else "Some columns have cells but no name.",
            "Give each column its own name in the first line of the file. Remove any lines "
            "before the line with the names.",
        )


def _check_no_names(record: Sequence[str], rows: Sequence[Sequence[str]], file: FileFormat) -> None:
    """Refuse a file with a header line if its card names the columns.

    The header line would count as a data row.
    """
    cells = [cell.strip() for cell in record]
    columns = [{row[i].strip() for row in rows if i < len(row)} for i in range(len(cells))]
    kinds = [_kind(column) for column in columns]
    is_own = any(
        cell and cell.casefold() == name.strip().casefold()
        for cell, name in zip(cells, file.names or (), strict=True)
    )
    untyped = [
        cell.casefold() not in MISSING_MARKERS and not _is_of(cell, kind)
        for cell, kind in zip(cells, kinds, strict=True)
        if kind is not None
    ]
    recurs = any(cell in column for cell, column in zip(cells, columns, strict=True))
    if is_own or (len(untyped) > 1 and all(untyped) and not recurs):
        raise Refused(
            "source-unreadable",
            "The data card's header names the columns, but the file's first line seems to name "
            "them too.",
            "Remove that line, because it would count as a row. Or remove header from the card, "
            "and use the file's names.",
        )


def _kind(column: set[str]) -> re.Pattern[str] | None:
    """Return the pattern of numbers or of dates that all values of a column match; else None.

    Missing-value markers don't count as values.
    """
    values = [value for value in column if value.casefold() not in MISSING_MARKERS]
    if not values:
        return None
    return next((p for p in (_NUMBER, _DAY) if all(p.fullmatch(v) for v in values)), None)


def _is_of(cell: str, kind: re.Pattern[str]) -> bool:
    return kind.fullmatch(cell) is not None
