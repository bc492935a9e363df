"""Parse numbers in the cells of untrusted tables, in one way for all output checks."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

_WRITTEN: Final = re.compile(r"[0-9]+(?:[.,'_ ][0-9]+)*")
_GROUPED: Final = re.compile(r"[0-9]{1,3}([,'_ ])[0-9]{3}(?:\1[0-9]{3})*(\.[0-9]+)?")  # 1,234.5
_DOTTED: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3}){2,}(,[0-9]+)?")  # 1.234.567,8
_MAX_COUNT: Final = 10**15  # a number this large is no count of people


def plain(cell: object) -> str:
    """Normalise a table cell for comparison: `1` and `1.00` become equal, as do `A` and `a`."""
    number = number_of(str(cell))
    return str(cell).strip().casefold() if number is None else f"{number.normalize():f}"


def number_of(cell: str) -> Decimal | None:
    """Parse a table cell as one finite number; return None if it is not one.

    Cells over 60 characters, and numbers with an exponent of 100 or more, also give None.
    """
    if len(cell) > 60:
        return None
    try:
        number = Decimal(cell.strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) < 100 else None


def numbers_in(text: str) -> tuple[Decimal, ...]:
    """Find every number in a text, in any notation: "12 %", "1,234", "<5", "n=4"."""
    whole = number_of(text)
    if whole is not None:
        return (whole,)
    found: list[Decimal] = []
    for word in _WRITTEN.findall(text):
        found += _read(word)
    return tuple(found)


def _read(word: str) -> list[Decimal]:
    """Parse a word of digits and separators as one number, such as 1,234.5.

    If it is not one number, return the numbers between its separators: 2,3,4 gives three.
    """
    if _GROUPED.fullmatch(word):
        word = re.sub("[,'_ ]", "", word)
    elif _DOTTED.fullmatch(word):
        word = word.replace(".", "").replace(",", ".")
    elif word.count(",") == 1 and not re.search("[.'_ ]", word):
        word = word.replace(",", ".")
    read = number_of(word)
    parts = [word] if read is not None else re.split("[.,'_ ]", word)
    return [one for one in map(number_of, parts) if one is not None]


def count_of(cell: str) -> Decimal | None:
    """Parse a cell as a count of people.

    Return None if it is not a number, or too large for a count.
    """
    number = number_of(cell)
    return None if number is None or abs(number) >= _MAX_COUNT else number


def digits_of(number: Decimal) -> int:
    """Count a number's significant digits: many of them mean that it is not rounded.

    Leading and trailing zeros do not count.
    """
    return len(number.normalize().as_tuple().digits)
