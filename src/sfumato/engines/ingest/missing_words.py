"""Find well-known words and codes for missing values in a column, for the owner of the rows.

Only words of a public list are found, so no other value of a row is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from sfumato.engines.ingest.csv_layout import MISSING_MARKERS
from sfumato.system.csv_writer import NO_VALUE

PROPOSED: Final = ("", "n/a", "NA")  # the markers of every proposed card
_NUMERIC: Final = ("integer", "number")
_CODES: Final = frozenset(
    sign + digit * count for digit in "789" for count in range(1, 6) for sign in ("", "-")
) - {"7", "8", "9", "77", "88"}
_FAR: Final = 5  # a code is at least so many times the largest other number


def missing_words(texts: Sequence[str], kind: str) -> dict[str, int]:
    """Return the words and codes for missing values that a column has, with their numbers of cells.

    The commonest is first.

    Args:
        texts: The column's cells that are not empty.
        kind: The likely type of the column.
    """
    counts = Counter(text for text in texts if text not in (*PROPOSED, NO_VALUE))
    codes = _codes(counts) if kind in _NUMERIC else set()
    words = {text for text in counts if _is_word(text)}
    return {text: count for text, count in counts.most_common() if text in words | codes}


def _is_word(text: str) -> bool:
    return text.casefold() in MISSING_MARKERS and not _is_code(text)


def _is_code(text: str) -> bool:
    return text.removesuffix(".0") in _CODES


def _codes(counts: Counter[str]) -> set[str]:
    """Return the numbers such as 999 and -9 that are far from all other numbers of the column."""
    values = {text: value for text in counts if (value := _value(text)) is not None}
    others = [value for text, value in values.items() if not _is_code(text)]
    if not others:
        return set()
    lowest, highest = min(others), max(others)
    return {
        text
        for text, value in values.items()
        if _is_code(text) and (lowest >= 0 if value < 0 else highest * _FAR <= value)
    }


def _value(text: str) -> Decimal | None:
    """Return the number of a text with at most one decimal mark; None for any other text."""
    plain = text.replace(",", ".")
    digits = plain.lstrip("+-").replace(".", "", 1)
    return Decimal(plain) if digits.isdecimal() and digits.isascii() else None
