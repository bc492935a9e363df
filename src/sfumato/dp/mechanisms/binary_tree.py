"""The tree mechanism for running counts (continual counting): add noise to blocks of periods.

Each running count (prefix) is the sum of a few blocks, and each period is in a few blocks. Periods
are numbered from 1. The block that ends at n covers the w(n) periods up to n, where w(n) is the
largest power of the branching that divides n. The prefix up to n is that block plus the prefix up
to n - w(n), so there are as many blocks as prefixes.

The mechanism adds noise to the blocks, and sums noisy blocks to prefixes (binary_tree.proof.md;
Dwork, Naor, Pitassi, Rothblum 2010; Chan, Shi, Song 2011). tests/dp/mechanisms/test_binary_tree.py
checks it by brute force.
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
    """The blocks of periods to which the tree mechanism adds noise, for `periods` periods.

    A block of level l covers branching**l consecutive periods.
    """

    periods: int
    branching: int

    def __post_init__(self) -> None:
        if self.periods < 1 or self.branching < 2:
            raise Bug("a tree without periods or without branches")

    @property
    def levels(self) -> int:
        """Return the number of levels of the tree: in how many blocks a period is, at most.

        The result is the number of digits of `periods` in base `branching`.
        """
        return len(_digits(self.periods, self.branching))

    @property
    def most_blocks(self) -> int:
        """Return the largest number of noisy blocks that any running count (prefix) sums."""
        return _largest_digit_sum(self.periods, self.branching)

    def l1(self, cells: int, per_cell: int) -> int:
        """Return the L1 sensitivity of all block sums, for a person in at most `cells` cells.

        A cell is one period in one group. `per_cell` is the sensitivity of the count of one cell.
        """
        return cells * per_cell * self.levels

    def l2_squared(self, cells: int, per_cell: int) -> int:
        """Return the squared L2 sensitivity of all block sums, at the worst position of the cells.

        A person is in at most `cells` result cells (one period in one group each), and `per_cell`
        is the sensitivity of the count of one cell.
        """
        return per_cell**2 * sum(
            _most_squares(cells, self.branching**level) for level in range(self.levels)
        )

    def before(self) -> Integers:
        """Return for each period n how many periods precede the block that ends at n.

        The running count up to n is that block plus the running count up to this earlier period.
        """
        ends = np.arange(1, self.periods + 1, dtype=np.int64)
        widths = np.ones_like(ends)
        for level in range(1, self.levels):
            widths[ends % self.branching**level == 0] = self.branching**level
        return ends - widths

    def blocks_of_prefixes(self) -> Integers:
        """Return how many noisy blocks are summed to the running count up to each period.

        The number is the digit sum of the period's number in base `branching`.
        """
        return self.prefixes(np.ones((1, self.periods, 1), dtype=np.int64)).ravel()

    def blocks(self, counts: Integers) -> Integers:
        """Return the exact sum of each block, from the counts of single periods.

        `counts` has the shape [above, periods, below]: the time axis, and the other axes around it.
        """
        above, _, below = counts.shape
        nothing = np.zeros((above, 1, below), dtype=np.int64)
        prefixes = np.concatenate([nothing, np.cumsum(counts, axis=1)], axis=1)
        return np.asarray(prefixes[:, 1:] - prefixes[:, self.before()])

    def prefixes(self, blocks: Integers) -> Integers:
        """Return the running count up to each period, from the sums of the blocks.

        `blocks` has the shape [above, periods, below]: the time axis, and the other axes around it.
        """
        above, _, below = blocks.shape
        made = np.zeros((above, self.periods + 1, below), dtype=np.int64)
        for end, start in enumerate(self.before().tolist(), start=1):
            made[:, end] = made[:, start] + blocks[:, end - 1]
        return made[:, 1:]


@lru_cache(maxsize=1024)
def tree_for_laplace(periods: int) -> Tree:
    """Return the tree that minimises the variance of the noisiest running count (Laplace noise)."""
    return _best(periods, lambda tree: tree.levels**2)


@lru_cache(maxsize=1024)
def tree_for_gaussian(periods: int, cells: int) -> Tree:
    """Return the tree that minimises the variance of the noisiest running count (Gaussian noise).

    `cells` is the contribution bound: in how many result cells one person is at most.
    """
    return _best(periods, lambda tree: tree.l2_squared(cells, 1))


def _best(periods: int, spread: Callable[[Tree], int]) -> Tree:
    """Return the tree, over all branching factors, whose noisiest running count has least variance.

    `spread` gives a number proportional to the noise variance of one block. The choice depends on
    public numbers only, as soundness rule 4 demands.
    """
    trees = (Tree(periods, branching) for branching in range(2, periods + 2))
    return min(trees, key=lambda tree: spread(tree) * tree.most_blocks)


def _most_squares(cells: int, width: int) -> int:
    """Return the largest sum of squared changes that one person makes to the blocks of one level.

    The person is in `cells` result cells, and a block of this level has `width` periods. The worst
    case fills whole blocks: it is the largest sum of squares of integers up to `width` that sum to
    `cells`.
    """
    full, rest = divmod(cells, width)
    return full * width**2 + rest**2


def _digits(number: int, base: int) -> list[int]:
    """Return the digits of a number in the given base (branching), the least significant first."""
    digits = []
    while number:
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits


def _largest_digit_sum(maximum: int, base: int) -> int:
    """Return the largest digit sum, in this base, of the numbers from 1 to `maximum`.

    It is the largest number of blocks that any running count sums. The candidates are `maximum`,
    and the numbers with the same leading digits, a digit one smaller, and then the largest digits.
    """
    digits = _digits(maximum, base)
    found = sum(digits)
    for place, digit in enumerate(digits):
        if digit:
            found = max(found, sum(digits[place + 1 :]) + digit - 1 + place * (base - 1))
    return found
