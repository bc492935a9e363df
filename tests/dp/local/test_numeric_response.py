"""Numbers: a mean with an interval, silence and all; the window, the ends and both."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato.dp.local.duchi import Duchi
from sfumato.dp.local.hybrid_mechanism import Hybrid
from sfumato.dp.local.mean_estimation import (
    Mean,
    NumberTally,
    estimate_mean,
    randomise_numbers,
    simulate_numbers,
    tally_numbers,
)
from sfumato.dp.local.numeric_response import Numbers, variance, worst_variance
from sfumato.dp.local.piecewise_mechanism import Piecewise
from sfumato.dp.local.randomiser_choice import best_numbers
from sfumato.dp.local.randomiser_registry import numbers_of
from sfumato.dp.refusal import Bug, Refused
from support.seeded_dice import CountingDice, SeededDice

Integers = NDArray[np.int64]
STEPS, PEOPLE = 100, 2000
KINDS: tuple[Any, ...] = (Duchi, Piecewise, Hybrid)
ALL: tuple[Numbers, ...] = tuple(
    kind.within(STEPS, epsilon) for epsilon in (Fraction(1), Fraction(3)) for kind in KINDS
)


def named(one: Any) -> str:
    return str(one.parameters).replace("'", "")


def people_of(count: int, seed: int, silent: float = 0.2) -> Integers:
    generator = np.random.default_rng(seed)
    steps = generator.binomial(STEPS, 0.3, count)
    return np.where(generator.random(count) < silent, STEPS + 1, steps)


TRUE = 0.3 * STEPS  # the mean of whoever gives a number


def surveys(one: Numbers, repeats: int, people: int = PEOPLE) -> list[Mean]:
    """Estimates of many surveys, said in one go."""
    values = people_of(people * repeats, 1)
    reports = randomise_numbers(one, values, SeededDice(2))
    parts = reports.reshape(repeats, people, one.width)
    return [estimate_mean(NumberTally(one, people, one.counts(part))) for part in parts]


@pytest.mark.parametrize("one", ALL, ids=named)
def test_the_mean_and_who_gave_a_number_are_right_on_average(one: Numbers) -> None:
    found = surveys(one, 200, 5000)
    for said, true in (([f.mean for f in found], TRUE), ([f.response_rate for f in found], 0.8)):
        error = np.std(said) / np.sqrt(len(said))
        assert abs(np.mean(said) - true) < 4.5 * error
    spread = float(np.std([f.mean for f in found]))
    assert np.median([f.std for f in found]) == pytest.approx(spread, rel=0.2)


@pytest.mark.parametrize("one", ALL, ids=named)
def test_the_squared_error_of_a_number_is_that_of_the_formula(one: Numbers) -> None:
    repeats, people, step = 21_000, 40, STEPS
    reports = randomise_numbers(one, np.full(repeats * people, step), SeededDice(3))
    errors = linear_errors(one, reports.reshape(repeats, people, one.width), step)
    theory = float(variance(one, step)) / people
    assert np.mean(errors**2) / theory == pytest.approx(1, abs=0.05)
    assert abs(errors.mean()) < 4.5 * np.sqrt(theory / repeats)


def linear_errors(one: Numbers, parts: Any, step: int) -> NDArray[np.float64]:
    """What surveys say of the sum, less the step times what they say of who gave a number."""
    from sfumato.dp.local.mean_estimation import _moments

    sums = [_moments(NumberTally(one, len(part), one.counts(part)))[0] for part in parts]
    return np.array([(total - step * gave) / parts.shape[1] for total, gave in sums])


@pytest.mark.slow
@pytest.mark.parametrize("people", [2000])
@pytest.mark.parametrize("one", ALL, ids=named)
def test_the_interval_holds_in_twenty_thousand_surveys(one: Numbers, people: int) -> None:
    held = [f.low <= TRUE <= f.high for f in many(one, people)]
    share = float(np.mean(held))
    assert len(held) == 20_000
    assert 0.942 <= share <= 0.958, share


def many(one: Numbers, people: int) -> list[Mean]:
    found: list[Mean] = []
    each, dice = 2_000_000 // people, SeededDice(5)
    while len(found) < 20_000:
        reports = randomise_numbers(one, people_of(people * each, len(found)), dice)
        parts = reports.reshape(each, people, one.width)
        found += [estimate_mean(NumberTally(one, people, one.counts(part))) for part in parts]
    return found[:20_000]


@pytest.mark.parametrize("one", ALL, ids=named)
def test_where_nobody_gives_a_number_the_interval_says_nothing(one: Numbers) -> None:
    found = estimate_mean(simulate_numbers(one, np.full(5000, STEPS + 1), SeededDice(4)))
    assert (found.low, found.high) == (0, STEPS)
    assert abs(found.response_rate) < 4.5 * found.gave_std


@pytest.mark.parametrize("one", ALL, ids=named)
def test_the_same_words_are_drawn_for_a_number_and_for_silence(one: Numbers) -> None:
    dice = [CountingDice(1), CountingDice(1)]
    randomise_numbers(one, np.zeros(50, dtype=np.int64), dice[0])
    randomise_numbers(one, np.full(50, STEPS + 1), dice[1])
    assert dice[0].given == dice[1].given == 200 * one.words_per_report


@pytest.mark.parametrize("one", ALL, ids=named)
def test_reports_are_valid_add_up_and_lead_back(one: Numbers) -> None:
    reports = randomise_numbers(one, people_of(3000, 6), SeededDice(7))
    assert reports.shape == (3000, one.width)
    parts = [tally_numbers(one, part) for part in np.array_split(reports, 5)]
    whole = parts[0] + parts[1] + parts[2] + parts[3] + parts[4]
    assert whole.counts.tolist() == tally_numbers(one, reports).counts.tolist()
    assert numbers_of(one.parameters) == one


@pytest.mark.parametrize("one", ALL, ids=named)
def test_a_report_that_nobody_makes_is_refused(one: Numbers) -> None:
    with pytest.raises(Refused, match="this randomiser never gives"):
        tally_numbers(one, np.full((1, one.width), 255, dtype=np.uint8))
    with pytest.raises(Refused, match="this randomiser never gives"):
        tally_numbers(one, np.zeros((1, one.width + 1), dtype=np.uint8))


@pytest.mark.parametrize("step", [-1, STEPS + 2])
def test_a_step_outside_of_the_grid_is_refused(step: int) -> None:
    with pytest.raises(Refused, match="The number of a grid step"):
        randomise_numbers(ALL[0], np.array([step]), SeededDice(1))


def test_tallies_of_other_parameters_are_not_added() -> None:
    one, other = (simulate_numbers(o, np.zeros(9, int), SeededDice(1)) for o in ALL[:2])
    with pytest.raises(Bug):
        one + other


def test_the_ends_win_at_small_epsilons_and_windows_at_large_ones() -> None:
    kinds = [type(best_numbers(1000, Fraction(eps))).__name__ for eps in ("1/4", "4")]
    assert kinds[0] in {"Duchi", "Hybrid"}
    assert kinds[1] in {"Piecewise", "Hybrid"}
    worst = {kind: worst_variance(kind.within(1000, Fraction(4))) for kind in KINDS}
    assert worst[Piecewise] < worst[Duchi] / 2
    assert worst[Hybrid] <= worst[Piecewise]


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_chances_that_are_off_by_a_tenth_would_be_seen(factor: float) -> None:
    honest = Piecewise.within(STEPS, Fraction(1))
    other = Piecewise(STEPS, honest.window, int(honest.truth * factor))
    made = simulate_numbers(other, np.full(300_000, STEPS), SeededDice(8))
    read = estimate_mean(NumberTally(honest, made.people, made.counts))
    assert abs(read.response_rate - 1) > 4.5 * read.gave_std


def test_a_tally_refuses_what_would_not_fit_and_never_wraps() -> None:
    """The sum of squares has 63 bits: of half a million steps, that is some millions of people."""
    fine, coarse = Piecewise(1 << 19, 1 << 19, 1 << 31), Piecewise(1000, 300, 1 << 31)
    sums = np.array([[1 << 22, 0, (1 << 42) - (1 << 22), (1 << 62) - (1 << 43) + (1 << 22)]])
    half = NumberTally(fine, 1 << 22, sums)  # all at the last place
    with pytest.raises(Refused) as refused:
        _ = half + half
    assert refused.value.code == "bad-request"
    everybody = NumberTally(coarse, 9 * 10**9, np.zeros((1, 4), dtype=np.int64))
    assert (everybody + everybody).people == 18 * 10**9
