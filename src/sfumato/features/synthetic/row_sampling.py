"""Draw rows from a model, clique by clique, in the model's proportions.

Rows are grouped by the values that they already have. Within a group, new values are dealt in the
model's shares (systematic rounding to integers), in a new random order. Without that order, values
dealt early would meet values dealt early before. Independent columns would become correlated, which
only unmeasured pairs show (tests/features/synthetic/test_maximum_entropy_model.py).
"""

from __future__ import annotations

import math

import numpy as np

from sfumato.features.synthetic.junction_tree import Clique, Floats, Tree, root_tree
from sfumato.features.synthetic.maximum_entropy_model import Model
from sfumato.features.synthetic.seeded_numbers import Integers, Seeded


def sample_rows(model: Model, rows: int, stream: Seeded) -> Integers:
    """Draw rows from the maximum-entropy model, as category codes [rows, columns]."""
    codes = np.zeros((rows, len(model.tree.sizes)), dtype=np.int64)
    return _filled(model, model.tree, codes, stream)


def sample_given(model: Model, column: int, given: Integers, stream: Seeded) -> Integers:
    """Draw rows from the model as category codes, given the codes of one column."""
    codes = np.zeros((len(given), len(model.tree.sizes)), dtype=np.int64)
    codes[:, column] = given
    return _filled(model, root_tree(model.tree, column), codes, stream)


def _filled(model: Model, tree: Tree, codes: Integers, stream: Seeded) -> Integers:
    for branch in tree.branches:
        clique = tree.cliques[branch.clique]
        new = tuple(column for column in clique if column not in branch.shared)
        if not new:
            continue
        groups, shares = _shares(tree, model.tables[branch.clique], clique, branch.shared)
        dealt = in_shares(_numbers(codes, branch.shared, tree), groups, shares, stream)
        for column, place in zip(new, np.unravel_index(dealt, tree.shape(new)), strict=True):
            codes[:, column] = place
    return codes


def _shares(tree: Tree, table: Floats, clique: Clique, shared: Clique) -> tuple[int, Floats]:
    """Reshape a clique's marginal to a matrix, to draw the new columns given the shared ones.

    It has a row for each combination of shared columns, and a column for each combination of new
    ones. Also return the number of rows.
    """
    new = tuple(column for column in clique if column not in shared)
    axes = [clique.index(column) for column in (*shared, *new)]
    groups = math.prod(tree.shape(shared))
    return groups, table.transpose(axes).reshape(groups, -1)


def _numbers(codes: Integers, columns: Clique, tree: Tree) -> Integers:
    """Number the combinations of codes in these columns; return each row's number."""
    numbers = np.zeros(len(codes), dtype=np.int64)
    for column in columns:
        numbers = numbers * tree.sizes[column] + codes[:, column]
    return numbers


def in_shares(numbers: Integers, groups: int, shares: Floats, stream: Seeded) -> Integers:
    """Draw a new code for each row, in the shares of the row's group and in random order.

    `numbers` has each row's group, and `shares` has one line per group.
    """
    order = np.lexsort((stream.uniforms(len(numbers)), numbers))
    sizes = np.bincount(numbers, minlength=groups)
    dealt = np.empty(len(numbers), dtype=np.int64)
    offsets = stream.uniforms(groups)
    start = 0
    for group in np.flatnonzero(sizes).tolist():
        count = int(sizes[group])
        dealt[start : start + count] = _whole(shares[group], count, offsets[group])
        start += count
    made = np.empty(len(numbers), dtype=np.int64)
    made[order] = dealt
    return made


def _whole(shares: Floats, count: int, offset: float) -> Integers:
    """Deal `count` codes in the given shares, rounded up or down to whole numbers.

    The codes are sorted: the caller puts them into random order. The rounding is systematic, from a
    random `offset`.
    """
    total = shares.sum()
    even = shares / total if total > 0 else np.full(len(shares), 1 / len(shares))
    marks = np.minimum(np.cumsum(even) * count, count)
    marks[-1] = count
    points = np.arange(count) + offset
    found = np.searchsorted(marks, points, side="right")
    return np.asarray(np.minimum(found, len(shares) - 1), dtype=np.int64)
