"""Leave-one-out means give everybody away, and a private mean does not."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato.lab.attacks.leave_one_out import (
    Guessed,
    Rebuilt,
    attack_broken_release,
    attack_private_mean,
    distances_from_mean,
    guess_from_private_mean,
    judge_rebuilt,
    rebuild,
)
from sfumato.lab.broken.leave_one_out_shared_noise import broken_release, broken_releases
from sfumato.lab.sample_data import HEIGHT_BOUNDS, HEIGHTS, read_numbers

PARTICIPANTS = Path(__file__).parents[4] / "shared" / "data" / "participants.tsv"
needs_participants = pytest.mark.skipif(
    not PARTICIPANTS.exists(), reason="../shared/data/participants.tsv is absent"
)
FILES = [HEIGHTS, pytest.param(PARTICIPANTS, marks=needs_participants)]
RUNS = 1000


def dice() -> np.random.Generator:
    return np.random.default_rng(20261121)


def private_means(
    values: list[float], *, epsilon: float, bounds: tuple[float, float], runs: int
) -> NDArray[np.float64]:
    """Return means of clamped values with Laplace noise, n public; for these tests alone."""
    scale = (bounds[1] - bounds[0]) / (len(values) * epsilon)
    truth = float(np.clip(np.array(values), *bounds).mean())
    return truth + dice().laplace(0, scale, size=runs)


def expected_error(value: float, *, epsilon: float, bounds: tuple[float, float]) -> float:
    """Return E|clamp(x + Laplace(s)) - x| with s = (upper - lower)/epsilon, for x within bounds."""
    scale = (bounds[1] - bounds[0]) / epsilon
    down, up = value - bounds[0], bounds[1] - value
    return scale / 2 * (2 - math.exp(-down / scale) - math.exp(-up / scale))


@pytest.mark.parametrize("path", FILES)
def test_everyone_is_rebuilt_exactly_by_who_knows_one_person(path: Path) -> None:
    heights = read_numbers(path, "Height")
    guesses = rebuild(broken_releases(heights, dice(), runs=RUNS), {0: heights[0]})
    assert guesses.shape == (RUNS, 58)
    np.testing.assert_allclose(guesses, np.tile(heights, (RUNS, 1)), rtol=0, atol=1e-9)


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("error", [58, 1.65])
def test_the_entry_errors_are_found_first(path: Path, error: float) -> None:
    heights = read_numbers(path, "Height")
    guesses = rebuild(broken_release(heights, dice()), {0: heights[0]})
    assert guesses[heights.index(error)] == pytest.approx(error, abs=1e-9)


@pytest.mark.parametrize("known", [0, 7, 57])
def test_any_one_person_is_enough(known: int) -> None:
    finding = attack_broken_release(read_numbers(HEIGHTS, "Height"), dice(), known=[known])
    assert (finding.is_exact, finding.people, finding.runs) == (True, 57, RUNS)


def test_one_wrong_belief_among_three_does_no_harm() -> None:
    values = [160.0, 170.0, 180.0, 190.0]
    guesses = rebuild(broken_release(values, dice()), {0: 160.0, 1: 170.0, 2: 999.0})
    assert guesses == pytest.approx(values, abs=1e-9)


def test_distances_between_people_need_no_known_person_at_all() -> None:
    values = [160.0, 171.0, 182.5]
    distances = distances_from_mean(broken_releases(values, dice(), runs=2))
    from_mean = np.array(values) - np.mean(values)
    np.testing.assert_allclose(distances, [from_mean, from_mean], rtol=0, atol=1e-9)


def test_without_a_known_person_the_attacker_is_told_what_is_missing() -> None:
    with pytest.raises(ValueError, match="at least one known person"):
        rebuild([1.0, 2.0], {})


def test_own_noise_on_every_mean_stops_this_attack() -> None:
    heights = read_numbers(HEIGHTS, "Height")
    released = np.array(broken_release(heights, dice()))
    guesses = rebuild(released + dice().laplace(0, 0.5, size=len(heights)), {0: heights[0]})
    assert np.median(np.abs(guesses - heights)) > 10


@pytest.mark.parametrize("bounds", [HEIGHT_BOUNDS, (100.0, 220.0)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_against_a_private_mean_the_error_is_what_theory_says(
    epsilon: float, bounds: tuple[float, float]
) -> None:
    values = [max(bounds[0], x) for x in read_numbers(HEIGHTS, "Height")]
    released = private_means(values, epsilon=epsilon, bounds=bounds, runs=20_000)
    errors = np.abs(guess_from_private_mean(released, values, bounds=bounds) - values).mean(axis=0)
    theory = [expected_error(x, epsilon=epsilon, bounds=bounds) for x in values]
    np.testing.assert_allclose(errors, theory, rtol=0.05)


@pytest.mark.parametrize("path", FILES)
def test_at_epsilon_one_the_private_mean_is_worth_less_than_the_middle_of_the_range(
    path: Path,
) -> None:
    heights = read_numbers(path, "Height")
    released = private_means(heights, epsilon=1, bounds=HEIGHT_BOUNDS, runs=RUNS)
    finding = attack_private_mean(released, heights, bounds=HEIGHT_BOUNDS)
    assert finding.median_error > 3 * finding.midpoint_error
    assert not finding.has_helped


def test_even_without_noise_the_entry_errors_stay_hidden_behind_the_bounds() -> None:
    heights = read_numbers(HEIGHTS, "Height")
    no_noise = np.clip(heights, *HEIGHT_BOUNDS).mean()
    guesses = guess_from_private_mean(no_noise, heights, bounds=HEIGHT_BOUNDS)
    assert [guesses[heights.index(x)] for x in (58, 1.65)] == pytest.approx([140, 140])


def test_with_a_huge_epsilon_the_same_attacker_wins() -> None:
    heights = read_numbers(HEIGHTS, "Height")
    released = private_means(heights, epsilon=1000, bounds=HEIGHT_BOUNDS, runs=RUNS)
    finding = attack_private_mean(released, heights, bounds=HEIGHT_BOUNDS)
    assert finding.has_helped
    assert finding.median_error < 0.1


def test_from_an_exact_mean_who_knows_the_others_reads_the_last_value() -> None:
    values = [150.0, 160.0, 199.0]
    guesses = guess_from_private_mean(np.mean(values), values, bounds=HEIGHT_BOUNDS)
    assert guesses == pytest.approx(values)


def test_the_errors_are_those_of_everyone_but_the_known() -> None:
    finding = Rebuilt(runs=1, known=1, people=2, max_error=4.0, median_error=3.0)
    guesses = np.array([[10.0, 18.0, 34.0]])
    assert judge_rebuilt(guesses, [10.0, 20.0, 30.0], known=[0]) == finding


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (
            Rebuilt(runs=1000, known=1, people=57, max_error=3.2e-12, median_error=1e-13),
            "An attacker who knows one person reconstructed the other 57 exactly, "
            "in each of 1,000 releases (largest error 3e-12).",
        ),
        (
            Rebuilt(runs=1, known=2, people=56, max_error=40.0, median_error=12.34),
            "An attacker who knows 2 people reconstructed the other 56 with a median error of 12.3 "
            "(largest 40), in one release.",
        ),
    ],
)
def test_a_rebuilding_is_told_in_plain_words(finding: Rebuilt, words: str) -> None:
    assert finding.finding == words


@pytest.mark.parametrize(
    ("runs", "error", "verdict"),
    [
        (1000, 25.0, "The release did not help."),
        (1, 6.0, "The release did not help."),
        (
            1,
            1.0,
            "In this one draw the noise was small by chance, and the attacker cannot know that.",
        ),
        (1000, 1.0, "The release helped: its epsilon is large."),
    ],
)
def test_a_guessing_is_told_in_plain_words(runs: int, error: float, verdict: str) -> None:
    guessed = Guessed(
        runs=runs,
        people=58,
        max_error=60.0,
        median_error=error,
        midpoint=170.0,
        midpoint_error=6.0,
    )
    assert guessed.finding.endswith(f"has a median error of 6. {verdict}")
