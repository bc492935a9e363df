"""What each method measures, spends and gets right, on synthetic rows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bench.twins import SIZES, InMemory, adult_like, errors
from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.features.synthetic.junction_tree import Clique, Floats
from sfumato.features.synthetic.marginal_selection import METHODS, FittedTwin, independent
from sfumato.features.synthetic.measurement_port import Merged, regrouped, unmerged
from sfumato.features.synthetic.seeded_numbers import Seeded

RHO = rho_within(Fraction(1), Fraction(1, 10**9))
ROWS = 30_000


def made(method: str, seed: int = 1, rho: Fraction = RHO) -> tuple[InMemory, FittedTwin]:
    device = InMemory(adult_like(seed, ROWS), SIZES, rho)
    return device, METHODS[method](device)


@pytest.fixture(scope="module")
def found() -> dict[str, tuple[InMemory, FittedTwin, list[float]]]:
    """Return each method's twin of the same rows, and the errors of 1, 2 and 3 columns."""
    every = {}
    for method in METHODS:
        device, one = made(method)
        every[method] = (device, one, errors(device.codes, one.draw(ROWS, Seeded("s"))))
    return every


def test_no_method_spends_more_than_its_price(
    found: dict[str, tuple[InMemory, FittedTwin, list[float]]],
) -> None:
    for device, _, _ in found.values():
        assert Fraction(99, 100) <= device.spent <= 1


def test_a_tree_beats_independence_and_adapting_beats_a_tree(
    found: dict[str, tuple[InMemory, FittedTwin, list[float]]],
) -> None:
    alone, tree, adaptive = (found[name][2] for name in ("independent", "mst", "aim"))
    assert tree[1] < 0.6 * alone[1]
    assert tree[2] < 0.6 * alone[2]
    assert adaptive[2] < 0.9 * tree[2]
    assert all(errors[0] < 0.01 for errors in (alone, tree, adaptive))


def test_the_tree_joins_every_column(
    found: dict[str, tuple[InMemory, FittedTwin, list[float]]],
) -> None:
    pairs = [columns for columns in found["mst"][1].marginals if len(columns) == 2]
    assert len(pairs) == len(SIZES) - 1
    assert {column for pair in pairs for column in pair} == set(range(len(SIZES)))


def test_more_budget_gives_less_error() -> None:
    worse, better = (
        errors(device.codes, one.draw(ROWS, Seeded("s")))[1]
        for device, one in (made("mst", rho=RHO / 100), made("mst", rho=RHO))
    )
    assert better < worse


def test_categories_that_noise_drowns_are_counted_together_in_pairs() -> None:
    _, one = made("mst", rho=RHO / 20)
    assert any(max(groups) + 1 < len(groups) for groups in one.merged)
    drawn = one.draw(ROWS, Seeded("s"))
    assert drawn.min() >= 0
    assert (drawn.max(axis=0) < SIZES).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("columns", [1, 2, 3])
def test_every_method_makes_a_twin_of_few_columns(method: str, columns: int) -> None:
    codes = adult_like(2, 3000)[:, 2 : 2 + columns]
    device = InMemory(codes, SIZES[2 : 2 + columns], RHO)
    assert METHODS[method](device).draw(500, Seeded("s")).shape == (500, columns)
    assert device.spent == 1


def test_groups_add_up_to_their_members() -> None:
    counts = np.array([5.0, 1.0, 7.0, 2.0])
    assert regrouped(counts, (0, 2, 1, 2)).tolist() == [5.0, 7.0, 3.0]


class Dull:
    """A device that counts nothing but noise: no person has any row."""

    sizes = (3, 2)

    def std(self, share: Fraction) -> float:
        return 10.0

    def count(self, columns: Clique, merged: Merged, share: Fraction) -> Floats:
        return np.full([max(merged[c]) + 1 for c in columns], -4.0)

    def choose(self, choice: object, share: Fraction) -> tuple[int, ...]:
        return (0,)


@pytest.mark.parametrize("method", METHODS)
def test_a_twin_of_nobody_is_small_and_breaks_nothing(method: str) -> None:
    one = METHODS[method](Dull())
    assert one.model.total == 1
    assert one.draw(None, Seeded("s")).shape == (1, 2)


def test_what_is_drawn_does_not_hang_on_the_order_of_a_columns_categories() -> None:
    """A column of its own is drawn in its noisy shares, drowned categories too."""
    codes = adult_like(3, ROWS)
    device = InMemory(codes, SIZES, RHO)
    drawn = independent(device).draw(ROWS, Seeded("s"))
    for column, size in enumerate(SIZES):
        real, ours = (np.bincount(t[:, column], minlength=size) / ROWS for t in (codes, drawn))
        assert np.abs(real - ours).max() < 0.01
    assert unmerged((2, 3)) == ((0, 1), (0, 1, 2))
