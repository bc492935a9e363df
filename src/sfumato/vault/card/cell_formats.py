"""Read from a data card the formats of its text files: numbers, dates, encoding and header."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sfumato.vault.card.field_readers import as_texts, bad_card

DECIMALS: Final = (".", ",")
THOUSANDS: Final[Mapping[str, str]] = {  # mark -> all characters that are read as this mark
    "": "", ".": ".", ",": ",", "'": "'\u2019", " ": " \u00a0\u202f",
}  # fmt: skip
ENCODINGS: Final = (  # encodings by their Python names
    "utf-8", "utf-16", "iso8859-1", "iso8859-2", "iso8859-15", "cp1250", "cp1251", "cp1252",
    "cp1253", "cp1254", "cp437", "cp850", "mac-roman", "shift_jis", "gb18030", "big5", "euc_kr",
)  # fmt: skip
PARTS: Final = ("%d", "%m", "%Y", "%H", "%M", "%S", "%f")
DAY: Final = ("%d", "%m", "%Y")
TOKEN: Final = re.compile(r"%.|[^%]", re.DOTALL)
MAX_NAMES: Final = 20_000
# the words of a boolean column whose card names no others; letter case does not matter
TRUE: Final = ("true", "t", "yes", "y", "1", "1.0")
FALSE: Final = ("false", "f", "no", "n", "0", "0.0")


@dataclass(frozen=True)
class NumberFormat:
    """How a text file writes numbers: decimal mark, and thousands separator ("" for none)."""

    decimal: str = "."
    thousands: str = ""


@dataclass(frozen=True)
class BooleanWords:
    """The words of a column that mean true and false, in small letters."""

    true: tuple[str, ...]
    false: tuple[str, ...]


@dataclass(frozen=True)
class FileFormat:
    """The encoding of a text file, and whether its first line is a header."""

    encoding: str = "utf-8"
    # the column names, if the file has no header line
    names: tuple[str, ...] | None = None
    is_header_sure: bool = False  # the first line is a header, even if it looks like a row of data


PLAIN: Final = NumberFormat()
UTF8: Final = FileFormat()


def read_number_format(
    shape: Mapping[str, object], where: str, default: NumberFormat
) -> NumberFormat:
    """Read a number format from the card keys `decimal` and `thousands`; refuse invalid marks."""
    decimal = shape.get("decimal", default.decimal)
    thousands = shape.get("thousands", default.thousands)
    if decimal not in DECIMALS:
        raise bad_card(f'decimal of {where} must be "." or ","')
    if thousands not in THOUSANDS:
        raise bad_card(f'thousands of {where} must be ".", ",", "\'" or " "')
    if decimal == thousands:
        raise bad_card(f"decimal and thousands of {where} are the same character")
    return NumberFormat(str(decimal), str(thousands))


def read_boolean_words(shape: Mapping[str, object], where: str) -> BooleanWords | None:
    """Read the words for true and false from a column of a card; None if it names none.

    If it names those of one alone, the usual words remain for the other.
    """
    if not {"true", "false"} & set(shape):
        return None
    named = {
        key: tuple(word.strip().casefold() for word in as_texts(shape[key], f"{key} of {where}"))
        for key in ("true", "false")
        if key in shape
    }
    if not all(named.values()) or "" in sum(named.values(), ()):
        raise bad_card(f'true and false of {where} must be lists of words, such as true = ["ja"]')
    if set(named.get("true", ())) & set(named.get("false", ())):
        raise bad_card(f"true and false of {where} have a word in common")
    true = named.get("true") or _besides(TRUE, named["false"])
    false = named.get("false") or _besides(FALSE, true)
    return BooleanWords(true, false)


def _besides(usual: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in usual if word not in others)


def read_date_format(value: object, where: str) -> str:
    """Read a date or timestamp format in `strptime` syntax.

    Refuse one without day, month or full year.
    """
    tokens = TOKEN.findall(value) if isinstance(value, str) else []
    parts = [token for token in tokens if token.startswith("%")]
    if "%y" in parts:
        raise bad_card(f"format of {where} has a year of two digits, so the century is not known")
    between = "".join(token for token in tokens if not token.startswith("%"))
    is_known = set(parts) <= set(PARTS) and set(DAY) <= set(parts) and len(set(parts)) == len(parts)
    if not is_known or not re.fullmatch(r"[-./:, TZ]*", between):
        raise bad_card(
            f'format of {where} must be like "%d.%m.%Y" or "%m/%d/%Y %H:%M", with {" ".join(PARTS)}'
        )
    return "".join(tokens)


def read_file_format(shape: Mapping[str, object], default: FileFormat) -> FileFormat:
    """Read the file format from the card keys `encoding` and `header`; refuse invalid values.

    `encoding` defaults to the encoding of the card. `header` has no default from the card: each
    table states its own.
    """
    encoding = default.encoding
    if "encoding" in shape:
        encoding = _encoding(shape["encoding"])
    header = shape.get("header")
    if header is None or header is True:
        return FileFormat(encoding, None, header is True)
    names = tuple(header) if isinstance(header, list) else ()
    if not 1 <= len(names) <= MAX_NAMES or not all(isinstance(name, str) for name in names):
        raise bad_card(
            "header must be true, or a list of the columns' names in the order of the file"
        )
    if len({str(name).strip().casefold() for name in names}) < len(names):
        raise bad_card("header gives two columns the same name")
    return FileFormat(encoding, names)


def _encoding(value: object) -> str:
    name = ""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,20}", value):
        try:
            name = codecs.lookup(value).name
        except LookupError:
            name = ""
    if name not in ENCODINGS:
        raise bad_card(f"encoding must be one of {', '.join(ENCODINGS)}")
    return name
