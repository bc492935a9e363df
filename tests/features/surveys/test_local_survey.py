"""`LocalSurvey`: what is simulated is what comes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import sfumato
from sfumato import Refused
from sfumato.features.surveys.client import invite, reports, share_in_words, two_coins
from support.small_vaults import make_vault
from support.survey_fixtures import DICE, TRUTHS, design, device


def test_a_simulation_comes_back_to_what_was_put_in() -> None:
    made = sfumato.local_survey(design(epsilon=4))
    shares = {"smokes": {"yes": 0.7, "no": 0.2}, "way": {"by bus": 0.5}}
    found = {(s.question, s.answer): s for s in made.simulate(shares, 50_000)}
    assert len(found) == 7
    for one in found.values():
        assert abs(one.estimate.value - one.truth) < 0.04
    yes = found["smokes", "yes"]
    assert abs(yes.truth - 0.7) < 0.02
    assert yes.observed < yes.truth
    assert "is so" in str(yes)


def test_shares_that_are_none_are_refused() -> None:
    made = sfumato.local_survey(design())
    for shares in ({"yes": 0.7, "no": 0.7}, {"maybe": 0.1}, {"yes": -0.1}):
        with pytest.raises(Refused):
            made.simulate({"smokes": shares})


def test_what_is_no_survey_is_refused_before_it_is_sent() -> None:
    with pytest.raises(Refused):
        sfumato.local_survey({"title": "x"})


def test_it_is_published_and_its_reports_are_read(tmp_path: Path) -> None:
    made = sfumato.local_survey(design(minimum=10))
    with sfumato.open(make_vault(tmp_path)) as house:
        survey = str(made.publish(house)["survey"])
        codes = [*invite(house, survey, 10), *invite(house, survey, ["Ada"])]
        ready = [device().answer(house, survey, code, TRUTHS) for code in codes]
        house.call("close-survey", {"survey": survey})
        assert sorted(reports(house, survey)) == sorted((one.mark, one.said) for one in ready)
    assert made.epsilon <= 2


@pytest.mark.parametrize("people", [-5, 0, 1, 3])
def test_a_simulation_of_too_few_or_of_no_question_is_refused(people: int) -> None:
    made = sfumato.local_survey(design(budget="sampled"))
    with pytest.raises(Refused):
        made.simulate({}, people)
    with pytest.raises(Refused):
        made.simulate({"smoke": {"yes": 1.0}})
    assert len(made.simulate({}, 4)) == 7


@pytest.mark.parametrize(("share", "people"), [(-1, 10), (2, 10), (float("nan"), 10), (0.5, 1)])
def test_two_coins_of_no_share_or_of_nobody_are_refused(share: float, people: int) -> None:
    with pytest.raises(Refused):
        two_coins(share, people, None, DICE.draw)


def test_no_share_is_told_that_cannot_be_one() -> None:
    """An unbiased estimate may be 1000 %; what people read is the nearest share, and that it is."""
    assert share_in_words(0.701) == "70.1%"
    assert share_in_words(10.325) == "100.0% (cut from 1032.5%)"
    assert share_in_words(-0.2) == "0.0% (cut from -20.0%)"
    (yes, *_) = sfumato.local_survey(design()).simulate({"smokes": {"yes": 1.0}}, 1000)
    told = replace(yes, estimate=replace(yes.estimate, value=1.5))
    assert "100.0% (cut from 150.0%) comes back" in str(told)
