"""A respondent's device in Python: what it refuses of a house that marks what it signs."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato import Refused
from sfumato.client.ask_terms import Json
from sfumato.client.remote_vault import HttpRequest, conversation
from sfumato.features.surveys.answered_waves import kept_waves, waves_at
from sfumato.features.surveys.blind_signatures import PublicKey, is_proven
from sfumato.features.surveys.client import invite
from sfumato.features.surveys.model import read_survey
from sfumato.features.surveys.randomised_report import Published, words_for
from sfumato.features.surveys.respondent_client import (
    Device,
    ServerConnection,
    forget_ballot,
    keep_ballot,
    keep_waves,
    kept_ballot,
    proven,
    published,
    read,
    shown,
)
from support.small_vaults import make_vault
from support.survey_fixtures import DICE, TRUTHS, design, device


class Tagging:
    """A house that marks every signature, so that it knows the token again; and notes the calls."""

    def __init__(self, house: ServerConnection, survey: str) -> None:
        self.house, self.key = house, published(house, survey).key
        self.calls: list[str] = []

    def call(self, verb: str, body: Json) -> Json:
        """Answer as the house does, but mark what it signs."""
        self.calls.append(verb)
        given = self.house.call(verb, body)
        if verb != "survey-token":
            return given
        marked = int.from_bytes(read(str(given["signed"])), "big") * 7919 % self.key.modulus
        return {**given, "signed": shown(marked.to_bytes(self.key.size, "big"))}


@pytest.mark.parametrize("said", ["0.0.9", "0.0.10 1.0.12", " ".join(["19.19.20"] * 20)])
def test_no_length_tells_what_a_report_says(said: str) -> None:
    body: Json = {
        "survey": "s",
        "token": shown(bytes(32)),
        "signature": shown(bytes(384)),
        "said": said,
    }
    sent = next(conversation("survey-report", body, DICE.draw))
    assert isinstance(sent, HttpRequest)
    assert len(sent.body or "") == 2048
    assert json.loads(sent.body or "")["said"] == said


class Unproven:
    """A house with a key that may mark people: what it says of its key is changed."""

    def __init__(self, house: ServerConnection, proof: object) -> None:
        self.house, self.proof = house, proof
        self.calls: list[str] = []

    def call(self, verb: str, body: Json) -> Json:
        """Answer as the house does, with another proof."""
        self.calls.append(verb)
        given = self.house.call(verb, body)
        return {**given, "proof": self.proof} if verb == "survey" else given


def test_a_house_whose_key_is_not_proven_is_told_nothing(tmp_path: Path) -> None:
    with sfumato.open(make_vault(tmp_path)) as house:
        made = [house.call("publish-survey", {"survey": design(title=t)}) for t in ("A", "B")]
        survey, other = (str(one["survey"]) for one in made)
        (code,) = invite(house, survey, 1)
        theirs = house.call("survey", {"survey": other})["proof"]
        for proof in (None, [], theirs, ["AAAA"] * 8):
            unproven = Unproven(house, proof)
            with pytest.raises(Refused) as refused:
                device().answer(unproven, survey, code, TRUTHS)
            assert refused.value.code == "ballot-forged"
            assert unproven.calls == ["survey"]
        assert device().answer(house, survey, code, TRUTHS).mark


class Losing:
    """A house whose answers to one verb are lost on their way, so many times."""

    def __init__(self, house: ServerConnection, verb: str, times: int) -> None:
        self.house, self.verb, self.left = house, verb, times

    def call(self, verb: str, body: Json) -> Json:
        """Do it; and lose what came of it."""
        given = self.house.call(verb, body)
        if verb != self.verb or self.left == 0:
            return given
        self.left -= 1
        raise Refused("service-down", "It is down.", "Try later.")


@pytest.mark.parametrize("verb", ["survey-token", "survey-report"])
def test_a_ballot_that_is_kept_survives_every_reply_that_is_lost(tmp_path: Path, verb: str) -> None:
    with sfumato.open(make_vault(tmp_path)) as house:
        survey = str(house.call("publish-survey", {"survey": design()})["survey"])
        (code,) = invite(house, survey, 1)
        losing, made, at = Losing(house, verb, 2), proven(house, survey), tmp_path / "device"
        keep_ballot(at, device().begun(made, code, TRUTHS))
        for _ in range(2):
            waiting = kept_ballot(at, survey)
            assert waiting is not None
            with pytest.raises(Refused):
                waiting.signed(losing, made).send(losing)
        again = kept_ballot(at, survey)
        assert again is not None
        assert again.signed(losing, made).send(losing)["counted"] in ("now", "before")
        house.call("close-survey", {"survey": survey})
        assert house.call("survey-estimates", {"survey": survey})["reports"] == 1
        forget_ballot(at, survey)
        assert kept_ballot(at, survey) is None


def test_a_ballot_that_is_kept_has_no_answer_in_it_and_is_for_one_reader(tmp_path: Path) -> None:
    with sfumato.open(make_vault(tmp_path)) as house:
        survey = str(house.call("publish-survey", {"survey": design()})["survey"])
        made, at = proven(house, survey), tmp_path / "device"
        keep_ballot(at, device().begun(made, "a code", TRUTHS))
        (file,) = tmp_path.glob("device.waiting.*")
        assert file.stat().st_mode & 0o077 == 0
        kept = json.loads(file.read_text())
        assert set(kept) == {"survey", "invitation", "said", "inverse", "token", "blinded"}
        assert "by bus" not in file.read_text()
        file.write_text(file.read_text()[:50])  # by no fall of ours: it may have been sent
        with pytest.raises(Refused) as refused:
            kept_ballot(at, survey)
        assert refused.value.code == "not-allowed"


def test_a_house_that_marks_its_signatures_is_told_nothing(tmp_path: Path) -> None:
    with sfumato.open(make_vault(tmp_path)) as house:
        survey = str(house.call("publish-survey", {"survey": design()})["survey"])
        code, fair = invite(house, survey, 2)
        tagging = Tagging(house, survey)
        with pytest.raises(Refused) as refused:
            device().answer(tagging, survey, code, TRUTHS)
        assert refused.value.code == "ballot-forged"
        assert tagging.calls == ["survey", "survey-token"]
        assert device().answer(house, survey, fair, TRUTHS).mark


class Garbling:
    """A house of whose replies one is garbled: a value of it is another, or is not there."""

    def __init__(self, house: ServerConnection, verb: str, key: str, value: object) -> None:
        self.house, self.verb, self.key, self.value = house, verb, key, value

    def call(self, verb: str, body: Json) -> Json:
        """Answer as the house does, but for that value."""
        given = self.house.call(verb, body)
        if verb != self.verb:
            return given
        if self.value is Garbling:
            return {key: value for key, value in given.items() if key != self.key}
        return {**given, self.key: self.value}


def garbled(good: object, dice: random.Random) -> Iterator[object]:
    """Yield what may stand in a reply instead of what is right."""
    yield from (Garbling, None, 7, -1.5, True, "", "é", "=", "A", "\ud800", [], [7], {}, "[" * 9000)
    text = good if isinstance(good, str) else json.dumps(good)
    for _ in range(12):
        at = dice.randrange(len(text))
        odd = dice.choice('0aZ-_="{}[],:é ')
        yield text[:at] + odd + text[at + 1 :]
        yield text[:at] + text[at + dice.randrange(9) :]
    if isinstance(good, list):
        yield from (good[:-1], [*good, good[0]], [None] * 8, ["A" * 342] * 8, [good] * 8)


def test_whatever_a_house_replies_a_device_refuses_it_or_is_counted(tmp_path: Path) -> None:
    """Nothing but a refusal comes of it: no reply, however odd, falls through a respondent."""
    dice, came_through = random.Random(5), list[tuple[str, object]]()
    with sfumato.open(make_vault(tmp_path)) as house:
        survey = str(house.call("publish-survey", {"survey": design()})["survey"])
        (code,) = invite(house, survey, 1)
        found = house.call("survey", {"survey": survey})
        waiting = device().begun(proven(house, survey), code, TRUTHS)
        signed = waiting.signed(house, proven(house, survey)).signature
        goods = {("survey", key): found[key] for key in ("text", "state", "proof")}
        for (verb, key), good in {**goods, ("survey-token", "signed"): shown(signed)}.items():
            for value in (one for one in garbled(good, dice) if one != good):
                odd = Garbling(house, verb, key, value)
                with contextlib.suppress(Refused):
                    assert waiting.signed(odd, proven(odd, survey)).said == waiting.said
                    came_through.append((key, value))
    assert {key for key, _ in came_through} <= {"proof", "signed"}  # letters that mean the same


@pytest.mark.parametrize(
    "key",
    [
        {"n": "-" + "f" * 512, "e": 65537}, {"n": "f" * 512, "e": 65537.5}, {"n": 7, "e": 65537},
        {"n": "f" * 512, "e": float("inf")}, {"n": "0", "e": 0}, {"n": "f" * 9000, "e": -1}, None,
    ],
)  # fmt: skip
def test_a_survey_whose_key_is_none_is_refused(tmp_path: Path, key: object) -> None:
    with sfumato.open(make_vault(tmp_path)) as house:
        survey = str(house.call("publish-survey", {"survey": design()})["survey"])
        table = json.loads(str(house.call("survey", {"survey": survey})["text"]))
        text = json.dumps({**table, "key": key}, sort_keys=True, separators=(",", ":"))
        with pytest.raises(Refused) as refused:
            proven(Garbling(house, "survey", "text", text), survey)
        assert refused.value.code == "bad-survey"


@pytest.mark.parametrize("exponent", [-65537, 3, 65538])
def test_no_odd_number_is_a_proven_key(exponent: int) -> None:
    for modulus in (-(2**2047) - 1, 2**2047, 0, 1, -1):
        assert not is_proven(PublicKey(modulus, 65537), [b""] * 8)
        assert not is_proven(PublicKey(abs(modulus) | 1, exponent), [b""] * 8)


def wave(made: Published, **changed: Any) -> Published:
    """Return another wave, as a house could publish it that keeps to no rule."""
    shape = {**made.survey.shape(), **changed}
    return Published(read_survey(shape), made.key)


EVER: dict[str, Any] = {"series": "daily", "ever": 6, "lifetime": 10}


def test_no_order_of_questions_draws_another_one(tmp_path: Path) -> None:
    """What all waves tell of one device is `ever`, so of every order it says the same question."""
    questions = [{"id": f"q{n}", "text": f"Question {n}?", "kind": "yes-no"} for n in range(3)]
    shape = design(**EVER, budget="sampled", questions=questions)
    made = Published(read_survey(shape), PublicKey(2**2048 - 1942289, 65537))
    for own in (device() for _ in range(20)):
        said: set[str] = set()
        for order in permutations(questions):
            asked = wave(made, questions=list(order))
            with contextlib.suppress(Refused):
                own.begun(asked, "a code", {})
                said.add(words_for(asked, own.said(asked, {}))[0][0])
        assert len(said) == 1


@pytest.mark.parametrize(
    ("answered", "other"),
    [
        ([{}], {"ever": 7}),  # lasting answers of their own
        ([{}], {"ever": None}),
        ([{"ever": None}], {}),
        ([{}, {"ever": None, "epsilon": 6}], {"ever": None}),  # the promise of the first stays
        ([{"ever": None}, {"ever": None, "epsilon": 6}], {}),  # it would not be all that was told
    ],
)
def test_a_device_answers_no_wave_that_asks_otherwise(
    tmp_path: Path, answered: list[dict[str, Any]], other: dict[str, Any]
) -> None:
    made = Published(read_survey(design(**EVER)), PublicKey(2**2048 - 1942289, 65537))
    own, at = device(), tmp_path / "device"
    for changed in answered:
        own.begun(wave(made, **changed), "a code", TRUTHS)
        own.begun(wave(made, **changed, title="The week after"), "a code", TRUTHS)
    keep_waves(at, own.waves or {})
    again = Device(own.secret, own.coins, kept_waves(at))
    for one in (own, again):
        with pytest.raises(Refused) as refused:
            one.begun(wave(made, **other), "a code", TRUTHS)
        assert refused.value.code == "bad-survey"
        assert one.begun(wave(made, **other, series="weekly"), "a code", TRUTHS).said
    assert waves_at(at).stat().st_mode & 0o077 == 0
    waves_at(at).write_text("{")
    with pytest.raises(Refused):  # what was answered is not known any more
        kept_waves(at)
