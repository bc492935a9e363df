"""Fit the maximum-entropy model closest to noisy marginals, by mirror descent on a junction tree.

The loss is half the sum of squares of (model - measured) / std. Its gradient with respect to a
marginal is the residual over std^2. Each step subtracts scaled gradients from the log-potentials,
and recomputes the marginals by belief propagation. A step that gains less than half the predicted
gain is halved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sfumato.features.synthetic.junction_tree import (
    Clique,
    Floats,
    Tree,
    marginal,
    marginals,
    spread,
    summed,
    tree_of,
)

STEPS: Final = 400  # the most steps of the descent
ENOUGH: Final = 1e-5  # a step with a smaller relative gain counts as no progress
QUIET: Final = 5


@dataclass(frozen=True, eq=False)
class Measured:
    """Noisy counts over some columns, one axis per column, and the std of each count's noise."""

    columns: Clique
    counts: Floats
    std: float


@dataclass(frozen=True, eq=False)
class Model:
    """The fitted maximum-entropy model: a junction tree with log-potentials and marginals."""

    tree: Tree
    logs: tuple[Floats, ...]
    tables: tuple[Floats, ...]
    total: float

    def marginal(self, columns: Clique) -> Floats:
        """Return the model's expected counts over any columns, measured together or not."""
        return marginal(self.tree, self.tables, columns)


def total_of(measured: Sequence[Measured]) -> float:
    """Estimate the number of rows from all noisy counts, weighted by inverse variance."""
    weights = [1 / (one.std**2 * one.counts.size) for one in measured]
    sums = [float(one.counts.sum()) for one in measured]
    return max(1.0, math.fsum(w * s for w, s in zip(weights, sums, strict=True)) / sum(weights))


def total_std_of(measured: Sequence[Measured]) -> float:
    """Return the standard deviation of the noise in the number of rows from `total_of`."""
    return 1 / math.sqrt(math.fsum(1 / (one.std**2 * one.counts.size) for one in measured))


def fit_model(
    sizes: Sequence[int],
    measured: Sequence[Measured],
    total: float,
    before: Model | None = None,
    steps: int = STEPS,
) -> Model:
    """Fit the maximum-entropy model to noisy marginals; `before` is a model to start from."""
    tree = tree_of(sizes, [one.columns for one in measured])
    logs = _begun(tree, measured, total) if before is None else _again(tree, before)
    held = _held(tree, measured)
    tables = marginals(tree, logs, total)
    loss, slopes = _loss(tree, tables, held)
    rate, quiet = 2.0 / max(total, 1.0) / _sharpest(measured), 0
    for _ in range(steps):
        made, gain = _stepped(tree, (logs, tables, loss, slopes), held, rate, total)
        if made is None:
            rate /= 4
            quiet += 1
            if quiet > QUIET:
                break
            continue
        logs, tables, loss, slopes, rate = made
        quiet = quiet + 1 if gain < ENOUGH * max(loss, 1e-9) else 0
        if quiet > QUIET:
            break
    return Model(tree, tuple(logs), tuple(tables), total)


_Held = list[tuple[int, Measured]]
_State = tuple[list[Floats], list[Floats], float, list[Floats]]
_Made = tuple[list[Floats], list[Floats], float, list[Floats], float]


def _sharpest(measured: Sequence[Measured]) -> float:
    return max(1 / one.std**2 for one in measured)


def _held(tree: Tree, measured: Sequence[Measured]) -> _Held:
    places = [(tree.holder(one.columns), one) for one in measured]
    return [(place, one) for place, one in places if place is not None]


def _stepped(
    tree: Tree, state: _State, held: _Held, rate: float, total: float
) -> tuple[_Made | None, float]:
    """Take one mirror descent step; return the new state, and how much the loss fell.

    A step that gains too little is halved and tried again. The state includes a step size half as
    long again for the next step. If no step gains enough, the state is None.
    """
    logs, tables, loss, slopes = state
    for _ in range(25):
        tried = [log - rate * slope for log, slope in zip(logs, slopes, strict=True)]
        moved = marginals(tree, tried, total)
        now, steep = _loss(tree, moved, held)
        promised = sum(
            float((slope * (old - new)).sum())
            for slope, old, new in zip(slopes, tables, moved, strict=True)
        )
        if loss - now >= 0.5 * promised and now <= loss:
            return (tried, moved, now, steep, rate * 1.5), loss - now
        rate /= 2
    return None, 0.0


def _loss(tree: Tree, tables: Sequence[Floats], held: _Held) -> tuple[float, list[Floats]]:
    loss = 0.0
    slopes = [np.zeros(table.shape) for table in tables]
    for place, one in held:
        clique = tree.cliques[place]
        rest = summed(tables[place], clique, one.columns) - one.counts
        loss += float((rest**2).sum()) / (2 * one.std**2)
        slopes[place] += spread(rest / one.std**2, one.columns, clique)
    return loss, slopes


def _begun(tree: Tree, measured: Sequence[Measured], total: float) -> list[Floats]:
    """Return the log-potentials (logs of the cliques' arrays) from which a fit begins.

    For a measured clique, it is the log of its clamped counts, given the columns that it shares
    with its parent; for others, zero.
    """
    logs = [np.zeros(tree.shape(clique)) for clique in tree.cliques]
    of = {one.columns: one for one in measured}
    for branch in tree.branches:
        clique = tree.cliques[branch.clique]
        one = of.get(clique)
        if one is None:
            continue
        table = np.maximum(one.counts, one.std / 4) + total * 1e-6 / one.counts.size
        given = summed(table, clique, branch.shared)
        logs[branch.clique] = np.log(table) - np.log(spread(given, branch.shared, clique))
    return logs


def _again(tree: Tree, before: Model) -> list[Floats]:
    """Return the log-potentials of an earlier model on the new tree, from which a fit begins."""
    logs = [np.zeros(tree.shape(clique)) for clique in tree.cliques]
    for clique, log in zip(before.tree.cliques, before.logs, strict=True):
        place = tree.holder(clique)
        if place is not None:
            logs[place] = logs[place] + spread(log, clique, tree.cliques[place])
    return logs
