"""Ballots: every question in its place, one price for all, one length for every report."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from sfumato.dp.local.ballot_split import (
    Sampled,
    Split,
    arity,
    choices,
    leaves,
    randomise_ballots,
)
from sfumato.dp.local.duchi import Duchi
from sfumato.dp.local.frequency_estimation import estimate
from sfumato.dp.local.frequency_oracle import Randomiser, tally
from sfumato.dp.local.hybrid_mechanism import Hybrid
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.mean_estimation import estimate_mean, tally_numbers
from sfumato.dp.local.randomiser_registry import randomiser_of
from sfumato.dp.local.ranking_response import (
    answers_by_pairs,
    by_pairs,
    mean_places,
    mean_places_by_pairs,
    orders,
)
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.refusal import Bug, Refused
from support.seeded_dice import CountingDice, SeededDice

ONE = Fraction(1)
MAKERS: list[Any] = [partial(KAry.within, 4), partial(Hybrid.within, 100), partial(choices, 3)]
BALLOTS: list[Any] = [Split.within(MAKERS, ONE), Sampled.within(MAKERS, ONE)]
PEOPLE = 60_000


def answers(seed: int, count: int = PEOPLE) -> Any:
    generator = np.random.default_rng(seed)
    columns = [generator.integers(0, 4, count), generator.integers(20, 41, count)]
    columns += [(generator.random(count) < share).astype(np.int64) for share in (0.1, 0.5, 0.9)]
    return np.column_stack(columns)


@pytest.mark.parametrize("ballot", BALLOTS, ids=["split", "sampled"])
def test_every_question_gets_its_own_answers(ballot: Any) -> None:
    reports = randomise_ballots(ballot, answers(1), SeededDice(2))
    (first, said), (second, places), *sets = leaves(ballot, reports)
    shares = estimate(tally(first, said))  # type: ignore[arg-type]  # it is the oracle
    assert np.abs((shares.shares - 0.25) / shares.stds).max() < 4.5
    mean = estimate_mean(tally_numbers(second, places))  # type: ignore[arg-type]
    assert abs(mean.mean - 30) < 4.5 * mean.std
    for (third, some), share in zip(sets, (0.1, 0.5, 0.9), strict=True):
        found = estimate(tally(third, some))  # type: ignore[arg-type]
        assert abs(found.shares[1] - share) < 4.5 * found.stds[1]


def test_a_sampled_ballot_asks_each_question_as_often() -> None:
    reports = randomise_ballots(BALLOTS[1], answers(3), SeededDice(4))
    asked = [len(part) for _, part in BALLOTS[1].parts(reports)]
    assert sum(asked) == PEOPLE
    assert all(abs(count - PEOPLE / 3) < 4.5 * (PEOPLE * 2 / 9) ** 0.5 for count in asked)


def test_which_question_is_asked_hangs_on_no_answer() -> None:
    zeros = np.zeros((500, 5), dtype=np.int64)
    drawn = [randomise_ballots(BALLOTS[1], v, SeededDice(5))[:, :2] for v in (zeros, zeros + 2)]
    assert drawn[0].tolist() == drawn[1].tolist()


@pytest.mark.parametrize("ballot", BALLOTS, ids=["split", "sampled"])
def test_all_ballots_have_one_length_and_take_the_same_words(ballot: Any) -> None:
    dice = [CountingDice(1), CountingDice(1)]
    silent = np.array([[3, 101, 2, 2, 2]] * 70)
    for one, values in zip(dice, (np.zeros_like(silent), silent), strict=True):
        assert randomise_ballots(ballot, values, one).shape == (70, ballot.width)
    assert dice[0].given == dice[1].given == 280 * ballot.words_per_report


def test_the_price_is_for_the_whole_ballot() -> None:
    split, sampled = BALLOTS
    assert split.epsilon <= 1
    assert float(split.epsilon) == pytest.approx(1, abs=1e-7)
    assert sampled.epsilon <= 1
    assert sampled.epsilon == max(question.epsilon for question in sampled.questions)


@pytest.mark.parametrize("ballot", BALLOTS, ids=["split", "sampled"])
def test_parameters_lead_back_to_the_ballot(ballot: Any) -> None:
    assert randomiser_of(ballot.parameters) == ballot
    assert arity(ballot) == 5


def test_a_ballot_that_nobody_makes_is_refused() -> None:
    sampled = Sampled((KAry(3, 99), Subset.within(6, ONE)))
    good = randomise_ballots(sampled, np.zeros((1, 2), dtype=np.int64), SeededDice(1))
    assert sampled.are_valid(good).all()
    for row in ([2, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 3, 0, 0, 0], [0, 0, 1, 9, 0, 0],
                [1, 0, 0, 0, 1, 0]):  # fmt: skip
        with pytest.raises(Refused, match="no device following this survey"):
            leaves(sampled, np.array([row], dtype=np.uint8))
    with pytest.raises(Refused, match="length"):
        leaves(sampled, np.zeros((1, 5), dtype=np.uint8))
    split = Split((KAry(3, 99), KAry(3, 99)))
    assert split.are_valid(np.array([[0, 2], [3, 0], [0, 3]], dtype=np.uint8)).tolist() == [
        True, False, False,
    ]  # fmt: skip


def test_a_ballot_with_other_questions_is_refused() -> None:
    with pytest.raises(Refused, match="one column for each question"):
        randomise_ballots(BALLOTS[0], np.zeros((3, 4), dtype=np.int64), SeededDice(1))
    with pytest.raises(Bug):
        Split(())


def test_sampling_beats_splitting_where_epsilon_is_small() -> None:
    questions = [partial(KAry.within, 3)] * 8
    split, sampled = Split.within(questions, ONE), Sampled.within(questions, ONE)
    assert one_contrast(sampled) ** 2 / 8 > 4 * one_contrast(split) ** 2


def one_contrast(ballot: Any) -> float:
    return float(ballot.questions[0].p_minus_q)


def test_a_ranking_by_pairs_gives_the_mean_places_back() -> None:
    generator = np.random.default_rng(1)
    preferred = np.array([generator.permutation(4) for _ in range(2000)])
    preferred[:1200] = (2, 0, 1, 3)
    votes = [answers_by_pairs(order, 4) for order in preferred.tolist()]
    ballot = by_pairs(4, Fraction(3))
    values = np.repeat(np.array(votes), 100, axis=0)
    parts = leaves(ballot, randomise_ballots(ballot, values, SeededDice(2)))
    before = np.array([shares_before(one, part) for one, part in parts])
    places = np.argsort(preferred, axis=1).mean(axis=0) + 1
    assert mean_places_by_pairs(before, 4) == pytest.approx(places, abs=0.06)


def shares_before(question: Randomiser, reports: Any) -> float:
    shares = estimate(tally(question, reports)).shares  # type: ignore[arg-type]
    return float(shares[0] / (shares[0] + shares[1]))


def test_a_ranking_as_one_answer_gives_the_mean_places_back() -> None:
    shares = np.zeros(len(orders(3)) + 1)
    shares[orders(3).index((2, 0, 1))], shares[orders(3).index((0, 1, 2))] = 0.6, 0.2
    shares[-1] = 0.2  # silent
    assert mean_places(shares, 3) == pytest.approx([1.75, 2.75, 1.5])


def test_silence_is_silence_in_every_pair_and_long_rankings_go_by_pairs() -> None:
    assert set(answers_by_pairs(None, 4)) == {2}
    with pytest.raises(Refused, match="too many rankings"):
        orders(6)


def test_a_number_in_a_ballot_in_a_ballot_is_found_again() -> None:
    ballot = Split((Sampled((Duchi.within(5, ONE), KAry.within(3, ONE))), KAry.within(3, ONE)))
    values = np.tile(np.array([[5, 1, 2]]), (3000, 1))
    kinds = [one.parameters["kind"] for one, _ in leaves(ballot, randomise_ballots(
        ballot, values, SeededDice(3)))]  # fmt: skip
    assert kinds == ["duchi", "k-ary", "k-ary"]
