"""Cells of strangers' tables as numbers: read alike wherever they are counted or compared."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

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


def count_of(cell: str) -> Decimal | None:
    """Return how many people a cell says, or None where no count can be that large."""
    number = number_of(cell)
    return None if number is None or abs(number) >= _MOST_COUNT else number


def digits_of(number: Decimal) -> int:
    """Return how many digits a number has, leading and ending noughts aside."""
    return len(number.normalize().as_tuple().digits)
