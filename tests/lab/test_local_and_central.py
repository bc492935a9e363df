"""Coins beside an owner: both errors are what theory says, and fall as it says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato.dp.refusal import Refused
from sfumato.lab.local_and_central import EPSILON, compare, local_beside_global


def test_both_errors_are_those_of_theory() -> None:
    found = compare(0.7, (200, 2000, 20_000), np.random.default_rng(1), tries=2000)
    ratio = math.exp(-EPSILON)
    noise = 2 * ratio / (1 - ratio**2)  # the mean size of the owner's noise
    for both in found:
        # the truths stand still, so that only the coins are left to chance
        std = math.sqrt(0.25 * 0.75 / both.people) / 0.5
        assert abs(both.local / (std * math.sqrt(2 / math.pi)) - 1) < 0.08
        assert abs(both.trusted / (noise / both.people) - 1) < 0.1


def test_a_survey_of_nobody_is_refused() -> None:
    for share, people in ((1.2, 100), (0.5, 1)):
        with pytest.raises(Refused):
            compare(share, (people,), np.random.default_rng(1))


def test_the_picture_has_a_row_for_each_number_of_people() -> None:
    plot = local_beside_global(np.random.default_rng(2), people=(30, 300))
    assert [cells[0] for cells in plot.cells] == ["30", "300"]
