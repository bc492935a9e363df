"""New people are confirmed by a user who is asked: until they agree, no row is read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato import Refused
from sfumato.vault.users import Caller, User
from sfumato.wire.json_text import json_text
from support.ledger_stores import SetClock
from support.served_vault import Service, served
from support.small_vaults import PATIENTS_CARD, card, make_vault, write_patients

OVER = ("done", "failed", "cancelled")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service where the owner keeps people, and olga wants to bring others."""
    folder = tmp_path_factory.mktemp("confirmed")
    vault = make_vault(folder)
    with sfumato.open(vault) as opened:
        opened.add("patients", write_patients(folder / "patients.csv"), card(PATIENTS_CARD))
    with served(vault) as running:
        running.owner()
        for name, role in (
            ("olga", "owner"), ("otto", "owner"), ("pia", "operator"), ("ada", "researcher"),
            ("aud", "auditor"), ("gone", "operator"),
        ):  # fmt: skip
            running.user(name, role)
        body: dict[str, object] = {"roles": ["operator"], "blocked": True}
        status, said = running.call("PUT", "/v1/users/gone", body, token=running.owner())
        assert status == 200, said
        yield running


def call(
    service: Service, method: str, path: str, body: object = None, by: str = "olga"
) -> tuple[int, Any]:
    return service.call(method, path, body, token=service.tokens[by])


def begin(service: Service, name: str, second: str | None, tmp_path: Path, **more: str) -> Any:
    """Let olga bring rows, and name who agrees that they are of other people."""
    rows = write_patients(tmp_path / f"{name}.csv", 50).read_bytes()
    _, sent = call(service, "PUT", "/v1/uploads?name=rows.csv", rows)
    text = PATIENTS_CARD.replace("city-hospital-patients", f"people-of-{name}")
    body = {"name": name, "upload": sent["upload"], "card": card(text), **more}
    if second is not None:
        body["different_people"] = second
    return call(service, "POST", "/v1/data-sets", json_text(body).encode())


def job_of(service: Service, job: str) -> Any:
    return call(service, "GET", f"/v1/jobs/{job}")[1]


def ended(service: Service, job: str) -> Any:
    deadline = time.monotonic() + 60
    while (said := job_of(service, job))["state"] not in OVER:
        assert time.monotonic() < deadline, said
        time.sleep(0.1)
    return said


def waits(service: Service, by: str, name: str) -> list[Any]:
    found = call(service, "GET", "/v1/approvals", by=by)[1]["approvals"]
    return [one for one in found if one["data_set"] == name]


def decide(service: Service, by: str, approval: str, *, approve: bool) -> tuple[int, Any]:
    return call(service, "POST", f"/v1/approvals/{approval}", {"approve": approve}, by=by)


def entries(service: Service) -> list[tuple[str, Any]]:
    arguments = service.process.args
    assert isinstance(arguments, list)
    with sfumato.open(Path(str(arguments[5]))) as vault:
        found = vault.house.ledger.store.entries()
        return [(entry.kind, json.loads(entry.body)) for entry in found]


@pytest.mark.parametrize("second", ["otto", "pia"])
def test_an_add_waits_until_the_second_person_agrees(
    service: Service, tmp_path: Path, second: str
) -> None:
    name = f"theirs-{second}"
    status, job = begin(service, name, second, tmp_path)
    assert (status, job["state"]) == (200, "waiting")
    time.sleep(1.5)  # the runner looks four times a second
    said = job_of(service, job["job"])
    assert (said["state"], said["waits_for"]) == ("waiting", second)
    assert name not in [card["name"] for kind, b in entries(service) if (card := b.get("card"))]
    (one,) = waits(service, second, name)
    assert (one["kind"], one["state"], one["asked_by"]) == ("people", "waiting", "olga")
    assert (one["asked_of"], one["people"]) == (second, f"people-of-{name}")
    assert decide(service, second, one["approval"], approve=True)[1]["state"] == "approved"
    assert ended(service, job["job"])["state"] == "done"
    signed = [b for kind, b in entries(service) if kind == "card-signed"][-1]
    assert (signed["card"]["name"], signed["different_people"]) == (name, second)
    kinds = [kind for kind, _ in entries(service)]
    assert kinds.index("people-asked") < kinds.index("people-decided")
    assert decide(service, second, one["approval"], approve=False)[0] == 404  # it was decided


def test_a_second_person_who_declines_ends_the_add(service: Service, tmp_path: Path) -> None:
    _, job = begin(service, "declined", "otto", tmp_path, op="declined")
    (one,) = waits(service, "otto", "declined")
    assert decide(service, "otto", one["approval"], approve=False)[1]["state"] == "declined"
    said = ended(service, job["job"])
    assert (said["state"], said["failed"]["code"]) == ("failed", "second-person-needed")
    assert call(service, "GET", "/v1/data-sets/declined")[0] == 404


@pytest.mark.parametrize("second", ["olga", "ada", "aud", "gone", "nobody", "", "OTTO"])
def test_only_another_owner_or_operator_who_may_sign_in_is_asked(
    service: Service, tmp_path: Path, second: str
) -> None:
    status, said = begin(service, "none", second, tmp_path)
    assert (status, said["refused"]["code"]) == (403, "not-allowed")
    assert waits(service, "olga", "none") == []


def test_nobody_agrees_for_the_one_who_was_asked(service: Service, tmp_path: Path) -> None:
    _, job = begin(service, "guarded", "otto", tmp_path)
    (one,) = waits(service, "olga", "guarded")
    assert waits(service, "pia", "guarded") == waits(service, "owner", "guarded") == []
    for by, status in (("pia", 404), ("owner", 404), ("ada", 403), ("aud", 403), ("olga", 403)):
        assert decide(service, by, one["approval"], approve=True)[0] == status, by
    for by in ("pia", "owner"):
        assert decide(service, by, one["approval"], approve=False)[0] == 404
    assert job_of(service, job["job"])["state"] == "waiting"
    assert decide(service, "olga", one["approval"], approve=False)[0] == 200  # taken back
    assert ended(service, job["job"])["state"] == "failed"


def test_without_a_second_person_it_is_refused_where_others_keep_people(
    service: Service, tmp_path: Path
) -> None:
    status, job = begin(service, "alone", None, tmp_path)
    assert status == 200
    assert ended(service, job["job"])["failed"]["code"] == "second-person-needed"


def test_an_add_that_waits_is_cancelled(service: Service, tmp_path: Path) -> None:
    _, job = begin(service, "cancelled", "otto", tmp_path)
    assert call(service, "DELETE", f"/v1/jobs/{job['job']}")[1]["state"] == "cancelled"
    (one,) = waits(service, "otto", "cancelled")
    assert decide(service, "otto", one["approval"], approve=True)[0] == 200
    time.sleep(1)
    assert job_of(service, job["job"])["state"] == "cancelled"
    assert call(service, "GET", "/v1/data-sets/cancelled")[0] == 404


def test_the_same_operation_again_asks_once(service: Service, tmp_path: Path) -> None:
    rows = write_patients(tmp_path / "rows.csv", 50).read_bytes()
    _, sent = call(service, "PUT", "/v1/uploads?name=rows.csv", rows)
    shape = card(PATIENTS_CARD.replace("city-hospital-patients", "twice"))
    body = {
        "name": "twice", "upload": sent["upload"], "card": shape, "different_people": "otto",
        "op": "twice",
    }  # fmt: skip
    for _ in range(3):
        assert call(service, "POST", "/v1/data-sets", json_text(body).encode())[0] == 200
    (one,) = waits(service, "otto", "twice")
    assert decide(service, "otto", one["approval"], approve=False)[0] == 200


def test_in_an_open_folder_the_owners_word_stands(tmp_path: Path) -> None:
    with sfumato.open(make_vault(tmp_path)) as vault:
        rows = write_patients(tmp_path / "patients.csv")
        vault.add("patients", rows, card(PATIENTS_CARD))
        other = PATIENTS_CARD.replace("city-hospital-patients", "others")
        made = vault.add("again", rows, card(other), different_people="the board")
        assert made.people == "others"


DAY = "2026-11-2%dT10:00:0%d+00:00"


def test_a_word_is_good_for_a_day(tmp_path: Path) -> None:
    with sfumato.open(make_vault(tmp_path)) as vault:
        clock = SetClock(DAY % (1, 0))
        confirmations = replace(vault.house.desk.confirmations, clock=clock)
        olga, otto = (Caller(name, frozenset({"own"})) for name in ("olga", "otto"))
        asking = (olga, User("otto", ("owner",), ""), "a-job", ("clinic", "people-of-clinic"))
        first = confirmations.ask(*asking)
        confirmations.decide(otto, first.id, is_approved=True)
        clock.at = DAY % (2, 0)
        confirmations.check("a-job", "otto")
        assert confirmations.ask(*asking).id == first.id
        clock.at = DAY % (2, 1)
        with pytest.raises(Refused) as refused:
            confirmations.check("a-job", "otto")
        assert refused.value.code == "second-person-needed"
        second = confirmations.ask(*asking)
        assert second.id != first.id
        assert confirmations.waits("a-job", first.asked_at)
        confirmations.decide(otto, second.id, is_approved=True)
        confirmations.check("a-job", "otto")


def test_nobody_is_waited_for_longer_than_a_day(tmp_path: Path) -> None:
    with sfumato.open(make_vault(tmp_path)) as vault:
        clock = SetClock(DAY % (1, 0))
        confirmations = replace(vault.house.desk.confirmations, clock=clock)
        olga = Caller("olga", frozenset({"own"}))
        assert confirmations.waits("a-job", clock.at)  # they have still to be asked
        clock.at = DAY % (2, 0)
        confirmations.ask(olga, User("otto", ("owner",), ""), "a-job", ("clinic", "people"))
        clock.at = DAY % (3, 0)
        assert confirmations.waits("a-job", DAY % (1, 0))
        assert not confirmations.waits("another", DAY % (1, 0))
        clock.at = DAY % (3, 1)
        assert not confirmations.waits("a-job", DAY % (1, 0))


def test_an_add_that_was_declined_waits_for_a_new_word(service: Service, tmp_path: Path) -> None:
    rows = write_patients(tmp_path / "rows.csv", 50).read_bytes()
    _, sent = call(service, "PUT", "/v1/uploads?name=rows.csv", rows)
    shape = card(PATIENTS_CARD.replace("city-hospital-patients", "people-of-anew"))
    body = json_text({
        "name": "anew", "upload": sent["upload"], "card": shape, "different_people": "otto",
        "op": "anew",
    }).encode()  # fmt: skip
    _, job = call(service, "POST", "/v1/data-sets", body)
    (one,) = waits(service, "otto", "anew")
    assert decide(service, "otto", one["approval"], approve=False)[0] == 200
    assert ended(service, job["job"])["state"] == "failed"
    assert call(service, "POST", "/v1/data-sets", body)[1]["state"] == "waiting"
    time.sleep(1)
    assert job_of(service, job["job"])["state"] == "waiting"
    new = [one for one in waits(service, "otto", "anew") if one["state"] == "waiting"]
    assert decide(service, "otto", new[0]["approval"], approve=True)[0] == 200
    assert ended(service, job["job"])["state"] == "done"


def test_work_that_ended_waits_again_only_when_it_is_told_to(tmp_path: Path) -> None:
    """Between the two the second person is asked: a runner that looks in between begins nothing."""
    with sfumato.open(make_vault(tmp_path)) as vault:
        jobs = vault.house.desk.jobs
        asked = (Caller("olga", frozenset({"own"})), "add", "clinic", "{}", "an-op")
        job = jobs.add_once(*asked)
        assert job.state == "waiting"
        jobs.cancel(asked[0], job.id)
        assert jobs.add_once(*asked).state == "cancelled"
        assert jobs.requeue(job).state == "waiting"


def test_a_word_that_is_not_on_record_lets_no_rows_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sfumato.open(make_vault(tmp_path)) as vault:
        confirmations = vault.house.desk.confirmations
        olga, otto = (Caller(name, frozenset({"own"})) for name in ("olga", "otto"))
        user = User("otto", ("owner",), "")
        asked = confirmations.ask(olga, user, "a-job", ("clinic", "people-of-clinic"))

        def refuse(*_: object) -> None:
            raise Refused("ledger-unavailable", "no space", "make some")

        monkeypatch.setattr(type(confirmations.ledger), "note", refuse)
        with pytest.raises(Refused):
            confirmations.decide(otto, asked.id, is_approved=True)
        with pytest.raises(Refused) as refused:
            confirmations.check("a-job", "otto")
    assert refused.value.code == "second-person-needed"
