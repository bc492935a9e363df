"""The service as a whole: it starts, lets in, answers, and survives what dies."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

import sfumato
from sfumato import Refused
from sfumato.server.ipc.call_metrics import TIMED, CallMetrics
from support.served_vault import PASSWORD, Service, served
from support.small_vaults import make_vault, patients_vault


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service of one vault with two hundred patients."""
    with served(patients_vault(tmp_path_factory.mktemp("served"), "ada")) as running:
        yield running


def test_it_is_well_and_describes_itself_to_all(service: Service) -> None:
    status, document = service.call("GET", "/openapi.json")
    assert (status, document["openapi"]) == (200, "3.1.0")
    assert service.call("GET", "/v1/hello")[1]["wire"] == 1


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/metrics", "/v1/hello"])
def test_a_wrong_host_is_refused_as_described(service: Service, path: str) -> None:
    status, said = service.call("GET", path, headers={"Host": "evil.example"})
    document = service.call("GET", "/openapi.json")[1]
    described = document["paths"][path]["get"]["responses"][str(status)]["description"]
    assert (status, f"`{said['refused']['code']}`:" in described) == (400, True)


def test_nobody_is_let_in_without_a_token(service: Service) -> None:
    for token in (None, "", "x", "sfm1_", service.owner()[:-1] + "g"):
        status, said = service.call("GET", "/v1/data-sets", token=token)
        assert (status, said["refused"]["code"]) == (401, "not-signed-in")


def test_an_invitation_opens_once(service: Service) -> None:
    service.owner()
    body = {"invitation": service.invitation, "password": "another pass word"}
    assert service.call("POST", "/v1/invitations", body)[0] == 401


def test_who_comes_back_by_an_invitation_is_shown_who_has_invited_them(service: Service) -> None:
    service.user("mia", "researcher")
    body = {"user": "mia", "roles": ["researcher"]}
    _, made = service.call("POST", "/v1/users", body, token=service.owner())
    link = http.client.HTTPConnection("127.0.0.1", urlsplit(service.url).port, timeout=60)
    sent = {"Host": "localhost", "Sec-Fetch-Site": "same-origin"}
    form = urlencode({"password": PASSWORD, "again": PASSWORD})
    typed = {**sent, "Content-Type": "application/x-www-form-urlencoded"}
    for _ in range(40):
        link.request("POST", f"/welcome/{made['invitation']}", form, typed)
        reply = link.getresponse()
        reply.read()
        if reply.status != 429:  # several came from this one place within a minute
            break
        time.sleep(2)
    assert (reply.status, reply.getheader("Location")) == (303, "/tokens")
    cookie = str(reply.getheader("Set-Cookie")).partition(";")[0]
    link.request("GET", "/tokens", headers={**sent, "Cookie": cookie})
    shown = link.getresponse().read().decode()
    link.close()
    assert shown.count('<th scope="row">owner</th>') == 2


def test_a_researcher_asks_and_pays_over_http(service: Service) -> None:
    vault = sfumato.connect(service.url, token=service.user("ada", "researcher"))
    answer = vault["patients"].ask(
        "SELECT zip, COUNT(*) AS n FROM patients GROUP BY zip", epsilon=Decimal("0.1")
    )
    assert answer.columns == ("zip", "n")
    again = vault["patients"].ask(
        "SELECT zip, COUNT(*) AS n FROM patients GROUP BY zip", epsilon=Decimal("0.1")
    )
    assert again.rows == answer.rows
    assert again.receipt["free"]
    assert vault["patients"].budget["spent"]["epsilon"] == pytest.approx(0.1)
    vault.close()


def test_a_refusal_travels_whole(service: Service) -> None:
    with (
        sfumato.connect(service.url, token=service.user("ada", "researcher")) as vault,
        pytest.raises(Refused) as refused,
    ):
        vault["patients"].ask("SELECT SUM(name) FROM patients", epsilon=0.1)
    assert refused.value.code == "unknown-column"


def test_who_was_not_granted_finds_no_data_set(service: Service) -> None:
    token = service.user("eve", "researcher")
    status, said = service.call("GET", "/v1/data-sets/patients", token=token)
    assert (status, said["refused"]["code"]) == (404, "unknown-data-set")


def test_a_role_opens_its_own_verbs_only(service: Service) -> None:
    token = service.user("ada", "researcher")
    assert service.call("GET", "/v1/users", token=token)[0] == 403


def test_a_revoked_token_opens_nothing(service: Service) -> None:
    token = service.user("ada", "researcher")
    _, made = service.call("POST", "/v1/tokens", {"label": "laptop"}, token=token)
    assert service.call("GET", "/v1/me", token=made["token"])[0] == 200
    assert service.call("DELETE", f"/v1/tokens/{made['id']}", token=token)[0] == 200
    assert service.call("GET", "/v1/me", token=made["token"])[0] == 401


def test_a_password_signs_in_and_a_wrong_one_does_not(service: Service) -> None:
    service.user("mel", "researcher")
    right = {"user": "mel", "password": PASSWORD}
    assert service.call("POST", "/v1/sign-in", right)[0] == 200
    assert service.call("POST", "/v1/sign-in", {**right, "password": "x" * 20})[0] == 401


def test_a_killed_door_is_started_again(service: Service) -> None:
    service.user("ada", "researcher")
    children = _children(service.process.pid)
    assert len(children) >= 2
    os.kill(children[0], signal.SIGKILL)
    deadline = time.monotonic() + 60
    token = service.tokens["ada"]
    while service.call("GET", "/v1/me", token=token)[0] != 200:
        assert time.monotonic() < deadline, "".join(service.said)
        time.sleep(0.1)


def test_a_service_that_others_can_reach_needs_encryption(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="serve-unsafe"),
        served(
            tmp_path / "vault",
            "--host",
            "0.0.0.0",  # noqa: S104
        ),
    ):
        pass


def _children(process: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.parametrize("what", ["door", "edge"])
def test_no_other_process_of_its_user_reads_the_memory_of(what: str) -> None:
    begun = [sys.executable, "-c", _ASKED, what]
    with subprocess.Popen(begun, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        settings = {"serving": {"vault": "none", "names": []}, "line": "none", "fd": 0}
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"0\n"


_ASKED = (  # PR_GET_DUMPABLE, where the door or the edge would begin its work
    "import ctypes, sys; from sfumato.app import processes as serving\n"
    "def say(*_): print(ctypes.CDLL(None).prctl(3), flush=True)\n"
    "serving._be_door = serving._be_edge = say\n"
    "serving.child(sys.argv[1])"
)


def test_metrics_count_verbs_and_nothing_else(service: Service) -> None:
    token = service.user("ada", "researcher")
    service.call("GET", "/v1/data-sets/patients", token=token)
    request = urllib.request.Request(  # noqa: S310  # of this machine's own service
        service.url + "/metrics", headers={"Authorization": f"Bearer {service.owner()}"}
    )
    with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
        lines = reply.read().decode().splitlines()
    line = re.compile(
        r"# .*|sfumato_door_started_seconds [0-9.]+"
        r'|sfumato_calls_total\{verb="[a-z?-]+",outcome="(answered|refused|fault)"\} [0-9]+'
        r'|sfumato_call_seconds_(bucket|sum|count)\{verb="[a-z-]+"(,le="[0-9.+Inf]+")?\} [0-9.e-]+'
        r'|sfumato_(at_work|waiting|queue_refused_total)\{queue="[a-z]+"\} [0-9]+'
        r"|sfumato_(ready|ledger_frozen|anchor_there|anchor_behind_entries) [0-9]+"
        r"|sfumato_data_sets(_frozen)? [0-9]+"
        r'|sfumato_disk_free_bytes\{place="(vault|anchor)"\} [0-9]+'
    )
    assert [found for found in lines if not line.fullmatch(found)] == []
    assert any('verb="card"' in found for found in lines)
    assert "sfumato_ready 1" in lines
    assert "sfumato_data_sets 1" in lines
    timed = {found.split('"')[1] for found in lines if found.startswith("sfumato_call_seconds")}
    assert "card" in timed <= TIMED


def test_a_log_line_has_the_allowed_fields_only(tmp_path: Path) -> None:
    with served(make_vault(tmp_path), "--log") as running:
        running.call("GET", "/v1/me", token=running.owner())
        deadline = time.monotonic() + 10
        while not any('"me"' in line for line in running.said):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    lines = [json.loads(line) for line in running.said if line.startswith("{")]
    assert {tuple(line) for line in lines} == {("at", "verb", "user", "outcome", "code")}
    assert not any(running.owner() in line for line in running.said)


def test_what_rows_may_have_decided_is_neither_logged_nor_counted() -> None:
    lines: list[str] = []
    tally = CallMetrics(lines.append)
    for code in ("question-failed", "question-frozen", "bad-sql"):
        tally.note("ask", "ada", code)
    assert [json.loads(line)["code"] for line in lines] == [None, None, "bad-sql"]
    assert tally.counts()["calls"] == [
        {"verb": "ask", "outcome": "answered", "count": 2},
        {"verb": "ask", "outcome": "refused", "count": 1},
    ]


def test_one_connection_carries_as_many_requests_as_it_likes(service: Service) -> None:
    place = urlsplit(service.url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=30)
    headers = {"Authorization": f"Bearer {service.owner()}", "X-Long": "x" * 1000}
    for _ in range(100):  # 100 KB of heads without a body, which no limit on one head is about
        connection.request("GET", "/v1/me", headers=headers)
        with connection.getresponse() as reply:
            assert (reply.status, bool(reply.read())) == (200, True)
    connection.close()
