"""Surveys in one house: tokens are given once, reports count once, and nothing joins the two."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

import sfumato
from sfumato import Refused
from sfumato.app.vault import OpenVault
from sfumato.features.surveys.invitation_codes import code_digest
from sfumato.features.surveys.ports import Ballot, SurveyStore, TakeResult
from sfumato.features.surveys.respondent_client import Prepared, shown
from sfumato.features.surveys.schema import Submission
from sfumato.vault.ledger_entries import Entry
from sfumato.vault.users import Caller
from support.small_vaults import make_vault
from support.survey_fixtures import DICE, TRUTHS, day, design, device


@pytest.fixture
def house(tmp_path: Path) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path)) as opened:
        yield opened


def published(house: OpenVault, **changed: Any) -> str:
    return str(house.call("publish-survey", {"survey": design(**changed)})["survey"])


def codes(house: OpenVault, survey: str, count: int = 1) -> list[str]:
    made = house.call("invite-to-survey", {"survey": survey, "count": count})["codes"]
    return list(map(str, made)) if isinstance(made, list) else []


def refusal(house: OpenVault, verb: str, **body: object) -> str:
    with pytest.raises(Refused) as refused:
        house.call(verb, body)
    return refused.value.code


def entries(house: OpenVault, kind: str) -> list[Entry]:
    return [e for e in house.house.ledger.store.entries() if e.kind == kind]


def test_an_invited_person_answers_and_is_counted_once(house: OpenVault) -> None:
    survey = published(house)
    (code,) = codes(house, survey)
    ready = device().prepared(house, survey, code, TRUTHS)
    assert ready.send(house) == {"counted": "now", "mark": ready.mark}
    assert ready.send(house) == {"counted": "before", "mark": ready.mark}
    assert house.house.desk.surveys.store.standing(survey).reports == 1


def test_a_second_report_under_one_token_is_refused_and_the_first_stands(house: OpenVault) -> None:
    survey = published(house)
    ready = device().prepared(house, survey, codes(house, survey)[0], TRUTHS)
    first = replace(ready, said="0.0.0 1.0.0")
    first.send(house)
    with pytest.raises(Refused) as refused:
        replace(ready, said="0.0.1 1.0.0").send(house)
    assert refused.value.code == "ballot-spent"
    assert first.send(house)["counted"] == "before"


def test_an_invitation_gives_one_token_and_the_same_one_again(house: OpenVault) -> None:
    survey = published(house)
    (code,) = codes(house, survey)
    first = house.call("survey", {"survey": survey})
    body: dict[str, object] = {
        "survey": survey, "invitation": code, "blinded": shown(b"\x01" + bytes(255)),
    }  # fmt: skip
    assert first["state"] == "open"
    assert house.call("survey-token", body) == house.call("survey-token", body)
    other = {**body, "blinded": shown(b"\x02" + bytes(255))}
    assert refusal(house, "survey-token", **other) == "invitation-used"
    assert len(entries(house, "charged")) == 1


@pytest.mark.parametrize("number", [0, 1, 256**256 - 1])
def test_what_cannot_be_signed_is_refused_before_it_is_charged(
    house: OpenVault, number: int
) -> None:
    survey = published(house)
    (code,) = codes(house, survey)
    asked: dict[str, object] = {
        "survey": survey, "invitation": code, "blinded": shown(number.to_bytes(256, "big")),
    }  # fmt: skip
    assert refusal(house, "survey-token", **asked) == "bad-request"
    assert entries(house, "charged") == []
    device().answer(house, survey, code, TRUTHS)


def test_a_code_may_be_typed_as_people_type(house: OpenVault) -> None:
    survey = published(house)
    (code,) = codes(house, survey)
    device().answer(house, survey, f" {code.lower().replace('-', ' ')}", TRUTHS)


@pytest.mark.parametrize("code", ["", "AAAA-AAAA-AAAA-AAAA", "x" * 500, "0000-0000-0000-0000"])
def test_a_code_of_nobodys_gives_nothing(house: OpenVault, code: str) -> None:
    survey = published(house)
    blinded = shown(b"\x01" + bytes(255))
    asked: dict[str, object] = {"survey": survey, "invitation": code, "blinded": blinded}
    assert refusal(house, "survey-token", **asked) == "invitation-unknown"
    assert entries(house, "charged") == []


def test_a_code_of_another_survey_gives_nothing(house: OpenVault) -> None:
    survey, other = published(house), published(house, title="Another")
    (code,) = codes(house, other)
    with pytest.raises(Refused) as refused:
        device().answer(house, survey, code, TRUTHS)
    assert refused.value.code == "invitation-unknown"


def test_a_token_of_another_survey_counts_nothing(house: OpenVault) -> None:
    survey, other = published(house), published(house, title="Another")
    ready = device().prepared(house, other, codes(house, other)[0], TRUTHS)
    with pytest.raises(Refused) as refused:
        replace(ready, survey=survey).send(house)
    assert refused.value.code == "ballot-forged"


def test_the_ledger_says_what_a_respondent_gives_away_and_on_which_day_at_most(
    house: OpenVault,
) -> None:
    survey = published(house)
    note = json.loads(entries(house, "survey-published")[0].body)
    assert (note["guarantee"], note["survey"]) == ("local-dp", survey)
    device().answer(house, survey, codes(house, survey)[0], TRUTHS)
    (charge,) = entries(house, "charged")
    body = json.loads(charge.body)["body"]
    assert body["guarantee"] == "local-dp"
    assert body["epsilon"] == float(house.call("survey", {"survey": survey})["epsilon"])  # type: ignore[arg-type]  # a number of the wire
    assert charge.at.endswith("T00:00:00+00:00")
    assert house.house.ledger.verified()["ok"] is True


def test_the_auditor_sees_ballots_in_the_chain_and_not_among_answers(house: OpenVault) -> None:
    survey = published(house)
    device().answer(house, survey, codes(house, survey)[0], TRUTHS)
    (charge,) = entries(house, "charged")
    audit = house.house.desk.audit
    assert audit.releases(10**9, 50, None)["releases"] == []
    with pytest.raises(Refused) as refused:
        audit.sheet(charge.seq)
    assert refused.value.code == "answer-unknown"
    assert audit.policies()["accounts"] == []
    assert survey in str(audit.entries(0, 100))


def test_a_closed_survey_invites_nobody(house: OpenVault) -> None:
    survey = published(house)
    house.call("close-survey", {"survey": survey})
    assert refusal(house, "invite-to-survey", survey=survey, count=1) == "survey-not-open"


@pytest.mark.parametrize("names", [["Ada", "Ada", "Ada"], ["Zo\u00eb", "ZOE\u0308", "zo\u00eb"]])
def test_a_named_person_gives_away_no_more_than_their_lifetime(
    house: OpenVault, names: list[str]
) -> None:
    """However the letters of the name are typed."""
    surveys = [published(house, title=f"Wave {n}", lifetime=4) for n in range(3)]
    ended = []
    for survey, name in zip(surveys, names, strict=True):
        made = house.call("invite-to-survey", {"survey": survey, "people": [name]})
        try:
            device().answer(house, survey, made["codes"][0], TRUTHS)  # type: ignore[index]  # a list
            ended.append("counted")
        except Refused as refused:
            ended.append(refused.code)
    assert ended == ["counted", "counted", "budget-exceeded"]


def test_another_owners_surveys_leave_a_persons_lifetime_alone(house: OpenVault) -> None:
    surveys = house.house.desk.surveys
    olga, otto = (Caller(name, frozenset({"own"})) for name in ("olga", "otto"))
    small = str(surveys.publish(otto, design(epsilon="0.01", lifetime="0.01"))["survey"])
    surveys.invite(otto, small, 1, ["Ada"])
    large = str(surveys.publish(olga, design(title="Olga's"))["survey"])
    given = surveys.invite(olga, large, 1, ["Ada"])["codes"]
    code = given[0]  # type: ignore[index]  # a list
    assert device().answer(house, large, code, TRUTHS).mark


def test_nobody_is_invited_under_a_lifetime_that_they_were_not_told(house: OpenVault) -> None:
    first, second = published(house, lifetime=10), published(house, title="Next", lifetime=2)
    house.call("invite-to-survey", {"survey": first, "people": ["Ada"]})
    asked: dict[str, object] = {"survey": second, "people": ["Bea", "Ada"]}
    assert refusal(house, "invite-to-survey", **asked) == "bad-request"
    assert len(entries(house, "survey-invited")) == 1
    house.call("invite-to-survey", {"survey": first, "people": ["Bea"]})  # nothing was opened
    house.call("invite-to-survey", {"survey": second, "count": 1})


def test_a_named_person_has_one_ballot_however_often_they_are_invited(house: OpenVault) -> None:
    survey = published(house, lifetime=10)
    given = [
        house.call("invite-to-survey", {"survey": survey, "people": [name]})["codes"]
        for name in ("Ada", "ada")
    ]
    device().answer(house, survey, given[1][0], TRUTHS)  # type: ignore[index]  # a list
    with pytest.raises(Refused) as refused:
        device().answer(house, survey, given[0][0], TRUTHS)  # type: ignore[index]  # as above
    assert refused.value.code == "invitation-used"


def test_no_name_and_no_code_is_kept(house: OpenVault) -> None:
    survey = published(house)
    made = house.call("invite-to-survey", {"survey": survey, "people": ["Zenobia Quux"]})
    device().answer(house, survey, made["codes"][0], TRUTHS)  # type: ignore[index]  # a list
    code = str(made["codes"][0])  # type: ignore[index]  # as above
    for path in house.house.folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for word in ("Zenobia", code, code.replace("-", "")):
                assert word.encode() not in content, path


def test_nothing_is_shown_before_enough_have_answered(house: OpenVault) -> None:
    survey = published(house, minimum=10, people=20)
    for code in codes(house, survey, 49):
        device().answer(house, survey, code, TRUTHS)
    before = house.call("survey-estimates", {"survey": survey})
    assert (before["enough"], before["questions"], before["reports"]) == (False, [], 0)
    assert house.call("survey-reports", {"survey": survey})["reports"] == []
    device().answer(house, survey, codes(house, survey)[0], TRUTHS)
    after = house.call("survey-estimates", {"survey": survey})
    assert (after["enough"], after["reports"]) == (True, 25)
    found = house.call("survey-reports", {"survey": survey})["reports"]
    assert isinstance(found, list)
    assert len(found) == 25


def test_shares_add_up_where_that_is_asked_for(house: OpenVault) -> None:
    survey = published(house, minimum=10)
    for code in codes(house, survey, 12):
        device().answer(house, survey, code, TRUTHS)
    house.call("close-survey", {"survey": survey})
    plain: Any = house.call("survey-estimates", {"survey": survey})
    moved: Any = house.call("survey-estimates", {"survey": survey, "shares": "add-up"})
    assert (plain["shares"], moved["shares"]) == ("as-estimated", "add-up")
    sums = [
        sum(e["value"] for e in one["estimates"])
        for one in moved["questions"]
        if one["kind"] in ("yes-no", "choice")
    ]
    assert sums == pytest.approx([1.0] * len(sums))
    assert sums
    assert house.call("survey-estimates", {"survey": survey, "shares": "as-estimated"}) == plain
    for wrong in ("all", "", 1):
        assert refusal(house, "survey-estimates", survey=survey, shares=wrong) == "bad-request"


def test_a_respondent_finds_their_report_by_its_mark(house: OpenVault) -> None:
    survey = published(house, minimum=10)
    ready = [device().answer(house, survey, c, TRUTHS) for c in codes(house, survey, 12)]
    house.call("close-survey", {"survey": survey})
    found = house.call("survey-reports", {"survey": survey})["reports"]
    assert isinstance(found, list)
    assert {(one["mark"], one["said"]) for one in found} == {(r.mark, r.said) for r in ready}


def test_a_closed_survey_takes_nothing_and_signs_nothing(house: OpenVault) -> None:
    survey = published(house)
    first, second = codes(house, survey, 2)
    ready = device().prepared(house, survey, first, TRUTHS)
    house.call("close-survey", {"survey": survey})
    with pytest.raises(Refused) as refused:
        ready.send(house)
    assert refused.value.code == "survey-not-open"
    with pytest.raises(Refused) as refused:
        device().answer(house, survey, second, TRUTHS)
    assert refused.value.code == "survey-not-open"
    assert not list((house.house.folder / "keys" / "ballots").glob("*.pem"))


def test_a_survey_that_has_not_begun_gives_no_token(house: OpenVault) -> None:
    survey = published(house, opens=day(2))
    with pytest.raises(Refused) as refused:
        device().answer(house, survey, codes(house, survey)[0], TRUTHS)
    assert refused.value.code == "survey-not-open"


def test_anothers_survey_reads_like_none(house: OpenVault) -> None:
    survey = published(house)
    assert refusal(house, "close-survey", survey="a" * 32) == "survey-unknown"
    assert refusal(house, "survey", survey="../" + survey) == "survey-unknown"
    assert refusal(house, "survey", survey=survey.upper()) == "survey-unknown"


def test_a_sheet_of_dice_counts_once_under_its_invitation(house: OpenVault) -> None:
    survey = published(house, paper=True)
    (code,) = codes(house, survey)
    sheet: dict[str, object] = {"survey": survey, "invitation": code, "said": "0.0.1 1.0.2"}
    assert house.call("survey-sheet", sheet)["counted"] == "now"
    assert house.call("survey-sheet", sheet)["counted"] == "before"
    assert house.house.desk.surveys.store.standing(survey).reports == 1
    with sqlite3.connect(house.house.folder / "ledger.sqlite") as opened:
        written = "\n".join(opened.iterdump())
    invitation = code_digest(code)
    for marked in (b"sheet", b"", code.encode()):  # what somebody with the codes could try
        tried = sha256(f"{survey}\n{invitation}\n{marked.hex()}".encode()).hexdigest()
        assert tried not in written
    other = {"survey": published(house), "invitation": code, "said": "0.0.1 1.0.2"}
    assert refusal(house, "survey-sheet", **other) == "bad-report"


def test_reports_that_come_at_once_all_count_and_each_once(house: OpenVault) -> None:
    survey = published(house, people=300)
    given = codes(house, survey, 60)
    ready = [device().prepared(house, survey, code, TRUTHS) for code in given]
    ended: list[str] = []

    def sent(one: Prepared) -> None:
        ended.append(str(one.send(house)["counted"]))

    threads = [threading.Thread(target=sent, args=(one,)) for one in [*ready, *ready[:20]]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["before"] * 20 + ["now"] * 60
    assert house.house.desk.surveys.store.standing(survey).reports == 60


def test_a_token_that_nobody_signed_counts_nothing(house: OpenVault) -> None:
    survey = published(house)
    forged = Prepared(survey, "0.0.0 1.0.0", DICE.draw(32), DICE.draw(256))
    with pytest.raises(Refused) as refused:
        forged.send(house)
    assert refused.value.code == "ballot-forged"


def test_the_preview_says_what_the_published_survey_costs(house: OpenVault) -> None:
    seen = house.call("preview-survey", {"survey": design()})
    made = house.call("publish-survey", {"survey": design()})
    assert seen["epsilon"] == made["epsilon"]
    assert seen["guarantee"] == made["guarantee"] == "local-dp"
    table = seen["table"]
    assert isinstance(table, list)
    for place in range(2):  # each question, not the first alone
        errors = [row["expected"][place]["error"] for row in table]
        assert errors == sorted(errors, reverse=True)
    waves = house.call("preview-survey", {"survey": design(series="daily", ever=3, epsilon=1)})
    rows = waves["table"]
    assert isinstance(rows, list)
    assert [row["epsilon"] for row in rows] == [0.25, 0.5, 1, 2, 3]  # more than ever is no wave


def test_all_waves_of_a_series_with_ever_ask_the_same(house: OpenVault) -> None:
    """Other questions, or another ever, would be lasting answers of their own beside the first."""
    waves: dict[str, Any] = {"series": "Täglich", "ever": 6}
    published(house, **waves)
    published(house, **waves, title="The second week", opens=day(0))
    first, second = design()["questions"]
    published(house, **waves, questions=[second, first])  # the order is nobody's lasting answer
    others: list[dict[str, Any]] = [
        {"ever": 7}, {"ever": None}, {"questions": [first]}, {"budget": "sampled"},
        {"questions": [first, {**second, "options": ["on foot", "by bus"]}]},
    ]  # fmt: skip
    for number, other in enumerate(others):
        asked = design(**{**waves, **other})
        assert refusal(house, "publish-survey", survey=asked) == "bad-survey"
        published(house, **{**waves, **other, "series": f"Wöchentlich {number}"})
    published(house, **{**waves, "ever": 7}, asks="Somebody else")  # no device takes them for one


class AtTheSameMoment:
    """Ballot keys; while one is being made, somebody else publishes a survey."""

    def __init__(self, keys: Any, meanwhile: Callable[[], object]) -> None:
        self.keys, self.meanwhile = keys, meanwhile

    def __getattr__(self, name: str) -> Any:  # as the keys have it
        return getattr(self.keys, name)

    def make(self) -> Any:  # as the keys have it
        self.meanwhile()
        return self.keys.make()


def test_of_two_waves_that_clash_and_come_at_once_one_is_published(house: OpenVault) -> None:
    """Each looks before the other is there: the last look is in the turn that adds it."""
    surveys, caller = house.house.desk.surveys, Caller("olga", frozenset({"own"}))
    waves: dict[str, Any] = {"series": "Täglich", "ever": 6}
    first: list[str] = []

    def meanwhile() -> None:
        first.append(published(house, **waves))

    slow = replace(surveys, keys=AtTheSameMoment(surveys.keys, meanwhile))
    with pytest.raises(Refused) as refused:
        slow.publish(caller, design(**{**waves, "ever": 7}))
    assert refused.value.code == "bad-survey"
    assert [kept.id for kept in surveys.store.every()] == first
    (closed,) = entries(house, "survey-closed")
    refused_id = json.loads(closed.body)["survey"]
    assert refused_id not in first
    assert surveys.keys.proof(refused_id) == ()  # its key is gone
    again = replace(surveys, keys=AtTheSameMoment(surveys.keys, lambda: None))
    assert again.publish(caller, design(**waves, title="The second week"))["state"] == "open"


def test_waves_that_draw_one_question_keep_their_order(house: OpenVault) -> None:
    """In another order another question is drawn, and all of them are told at `ever` each."""
    waves: dict[str, Any] = {"series": "Täglich", "ever": 6, "budget": "sampled"}
    published(house, **waves)
    published(house, **waves, title="The second week")
    turned = design(**waves, questions=design()["questions"][::-1])
    assert refusal(house, "publish-survey", survey=turned) == "bad-survey"


def test_a_series_without_ever_may_ask_of_more(house: OpenVault) -> None:
    published(house, series="Täglich")
    published(house, series="Täglich", questions=design()["questions"][:1])
    assert refusal(house, "publish-survey", survey=design(series="Täglich", ever=6)) == "bad-survey"


def _submission(survey: str, made: Prepared) -> Submission:
    return Submission(
        survey=survey,
        token=shown(made.token),
        signature=shown(made.signature),
        said=made.said,
    )


def test_reports_that_come_together_end_as_if_each_had_come_alone(house: OpenVault) -> None:
    survey, other = published(house), published(house, title="Another")
    made = [device().prepared(house, survey, code, TRUTHS) for code in codes(house, survey, 3)]
    theirs = device().prepared(house, other, codes(house, other)[0], TRUTHS)
    sent = [_submission(one.survey, one) for one in made]
    forged = structs.replace(sent[0], token=shown(DICE.draw(32)))
    elsewhere = _submission(other, theirs)
    asked = [
        sent[0],
        forged,
        structs.replace(sent[0], said="0.0.2 1.0.3"),
        structs.replace(sent[1], said="x"),
        sent[1],
        structs.replace(sent[2], survey="a" * 32),
        elsewhere,
        sent[0],
        structs.replace(elsewhere, survey=survey),
    ]
    ended = house.house.desk.surveys.take(asked)
    told = [one.code if isinstance(one, Refused) else one["counted"] for one in ended]
    assert told[:2] == ["now", "ballot-forged"]
    assert told[2] in ("ballot-spent", "before")
    assert told[3:] == ["bad-report", "now", "survey-unknown", "now", "before", "ballot-forged"]
    assert house.house.desk.surveys.take([]) == []
    store = house.house.desk.surveys.store
    assert (store.standing(survey).reports, store.standing(other).reports) == (2, 1)


class Falling:
    """Ballot keys of a house that falls when one is to be destroyed."""

    def __init__(self, keys: Any) -> None:
        self.keys = keys

    def __getattr__(self, name: str) -> Any:  # as the keys have it
        return getattr(self.keys, name)

    def forget(self, survey: str) -> None:
        """Fall."""
        raise SystemExit


def test_a_key_that_a_fall_has_left_is_destroyed_at_the_next_look(house: OpenVault) -> None:
    survey, surveys = published(house), house.house.desk.surveys
    falling = replace(surveys, keys=Falling(surveys.keys))
    with pytest.raises(SystemExit):
        falling.close(Caller("owner", frozenset({"own"})), survey)
    keys = house.house.folder / "keys" / "ballots"
    assert [path.stem for path in keys.glob("*.pem")] == [survey]
    assert house.call("survey", {"survey": survey})["state"] == "closed"
    assert not list(keys.glob("*.pem"))


class Busy:
    """A store of surveys that cannot take a ballot, once."""

    def __init__(self, real: SurveyStore) -> None:
        self._real = real
        self._is_busy = True

    def __getattr__(self, name: str) -> Any:  # Any: whatever the real one has
        return getattr(self._real, name)

    def take(self, ballot: Ballot) -> TakeResult:
        if self._is_busy:
            self._is_busy = False
            raise Refused("ledger-busy", "The surveys are held by another process.", "Try again.")
        return self._real.take(ballot)


def test_a_sheet_that_was_paid_and_could_not_be_counted_is_counted_at_the_next_try(
    house: OpenVault,
) -> None:
    """It was said to have been counted before, and was not there."""
    smokes = [{"id": "smokes", "text": "Do you smoke?", "kind": "yes-no"}]
    survey = published(house, paper=True, questions=smokes)
    (code,) = codes(house, survey)
    real = house.house.desk.surveys
    surveys = replace(real, store=cast("SurveyStore", Busy(real.store)))
    with pytest.raises(Refused):
        surveys.sheet(survey, code, "0.0.0")
    again = surveys.sheet(survey, code, "0.0.1")
    assert (again["counted"], bool(again["mark"])) == ("now", True)
    assert real.store.standing(survey).reports == 1
    assert surveys.sheet(survey, code, "0.0.1") == {"counted": "before", "mark": ""}
    assert real.store.standing(survey).reports == 1
    assert surveys.sheets == {}  # nothing is left that connects an invitation with a report
    assert len(entries(house, "charged")) == 1
