"""What a stranger who read the service found, each held by a test."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.dp.refusal import Refused
from sfumato.server.ipc.fair_semaphore import FairSemaphore, Limit
from sfumato.wire.json_text import read_json
from support.served_vault import PASSWORD, Service, served
from support.small_vaults import (
    PATIENTS_CARD,
    card,
    make_vault,
    patients_vault,
    write_csv,
    write_patients,
)

SQL = "SELECT COUNT(*) AS n FROM patients WHERE age > {age}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service with two data sets, of which ada may ask both."""
    folder = tmp_path_factory.mktemp("served")
    vault = make_vault(folder)
    with sfumato.open(vault) as opened:
        source = write_patients(folder / "patients.csv")
        for name in ("patients", "visits"):
            opened.add(name, source, card(PATIENTS_CARD))
        opened.enrol("ada", "researchers")
    with served(vault) as running:
        running.user("ada", "researcher")
        running.user("otto", "operator")
        yield running


def token_for(service: Service, who: str, **terms: object) -> str:
    body = {"label": "a program's", **terms}
    status, made = service.call("POST", "/v1/tokens", body, token=service.tokens[who])
    assert status == 200, made
    return str(made["token"])


@pytest.mark.parametrize("text", [b'"' + b'\\"' * 200_000, b'{"a": "' + b"\\" * 400_001])
def test_a_text_that_does_not_end_is_refused_at_once(text: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(Refused, match="malformed"):
        read_json(text)
    assert time.process_time() - begun < 5  # it took hours


def test_strings_hide_what_only_looks_deep() -> None:
    assert read_json(b'{"a": "\\"' + b"[" * 150 + b'"}') == {"a": '"' + "[" * 150}
    with pytest.raises(Refused, match="deep"):
        read_json(b'{"a": ' + b"[" * 140 + b"]" * 140 + b"}")


def test_who_has_not_said_who_they_are_sends_little(service: Service) -> None:
    body = {"user": "ada", "password": "x" * 5000}
    assert service.call("POST", "/v1/sign-in", body)[0] == 413


def test_a_token_for_programs_makes_no_users_and_no_tokens(service: Service) -> None:
    token = token_for(service, "otto")
    who = {"user": "sock", "roles": ["owner"]}
    assert service.call("POST", "/v1/users", who, token=token)[0] == 403
    assert service.call("POST", "/v1/tokens", {"label": "child"}, token=token)[0] == 403
    change = {"roles": ["owner"], "blocked": False}
    assert service.call("PUT", "/v1/users/ada", change, token=token)[0] == 403


def test_a_token_that_watches_does_nothing_else(service: Service) -> None:
    token = token_for(service, "otto", actions=["watch"])
    assert service.call("GET", "/v1/metrics", token=token)[0] == 200
    assert service.call("GET", "/v1/users", token=token)[0] == 403


def test_a_token_for_one_data_set_shows_no_history_of_another(service: Service) -> None:
    ask = {"sql": "SELECT COUNT(*) FROM visits", "epsilon": 0.001}
    path = "/v1/data-sets/visits/ask"
    assert service.call("POST", path, ask, token=service.tokens["ada"])[0] == 200
    token = token_for(service, "ada", data_sets=["patients"])
    found = service.call("GET", "/v1/questions", token=token)[1]["questions"]
    assert [one for one in found if one["data_set"] == "visits"] == []
    whole = service.call("GET", "/v1/questions", token=service.tokens["ada"])[1]["questions"]
    assert [one for one in whole if one["data_set"] == "visits"] != []


def test_revoking_twice_is_written_once(service: Service) -> None:
    session = service.tokens["ada"]
    made = service.call("POST", "/v1/tokens", {"label": "x"}, token=session)[1]
    seen = []
    for _ in range(3):
        assert service.call("DELETE", f"/v1/tokens/{made['id']}", token=session)[0] == 200
        ledger = sfumato.open(Path(str(_vault_of(service))), user="ada")
        with ledger:
            seen.append(ledger.house.ledger.store.head().seq)
    assert seen[0] == seen[1] == seen[2]


def test_a_question_that_waited_is_not_asked_with_a_revoked_token(service: Service) -> None:
    answers = asyncio.run(_many_then_revoked(service))
    assert 401 in answers
    assert set(answers) <= {200, 401}


async def _many_then_revoked(service: Service) -> list[int]:
    made = service.call("POST", "/v1/tokens", {"label": "y"}, token=service.tokens["ada"])[1]
    loop = asyncio.get_running_loop()

    def ask(age: int) -> int:
        body = {"sql": SQL.format(age=age), "epsilon": 0.001}
        return service.call("POST", "/v1/data-sets/patients/ask", body, token=made["token"])[0]

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(40) as pool:
        asked = [loop.run_in_executor(pool, ask, age) for age in range(40)]
        await asyncio.sleep(0.2)
        path = f"/v1/tokens/{made['id']}"
        service.call("DELETE", path, token=service.tokens["ada"])
        return list(await asyncio.gather(*asked))


def test_one_user_has_one_price_worked_on_at_a_time() -> None:
    async def run() -> list[str]:
        turns, order = FairSemaphore(Limit(2, 1)), []

        async def one(user: str, name: str) -> None:
            async with turns.turn(user):
                order.append(f"{name} begins")
                await asyncio.sleep(0.05)
                order.append(f"{name} ends")

        await asyncio.gather(one("ada", "a1"), one("ada", "a2"), one("bob", "b1"))
        return order

    order = asyncio.run(run())
    assert order.index("a1 ends") < order.index("a2 begins")
    assert order.index("b1 begins") < order.index("a2 begins")


def test_an_owner_whose_door_died_before_they_came_hears_a_new_link(tmp_path: Path) -> None:
    import os
    import signal

    with served(make_vault(tmp_path)) as running:
        keeper = running.process.pid
        children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        doors = [c for c in children if b"door" in Path(f"/proc/{c}/cmdline").read_bytes()]
        os.kill(int(doors[0]), signal.SIGKILL)
        deadline = time.monotonic() + 60
        while sum("/welcome/" in line for line in running.said) < 2:
            assert time.monotonic() < deadline, "".join(running.said)
            time.sleep(0.1)
        newest = [line for line in running.said if "/welcome/" in line][-1]
        link = newest.split("/welcome/")[1].split()[0]
        body = {"invitation": link, "password": PASSWORD}
        assert running.call("POST", "/v1/invitations", body)[0] == 200


@contextmanager
def _agreeing(service: Service) -> Iterator[None]:
    """Let the owner agree to whatever they are asked, until the block ends."""
    is_over = threading.Event()

    def agree() -> None:
        while not is_over.wait(0.2):
            asked = service.call("GET", "/v1/approvals", token=service.owner())[1]["approvals"]
            for one in asked:
                if one["state"] == "waiting":
                    path = f"/v1/approvals/{one['approval']}"
                    service.call("POST", path, {"approve": True}, token=service.owner())

    agreeing = threading.Thread(target=agree)
    agreeing.start()
    try:
        yield
    finally:
        is_over.set()
        agreeing.join()


def test_nobody_learns_who_is_among_the_people_of_another_owner(tmp_path: Path) -> None:
    """Files of one row, of members and of strangers, are answered alike."""
    vault = patients_vault(tmp_path)
    own = PATIENTS_CARD.replace("city-hospital-patients", "mine")
    with served(vault) as running:
        running.user("mallory", "owner")
        with sfumato.connect(running.url, token=running.tokens["mallory"]) as mallory:
            said = []
            for person in ("p00000", "p00001", "p00002", "x1", "x2", "x3"):
                row = (person, "n", 20, "10001", 20000)
                header = ("patient_id", "name", "age", "zip", "salary")
                source = write_csv(tmp_path / "one.csv", header, [row])
                with pytest.raises(Refused) as refused:
                    mallory.add("probe", source, card(own))
                said.append((refused.value.code, refused.value.cause, refused.value.facts))
            assert [one[0] for one in said] == ["second-person-needed"] * 6
            assert len({str(one) for one in said}) == 1
            # a second person's word lets members in as it does strangers
            for number, person in enumerate(("p00000", "x1")):
                row = (person, "n", 20, "10001", 20000)
                source = write_csv(tmp_path / "one.csv", header, [row])
                text = own.replace('"mine"', f'"mine-{number}"')
                with _agreeing(running):
                    name = f"probe{number}"
                    added = mallory.add(name, source, card(text), different_people="owner")
                assert added.people == f"mine-{number}"
            # and nobody's rows come in without a word because some people are one's own already
            known = own.replace('"mine"', '"mine-1"')
            for person in ("p00000", "x1", "x2"):
                row = (person, "n", 20, "10001", 20000)
                source = write_csv(tmp_path / "one.csv", header, [row])
                with pytest.raises(Refused) as refused:
                    mallory.add("probe9", source, card(known))
                assert refused.value.code == "second-person-needed"


def test_a_history_is_looked_up_at_the_beat(tmp_path: Path) -> None:
    with served(make_vault(tmp_path), "--quantum", "500") as running:
        token = running.owner()
        times = []
        for _ in range(4):
            assert running.call("GET", "/v1/questions", token=token)[0] == 200
            times.append(time.monotonic())
        pauses = [later - sooner for sooner, later in pairwise(times)]
    assert all(pause > 0.3 for pause in pauses), pauses


def test_an_upload_is_logged_by_its_name(tmp_path: Path) -> None:
    with served(make_vault(tmp_path), "--log") as running:
        path = "/v1/uploads?name=rows.csv"
        assert running.call("PUT", path, b"a,b\n1,2\n", token=running.owner())[0] == 200
        deadline = time.monotonic() + 10
        while not any('"upload"' in line for line in running.said):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    said: list[Any] = [json.loads(line) for line in running.said if '"upload"' in line]
    assert [one["user"] for one in said] == ["owner"]


def _vault_of(service: Service) -> object:
    arguments = service.process.args
    assert isinstance(arguments, list)
    return arguments[arguments.index("--vault") + 1]
