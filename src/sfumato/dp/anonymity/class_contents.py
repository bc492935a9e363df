"""Count the sensitive values in each equivalence class."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.dp.anonymity.coded_table import Bits, Codes, Column

_ROOM = 4096


@dataclass(frozen=True)
class Contents:
    """How many people have each value of one sensitive column, in each equivalence class.

    The counts are a sorted list of the (class, value) pairs that occur.
    """

    sizes: Codes  # people in each class
    of_class: Codes  # the class of each (class, value) pair
    of_value: Codes
    counts: Codes
    values: int  # number of values in the column's list
    is_ordered: bool
    whole: Codes | None = None  # counts of the whole table, if the classes are only a part of it

    @cached_property
    def totals(self) -> Codes:
        """Return how many people have each value of the sensitive column in the whole table."""
        if self.whole is not None:
            return self.whole
        made: Codes = np.bincount(self.of_value, self.counts, minlength=self.values)
        return made.astype(np.int64)

    @cached_property
    def starts(self) -> Codes:
        """Return for each class the index of its first (class, value) pair in the sorted list.

        Every class has at least one pair.
        """
        return np.searchsorted(self.of_class, np.arange(len(self.sizes)))

    def only(self, kept: Bits) -> Contents:
        """Keep only the classes in the mask `kept`; return their counts of sensitive values.

        The result treats them as the whole table, as if there were no other class.
        """
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
    """Count how many people have each value of a sensitive column, in each equivalence class.

    `of_row` is the class of each row, and `sizes` the number of people in each class.
    """
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
