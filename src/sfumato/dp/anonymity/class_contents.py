"""What the classes hold of a sensitive column: which values, and how many of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.dp.anonymity.coded_table import Bits, Codes, Column

_ROOM = 4096


@dataclass(frozen=True)
class Contents:
    """The pairs of a class and a sensitive value that occur, in order, and how often each does."""

    sizes: Codes  # people in each class
    of_class: Codes  # of each pair
    of_value: Codes
    counts: Codes
    values: int  # how many values the column can have
    is_ordered: bool
    whole: Codes | None = None  # people of the whole table with each value, if there are others

    @cached_property
    def totals(self) -> Codes:
        """Return how many people of the whole table have each value."""
        if self.whole is not None:
            return self.whole
        made: Codes = np.bincount(self.of_value, self.counts, minlength=self.values)
        return made.astype(np.int64)

    @cached_property
    def starts(self) -> Codes:
        """Return where the pairs of each class begin; every class has one at least."""
        return np.searchsorted(self.of_class, np.arange(len(self.sizes)))

    def only(self, kept: Bits) -> Contents:
        """Return what these classes hold, as if there were no others."""
        number = np.cumsum(kept) - 1
        pairs = kept[self.of_class]
        return Contents(
            self.sizes[kept],
            number[self.of_class[pairs]],
            self.of_value[pairs],
            self.counts[pairs],
            self.values,
            self.is_ordered,
        )


def contents_of(
    of_row: Codes, sizes: Codes, sensitive: Column, weights: Codes | None = None
) -> Contents:
    """Return what the classes hold of the column; `of_row` says which class each row is in."""
    span = max(1, len(sensitive.values))
    key = of_row * span + sensitive.codes
    if len(sizes) * span <= 4 * len(key) + _ROOM:
        every = np.bincount(key, weights, minlength=len(sizes) * span).astype(np.int64)
        pairs: Codes = np.flatnonzero(every)
        counts = every[pairs]
    else:
        pairs, place = np.unique(key, return_inverse=True)
        counts = np.bincount(place.ravel(), weights, minlength=len(pairs)).astype(np.int64)
    return Contents(sizes, pairs // span, pairs % span, counts, span, sensitive.is_ordered)
