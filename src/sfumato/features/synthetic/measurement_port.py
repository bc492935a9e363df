"""The interface by which a synthetic DP twin's methods measure: noisy counts, private choices.

The methods see no rows. Prices are shares of the whole price: of rho under zCDP, of epsilon under
pure DP. Shares add up, so a method only has to keep the sum of its shares at 1 or below. Each
request depends only on released numbers.
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
Merged = tuple[tuple[int, ...], ...]  # for each column, the group of each category


@dataclass(frozen=True, eq=False)
class Candidate:
    """A marginal that may be chosen: its columns, and their expected counts under the model."""

    columns: Clique
    expected: Integers
    penalty: int = 0  # the distance that noise alone causes; it is subtracted
    weight: int = 1


@dataclass(frozen=True, eq=False)
class Choice:
    """A private choice among candidate marginals: one of them, or the edges of a spanning tree."""

    kind: Literal["one", "tree"]
    candidates: tuple[Candidate, ...]
    merged: Merged


class Device(Protocol):
    """The interface to measure one table privately: noisy counts and private choices."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of categories of each column."""
        ...

    def std(self, share: Fraction) -> float:
        """Return the standard deviation of each count's noise, at this share of the whole price."""
        ...

    def count(self, columns: Clique, merged: Merged, share: Fraction) -> Floats:
        """Measure the noisy counts of merged categories, with one axis per column, at a price.

        `share` is the part of the whole price that the counts cost.
        """
        ...

    def choose(self, choice: Choice, share: Fraction) -> tuple[int, ...]:
        """Choose candidates privately, at this share of the whole price; return their indices."""
        ...


def unmerged(sizes: Sequence[int]) -> Merged:
    """Return the grouping of categories in which nothing is merged: each is its own group."""
    return tuple(tuple(range(size)) for size in sizes)


def sizes_of(merged: Merged) -> tuple[int, ...]:
    """Return the number of merged groups of each column."""
    return tuple(max(groups) + 1 for groups in merged)


def regrouped(counts: Floats, groups: Sequence[int]) -> Floats:
    """Sum up a column's counts per category to counts per group of merged categories."""
    summed = np.bincount(np.asarray(groups), weights=counts, minlength=max(groups) + 1)
    return np.asarray(summed, dtype=np.float64)
