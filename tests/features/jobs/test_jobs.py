"""Long work over HTTP: it goes on when nobody waits, pays once, and is cancelled while it waits."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato import Refused
from sfumato.features.jobs.service import ASK, OPEN
from sfumato.server.ipc.server_sent_events import OF_ONE_USER
from sfumato.vault.users import Caller
from support.served_vault import Service, served
from support.small_vaults import patients_vault

AT = "/v1/data-sets/patients"
OVER = ("done", "failed", "cancelled")


def make(folder: Path) -> Path:
    return patients_vault(folder, "ada", "bob")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service with one data set that ada and bob may ask."""
    with served(make(tmp_path_factory.mktemp("jobs"))) as running:
        running.owner()
        for name, role in (
            ("ada", "researcher"),
            ("bob", "researcher"),
            ("pia", "operator"),
            ("aud", "auditor"),
        ):
            running.user(name, role)
        yield running


def call(
    service: Service, method: str, path: str, body: object = None, *, by: str = "ada"
) -> tuple[int, Any]:
    return service.call(method, path, body, token=service.tokens[by])


def terms(age: int, **more: object) -> dict[str, object]:
    sql = f"SELECT COUNT(*) AS n FROM patients WHERE age > {age}"
    return {"data_set": "patients", "sql": sql, "epsilon": 0.01, **more}


def begin(service: Service, age: int, **more: object) -> Any:
    status, job = call(service, "POST", "/v1/jobs", terms(age, **more))
    assert status == 200, job
    return job


def until(service: Service, job: str, is_so: Callable[[Any], bool], by: str = "ada") -> Any:
    deadline = time.monotonic() + 60
    while True:
        status, said = call(service, "GET", f"/v1/jobs/{job}", by=by)
        if status == 200 and is_so(said):
            return said
        assert time.monotonic() < deadline, said
        time.sleep(0.1)


def ended(service: Service, job: str) -> Any:
    return until(service, job, lambda said: said["state"] in OVER)


def charges(vault: Path, op: str) -> int:
    with sfumato.open(vault) as opened:
        bodies = [e for e in opened.house.ledger.store.entries() if e.kind == "charged"]
        return sum(json.loads(entry.body)["op"] == op for entry in bodies)


def children(process: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def everything_under(process: int) -> list[int]:
    below = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        below += [int(p) for p in (thread / "children").read_text().split()]
    return [*below, *(p for child in below for p in everything_under(child))]


@contextmanager
def stopped_engine(service: Service) -> Iterator[list[int]]:
    """Let no row be read until the block ends; an answer before has begun the engine."""
    warm = {key: value for key, value in terms(99, fresh=True).items() if key != "data_set"}
    assert call(service, "POST", AT + "/ask", warm)[0] == 200
    door = children(service.process.pid)[0]
    workers = everything_under(door)
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        yield workers
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)


def test_a_job_is_answered_and_pays_once(service: Service) -> None:
    job = begin(service, 30, op="study-1")
    assert (job["state"] in ("waiting", "running"), job["op"]) == (True, "study-1")
    said = ended(service, job["job"])
    assert (said["state"], said["failed"]) == ("done", None)
    assert said["answer"]["columns"] == ["n"]
    asked = {key: value for key, value in terms(30, op="study-1").items() if key != "data_set"}
    status, answer = call(service, "POST", AT + "/ask", asked)
    assert status == 200
    assert answer["rows"] == said["answer"]["rows"]
    assert answer["receipt"]["free"]
    again = begin(service, 30, op="study-1")
    assert again["job"] == job["job"]


def test_what_is_told_of_a_job_that_is_over_has_no_duration(service: Service) -> None:
    said = ended(service, begin(service, 31)["job"])
    known = {"job", "kind", "data_set", "op", "state", "begun", "seconds", "failed", "answer"}
    assert set(said) == {*known, "waits_for", "running", "planned"}
    assert all(said[name] is None for name in ("seconds", "running", "planned", "waits_for"))


def test_another_operation_of_the_same_name_is_refused(service: Service) -> None:
    begin(service, 32, op="study-2")
    status, said = call(service, "POST", "/v1/jobs", terms(33, op="study-2"))
    assert (status, said["refused"]["code"]) == (409, "op-reused")


def test_a_question_that_is_none_is_no_job(service: Service) -> None:
    status, _ = call(service, "POST", "/v1/jobs", {**terms(1), "sql": "SELECT 1"})
    assert status == 422
    assert call(service, "POST", "/v1/jobs", {**terms(1), "data_set": "nowhere"})[0] == 404


def test_a_refused_job_says_why(service: Service) -> None:
    said = ended(service, begin(service, 34, epsilon=2)["job"])
    assert (said["state"], said["failed"]["code"]) == ("failed", "budget-exceeded")


def test_another_users_job_is_not_there(service: Service) -> None:
    job = begin(service, 35)["job"]
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/events")):
        theirs = call(service, method, f"/v1/jobs/{job}{path}", by="bob")
        nobodys = call(service, method, f"/v1/jobs/{'0' * 24}{path}", by="bob")
        assert theirs == nobodys
        assert (theirs[0], theirs[1]["refused"]["code"]) == (404, "job-unknown")
    assert call(service, "GET", "/v1/jobs", by="bob")[1] == {"jobs": []}


@pytest.mark.parametrize("role", ["pia", "aud"])
def test_only_who_may_ask_has_jobs(service: Service, role: str) -> None:
    assert call(service, "POST", "/v1/jobs", terms(36), by=role)[0] == 403
    for path in ("/v1/jobs", "/v1/jobs/x", "/v1/jobs/x/events"):
        assert call(service, "GET", path, by=role)[0] == 403


def test_events_tell_the_state_until_it_is_over(service: Service) -> None:
    job = begin(service, 37)["job"]
    headers = {"Authorization": f"Bearer {service.tokens['ada']}"}
    request = urllib.request.Request(f"{service.url}/v1/jobs/{job}/events", headers=headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as stream:  # noqa: S310
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.read().decode().splitlines()
    states = [json.loads(line[6:])["state"] for line in lines if line.startswith("data: ")]
    assert states[-1] == "done"
    assert lines.count("event: state") == len(states)


def listening(service: Service, job: str, token: str) -> Any:
    """Return the stream of a job's states."""
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{service.url}/v1/jobs/{job}/events", headers=headers)  # noqa: S310
    return urllib.request.urlopen(request, timeout=60)  # noqa: S310


def test_a_user_with_many_tokens_takes_no_more_places_of_those_who_listen(
    service: Service,
) -> None:
    mine = [service.tokens["ada"]]
    for label in ("x", "y"):
        made = call(service, "POST", "/v1/tokens", {"label": label, "actions": ["read", "ask"]})
        mine.append(made[1]["token"])
    with stopped_engine(service), ExitStack() as streams:
        job = begin(service, 50)["job"]
        for place in range(OF_ONE_USER):
            stream = streams.enter_context(listening(service, job, mine[place % 2]))
            assert stream.readline() == b"event: state\n"  # and so it is counted
        for token in mine:
            with pytest.raises(urllib.error.HTTPError) as refused:
                listening(service, job, token)
            with refused.value as error:
                assert error.code == 429
        _, bobs = call(service, "POST", "/v1/jobs", terms(51), by="bob")
        stream = streams.enter_context(listening(service, bobs["job"], service.tokens["bob"]))
        assert stream.readline() == b"event: state\n"
    assert ended(service, job)["state"] == "done"


def test_a_job_that_waits_is_cancelled_and_one_that_reads_is_not(service: Service) -> None:
    with stopped_engine(service):
        reading = [begin(service, 40 + n)["job"] for n in range(2)]
        for job in reading:
            until(service, job, lambda said: said["state"] == "running")
        waits = begin(service, 50, op="never")["job"]
        status, said = call(service, "DELETE", f"/v1/jobs/{reading[0]}")
        assert (status, said["refused"]["code"]) == (409, "job-begun")
        status, said = call(service, "DELETE", f"/v1/jobs/{waits}")
        assert (status, said["state"]) == (200, "cancelled")
        assert call(service, "DELETE", f"/v1/jobs/{waits}")[0] == 200
    assert [ended(service, job)["state"] for job in reading] == ["done", "done"]
    assert until(service, waits, lambda _: True)["state"] == "cancelled"


def test_a_revoked_token_takes_its_jobs_along(service: Service) -> None:
    _, made = call(service, "POST", "/v1/tokens", {"label": "lost"})
    with stopped_engine(service):
        for n in range(2):
            begin(service, 60 + n)
        body = terms(70, op="of a thief")
        status, job = service.call("POST", "/v1/jobs", body, token=made["token"])
        assert status == 200
        assert call(service, "DELETE", f"/v1/tokens/{made['id']}")[0] == 200
    said = ended(service, job["job"])
    assert (said["state"], said["failed"]["code"]) == ("failed", "not-signed-in")


def test_a_killed_door_goes_on_with_its_jobs_and_charges_once(tmp_path: Path) -> None:
    vault = make(tmp_path)
    with served(vault) as service:
        service.owner()
        service.user("ada", "researcher")
        with stopped_engine(service):
            job = begin(service, 30, op="survives")["job"]
            until(service, job, lambda said: said["state"] == "running")
            deadline = time.monotonic() + 10
            while charges(vault, "survives") == 0:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            os.kill(children(service.process.pid)[0], signal.SIGKILL)
        assert ended(service, job)["state"] == "done"
        assert charges(vault, "survives") == 1


def test_a_killed_service_goes_on_with_its_jobs_when_it_starts(tmp_path: Path) -> None:
    vault = make(tmp_path)
    with served(vault) as service:
        service.owner()
        token = service.user("ada", "researcher")
        with stopped_engine(service):
            job = begin(service, 30, op="survives")["job"]
            until(service, job, lambda said: said["state"] == "running")
            service.kill()
    with served(vault) as again:
        again.tokens["ada"] = token
        assert ended(again, job)["state"] == "done"
        assert charges(vault, "survives") == 1


def test_an_embedded_vault_works_on_its_jobs_at_once(tmp_path: Path) -> None:
    with sfumato.open(make(tmp_path), user="ada") as vault:
        job = vault.call("begin", terms(30, op="here"))
        assert job["state"] == "done"
        assert vault.call("job", {"job": job["job"]})["answer"]


def test_a_freeze_stops_what_was_not_paid_and_hides_no_answer(tmp_path: Path) -> None:
    with sfumato.open(make(tmp_path)) as vault:
        paid = vault.call("begin", terms(30, op="before"))
        vault.call("freeze", {"data_set": "patients"})
        late = vault.call("begin", terms(31, op="after"))
        assert late["state"] == "failed"
        assert str(late["failed"]).count("data-set-frozen") == 1
        assert vault.call("job", {"job": paid["job"]})["answer"]
    assert charges(tmp_path / "vault", "after") == 0


def test_another_node_goes_on_with_the_jobs_of_one_that_is_gone(tmp_path: Path) -> None:
    vault = make(tmp_path)
    with served(vault) as first:
        first.owner()
        token = first.user("ada", "researcher")
        with served(vault) as second:
            second.tokens["ada"] = token
            with stopped_engine(first), stopped_engine(second) as workers:
                job = begin(first, 30, op="moves")["job"]
                until(first, job, lambda said: said["state"] == "running")
                first.kill()
                for worker in workers:
                    os.kill(worker, signal.SIGCONT)
                assert ended(second, job)["state"] == "done"
            assert charges(vault, "moves") == 1


def test_what_was_begun_already_is_not_one_too_many(tmp_path: Path) -> None:
    """A reply may be lost on its way: who asks for it again has no more jobs than before."""
    with sfumato.open(make(tmp_path), user="ada") as vault:
        jobs, ada = vault.house.desk.jobs, Caller("ada", frozenset({"ask"}))
        for number in range(OPEN):
            jobs.begin(ada, ASK, "patients", "{}", f"op{number}")
        with pytest.raises(Refused) as refused:
            jobs.begin(ada, ASK, "patients", "{}", "one more")
        assert refused.value.code == "too-many"
        assert jobs.begin(ada, ASK, "patients", "{}", "op3").op == "op3"
