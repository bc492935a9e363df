"""A weighted sum of draws has a reach at every confidence, however rare a miss may be."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from sfumato.dp.confidence.weighted_sum_of_draws import margin_of_weighted_sum
from sfumato.dp.mechanisms.noise import Noise

DRAWS = (Noise("laplace", Fraction(1, 3)), Noise("laplace", Fraction(3)))
WEIGHTS = (0.9938542850253891, 0.006145714974611005)


@pytest.mark.parametrize("rare", [10**3, 960_000, 10**7, 10**12])
def test_a_miss_that_is_rarer_than_the_grid_tells_has_a_reach(rare: int) -> None:
    reach = margin_of_weighted_sum(WEIGHTS, DRAWS, 1 - Fraction(1, rare))
    alone = DRAWS[0].within(1 - Fraction(1, rare)) * WEIGHTS[0]
    assert alone * 0.9 <= reach <= 3 * alone


def test_a_reach_holds_as_often_as_it_says() -> None:
    dice = np.random.default_rng(3)
    total = np.zeros(200_000)
    for weight, draw in zip(WEIGHTS, DRAWS, strict=True):
        stays = 1 - np.exp(-1 / float(draw.parameter))
        total += weight * (dice.geometric(stays, 200_000) - dice.geometric(stays, 200_000))
    for confidence in (Fraction(9, 10), Fraction(99, 100), Fraction(999, 1000)):
        share = np.mean(np.abs(total) <= margin_of_weighted_sum(WEIGHTS, DRAWS, confidence))
        assert share >= float(confidence) - 0.003
