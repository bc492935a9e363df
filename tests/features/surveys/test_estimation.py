"""What is said of a survey's results holds: intervals of few reports."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.subset_selection import Subset
from sfumato.features.surveys.blind_signatures import PublicKey
from sfumato.features.surveys.estimation import (
    Answered,
    Estimate,
    _ratio,
    adding_up,
    expected,
    results,
)
from sfumato.features.surveys.model import read_survey
from sfumato.features.surveys.randomised_report import Published
from sfumato.features.surveys.tally import Tally

SURVEYS = 5_000
LEANING, EVEN, QUIET = (0.02, 0.88, 0.1), (0.45, 0.45, 0.1), (0.1, 0.3, 0.6)
CASES = [
    (4, 2, LEANING),
    (4, 10, LEANING),
    (4, 20, LEANING),
    (8, 20, LEANING),
    (8, 50, LEANING),
    (4, 200, LEANING),
    (2, 10, LEANING),
    (1, 100, QUIET),
    (2, 500, QUIET),
    (4, 4_000, EVEN),
    (4, 20_000, LEANING),
    (1, 20_000, QUIET),
]


@pytest.mark.parametrize("places", [(1, 0), (0, 1)], ids=["mean", "before"])
@pytest.mark.parametrize(("epsilon", "people", "shares"), CASES)
def test_a_mean_and_a_preference_lie_in_their_intervals(
    epsilon: int, people: int, shares: tuple[float, ...], places: tuple[int, int]
) -> None:
    assert covered(epsilon, people, shares, places, SURVEYS) >= 0.942


@pytest.mark.slow
@pytest.mark.parametrize("places", [(1, 0), (0, 1)], ids=["mean", "before"])
@pytest.mark.parametrize(("epsilon", "people", "shares"), CASES)
def test_they_do_in_twenty_thousand_surveys(
    epsilon: int, people: int, shares: tuple[float, ...], places: tuple[int, int]
) -> None:
    assert covered(epsilon, people, shares, places, 20_000) >= 0.942


def covered(
    epsilon: int, people: int, shares: tuple[float, ...], places: tuple[int, int], surveys: int
) -> float:
    """Return in which share of so many surveys the interval holds the truth."""
    coin = KAry.within(3, Fraction(epsilon))
    chances = coin.q + float(coin.p_minus_q) * np.array(shares)
    true = shares[places[0]] / (shares[0] + shares[1])
    drawn = np.random.default_rng(5).multinomial(people, chances / chances.sum(), surveys)

    @cache
    def found(counts: tuple[int, ...]) -> Estimate:
        return _ratio("it", coin, counts, places, people)

    made = [found(tuple(map(int, counts))) for counts in drawn]
    assert all(one.low <= one.value <= one.high for one in made)
    return float(np.mean([one.low <= true <= one.high for one in made]))


def test_two_reports_alike_leave_nearly_everything_open() -> None:
    few = _ratio("it", KAry.within(3, Fraction(4)), (0, 2, 0), (1, 0), 2)
    assert few.low < 0.2
    assert few.high == 1.0


def test_many_reports_leave_little_open() -> None:
    coin = KAry.within(3, Fraction(4))
    below, above = (_ratio("it", coin, (some, 9 * some, 50), (1, 0), 4_000) for some in (399, 400))
    assert below.high - below.low < 1.25 * (above.high - above.low) < 0.03


REPORTS, LIARS = 10_000, 100
SEVERAL = {"id": "q", "text": "Which?", "kind": "several", "options": [f"o{n}" for n in range(20)]}
NUMBER = {"id": "q", "text": "How much?", "kind": "number", "low": 0, "high": 60, "unit": "h"}
RANKING = {"id": "q", "text": "First?", "kind": "ranking", "options": [f"o{n}" for n in range(5)]}


def survey_of(question: dict[str, Any], questions: int) -> Published:
    asked = [{**question, "id": f"q{n}", "text": f"{n}?"} for n in range(questions)]
    shape = {
        "title": "T", "about": "A", "asks": "W", "questions": asked, "epsilon": 4,
        "budget": "sampled", "people": REPORTS, "minimum": 50, "opens": "2026-11-01",
        "closes": "2026-12-24", "format": 1,
    }  # fmt: skip
    return Published(read_survey(shape), PublicKey(0xC0FFEE, 65537))


@pytest.mark.parametrize("loud", [0, 1])
@pytest.mark.parametrize("questions", [1, 4])
@pytest.mark.parametrize("question", [SEVERAL, NUMBER, RANKING], ids=["several", "number", "rank"])
def test_liars_who_all_pick_one_slot_move_it_no_further_than_is_said(
    question: dict[str, Any], questions: int, loud: int
) -> None:
    survey = survey_of(question, questions)
    slots = survey.survey.questions[0].slots
    there = REPORTS // (questions * slots)
    honest = [there * 45 // 100, there * 45 // 100, there - 2 * (there * 45 // 100)]
    lying = [some - LIARS * some // REPORTS for some in honest]
    lying[loud] += LIARS  # all of the liars are in this slot now and say the same
    coin = survey.coins[0]
    assert isinstance(coin, KAry)
    before, after = (_first_slot(survey, slots, counts) for counts in (honest, lying))
    moved = abs(after.value - before.value)
    assert moved <= after.liars
    if slots * questions > 1:
        assert moved > after.liars / 8
        scale = 60 if question is NUMBER else 1
        assert after.liars > scale * 0.01 / float(coin.p_minus_q)
    said = expected(survey.survey)[0].liars
    scale = 60 if question is NUMBER else 1
    share = min(1, slots * questions * LIARS / REPORTS)
    assert said == pytest.approx(scale * share / float(coin.p_minus_q), rel=0.01)


def _first_slot(survey: Published, slots: int, counts: list[int]) -> Estimate:
    quiet = ((0, 0, 0),) * (slots - 1)
    others = (((0, 0, 0),) * slots,) * (len(survey.coins) - 1)
    return results(survey, Tally(REPORTS, ((tuple(counts), *quiet), *others)))[0].estimates[0]


# --- shares that add up --------------------------------------------------------------------------

ASKED = {
    "title": "t", "asks": "us", "epsilon": 1, "people": 100,
    "opens": "2026-01-01", "closes": "2099-12-31",
    "questions": [
        {"text": "a", "kind": "yes-no"},
        {"text": "b", "kind": "choice", "options": ["x", "y", "z"]},
        {"text": "c", "kind": "several", "options": ["x", "y"]},
        {"text": "d", "kind": "choice", "options": [f"o{n}" for n in range(12)]},
        {"text": "e", "kind": "ranking", "options": ["x", "y", "z"]},
    ],
}  # fmt: skip


def found_in(seed: int) -> tuple[Answered, ...]:
    """What counts tell that are drawn without a look at anything."""
    made, dice = Published(read_survey(ASKED), PublicKey(1, 1)), np.random.default_rng(seed)
    counts = []
    for question, coin in zip(made.survey.questions, made.coins, strict=True):
        assert isinstance(coin, KAry | Subset)
        slots = [dice.integers(0, 60, size=coin.size).tolist() for _ in range(question.slots)]
        is_set = isinstance(coin, Subset)  # of sets, how many reports there were comes first
        counts.append(tuple((60, *slot) if is_set else tuple(slot) for slot in slots))
    return results(made, Tally(200, tuple(counts)))


@pytest.mark.parametrize("seed", range(20))
def test_shares_that_are_asked_to_add_up_do_and_lie_in_their_intervals(seed: int) -> None:
    found = found_in(seed)
    moved = adding_up(found)
    for before, after in zip(found, moved, strict=True):
        if before.question.kind not in ("yes-no", "choice"):
            assert after == before
            continue
        values = [one.value for one in after.estimates]
        assert sum(values) == pytest.approx(1)
        assert min(values) >= 0
        for was, one in zip(before.estimates, after.estimates, strict=True):
            assert (one.label, one.liars) == (was.label, was.liars)
            assert one.low <= min(was.low, one.value)  # so it holds whatever it held before
            assert one.high >= max(was.high, one.value)


def test_estimates_that_lie_below_nothing_are_what_is_moved() -> None:
    values = [e.value for seed in range(20) for one in found_in(seed) for e in one.estimates]
    assert min(values) < -0.05
