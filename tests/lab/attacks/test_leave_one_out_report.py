"""Broken means give everybody away; of ours nobody is guessed beyond what epsilon allows."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.dp.mechanisms import laplace
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.attacks import attack
from sfumato.lab.attacks.leave_one_out import rebuild_from_others
from sfumato.lab.attacks.leave_one_out_private import Attacker
from sfumato.lab.attacks.leave_one_out_report import (
    EXACT,
    SHARED,
    STD,
    Values,
    attack_means,
    spread_of_errors,
)
from sfumato.lab.broken.leave_one_out_shared_noise import broken_releases, loo_means
from sfumato.lab.broken.leave_one_out_std_noise import loo_std_releases
from sfumato.lab.sample_data import HEIGHT_BOUNDS, HEIGHTS, read_numbers
from sfumato.lab.success_rate_bounds import hit_rate_bound

PARTICIPANTS = Path(__file__).parents[4] / "shared" / "data" / "participants.tsv"
needs_participants = pytest.mark.skipif(
    not PARTICIPANTS.exists(), reason="../shared/data/participants.tsv is absent"
)
FILES = [HEIGHTS, pytest.param(PARTICIPANTS, marks=needs_participants)]
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
NUMBERS = st.floats(min_value=-1e6, max_value=1e6)


def dice(seed: int = 20261121) -> np.random.Generator:
    return np.random.default_rng(seed)


def heights(path: Path = HEIGHTS) -> Values:
    return Values(tuple(read_numbers(path, "Height")))


def success(report: Report, against: str) -> SuccessRate:
    return next(one for one in report.successes if one.against == against)


def hit_rate(asked: Values, attacker: Attacker, *, runs: int) -> float:
    """Return how many guesses are right, over all people and all runs."""
    values = np.array(asked.values)
    guesses = attacker.guesses(attacker.releases(asked.values, dice(), runs=runs), asked.values)
    return float((np.abs(guesses - values) <= asked.within + 1e-9).mean())


def expected_hit_rate(asked: Values, attacker: Attacker) -> float:
    return float(attacker.chances(asked.values, attacker.steps(asked.values)).mean())


@pytest.mark.parametrize("path", FILES)
def test_the_exact_and_the_notebooks_release_give_everybody_away(path: Path) -> None:
    report = attack_means(heights(path), dice())
    assert [success(report, name).rate for name in (EXACT, SHARED)] == [1.0, 1.0]


@pytest.mark.parametrize("path", FILES)
def test_without_knowing_anybody_all_but_one_shared_constant_is_rebuilt(path: Path) -> None:
    asked = heights(path)
    assert spread_of_errors(broken_releases(asked.values, dice(), runs=1000), asked.values) < 1e-9


def test_with_own_noise_on_every_mean_no_shared_constant_is_left() -> None:
    values = heights().values
    assert spread_of_errors(loo_std_releases(values, dice(), runs=10), values) > 10


@pytest.mark.parametrize("path", FILES)
def test_ours_is_within_the_bound_at_every_epsilon(path: Path) -> None:
    report = attack_means(heights(path), dice(), epsilons=EPSILONS)
    assert [one.epsilon for one in report.successes if one.bound is not None] == list(EPSILONS)
    assert report.above_bounds(0.999) == ()


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_exact_chance_is_above_its_bound(epsilon: float) -> None:
    asked = heights()
    attacker = asked.attacker(epsilon)
    assert expected_hit_rate(asked, attacker) <= attacker.bound(asked.values) + 1e-12


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_the_bound_is_that_of_the_same_attacker_without_the_person(epsilon: float) -> None:
    asked, alone = heights(), (sum(HEIGHT_BOUNDS) / 2,)  # who adds nothing to the sum
    attacker = asked.attacker(epsilon)
    blind = attacker.guesses(attacker.releases(alone, dice(), runs=400_000), alone)
    rates = [(np.abs(blind - one) <= asked.within + 1e-9).mean() for one in asked.values]
    expected = np.mean([hit_rate_bound(epsilon, float(rate)) for rate in rates])
    assert attacker.bound(asked.values) == pytest.approx(expected, rel=0.006)


def test_at_a_small_epsilon_the_guess_is_what_was_believed_before() -> None:
    report = attack_means(heights(), dice(), epsilons=(0.01,))
    (ours_,) = [one for one in report.successes if one.epsilon]
    assert ours_.bound == pytest.approx(report.guessing)


def test_the_entry_errors_stay_hidden_behind_the_bounds_at_any_epsilon() -> None:
    asked = Values((58.0, 1.65), within=20)
    attacker = asked.attacker(1000)
    guesses = attacker.guesses(attacker.releases(asked.values, dice(), runs=10), asked.values)
    assert set(guesses.ravel()) == {HEIGHT_BOUNDS[0]}


def test_at_a_huge_epsilon_the_attacker_reads_the_clamped_value() -> None:
    values = (150.0, 160.0, 199.0)
    attacker = Values(values).attacker(1000)
    guesses = attacker.guesses(attacker.releases(values, dice(), runs=5), values)
    assert np.abs(guesses - values).max() <= 1


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 10.0])
def test_the_attack_is_right_as_often_as_the_noise_allows(epsilon: float) -> None:
    asked = heights()
    attacker = asked.attacker(epsilon)
    expected = expected_hit_rate(asked, attacker)
    assert hit_rate(asked, attacker, runs=20_000) == pytest.approx(expected, rel=0.04)


@pytest.mark.parametrize("epsilon", [3.0, 10.0])
def test_noise_of_half_the_scale_would_be_seen(
    epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = heights()
    attacker = asked.attacker(epsilon)
    expected = expected_hit_rate(asked, attacker)
    monkeypatch.setattr(laplace, "scale_for", lambda s, e: Fraction(s) / e / 2)
    assert hit_rate(asked, attacker, runs=20_000) > expected * 1.04


def test_the_law_of_the_attacker_is_that_of_the_platforms_noise() -> None:
    attacker = Attacker((0.0, 60.0), 2.0, 1.0)
    law = attacker._law(np.arange(-attacker.reach, attacker.reach + 1))
    scale = laplace.scale_for(attacker.reach, Fraction(2))
    within = [1 - float(laplace.tail(scale, t)) for t in (0, 5, attacker.reach - 1)]
    middle = attacker.reach
    inner = [law[middle - t : middle + t + 1].sum() for t in (0, 5, middle - 1)]
    assert law.sum() == pytest.approx(1)
    assert inner == pytest.approx(within)


@pytest.mark.parametrize("shift", [-30, -7, 0, 12, 30])
def test_the_law_sums_to_one_wherever_the_person_stands(shift: int) -> None:
    attacker = Attacker((0.0, 60.0), 1.0, 1.0)
    places = np.arange(-attacker.reach, attacker.reach + 1)
    assert attacker._law(places - shift).sum() == pytest.approx(1)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_no_guess_has_more_behind_it_than_the_attackers(epsilon: float) -> None:
    attacker = Attacker(HEIGHT_BOUNDS, epsilon, 1.0)
    spots = np.arange(-attacker.reach, attacker.reach + 1)
    belief = np.exp(-((3 * spots / attacker.reach) ** 2) / 2)
    for left in (-30, -4, 0, 17):
        weight = belief * np.exp(-np.abs(left - spots) * epsilon / attacker.reach)
        behind = [weight[np.abs(spots - spot) <= 1].sum() for spot in spots]
        guess = (attacker._table[left + attacker.reach] - 170) / attacker.step
        assert behind[int(guess) + attacker.reach] == pytest.approx(max(behind))


@given(st.lists(NUMBERS, min_size=2, max_size=30))
def test_without_noise_who_knows_all_others_reads_everybody(values: list[float]) -> None:
    guesses = rebuild_from_others(loo_means(values), values)
    np.testing.assert_allclose(guesses, values, rtol=0, atol=1e-6 * (1 + max(map(abs, values))))


def test_averaging_the_means_leaves_a_small_part_of_their_noise() -> None:
    values = heights().values
    guesses = rebuild_from_others(loo_std_releases(values, dice(), runs=4000), values)
    spread = float(np.std(values)) / math.sqrt(len(values) - 1)
    assert (guesses - values).std() == pytest.approx(spread, rel=0.02)


def test_the_odd_one_is_found_in_noise_as_wide_as_the_means_are_apart() -> None:
    values = heights().values
    guesses = rebuild_from_others(loo_std_releases(values, dice(), runs=1000), values)
    odd = values.index(1.65)
    assert np.quantile(np.abs(guesses[:, odd] - 1.65), 0.99) < 15
    assert success(attack_means(heights(), dice()), STD).rate > 0.15


def test_the_picture_has_a_strip_for_everybody_and_every_release() -> None:
    report = attack_means(heights(), dice())
    (picture,) = report.pictures
    rows = picture.spec["data"]["values"]  # type: ignore[index]  # a spec is JSON
    truths = [row for row in rows if "truth" in row]
    assert len(truths) == 58 * len(report.successes)
    for panel in (one.against for one in report.successes):
        shares = [row["share"] for row in rows if row["panel"] == panel and "share" in row]
        assert sum(shares) == pytest.approx(58, abs=0.2)
    assert len(picture.cells) == 58


def test_exact_guesses_lie_on_the_truth_of_the_same_person() -> None:
    (picture,) = attack_means(heights(), dice(), runs=10).pictures
    rows = picture.spec["data"]["values"]  # type: ignore[index]  # a spec is JSON
    exact = [row for row in rows if row["panel"] == SHARED]
    truths = {row["person"]: row["truth"] for row in exact if "truth" in row}
    assert list(truths.values()) == sorted(truths.values())
    for row in exact:
        if "share" in row:
            assert row["low"] - 0.01 <= truths[row["person"]] <= row["high"] + 0.01


def test_the_attack_by_its_name_takes_any_file(tmp_path: Path) -> None:
    path = tmp_path / "pay.csv"
    path.write_text("pay\n" + "\n".join(str(1000 + 37 * n) for n in range(40)))
    typed = {"data": str(path), "column": "pay", "lower": "0", "upper": "4000", "within": "50"}
    report = attack("loo").report(seed=1, runs=50, **typed)
    assert success(report, SHARED).rate == 1.0
    assert json.loads(json.dumps(report.as_json()))["measure"].endswith("an error of at most 50")
