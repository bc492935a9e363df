"""Copied rows give their people away; rows from a private histogram hardly do."""

from __future__ import annotations

import re

import numpy as np
import pytest

from sfumato.lab.attacks import attack
from sfumato.lab.attacks.synthetic_rows_report import UNSURE, _success
from sfumato.lab.attacks.synthetic_rows_risk import Risk, Tally
from sfumato.lab.column_tables import joined, rows_of, taken
from sfumato.lab.success_rate_bounds import hit_rate_bound, most
from sfumato.lab.synthetic_rows import (
    AGES,
    PUBLIC_SIZE,
    SALARIES,
    cells_of,
    draw_town,
    from_private_histogram,
    noisy_cells,
)


def dice() -> np.random.Generator:
    return np.random.default_rng(3)


def test_the_bound_is_what_the_control_allows_and_not_what_was_found() -> None:
    risk = Risk(main=Tally(190, 200), baseline=Tally(0, 200), control=Tally(2, 200))
    success = _success("rows that leak", 0.1, risk)
    assert success.bound == pytest.approx(hit_rate_bound(0.1, most(2, 200, UNSURE)))
    assert success.is_above_bound(0.999)


def test_one_person_is_one_in_one_cell() -> None:
    town, more = draw_town(100, dice()), draw_town(1, np.random.default_rng(4))
    moved = cells_of(joined(more, town)) - cells_of(town)
    assert sorted(moved.tolist())[-2:] == [0, 1]
    assert moved.sum() == 1


def test_the_histograms_noise_is_that_of_its_epsilon() -> None:
    nobody = taken(draw_town(1, dice()), np.arange(0))
    noise = np.concatenate([noisy_cells(nobody, epsilon=1, dice=dice()) for _ in range(100)])
    # the discrete Laplace of scale 1: sqrt(2a) / (1 - a) with a = 1 / e
    assert noise.std() == pytest.approx(1.357, rel=0.03)


def test_rows_from_the_histogram_are_as_many_as_is_public_and_lie_in_their_cells() -> None:
    town = draw_town(500, dice())
    rows = from_private_histogram(town, epsilon=1000, dice=dice())
    assert rows_of(rows) == PUBLIC_SIZE
    assert set(np.flatnonzero(cells_of(rows))) <= set(np.flatnonzero(cells_of(town)))
    assert rows["age"].min() >= AGES[0]
    assert rows["salary"].max() <= SALARIES[-1]


def test_an_empty_town_still_gives_rows() -> None:
    nobody = taken(draw_town(1, dice()), np.arange(0))
    assert rows_of(from_private_histogram(nobody, epsilon=0.1, dice=dice())) == PUBLIC_SIZE


def test_the_report_finds_every_risk_in_a_copy_and_no_broken_promise_in_ours() -> None:
    found = attack("synthetic").report(runs=30, seed=1, epsilons="0.1,1")
    rates = {one.against: one.rate for one in found.successes}
    assert rates["a copy: linked"] > 0.9
    assert rates["a copy: salary inferred"] > 0.9
    assert rates["epsilon = 0.1: linked"] < 0.2
    notes = {one.against: one.note for one in found.successes}
    without, guessing = re.findall(r"(\d+)%", notes["a copy: linked"])
    assert int(without) < 20
    assert int(guessing) < 20
    assert found.above_bounds() == ()
