"""What epsilon costs, as the curves say it: the same as the noise has, for every epsilon."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest

from sfumato.client.plot import Plot
from sfumato.dp.refusal import Refused
from sfumato.lab.utility_curves import (
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
    assert [band["name"] for band in bands(plot)] == [name for name, _, _ in REGIONS]


def layers(plot: Plot) -> list[Any]:
    """What is drawn over each other."""
    found: Any = plot.spec["layer"]
    return list(found)


def bands(plot: Plot) -> list[Any]:
    """The regions as they are drawn."""
    found = [layer["data"]["values"] for layer in layers(plot) if "data" in layer]
    return next((rows for rows in found if rows and "tint" in rows[0]), [])


def y_scales(spec: Any) -> set[str]:
    """The kinds of scale that an error is drawn on."""
    texts = json.dumps(spec)
    return {"log" if '"title": "error (each step is a factor of 10)"' in texts else "linear"}


def test_odds_are_never_told_in_more_digits_than_anybody_reads() -> None:
    """They had 33 digits at epsilon 75, and ended in an overflow at 710."""
    plot = error_table(np.random.default_rng(5), [0.1, 1, 10, 13.8, 14, 30, 75, 710, 1000])
    odds = [cells[3].removesuffix(" : 1") for cells in plot.cells]
    assert odds[:4] == ["1.11", "2.72", "22,000", "985,000"]
    assert odds[4:] == ["10^6", "10^13", "10^33", "10^308", "10^434"]
    assert max(map(len, re.findall(r"[\d,.]+", plot.summary))) < 10


def test_regions_and_a_threshold_can_be_set() -> None:
    regions = (("strict", 0.05, 0.5), ("loose", 2.0, 8.0), ("never", 40.0, 50.0))
    plot = utility_curve(
        1000, 0, 200, np.random.default_rng(3), epsilons=(0.2, 4), regions=regions, threshold=0.5
    )
    drawn = [(band["name"], band["from"], band["to"]) for band in bands(plot)]
    assert drawn == [("strict", 0.2, 0.5), ("loose", 2.0, 4.0)]
    assert plot.cells[0][0] == "0.2"
    assert plot.cells[-1][0] == "4"
    found = re.search(r"The mean error is 0.5 or less from epsilon ([\d.]+) on", plot.summary)
    assert found is not None
    assert 0.35 < float(found[1]) < 0.46
    assert "useful up to 0.5" in json.dumps(plot.spec)
    for most, said in ((1e-9, "No epsilon in the range"), (1e9, "from epsilon 0.2 on")):
        plot = utility_curve(
            1000, 0, 200, np.random.default_rng(3), epsilons=(0.2, 4), regions=(), threshold=most
        )
        assert said in plot.summary
        assert bands(plot) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"regions": (("a", 2.0, 1.0),)},
        {"regions": (("a", 0.1, 2.0), ("b", 1.0, 3.0))},
        {"regions": (("a", 0.0, 2.0),)},
        {"threshold": 0.0},
        {"threshold": -1.0},
        {"epsilons": (1.0, 1.0)},
        {"epsilons": (0.0, 1.0)},
        {"points": 1},
    ],
)
def test_what_cannot_be_drawn_is_refused(wrong: Any) -> None:
    with pytest.raises(Refused):
        utility_curve(58, 140, 200, np.random.default_rng(0), **wrong)


def test_errors_that_would_lie_flat_are_drawn_by_powers_of_ten() -> None:
    dice = np.random.default_rng(3)
    assert y_scales(utility_curve(1000, 0, 200, dice).spec) == {"log"}
    assert y_scales(utility_curve(1000, 0, 200, dice, epsilons=(1, 5)).spec) == {"linear"}
    plot = error_table(dice)  # at large epsilons a count has no error, which has no logarithm
    assert y_scales(plot.spec) == {"log"}
    rows = layers(plot)[-1]["data"]["values"]
    assert all(row["mean"] > 0 and row["within"] > 0 for row in rows)
    assert "too small to draw" in json.dumps(plot.spec["title"])
    assert len(error_table(dice, [1.0]).cells) == len(error_table(dice, [50.0]).cells) == 1


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2, 50])
def test_whole_numbers_are_drawn_as_bars_and_not_as_a_curve(epsilon: float) -> None:
    """A spline through 117, 118, 119 shows releases of 118.5, which there are none of."""
    plot = repeated_trials(120, epsilon, np.random.default_rng(4))
    assert "interpolate" not in json.dumps(plot.spec)
    bars, _ = layers(plot)
    assert bars["mark"]["type"] == "bar"
    assert sum(row["times"] for row in bars["data"]["values"]) == 1000
    assert all(row["to"] - row["from"] > 0 for row in bars["data"]["values"])
    if epsilon == 0.01:
        assert " to " in plot.cells[0][0]  # a bar of several numbers says so
    else:
        widths = {round(row["to"] - row["from"], 6) for row in bars["data"]["values"]}
        assert widths == {0.9}


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
