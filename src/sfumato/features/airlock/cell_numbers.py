"""Cells of strangers' tables as numbers: read alike wherever they are counted or compared."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

_WRITTEN: Final = re.compile(r"[0-9]+(?:[.,'_ ][0-9]+)*")
_GROUPED: Final = re.compile(r"[0-9]{1,3}([,'_ ])[0-9]{3}(?:\1[0-9]{3})*(\.[0-9]+)?")  # 1,234.5
_DOTTED: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3}){2,}(,[0-9]+)?")  # 1.234.567,8
_MOST_COUNT: Final = 10**15  # nobody counts as many people; what is larger is no count


def plain(cell: object) -> str:
    """Return a cell as it is compared: 1, 1.0 and 1.00 are one value, and so are A and a."""
    number = number_of(str(cell))
    return str(cell).strip().casefold() if number is None else f"{number.normalize():f}"


def number_of(cell: str) -> Decimal | None:
    """Return the number that a cell says, or None if it says none."""
    if len(cell) > 60:
        return None
    try:
        number = Decimal(cell.strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) < 100 else None


def numbers_in(text: str) -> tuple[Decimal, ...]:
    """Return every number that a text says, however it is dressed: "12 %", "1,234", "<5", "n=4"."""
    whole = number_of(text)
    if whole is not None:
        return (whole,)
    found: list[Decimal] = []
    for word in _WRITTEN.findall(text):
        found += _read(word)
    return tuple(found)


def _read(word: str) -> list[Decimal]:
    """Return the number that digits and what stands between them say; or each of several."""
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
    """Return how many people a cell says, or None where no count can be that large."""
    number = number_of(cell)
    return None if number is None or abs(number) >= _MOST_COUNT else number


def digits_of(number: Decimal) -> int:
    """Return how many digits a number has, leading and ending noughts aside."""
    return len(number.normalize().as_tuple().digits)
