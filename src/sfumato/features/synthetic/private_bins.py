"""Find private bins with about equal numbers of people, by recursive splits at noisy medians.

Each median is a released number about the people of its bin. The splits depend only on released
medians and the card. If a median is outside its bin (few people, or much noise), the bin is split
in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sfumato.features.synthetic.column_categories import BINS, Coded
from sfumato.vault.card.columns import Column

LEVELS: Final = 4  # each level doubles the number of bins


def is_wide(column: Column) -> bool:
    """Return True if a numeric column has more steps between its bounds than there are bins."""
    if column.keys is not None or not column.is_numeric:
        return False
    if column.lower is None or column.upper is None:
        return False
    return column.upper - column.lower + 1 > BINS


def uncut(column: Column) -> Coded:
    """Return the column with a single bin that covers its bounds, to begin the splits."""
    lower, _ = column.bounds()
    return Coded(column, (lower,))


def split_at_median(coded: Coded, middles: Sequence[int]) -> Coded:
    """Split each bin of a column after its noisy median step."""
    _, upper = coded.column.bounds()
    begins: list[int] = []
    ends = (*coded.begins[1:], upper + 1)
    for first, end, middle in zip(coded.begins, ends, middles, strict=True):
        begins.append(first)
        if end - first > 1:
            begins.append(_cut(first, end, middle))
    return Coded(coded.column, tuple(begins))


def _cut(first: int, end: int, middle: int) -> int:
    """Return where to split a bin: the first step of its second half.

    The median `middle` ends the first half. If it is the bin's last step, it gets a bin of its own.
    If it is outside the bin, the bin is split in the middle.
    """
    if not first <= middle < end:
        middle = (first + end - 1) // 2
    return min(middle + 1, end - 1)
