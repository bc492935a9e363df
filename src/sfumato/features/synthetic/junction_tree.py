"""Junction trees: exact marginals of a graphical model by belief propagation, in NumPy.

Columns are integers, a clique is a sorted tuple of columns, and a table over a clique has one axis
per column. The tree has the running intersection property: columns that two cliques share are in
every clique between them. So one pass of messages up and one down gives every clique's exact
marginal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Bug

Floats = NDArray[np.float64]
Clique = tuple[int, ...]


@dataclass(frozen=True)
class Branch:
    """One clique (set of columns) of a junction tree, and the edge to its parent.

    `above` is the parent, or None for a root. `shared` has the columns that both contain.
    """

    clique: int
    above: int | None
    shared: Clique


@dataclass(frozen=True)
class Tree:
    """A junction tree: cliques (sets of columns), and edges from the roots outward."""

    sizes: tuple[int, ...]
    cliques: tuple[Clique, ...]
    branches: tuple[Branch, ...]

    def shape(self, clique: Clique) -> tuple[int, ...]:
        """Return the shape of an array with one axis for each column of a clique."""
        return tuple(self.sizes[column] for column in clique)

    @property
    def cells(self) -> int:
        """Return the number of entries in the arrays of all cliques: the model's size."""
        return sum(math.prod(self.shape(clique)) for clique in self.cliques)

    def holder(self, columns: Clique) -> int | None:
        """Return the index of the smallest clique that contains all of the columns, or None."""
        found = [i for i, c in enumerate(self.cliques) if set(columns) <= set(c)]
        return min(found, key=lambda i: math.prod(self.shape(self.cliques[i])), default=None)


def tree_of(sizes: Sequence[int], wanted: Iterable[Clique]) -> Tree:
    """Build a junction tree that has each wanted set of columns within one of its cliques."""
    cliques = _cliques(tuple(sizes), [*wanted, *((c,) for c in range(len(sizes)))])
    return Tree(tuple(sizes), tuple(cliques), _branches(cliques, Branch(0, None, ())))


def root_tree(tree: Tree, column: int) -> Tree:
    """Return a junction tree with the same cliques, but rooted at one that contains the column.

    So rows can be drawn given that column.
    """
    place = tree.holder((column,))
    if place is None:
        raise Bug("a column of the tree is in no clique")
    return replace(tree, branches=_branches(tree.cliques, Branch(place, None, (column,))))


def _branches(cliques: Sequence[Clique], root: Branch) -> tuple[Branch, ...]:
    """Return the junction tree's edges from a root outward, which keep the running intersection."""
    branches, seen = [root], [root.clique]
    left = set(range(len(cliques))) - {root.clique}
    while left:
        below, above = max(
            ((b, a) for b in sorted(left) for a in seen),
            key=lambda pair: len(set(cliques[pair[0]]) & set(cliques[pair[1]])),
        )
        shared = tuple(sorted(set(cliques[below]) & set(cliques[above])))
        branches.append(Branch(below, above if shared else None, shared))
        seen.append(below)
        left.remove(below)
    return tuple(branches)


def _cliques(sizes: tuple[int, ...], wanted: Iterable[Clique]) -> list[Clique]:
    """Return the largest sets of columns that must be modelled together, by variable elimination.

    The column that is cheapest to eliminate comes first.
    """
    beside: dict[int, set[int]] = {column: set() for column in range(len(sizes))}
    for clique in wanted:
        for one, other in combinations(clique, 2):
            beside[one].add(other)
            beside[other].add(one)
    found: list[set[int]] = []
    while beside:
        column = min(beside, key=lambda c: (_cost(sizes, c, beside), c))
        around = beside.pop(column)
        for one in around:
            beside[one] |= around - {one}
            beside[one].discard(column)
        made = {column, *around}
        if not any(made <= other for other in found):
            found.append(made)
    return [tuple(sorted(clique)) for clique in found]


def _cost(sizes: tuple[int, ...], column: int, beside: dict[int, set[int]]) -> int:
    return math.prod(sizes[other] for other in (column, *beside[column]))


# --- tables ---------------------------------------------------------------------------------------


def spread(table: Floats, own: Clique, over: Clique) -> Floats:
    """Reshape a clique's array so that it broadcasts over the columns `over`.

    Each column that the clique lacks becomes an axis of length one.
    """
    lengths = dict(zip(own, table.shape, strict=True))
    return table.reshape([lengths.get(column, 1) for column in over])


def summed(table: Floats, own: Clique, onto: Clique) -> Floats:
    """Sum a clique's array over its columns that are not in `onto`: a marginal of the clique."""
    gone = tuple(place for place, column in enumerate(own) if column not in onto)
    return np.asarray(table.sum(axis=gone), dtype=np.float64) if gone else table


def marginals(tree: Tree, logs: Sequence[Floats], total: float) -> list[Floats]:
    """Compute each clique's marginal under log-potentials, by belief propagation on the tree."""
    held = list(logs)
    up: dict[int, Floats] = {}
    for branch in reversed(tree.branches):
        if branch.above is not None:
            clique, above = tree.cliques[branch.clique], tree.cliques[branch.above]
            up[branch.clique] = _log_summed(held[branch.clique], clique, branch.shared)
            held[branch.above] = held[branch.above] + spread(
                up[branch.clique], branch.shared, above
            )
    for branch in tree.branches:
        if branch.above is not None:
            clique, above = tree.cliques[branch.clique], tree.cliques[branch.above]
            down = _log_summed(held[branch.above], above, branch.shared) - up[branch.clique]
            held[branch.clique] = held[branch.clique] + spread(down, branch.shared, clique)
    return [_normal(table, total) for table in held]


def _log_summed(table: Floats, own: Clique, onto: Clique) -> Floats:
    gone = tuple(place for place, column in enumerate(own) if column not in onto)
    if not gone:
        return table
    top = table.max(axis=gone, keepdims=True)
    with np.errstate(divide="ignore"):  # an impossible cell has log -inf
        sums = np.log(np.exp(table - top).sum(axis=gone, keepdims=True)) + top
    return np.asarray(sums.reshape([n for i, n in enumerate(table.shape) if i not in gone]))


def _normal(table: Floats, total: float) -> Floats:
    made = np.exp(table - table.max())
    return np.asarray(made * (total / made.sum()), dtype=np.float64)


def marginal(tree: Tree, tables: Sequence[Floats], columns: Clique) -> Floats:
    """Return the model's marginal of any columns, by multiplying conditionals along the tree."""
    place = tree.holder(columns)
    if place is not None:
        return summed(tables[place], tree.cliques[place], columns)
    own: Clique = ()
    table = np.full((), tables[0].sum())
    needed = _needed(tree, columns)
    for number, branch in enumerate(needed):
        clique = tree.cliques[branch.clique]
        given = summed(tables[branch.clique], clique, branch.shared)
        chance = tables[branch.clique] / np.where(given > 0, given, 1).reshape(
            spread(given, branch.shared, clique).shape
        )
        over = tuple(sorted({*own, *clique}))
        table = spread(table, own, over) * spread(chance, clique, over)
        later = {column for other in needed[number + 1 :] for column in other.shared}
        own = tuple(column for column in over if column in later or column in columns)
        table = summed(table, over, own)
    return summed(table, own, columns)


def _needed(tree: Tree, columns: Clique) -> list[Branch]:
    """Return the part of the tree that a marginal of these columns needs, roots first.

    These are the edges of cliques that contain the columns or connect such cliques.
    """
    needed: set[int] = set()
    for branch in reversed(tree.branches):
        new = set(tree.cliques[branch.clique]) - set(branch.shared)
        if new & set(columns) or branch.clique in needed:
            needed.add(branch.clique)
            if branch.above is not None:
                needed.add(branch.above)
    return [branch for branch in tree.branches if branch.clique in needed]
