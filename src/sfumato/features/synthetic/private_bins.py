"""Bins that hold about as many people each: a range is cut in two at its median, and so are both.

The medians are released numbers, each measured among the people of its bin; where to cut is made of
them and of the card. A median that lies outside its bin (of next to nobody, or of noise) says
nothing, and the bin is cut in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sfumato.features.synthetic.column_categories import BINS, Coded
from sfumato.vault.card.columns import Column

LEVELS: Final = 4  # each doubles the bins


def is_wide(column: Column) -> bool:
    """Say whether even bins of the column hold several steps each, by the card."""
    if column.keys is not None or not column.is_numeric:
        return False
    if column.lower is None or column.upper is None:
        return False
    return column.upper - column.lower + 1 > BINS


def uncut(column: Column) -> Coded:
    """Return the column as one bin from bound to bound."""
    lower, _ = column.bounds()
    return Coded(column, (lower,))


def split_at_median(coded: Coded, middles: Sequence[int]) -> Coded:
    """Return the column with each bin cut in two behind the step that was measured for it."""
    _, upper = coded.column.bounds()
    begins: list[int] = []
    ends = (*coded.begins[1:], upper + 1)
    for first, end, middle in zip(coded.begins, ends, middles, strict=True):
        begins.append(first)
        if end - first > 1:
            begins.append(_cut(first, end, middle))
    return Coded(coded.column, tuple(begins))


def _cut(first: int, end: int, middle: int) -> int:
    """Return where the second part begins: a value that many have ends the first, or is alone."""
    if not first <= middle < end:
        middle = (first + end - 1) // 2
    return min(middle + 1, end - 1)
