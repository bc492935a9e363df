"""What a method of making a DP twin may ask for: noisy counts, and a private choice; no rows.

Prices are shares of the whole price. Under zCDP they are shares of rho, under pure DP of epsilon;
both add up, which is all that a method needs to know. What is asked is decided by released numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.features.synthetic.junction_tree import Clique, Floats

Integers = NDArray[np.int64]
Merged = tuple[tuple[int, ...], ...]  # for each column, the group that each category counts in


@dataclass(frozen=True, eq=False)
class Candidate:
    """Columns whose counts may lie far from what is expected, and the expected counts."""

    columns: Clique
    expected: Integers
    penalty: int = 0  # taken off the distance: what the noise alone would cost
    weight: int = 1


@dataclass(frozen=True, eq=False)
class Choice:
    """A private choice among candidates: of the worst one, or of a tree that spans all columns."""

    kind: Literal["one", "tree"]
    candidates: tuple[Candidate, ...]
    merged: Merged


class Device(Protocol):
    """A data set that is counted privately."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return how many categories each column has."""
        ...

    def std(self, share: Fraction) -> float:
        """Return the std of the noise of each count at that share of the price."""
        ...

    def count(self, columns: Clique, merged: Merged, share: Fraction) -> Floats:
        """Return noisy counts, one axis for each column."""
        ...

    def choose(self, choice: Choice, share: Fraction) -> tuple[int, ...]:
        """Return which candidates were chosen, by their places."""
        ...


def unmerged(sizes: Sequence[int]) -> Merged:
    """Return every category in a group of its own."""
    return tuple(tuple(range(size)) for size in sizes)


def sizes_of(merged: Merged) -> tuple[int, ...]:
    """Return how many groups each column has."""
    return tuple(max(groups) + 1 for groups in merged)


def regrouped(counts: Floats, groups: Sequence[int]) -> Floats:
    """Return the counts of one column, added up by groups."""
    summed = np.bincount(np.asarray(groups), weights=counts, minlength=max(groups) + 1)
    return np.asarray(summed, dtype=np.float64)
