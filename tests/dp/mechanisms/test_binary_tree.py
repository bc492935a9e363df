"""Trees of blocks: every prefix exactly, and brute force as the judge of what one person moves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato.dp.mechanisms.binary_tree import Tree, tree_for_gaussian, tree_for_laplace
from sfumato.dp.refusal import Bug

Integers = NDArray[np.int64]
TREES = [Tree(n, b) for n in (*range(1, 13), 16, 17, 27) for b in range(2, n + 2)]
SMALL = [Tree(periods, b) for periods in range(1, 7) for b in range(2, periods + 2)]
POWERS = [Tree(1, 2), Tree(2, 2), Tree(8, 2), Tree(64, 2), Tree(9, 3), Tree(64, 4), Tree(100, 10)]


def digit_sum(number: int, base: int) -> int:
    return 0 if number == 0 else number % base + digit_sum(number // base, base)


def block_of(end: int, branching: int) -> range:
    """Return the periods (from 0) of the block that ends there, by trying every width."""
    width = 1
    while end % (width * branching) == 0:
        width *= branching
    return range(end - width, end)


def blocks_by_hand(tree: Tree, counts: Integers) -> Integers:
    """Return the blocks of series of counts: series by ends."""
    ends = range(1, tree.periods + 1)
    columns = [counts[:, list(block_of(end, tree.branching))].sum(axis=1) for end in ends]
    return np.stack(columns, axis=1)


def whole_tree(tree: Tree, counts: Integers) -> Integers:
    """Return every node of every level, whether or not a prefix uses it: series by nodes."""
    starts = [
        (start, tree.branching**level)
        for level in range(tree.levels)
        for start in range(0, tree.periods, tree.branching**level)
    ]
    return np.stack([counts[:, s : s + width].sum(axis=1) for s, width in starts], axis=1)


def spreads(tree: Tree, series: int, cells: int, rows: int) -> Iterator[Integers]:
    """Yield all that one person can have in the cells: which ones, and how many rows in each."""
    places = range(series * tree.periods)
    for chosen in combinations(places, min(cells, len(places))):
        for counts in product(range(rows + 1), repeat=len(chosen)):
            made = np.zeros(series * tree.periods, dtype=np.int64)
            made[list(chosen)] = counts
            yield made.reshape(series, tree.periods)


# --- what is added up ----------------------------------------------------------------------------


@pytest.mark.parametrize("tree", [*TREES, *POWERS], ids=str)
def test_prefixes_of_blocks_are_the_running_counts(tree: Tree) -> None:
    counts = np.random.default_rng(7).integers(-9, 99, (3, tree.periods, 2))
    blocks = tree.blocks(counts)
    assert blocks.shape == counts.shape
    assert np.array_equal(tree.prefixes(blocks), np.cumsum(counts, axis=1))


@pytest.mark.parametrize("tree", [*TREES, *POWERS], ids=str)
def test_blocks_are_the_periods_that_they_say(tree: Tree) -> None:
    counts = np.random.default_rng(8).integers(0, 99, (2, tree.periods))
    made = tree.blocks(counts.reshape(2, tree.periods, 1))[:, :, 0]
    assert np.array_equal(made, blocks_by_hand(tree, counts))
    starts = [block_of(end, tree.branching).start for end in range(1, tree.periods + 1)]
    assert tree.before().tolist() == starts


@pytest.mark.parametrize("tree", [*TREES, *POWERS], ids=str)
def test_a_prefix_takes_as_many_blocks_as_its_end_has_in_digits(tree: Tree) -> None:
    sums = [digit_sum(end, tree.branching) for end in range(1, tree.periods + 1)]
    assert tree.blocks_of_prefixes().tolist() == sums
    assert tree.most_blocks == max(sums)


@pytest.mark.parametrize("tree", [*TREES, *POWERS], ids=str)
def test_a_period_is_in_at_most_one_block_of_each_level(tree: Tree) -> None:
    blocks = [block_of(end, tree.branching) for end in range(1, tree.periods + 1)]
    holding = [sum(period in block for block in blocks) for period in range(tree.periods)]
    assert max(holding) == holding[0] == tree.levels


def test_levels_at_a_power_of_the_branching_and_just_below() -> None:
    assert [Tree(n, 2).levels for n in (1, 2, 3, 4, 7, 8, 9)] == [1, 2, 2, 3, 3, 4, 4]
    assert [Tree(n, 3).levels for n in (2, 3, 8, 9)] == [1, 2, 2, 3]


@pytest.mark.parametrize(("periods", "branching"), [(0, 2), (5, 1)])
def test_a_tree_without_periods_or_branches_is_a_bug(periods: int, branching: int) -> None:
    with pytest.raises(Bug):
        Tree(periods, branching)


# --- what one person moves -----------------------------------------------------------------------


@pytest.mark.parametrize("tree", SMALL, ids=str)
@pytest.mark.parametrize(("series", "cells", "rows"), [(1, 1, 2), (1, 2, 2), (2, 2, 1), (1, 4, 1)])
def test_no_spread_of_a_person_moves_the_blocks_by_more(
    tree: Tree, series: int, cells: int, rows: int
) -> None:
    moved = [blocks_by_hand(tree, d) for d in spreads(tree, series, cells, rows)]
    assert max(int(np.abs(m).sum()) for m in moved) <= tree.l1(cells, rows)
    assert max(int((m**2).sum()) for m in moved) <= tree.l2_squared(cells, rows)


@pytest.mark.parametrize("tree", SMALL, ids=str)
def test_no_spread_of_a_person_moves_the_whole_tree_by_more(tree: Tree) -> None:
    for series, cells in [(1, 3), (2, 2), (2, 3)]:
        moved = [whole_tree(tree, d) for d in spreads(tree, series, cells, 1)]
        assert max(int(np.abs(m).sum()) for m in moved) <= tree.l1(cells, 1)
        assert max(int((m**2).sum()) for m in moved) <= tree.l2_squared(cells, 1)


@pytest.mark.parametrize("tree", [*TREES, *POWERS], ids=str)
def test_somebody_who_comes_first_moves_the_blocks_by_all_that_is_claimed(tree: Tree) -> None:
    rows = 3
    for cells in (1, 4):  # in as many series
        d = np.zeros((cells, tree.periods), dtype=np.int64)
        d[:, 0] = rows
        assert np.abs(blocks_by_hand(tree, d)).sum() == tree.l1(cells, rows)
    assert (blocks_by_hand(tree, d[:1]) ** 2).sum() == tree.l2_squared(1, rows)


@pytest.mark.parametrize("tree", [*TREES, *POWERS], ids=str)
def test_somebody_in_the_first_periods_moves_the_whole_tree_by_all_that_is_claimed(
    tree: Tree,
) -> None:
    rows = 2
    for cells in range(1, tree.periods + 1):
        d = np.zeros((1, tree.periods), dtype=np.int64)
        d[0, :cells] = rows
        assert np.abs(whole_tree(tree, d)).sum() == tree.l1(cells, rows)
        assert (whole_tree(tree, d) ** 2).sum() == tree.l2_squared(cells, rows)
        if cells < tree.branching:
            assert (blocks_by_hand(tree, d) ** 2).sum() == tree.l2_squared(cells, rows)


# --- which tree ----------------------------------------------------------------------------------


@pytest.mark.parametrize("periods", [1, 2, 7, 12, 31, 60, 365])
def test_the_branching_is_the_one_with_the_least_worst_variance(periods: int) -> None:
    every = [Tree(periods, b) for b in range(2, periods + 2)]
    best = tree_for_laplace(periods)
    assert best.levels**2 * best.most_blocks == min(t.levels**2 * t.most_blocks for t in every)
    for cells in (1, 5, 40):
        best = tree_for_gaussian(periods, cells)
        assert best.l2_squared(cells, 1) * best.most_blocks == min(
            t.l2_squared(cells, 1) * t.most_blocks for t in every
        )


def worst_and_mean(levels: int, variances: NDArray[np.float64], is_laplace: bool) -> list[float]:
    """Return the deviations that the decision prints, of blocks with a variance of one each."""
    unit = 2 * levels**2 if is_laplace else levels
    return [round(math.sqrt(unit * v), 1) for v in (variances.max(), variances.mean())]


def of_tree(tree: Tree, is_laplace: bool) -> list[float]:
    return worst_and_mean(tree.levels, tree.blocks_of_prefixes().astype(float), is_laplace)


def of_least_squares(periods: int, branching: int, is_laplace: bool) -> list[float]:
    """Return the same for the best estimate from every node, up to one over everything."""
    levels = next(n for n in range(99) if branching**n >= periods) + 1
    leaves = np.arange(periods)
    nodes = [
        (leaves // branching**level == place).astype(float)
        for level in range(levels)
        for place in range(-(-periods // branching**level))
    ]
    every = np.array(nodes)
    sums = np.tril(np.ones((periods, periods)))
    covariance = sums @ np.linalg.inv(every.T @ every) @ sums.T
    return worst_and_mean(levels, np.diag(covariance), is_laplace)


DECISION = Path(__file__).parents[3] / "docs" / "notebook" / "0011-running-counts.md"


def test_the_figures_of_the_decision() -> None:
    lines = [line for line in DECISION.read_text("utf-8").splitlines() if line[:3].strip("| ")]
    table = [line.strip("|").split("|") for line in lines if line[:3].strip("| ").isdigit()]
    assert len(table) == 6
    for row in table:
        periods, is_laplace = int(row[0]), row[1].strip() == "Laplace"
        best = tree_for_laplace(periods) if is_laplace else tree_for_gaussian(periods, 1)
        whole = [of_least_squares(periods, b, is_laplace) for b in (2, 3, 8, 10, 16)]
        trees = [best, Tree(periods, 2), Tree(periods, periods + 1)]
        assert int(row[2]) == best.branching
        found = [*(of_tree(tree, is_laplace) for tree in trees), min(whole)]
        assert [[float(x) for x in cell.split(",")] for cell in row[3:]] == found, row
