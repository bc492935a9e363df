"""What epsilon costs, as the curves say it: the same as the noise has, for every epsilon."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from sfumato.core.refusal import Refused
from sfumato.lab.curves import (
    EPSILONS,
    REGIONS,
    error_table,
    errors,
    repeated_trials,
    utility_curve,
)


def test_the_error_of_a_sum_is_its_sensitivity_over_epsilon() -> None:
    """Of a sum of a million fine steps, whose noise is as good as continuous."""
    found = errors(EPSILONS, np.random.default_rng(1), sensitivity=10**6, trials=20_000)
    for one in found:
        scale = 10**6 / one.epsilon
        assert abs(one.mean / scale - 1) < 0.05
        assert abs(one.within / (math.log(20) * scale) - 1) < 0.06
        assert one.odds == math.exp(one.epsilon)


def test_the_errors_of_counts_are_of_whole_people() -> None:
    (one,) = errors([1.0], np.random.default_rng(2), trials=100_000)
    ratio = math.exp(-1)
    mean = 2 * ratio / (1 - ratio**2)
    assert abs(one.mean - mean) < 0.02
    assert one.within == 3


def test_the_curve_is_of_a_mean_and_falls_as_one_over_epsilon() -> None:
    plot = utility_curve(58, 140, 200, np.random.default_rng(3))
    means = [float(cells[1].replace(",", "")) for cells in plot.cells]
    at = [float(cells[0]) for cells in plot.cells]
    assert (at[0], at[-1]) == (0.1, 30.0)
    for epsilon, mean in zip(at, means, strict=True):
        assert abs(mean * epsilon / (60 / 58) - 1) < 0.06
    drawn = json.dumps(plot.spec)
    assert all(name in drawn for name, _, _ in REGIONS)


def test_no_mean_of_nobody() -> None:
    for people, low, high in ((0, 1, 2), (5, 2, 2)):
        with pytest.raises(Refused):
            utility_curve(people, low, high, np.random.default_rng(0))


def test_repeated_trials_lie_around_the_truth() -> None:
    plot = repeated_trials(120, 0.5, np.random.default_rng(4), trials=5000)
    values = [int(cells[0].replace(",", "")) for cells in plot.cells]
    times = [int(cells[1].replace(",", "")) for cells in plot.cells]
    assert sum(times) == 5000
    assert abs(np.average(values, weights=times) - 120) < 0.3
    wide = repeated_trials(120, 0.001, np.random.default_rng(4), trials=5000)
    assert len(wide.cells) <= 61


def test_a_table_has_a_line_for_each_epsilon() -> None:
    plot = error_table(np.random.default_rng(5))
    assert [cells[0] for cells in plot.cells] == [f"{one:g}" for one in EPSILONS]
    assert plot.cells[3][3] == "2.72 : 1"
