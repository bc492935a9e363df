"""Surveys from the shell: simulated, published, answered without a browser, and looked at."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import sfumato
from sfumato.features.surveys.cli import _estimated
from sfumato.features.surveys.client import invite
from sfumato.features.surveys.device_files import KeptDevice
from sfumato.features.surveys.respondent_client import keep_ballot, kept_ballot, proven
from support.small_vaults import SFUMATO, make_vault, run
from support.survey_fixtures import DICE, TRUTHS, design, device


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return make_vault(tmp_path)


def answered(
    vault: Path, survey: str, typed: str, device: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SFUMATO, "survey", "answer", survey, "--device", str(device)],
        input=typed, text=True, capture_output=True, check=False, timeout=120,
        env={"SFUMATO_VAULT": str(vault), "PATH": "/usr/bin:/bin", "HOME": str(vault.parent)},
    )  # fmt: skip


def test_seventy_becomes_sixty_and_comes_back(vault: Path) -> None:
    made = run(vault, "survey", "simulate", "--people", "100000", "--json")
    told = json.loads(made.stdout)
    assert told["truth"] == 0.7
    assert abs(told["observed"] - 0.6) < 0.01
    assert told["low"] < told["value"] < told["high"]
    assert abs(told["value"] - 0.7) < 0.02  # six standard deviations; one interval in 20 misses
    assert abs(told["epsilon"] - 1.0986) < 1e-3
    errors = told["errors"]
    assert abs(errors["100"] / errors["10000"] - 10) < 0.01


def test_a_survey_is_published_answered_and_closed(vault: Path, tmp_path: Path) -> None:
    path = tmp_path / "design.json"
    lies = "On work.\n\nWhat others can learn about you:\n- This ballot gives away 0.01."
    path.write_text(json.dumps(design(minimum=10, about=lies)), "utf-8")
    assert (
        "A ballot costs the respondent epsilon" in run(vault, "survey", "preview", str(path)).stdout
    )
    made = json.loads(run(vault, "survey", "publish", str(path), "--json").stdout)
    survey = made["survey"]
    codes = run(vault, "survey", "invite", survey, "--count", "2").stdout.split()
    here = tmp_path / "device"
    done = answered(vault, survey, f"{codes[0]}\nmaybe\nyes\nby bus\ny\n", here)
    assert done.returncode == 0, done.stderr
    assert "That is not an answer to this question." in done.stderr
    assert_told_before_asked(done.stderr)
    assert codes[0] not in done.stdout + done.stderr
    assert here.stat().st_mode & 0o077 == 0
    second = answered(vault, survey, f"{codes[1]}\n\n\ny\n", here)
    assert second.returncode == 3
    assert "--device" in second.stderr
    here = tmp_path / "another"
    assert answered(vault, survey, f"{codes[1]}\n\n\nn\n", here).returncode == 3
    again = answered(vault, survey, f"{codes[1]}\n\n\ny\n", here)
    assert again.returncode == 0, again.stderr
    assert "answered with this device: epsilon 2.00" in again.stdout  # and not that of the other
    assert "2 reports" in run(vault, "survey", "close", survey).stdout
    reports = run(vault, "survey", "reports", survey).stdout.splitlines()
    assert reports[0] == "mark,said"
    marks = {line.partition(",")[0] for line in reports[1:]}
    assert {one.stdout.split()[-1] for one in (done, again)} == marks
    assert "Results are shown once" in run(vault, "survey", "results", survey).stdout
    assert survey in run(vault, "survey", "list").stdout


def test_no_word_of_whoever_asks_can_pass_for_the_devices_own(vault: Path, tmp_path: Path) -> None:
    """However long it is: a terminal would begin a line of its own with what does not fit."""
    lie = "Nothing is sent at all."
    long = f"{'x ' * 60}{lie} {lie} {'y' * 120}"
    questions = [
        {"text": f"1 {long}", "kind": "yes-no"},
        {"text": f"2 {long}", "kind": "choice", "options": [lie, f"{lie} {long}"[:200]]},
        {"text": f"3 {long}", "kind": "number", "low": 0, "high": 9, "unit": lie},
        {"text": f"4 {long}", "kind": "several", "options": [lie, f"{lie} Or yes."]},
    ]
    shape = design(title=long[:200], asks=lie, about=f"{lie}\n{long}\n\n{lie}", questions=questions)
    with sfumato.open(vault) as house:
        survey = str(house.call("publish-survey", {"survey": shape})["survey"])
        (code,) = invite(house, survey, 1)
    done = answered(vault, survey, f"{code}\nyes\n{lie}\n3\n1\ny\n", tmp_path / "device")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    told = [line for line in lines if "Nothing" in line or "x x" in line or "yyy" in line]
    assert len(told) > 30
    assert {line[:4] for line in told} == {"  | "}
    assert max(len(line) for line in told) < 80  # as wide as a terminal that does not say
    assert all(lie not in line for line in done.stdout.splitlines())


def test_a_preview_tells_every_question_for_every_epsilon(vault: Path, tmp_path: Path) -> None:
    path = tmp_path / "design.json"
    path.write_text(json.dumps(design()), "utf-8")
    told = json.loads(run(vault, "survey", "preview", str(path), "--json").stdout)
    assert [row["epsilon"] for row in told["table"]] == [0.25, 0.5, 1, 2, 3, 4]
    assert {len(row["expected"]) for row in told["table"]} == {2}
    (same,) = (row for row in told["table"] if row["epsilon"] == 2)
    assert same["expected"] == told["expected"]
    lines = run(vault, "survey", "preview", str(path)).stdout.splitlines()
    assert (
        sum(line.count("±") + line.count("no estimate is possible") for line in lines) == 2 + 6 * 2
    )


def assert_told_before_asked(shown: str) -> None:
    before, _, _ = shown.partition("Your invitation")
    lines = before.splitlines()
    assert lines.count("What others can learn about you:") == 1  # of two, one is the house's word
    assert [one for one in lines if "0.01" in one] == [one for one in lines if "| - This" in one]
    assert "gives away epsilon 2.00 at most" in before
    assert "one of all 3 answers, “no answer” among them" in before
    assert "can become 74 in 100 sure of it, not more; of something that all 2" in before
    assert "An invitation without a name is a person of its own" in before
    assert "nothing is sent before you say yes" in before


def test_a_ballot_whose_signature_was_lost_is_sent_by_the_same_command(
    vault: Path, tmp_path: Path
) -> None:
    """The reply never came, or the machine fell: the invitation would sign no other token."""
    at = tmp_path / "device"
    with sfumato.open(vault) as house:
        survey = str(house.call("publish-survey", {"survey": design(minimum=10)})["survey"])
        (code,) = invite(house, survey, 1)
        waiting = device().begun(proven(house, survey), code, TRUTHS)
        keep_ballot(at, waiting)
        waiting.signed(house, proven(house, survey))  # and the reply is lost
    done = answered(vault, survey, "", at)
    assert done.returncode == 0, done.stderr
    assert "was not sent yet. It is sent now" in done.stderr
    assert not list(tmp_path.glob("device.waiting*"))
    assert "1 report." in run(vault, "survey", "close", survey).stdout
    assert waiting.said in run(vault, "survey", "reports", survey).stdout


@pytest.mark.parametrize("reply", [{}, {"signed": ""}, {"signed": "AAAA"}, {"signed": "A" * 683}])
def test_a_reply_that_was_garbled_costs_nobody_their_ballot(
    vault: Path, tmp_path: Path, reply: dict[str, str]
) -> None:
    """The invitation is bound to this ballot, whatever came back."""
    at = tmp_path / "device"
    with sfumato.open(vault) as house:
        survey = str(house.call("publish-survey", {"survey": design(minimum=10)})["survey"])
        (code,) = invite(house, survey, 1)
        asked = proven(house, survey)
        waiting = device().begun(asked, code, TRUTHS)
        keep_ballot(at, waiting)
        garbled = SimpleNamespace(call=lambda verb, body: house.call(verb, body) and reply)
        with pytest.raises(sfumato.Refused):
            KeptDevice(at, DICE.draw).send(garbled, asked, waiting)
        assert kept_ballot(at, survey) == waiting
    assert answered(vault, survey, "", at).returncode == 0


def test_a_code_that_is_mistyped_leaves_nothing_waiting(vault: Path, tmp_path: Path) -> None:
    with sfumato.open(vault) as house:
        survey = str(house.call("publish-survey", {"survey": design()})["survey"])
        (code,) = invite(house, survey, 1)
    at = tmp_path / "device"
    typed = "AAAA-AAAA-AAAA-AAAA\n\n\ny\n"
    assert answered(vault, survey, typed, at).returncode == 3
    assert not list(tmp_path.glob("device.waiting*"))
    assert answered(vault, survey, f"{code}\n\n\ny\n", at).returncode == 0


def test_what_is_no_design_is_refused(vault: Path, tmp_path: Path) -> None:
    path = tmp_path / "design.json"
    path.write_text("[]", "utf-8")
    assert run(vault, "survey", "publish", str(path)).returncode == 3


def test_a_shell_answers_no_wave_that_asks_otherwise(vault: Path, tmp_path: Path) -> None:
    at, waves = tmp_path / "device", tmp_path / "device.series"
    with sfumato.open(vault) as house:
        shape = design(series="weekly", ever=6)
        made = [house.call("publish-survey", {"survey": {**shape, "title": t}}) for t in "ABC"]
        first, second, third = (str(one["survey"]) for one in made)
        codes = [invite(house, survey, 1)[0] for survey in (first, second, third)]
    for survey, code in ((first, codes[0]), (second, codes[1])):
        done = answered(vault, survey, f"{code}\n\n\ny\n", at)
        assert done.returncode == 0, done.stderr
    ((name, wave),) = json.loads(waves.read_text()).items()
    waves.write_text(json.dumps({name: {**wave, "memos": "of another wave"}}))
    refused = answered(vault, third, f"{codes[2]}\n\n\ny\n", at)
    assert refused.returncode == 3
    assert "its questions differ" in refused.stderr
    assert not list(tmp_path.glob("device.waiting*"))


def test_a_share_is_shown_in_percent_and_a_mean_in_its_own_unit() -> None:
    one = {"label": "yes", "value": 0.3333, "low": 0.09753, "high": 0.6196, "liars": 0.015}
    says = (
        "  yes: 33.3 % (9.75 to 62 %); if 1 % of the respondents lie, it moves by at most "
        "1.5 points"
    )
    assert _estimated({"measure": "share"}, one) == says
    says = (
        "  yes: 0.3333 (0.09753 to 0.6196); if 1 % of the respondents lie, it moves by at "
        "most 0.015"
    )
    assert _estimated({"measure": "mean"}, one) == says
