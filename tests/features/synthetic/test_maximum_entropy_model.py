"""Belief propagation, the fit and the sampler, each against what can be reckoned by hand."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from sfumato.features.synthetic.junction_tree import (
    Clique,
    Floats,
    marginal,
    marginals,
    spread,
    tree_of,
)
from sfumato.features.synthetic.maximum_entropy_model import Measured, Model, fit_model, total_of
from sfumato.features.synthetic.row_sampling import sample_rows
from sfumato.features.synthetic.seeded_numbers import Integers, Seeded

SIZES = (2, 3, 4, 2, 3)
WANTED: tuple[tuple[Clique, ...], ...] = (
    ((0, 1), (1, 2), (2, 3), (3, 4)),
    ((0, 1), (0, 2), (0, 3), (0, 4)),
    ((0, 1), (1, 2), (0, 2)),
    ((0, 1), (1, 2), (2, 3), (0, 3)),  # a ring: it has to be filled in
    ((0, 1, 2), (3, 4)),
    (),
)


def joint(sizes: tuple[int, ...], cliques: tuple[Clique, ...], logs: list[Floats]) -> Floats:
    """Return the whole table, by multiplying everything out."""
    everything = tuple(range(len(sizes)))
    total = np.zeros(sizes)
    for clique, log in zip(cliques, logs, strict=True):
        total = total + spread(log, clique, everything)
    made = np.exp(total)
    return np.asarray(made / made.sum())


def potentials(shapes: list[tuple[int, ...]], seed: int) -> list[Floats]:
    dice = np.random.default_rng(seed)
    return [dice.normal(size=shape) for shape in shapes]


@pytest.mark.parametrize("wanted", WANTED)
def test_belief_propagation_gives_the_marginals_of_the_whole_table(
    wanted: tuple[Clique, ...],
) -> None:
    tree = tree_of(SIZES, wanted)
    logs = potentials([tree.shape(c) for c in tree.cliques], 3)
    whole = joint(SIZES, tree.cliques, logs) * 500
    tables = marginals(tree, logs, 500)
    for columns in (c for n in (1, 2, 3) for c in combinations(range(5), n)):
        others = tuple(c for c in range(5) if c not in columns)
        assert marginal(tree, tables, columns) == pytest.approx(whole.sum(axis=others), rel=1e-9)


@pytest.mark.parametrize("wanted", WANTED)
def test_every_wanted_clique_lies_within_one_of_the_tree(wanted: tuple[Clique, ...]) -> None:
    tree = tree_of(SIZES, wanted)
    assert all(tree.holder(clique) is not None for clique in wanted)
    for branch in tree.branches:  # what two cliques share lies on the way between them
        if branch.above is not None:
            assert set(branch.shared) <= set(tree.cliques[branch.above])


def rows_of(seed: int, count: int = 4000) -> Integers:
    dice = np.random.default_rng(seed)
    first = dice.integers(3, size=count)
    second = (first + (dice.random(count) < 0.3)) % 3
    third = (second + (dice.random(count) < 0.2)) % 3
    alone = dice.integers(4, size=count)
    return np.stack([first, second, third, alone], axis=1).astype(np.int64)


def counts(rows: Integers, columns: Clique, sizes: tuple[int, ...]) -> Floats:
    shape = tuple(sizes[c] for c in columns)
    flat = np.ravel_multi_index(tuple(rows[:, c] for c in columns), shape)
    return np.bincount(flat, minlength=math.prod(shape)).reshape(shape).astype(np.float64)


THREES = (3, 3, 3, 4)


def test_exact_counts_of_a_tree_are_fitted_exactly() -> None:
    rows = rows_of(1)
    measured = [Measured(c, counts(rows, c, THREES), 1.0) for c in ((0, 1), (1, 2), (3,))]
    model = fit_model(THREES, measured, total_of(measured))
    assert model.total == pytest.approx(4000)
    for one in measured:
        assert model.marginal(one.columns) == pytest.approx(one.counts, abs=2.0)


def test_the_sharper_of_two_counts_weighs_more() -> None:
    sharp = Measured((0,), np.array([100.0, 300.0]), 1.0)
    blurred = Measured((0,), np.array([300.0, 100.0]), 10.0)
    model = fit_model((2,), [sharp, blurred], 400.0)
    expected = (100 * 1 + 300 / 100) / (1 + 1 / 100)
    assert model.marginal((0,))[0] == pytest.approx(expected, abs=0.5)


def test_a_fit_has_no_negative_counts_whatever_the_noise() -> None:
    measured = [Measured((0, 1), np.array([[-50.0, 80.0], [120.0, -9.0]]), 30.0)]
    model = fit_model((2, 2), measured, 150.0)
    assert model.marginal((0, 1)).min() >= 0
    assert model.marginal((0, 1)).sum() == pytest.approx(150)


def test_the_descent_ends_where_the_slope_is_flat() -> None:
    """At the best model within the simplex, no cell that has any weight gains by moving."""
    dice = np.random.default_rng(5)
    rows = rows_of(2)
    measured = [
        Measured(c, counts(rows, c, THREES) + dice.normal(0, 20, (3, 3)), 20.0)
        for c in ((0, 1), (1, 2), (0, 2))
    ]
    model = fit_model(THREES, measured, 4000.0, steps=2000)
    table = model.marginal((0, 1, 2))
    slope = np.zeros((3, 3, 3))
    for one in measured:
        rest = model.marginal(one.columns) - one.counts
        slope += spread(rest / one.std**2, one.columns, (0, 1, 2))
    steep = slope - (slope * table).sum() / table.sum()
    assert float(np.abs(steep[table > 20]).max()) < 0.02
    assert float(steep.min()) > -0.02


# --- the sampler ----------------------------------------------------------------------------------


def chain(seed: int = 1) -> tuple[Model, Integers]:
    rows = rows_of(seed)
    measured = [Measured(c, counts(rows, c, THREES), 1.0) for c in ((0, 1), (1, 2), (3,))]
    return fit_model(THREES, measured, 4000.0), rows


def distance(one: Floats, other: Floats) -> float:
    return float(np.abs(one / one.sum() - other / other.sum()).sum() / 2)


def test_measured_pairs_are_drawn_as_the_model_has_them() -> None:
    model, _ = chain()
    drawn = sample_rows(model, 4000, Seeded("a"))
    for columns in ((0,), (1,), (2,), (3,), (0, 1), (1, 2)):
        assert distance(counts(drawn, columns, THREES), model.marginal(columns)) < 0.012


@pytest.mark.parametrize("pair", [(0, 2), (0, 3), (1, 3), (2, 3)])
def test_pairs_that_nobody_measured_are_drawn_as_the_model_has_them(pair: Clique) -> None:
    """A sampler that deals in order, unshuffled, is right on every measured pair and fails here."""
    model, _ = chain()
    expected = model.marginal(pair)
    for seed in "abc":
        drawn = counts(sample_rows(model, 4000, Seeded(seed)), pair, THREES)
        found = stats.chisquare(drawn.ravel(), expected.ravel() * drawn.sum() / expected.sum())
        assert found.pvalue > 1e-4, (seed, drawn)


def test_rows_come_in_no_order() -> None:
    model, _ = chain()
    drawn = sample_rows(model, 4000, Seeded("a"))
    halves = [counts(drawn[part], (0, 1), THREES) for part in (slice(2000), slice(2000, None))]
    assert distance(*halves) < 0.05
    assert abs(float(np.corrcoef(np.arange(4000), drawn[:, 1])[0, 1])) < 0.06


def test_any_number_of_rows_can_be_drawn_and_a_seed_decides_them() -> None:
    model, _ = chain()
    for count in (0, 1, 7, 100_000):
        assert sample_rows(model, count, Seeded("x")).shape == (count, 4)
    one, again, other = (sample_rows(model, 50, Seeded(s)) for s in ("x", "x", "y"))
    assert (one == again).all()
    assert (one != other).any()
