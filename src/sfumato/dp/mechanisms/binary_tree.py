"""The tree mechanism for running counts: a prefix is a few blocks, a period is in a few blocks.

Ends are numbered from 1. The block that ends at n covers the last w(n) periods up to n, where w(n)
is the largest power of the branching that divides n; the prefix up to n is that block and the
prefix up to n - w(n). So there are as many blocks as prefixes. Noise is put on the blocks, and the
prefixes are added up from noisy blocks (binary_tree.proof.md; Dwork, Naor, Pitassi, Rothblum 2010;
Chan, Shi, Song 2011). Held by brute force in tests/dp/mechanisms/test_binary_tree.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Bug

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Tree:
    """The blocks over so many periods, each level of them wider by the branching."""

    periods: int
    branching: int

    def __post_init__(self) -> None:
        if self.periods < 1 or self.branching < 2:
            raise Bug("a tree without periods or without branches")

    @property
    def levels(self) -> int:
        """Return in how many blocks one period is at most: the digits of the last end."""
        return len(_digits(self.periods, self.branching))

    @property
    def most_blocks(self) -> int:
        """Return how many blocks the prefix takes that takes the most."""
        return _largest_digit_sum(self.periods, self.branching)

    def l1(self, cells: int, per_cell: int) -> int:
        """Return the largest sum of changes of all blocks, of somebody in so many cells."""
        return cells * per_cell * self.levels

    def l2_squared(self, cells: int, per_cell: int) -> int:
        """Return the largest sum of squared changes of all blocks, however the cells lie."""
        return per_cell**2 * sum(
            _most_squares(cells, self.branching**level) for level in range(self.levels)
        )

    def before(self) -> Integers:
        """Return, for each end, how long the prefix is that its block continues: n - w(n)."""
        ends = np.arange(1, self.periods + 1, dtype=np.int64)
        widths = np.ones_like(ends)
        for level in range(1, self.levels):
            widths[ends % self.branching**level == 0] = self.branching**level
        return ends - widths

    def blocks_of_prefixes(self) -> Integers:
        """Return of how many blocks each prefix is made: the sum of the digits of its end."""
        return self.prefixes(np.ones((1, self.periods, 1), dtype=np.int64)).ravel()

    def blocks(self, counts: Integers) -> Integers:
        """Return the sum of each block, along the middle one of three axes."""
        above, _, below = counts.shape
        nothing = np.zeros((above, 1, below), dtype=np.int64)
        prefixes = np.concatenate([nothing, np.cumsum(counts, axis=1)], axis=1)
        return np.asarray(prefixes[:, 1:] - prefixes[:, self.before()])

    def prefixes(self, blocks: Integers) -> Integers:
        """Return the sum of each prefix from the sums of the blocks, along the middle axis."""
        above, _, below = blocks.shape
        made = np.zeros((above, self.periods + 1, below), dtype=np.int64)
        for end, start in enumerate(self.before().tolist(), start=1):
            made[:, end] = made[:, start] + blocks[:, end - 1]
        return made[:, 1:]


@lru_cache(maxsize=1024)
def tree_for_laplace(periods: int) -> Tree:
    """Return the tree whose least certain prefix has the least Laplace noise."""
    return _best(periods, lambda tree: tree.levels**2)


@lru_cache(maxsize=1024)
def tree_for_gaussian(periods: int, cells: int) -> Tree:
    """Return the tree whose least certain prefix has the least Gaussian noise."""
    return _best(periods, lambda tree: tree.l2_squared(cells, 1))


def _best(periods: int, spread: Callable[[Tree], int]) -> Tree:
    """Return the branching of the smallest worst variance; of public numbers alone (rules, 4)."""
    trees = (Tree(periods, branching) for branching in range(2, periods + 2))
    return min(trees, key=lambda tree: spread(tree) * tree.most_blocks)


def _most_squares(cells: int, width: int) -> int:
    """Return the most that squares sum to, of numbers up to the width that sum to the cells."""
    full, rest = divmod(cells, width)
    return full * width**2 + rest**2


def _digits(number: int, base: int) -> list[int]:
    """Return the digits, the last one first."""
    digits = []
    while number:
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits


def _largest_digit_sum(most: int, base: int) -> int:
    """Return the largest sum of digits of the numbers up to `most`.

    A number below it agrees in the leading digits, is smaller in the next, and free after that.
    """
    digits = _digits(most, base)
    found = sum(digits)
    for place, digit in enumerate(digits):
        if digit:
            found = max(found, sum(digits[place + 1 :]) + digit - 1 + place * (base - 1))
    return found
