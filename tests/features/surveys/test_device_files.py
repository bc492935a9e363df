"""A respondent's device in files: it falls at any moment, and neither draws nor votes anew."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from fractions import Fraction
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import sfumato
from sfumato import Refused
from sfumato.client.ask_terms import Json
from sfumato.features.surveys.blind_signatures import PublicKey
from sfumato.features.surveys.client import invite, reports
from sfumato.features.surveys.device_files import KeptDevice
from sfumato.features.surveys.model import read_survey
from sfumato.features.surveys.randomised_report import Published
from sfumato.features.surveys.respondent_client import Device, ServerConnection, proven
from support.small_vaults import make_vault
from support.survey_fixtures import DICE, TRUTHS, design

KEY = PublicKey(2**2048 - 1942289, 65537)
EVER: dict[str, Any] = {"series": "daily", "ever": 6, "lifetime": 10}


def kept(at: Path) -> KeptDevice:
    return KeptDevice(at, DICE.draw)


class Fall(BaseException):
    """The device is gone, at once."""


class Falling:
    """A house, and a device that falls at one of its steps: at a write, or beside a call."""

    def __init__(self, house: ServerConnection, at: int) -> None:
        self.house, self.left, self.is_inside = house, at, False
        self.seen: dict[str, set[str]] = {"blinded": set(), "token": set(), "said": set()}

    def call(self, verb: str, body: Json) -> Json:
        """Answer as the house does, and note what it was told."""
        self.step()
        for name in self.seen.keys() & body.keys():
            self.seen[name].add(str(body[name]))
        self.is_inside = True
        given = self.house.call(verb, body)
        self.is_inside = False
        self.step()
        return given

    def step(self) -> None:
        """Fall, if it is this one."""
        self.left -= 1
        if self.left == 0:
            raise Fall


def test_a_device_that_falls_at_any_step_draws_nothing_anew_and_votes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, at, is_over = os.fsync, 0, False
    with sfumato.open(make_vault(tmp_path)) as house:
        survey = str(house.call("publish-survey", {"survey": design(minimum=10)})["survey"])
        codes, made = invite(house, survey, 40), proven(house, survey)
        while not is_over:
            falling, own = Falling(house, at + 1), kept(tmp_path / f"device {at}")

            def fsync(file: int, falling: Falling = falling) -> None:
                if not falling.is_inside:
                    falling.step()
                synced(file)

            monkeypatch.setattr(os, "fsync", fsync)
            with contextlib.suppress(Fall):
                own.answer(falling, survey, codes[at], TRUTHS)
                is_over = True
            monkeypatch.setattr(os, "fsync", synced)
            falling.left = 0  # it has fallen
            with contextlib.suppress(Refused):  # it may have arrived already
                kept(own.path).answer(falling, survey, codes[at], TRUTHS)
            assert {name: len(seen) for name, seen in falling.seen.items()} == dict.fromkeys(
                falling.seen, 1
            )
            assert falling.seen["said"] == {kept(own.path).device().said(made, TRUTHS)}
            assert own.spent == made.epsilon
            assert not list(tmp_path.glob(f"{own.path.name}.waiting*"))
            at += 1
        house.call("close-survey", {"survey": survey})
        assert house.call("survey-estimates", {"survey": survey})["reports"] == at
    assert at > 12  # or it never fell where it hurts


def test_a_device_that_forgets_answers_no_series() -> None:
    made = Published(read_survey(design(**EVER)), KEY)
    with pytest.raises(Refused) as refused:
        Device.new(DICE.draw).begun(made, "a code", TRUTHS)
    assert refused.value.code == "not-allowed"
    assert "KeptDevice" in refused.value.next_step
    alone = Published(read_survey(design()), KEY)
    assert Device.new(DICE.draw).begun(alone, "a code", TRUTHS).said


def test_a_kept_device_remembers_its_waves_without_being_asked(tmp_path: Path) -> None:
    made = Published(read_survey(design(**EVER)), KEY)
    other = Published(read_survey(design(**{**EVER, "ever": 7})), KEY)
    kept(tmp_path / "device").begun(made, "a code", TRUTHS)
    again = kept(tmp_path / "device")
    with pytest.raises(Refused) as asked:
        again.waiting(other)
    with pytest.raises(Refused) as begun:
        again.begun(other, "a code", TRUTHS)
    assert asked.value.code == begun.value.code == "bad-survey"


def test_two_that_make_a_device_at_once_have_one_secret(tmp_path: Path) -> None:
    """The first may have answered by then: its secret is not written over."""
    first, second = kept(tmp_path / "device"), kept(tmp_path / "device")
    secrets: list[bytes] = []

    def draw(size: int) -> bytes:
        secrets.append(first.device().secret)
        return DICE.draw(size)

    assert KeptDevice(second.path, draw).device().secret == secrets[0] == first.device().secret
    assert [one.name for one in tmp_path.iterdir()] == ["device"]
    assert second.path.stat().st_mode & 0o077 == 0


def test_of_two_kinds_of_waves_that_are_answered_at_once_one_is_refused(tmp_path: Path) -> None:
    """A house can invite to both; each would tell all that was promised of the series."""
    made = Published(read_survey(design(**EVER)), KEY)
    other = Published(read_survey(design(**{**EVER, "ever": 7})), KEY)
    with ThreadPoolExecutor(1) as another:
        begun: list[Future[object]] = []

        def draw(size: int) -> bytes:
            if not begun:  # the first has looked at what it answered before
                begun.append(another.submit(kept(tmp_path / "device").begun, other, "b", TRUTHS))
                wait(begun, timeout=1)
            return DICE.draw(size)

        kept(tmp_path / "device").device()
        KeptDevice(tmp_path / "device", draw).begun(made, "a", TRUTHS)
        with pytest.raises(Refused) as refused:
            begun[0].result()
    assert refused.value.code == "bad-survey"


def test_many_ballots_of_one_device_at_once_are_all_remembered(tmp_path: Path) -> None:
    made = [Published(read_survey(design(**EVER | {"series": f"{n}"})), KEY) for n in range(8)]
    all_there = Barrier(len(made))

    def begun(one: Published) -> str:
        all_there.wait()
        return kept(tmp_path / "device").begun(one, "a code", TRUTHS).said

    with ThreadPoolExecutor(len(made)) as several:
        said = list(several.map(begun, made))
    own = kept(tmp_path / "device").device()
    assert len(own.waves or {}) == len(made)
    assert said == [own.said(one, TRUTHS) for one in made]  # of one secret
    assert {one.stat().st_mode & 0o077 for one in tmp_path.iterdir()} == {0}
    assert not list(tmp_path.glob("*.draft"))


def test_a_ballot_that_was_begun_elsewhere_is_not_written_over(tmp_path: Path) -> None:
    made = Published(read_survey(design()), KEY)
    waiting = kept(tmp_path / "device").begun(made, "a code", TRUTHS)
    with pytest.raises(Refused):
        kept(tmp_path / "device").begun(made, "another", TRUTHS)
    assert kept(tmp_path / "device").waiting(made) == waiting


@pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
def test_what_is_no_secret_is_not_written_over(tmp_path: Path, content: bytes) -> None:
    at = tmp_path / "device"
    at.write_bytes(content)
    at.chmod(0o600)
    with pytest.raises(Refused):
        kept(at).device()
    assert at.read_bytes() == content


def test_a_device_sums_what_left_it_and_not_what_the_house_would_not_sign(tmp_path: Path) -> None:
    own = kept(tmp_path / "device")
    with sfumato.open(make_vault(tmp_path)) as house:
        made = [house.call("publish-survey", {"survey": design(title=t)}) for t in ("A", "B")]
        first, second = (str(one["survey"]) for one in made)
        with pytest.raises(Refused):
            own.answer(house, first, "AAAA-AAAA-AAAA-AAAA", TRUTHS)
        assert own.spent == 0
        for survey in (first, second):
            own.answer(house, survey, invite(house, survey, 1)[0], TRUTHS)
            with pytest.raises(Refused):
                own.answer(house, survey, invite(house, survey, 1)[0], TRUTHS)
        assert own.spent == 2 * proven(house, first).epsilon > Fraction(3)
        for survey in (first, second):
            house.call("close-survey", {"survey": survey})
        public = [one for survey in (first, second) for one in reports(house, survey)]
    left = "".join(one.read_text("latin-1") for one in tmp_path.glob("device*"))
    assert len(public) == 2
    assert not [mark for mark, _ in public if mark in left]  # nothing leads to the own report
    spent = tmp_path / "device.spent"
    assert spent.stat().st_mode & 0o077 == 0
    for odd in ("{", "[]", '{"a": "1/0"}', '{"a": "much"}'):
        spent.write_text(odd)
        with pytest.raises(Refused):
            _ = own.spent


@pytest.mark.parametrize("odd", ["", "\n", "a" * 32, f"{'a' * 32}\nbb", "caf\u00e9\n", None])
def test_a_list_of_answered_surveys_that_was_damaged_is_no_ground_to_answer_again(
    tmp_path: Path, odd: str | None
) -> None:
    own, answered = kept(tmp_path / "device"), tmp_path / "device.answered"
    with sfumato.open(make_vault(tmp_path)) as house:
        survey = str(house.call("publish-survey", {"survey": design(minimum=10)})["survey"])
        first, second = invite(house, survey, 2)
        own.answer(house, survey, first, TRUTHS)
        assert answered.read_text("ascii") == f"{survey}\n"
        answered.unlink()
        if odd is None:
            answered.mkdir()
        else:
            answered.write_text(odd, "utf-8")
        with pytest.raises(Refused) as refused:
            own.answer(house, survey, second, TRUTHS)
        assert refused.value.code == "not-allowed"
        assert str(answered) in refused.value.cause
        assert "Restore this file" in refused.value.next_step
        house.call("close-survey", {"survey": survey})
        assert len(reports(house, survey)) == 1


def test_a_lost_list_of_answered_surveys_is_no_ground_to_answer_again(tmp_path: Path) -> None:
    """Its sum says that a ballot has left."""
    own = kept(tmp_path / "device")
    with sfumato.open(make_vault(tmp_path)) as house:
        made = [house.call("publish-survey", {"survey": design(title=t)}) for t in ("A", "B")]
        survey, other = (str(one["survey"]) for one in made)
        own.answer(house, survey, invite(house, survey, 1)[0], TRUTHS)
        (tmp_path / "device.answered").unlink()
        with pytest.raises(Refused) as refused:
            own.answer(house, survey, invite(house, survey, 1)[0], TRUTHS)
        assert "has already sent a ballot" in refused.value.cause
        own.answer(house, other, invite(house, other, 1)[0], TRUTHS)


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another survey": lambda kept_: {**kept_, "survey": "b" * 32},
    "a number": lambda kept_: {**kept_, "said": 5},
    "a bent token": lambda kept_: {**kept_, "token": f"!{kept_['token']}"},
    "no token": lambda kept_: {name: kept_[name] for name in kept_ if name != "token"},
    "a list": list,
    "nothing": lambda _: None,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_ballot_that_was_damaged_is_not_drawn_anew(tmp_path: Path, damage: str) -> None:
    """It may have been sent: another in its place, of another truth, would tell more."""
    made, own = Published(read_survey(design()), KEY), kept(tmp_path / "device")
    own.begun(made, "a code", TRUTHS)
    (waiting,) = tmp_path.glob("device.waiting.*")
    whole = waiting.read_text("ascii")
    again: tuple[Callable[[], object], ...] = (
        lambda: own.waiting(made),
        lambda: own.begun(made, "a code", TRUTHS),
    )
    for text in (json.dumps(DAMAGES[damage](json.loads(whole))), whole[: len(whole) // 2], "é"):
        waiting.write_text(text, "utf-8")
        for one in again:
            with pytest.raises(Refused) as refused:
                one()
            assert refused.value.code == "not-allowed"
            assert str(waiting) in refused.value.cause
        assert waiting.read_text("utf-8") == text
    waiting.write_text(whole, "ascii")
    assert own.waiting(made) is not None


@pytest.mark.parametrize("left", ["series", "answered", "spent"])
def test_a_device_whose_secret_is_gone_draws_no_fresh_one(tmp_path: Path, left: str) -> None:
    """What it answered is still there; a fresh secret would answer all of it once more."""
    own, secret = kept(tmp_path / "device"), tmp_path / "device"
    with sfumato.open(make_vault(tmp_path)) as house:
        shape = design(series="weekly", ever=6)
        made = [house.call("publish-survey", {"survey": {**shape, "title": t}}) for t in "AB"]
        first, second = (str(one["survey"]) for one in made)
        own.answer(house, first, invite(house, first, 1)[0], TRUTHS)
        whole = {path: path.read_bytes() for path in tmp_path.glob("device*")}
        for path in whole:
            if path.name not in (f"device.{left}", "device.lock"):
                path.unlink()
        (code,) = invite(house, second, 1)
        with pytest.raises(Refused) as refused:
            own.answer(house, second, code, TRUTHS)
        assert refused.value.code == "not-allowed"
        assert f"device.{left}" in refused.value.cause
        assert "--device" in refused.value.next_step
        assert not secret.exists()
        for path, content in whole.items():
            path.write_bytes(content)
            path.chmod(0o600)
        assert own.answer(house, second, code, TRUTHS).mark


@pytest.mark.parametrize("first", [{"series": "weekly", "ever": 6}, {}])
def test_a_device_whose_list_of_series_is_lost_answers_no_wave(
    tmp_path: Path, first: dict[str, Any]
) -> None:
    """Every wave would be its first one, also those that ask otherwise than what was answered."""
    own, series = kept(tmp_path / "device"), tmp_path / "device.series"
    with sfumato.open(make_vault(tmp_path)) as house:
        wave = design(title="B", series="weekly", ever=6)
        shapes = [{**design(), **first}, wave, design(title="C")]
        made = [house.call("publish-survey", {"survey": shape}) for shape in shapes]
        codes = [(str(one["survey"]), invite(house, str(one["survey"]), 1)[0]) for one in made]
        own.answer(house, *codes[0], TRUTHS)
        whole = series.read_text("ascii")
        series.unlink()
        for one in ("answered", "spent"):  # either says that a device was here
            other = tmp_path / f"device.{one}"
            other.rename(tmp_path / "away")
            with pytest.raises(Refused) as refused:
                own.answer(house, *codes[1], TRUTHS)
            assert str(series) in refused.value.cause
            assert "adds up" in refused.value.next_step
            (tmp_path / "away").rename(other)
        own.answer(house, *codes[2], TRUTHS)  # by itself it needs no list, and begins none
        assert not series.exists()
        series.write_text(whole, "ascii")
        assert own.answer(house, *codes[1], TRUTHS).mark


def test_a_ballot_that_waits_is_sent_though_the_secret_is_gone(tmp_path: Path) -> None:
    own = kept(tmp_path / "device")
    with sfumato.open(make_vault(tmp_path)) as house:
        survey = str(house.call("publish-survey", {"survey": design(minimum=10)})["survey"])
        (code,) = invite(house, survey, 1)
        waiting = own.begun(proven(house, survey), code, TRUTHS)
        own.path.unlink()
        assert own.answer(house, survey, code, {}).said == waiting.said
        house.call("close-survey", {"survey": survey})
        assert [said for _, said in reports(house, survey)] == [waiting.said]
