"""Permanent answers: the same for ever, and no wave tells more than they do."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.likelihood_ratio import epsilon_of, worst_ratio
from sfumato.dp.local.permanent_response import Device, PermanentResponse, PrivacyLoss, lifetime
from sfumato.dp.local.random_words import PARTS
from sfumato.dp.refusal import Bug, Refused
from support.seeded_dice import SeededDice

DEVICE = Device(bytes(range(32)))
WAVES = PermanentResponse.within(5, ever=Fraction(2), wave=Fraction(1))


def test_the_words_of_a_value_are_the_same_for_ever() -> None:
    """Golden: a device that was written in another language gets these as well."""
    assert DEVICE.words("survey-1", "Möchten Sie?", 3, 10) == GOLDEN
    assert DEVICE.words("survey-1", "Möchten Sie?", 3, 2) == GOLDEN[:2]


GOLDEN = [
    728449213,
    950198642,
    715894778,
    1232562294,
    4086889531,
    83680885,
    964213821,
    2895932964,
    2051616124,
    2489137034,
]


def test_other_surveys_questions_values_and_devices_have_other_words() -> None:
    said = {
        tuple(device.words(survey, question, value, 4))
        for device in (DEVICE, Device(bytes(32)))
        for survey, question, value in product(("a", "b"), ("a", "b"), (0, 1))
    }
    assert len(said) == 16


def test_the_permanent_answer_has_the_chances_of_its_response() -> None:
    response = KAry.within(3, Fraction(1))
    devices = [Device(SeededDice(seed).draw(32)) for seed in range(4000)]
    said = [device.permanent_answer(response, "s", "q", 1) for device in devices]
    seen = np.bincount(said, minlength=3) / len(said)
    expected = [float(response.law[1][answer]) for answer in range(3)]
    assert seen == pytest.approx(expected, abs=4.5 * 0.5 / math.sqrt(4000))
    assert said == [device.permanent_answer(response, "s", "q", 1) for device in devices]


def test_a_device_does_not_print_its_secret_and_wants_a_whole_one() -> None:
    assert "0" not in repr(DEVICE)
    with pytest.raises(Bug):
        Device(b"short")


def test_a_wave_and_all_waves_are_within_their_prices() -> None:
    assert WAVES.epsilon <= 1
    assert WAVES.epsilon_ever <= 2
    assert worst_ratio(WAVES.law) == WAVES.ratio
    bolder = PermanentResponse(WAVES.permanent, KAry(5, WAVES.momentary.truth + 64))
    assert bolder.epsilon > 1


@pytest.mark.parametrize("waves", [1, 2, 3, 4])
def test_many_waves_stay_within_the_permanent_price(waves: int) -> None:
    response = PermanentResponse.within(3, ever=Fraction(1), wave=Fraction(4, 5))
    assert epsilon_of(ratio_of_waves(response, waves)) <= response.epsilon_ever


def test_the_sum_of_the_prices_of_waves_is_no_bound() -> None:
    response = PermanentResponse(KAry(200, PARTS // 2), KAry(200, PARTS // 20))
    two = epsilon_of(ratio_of_waves(response, 2, answers=(0,)))
    assert two > 2 * response.epsilon


def ratio_of_waves(
    response: PermanentResponse, waves: int, answers: tuple[int, ...] = (0, 1, 2)
) -> Fraction:
    """The largest ratio of so many waves of the answers 0 and 1, by the whole law."""
    kept, said = response.permanent.law, response.momentary.law
    worst = Fraction(1)
    for seen in product(answers, repeat=waves):
        chances = [
            sum(
                (chance * math.prod((said[b][one] for one in seen), start=Fraction(1))
                 for b, chance in kept[truth].items()),
                Fraction(0),
            )
            for truth in (0, 1)
        ]  # fmt: skip
        worst = max(worst, chances[0] / chances[1], chances[1] / chances[0])
    return worst


def test_a_lifetime_is_the_sum_over_questions_and_values() -> None:
    once = PrivacyLoss(WAVES, frozenset({1}), 40)
    changed = PrivacyLoss(WAVES, frozenset({1, 2}), 40)
    assert once.epsilon == WAVES.epsilon_ever
    assert changed.epsilon == 2 * WAVES.epsilon_ever
    assert once.epsilon_of_changes == 40 * WAVES.momentary.epsilon
    assert lifetime({"a": once, "b": changed}) == 3 * WAVES.epsilon_ever


def test_a_wave_that_costs_as_much_as_all_of_them_is_refused() -> None:
    with pytest.raises(Refused, match="below the lifetime epsilon"):
        PermanentResponse.within(3, ever=Fraction(1), wave=Fraction(1))
    with pytest.raises(Refused, match="so small that no randomiser"):
        PermanentResponse.within(3, ever=Fraction(1), wave=Fraction(1, 10**10))
    with pytest.raises(Bug):
        PermanentResponse(KAry(3, 5), KAry(4, 5))
