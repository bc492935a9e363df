"""`LocalSurvey`: what is simulated is what comes."""

from __future__ import annotations

from pathlib import Path

import pytest

import sfumato
from sfumato import Refused
from sfumato.client.surveys import invite, reports
from surveys import TRUTHS, design, device
from vaults import make_vault


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
