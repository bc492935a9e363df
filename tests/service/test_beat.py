"""When an answer leaves says nothing of what was read; how often a door may be tried is bounded."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import argon2
import pytest

from peopled import peopled_vault
from raw_http import replies, request
from served import PASSWORD, Service, served
from sfumato import Refused
from sfumato.core.network import network_of
from sfumato.faces.line.turns import OF_ONE_USER, QUEUE, Most, Turns
from sfumato.services.access.attempts import TRIES, Attempts
from sfumato.stores.passwords import Argon2Passwords

BEAT_S = 0.25
ASK = "/v1/data-sets/patients/ask"
CHEAP = "SELECT COUNT(*) AS n FROM patients WHERE age > {}"
DEAR = "SELECT zip, AVG(salary) AS a, MEDIAN(salary) AS m FROM patients WHERE age > {} GROUP BY zip"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service whose answers leave on the beat."""
    vault = peopled_vault(tmp_path_factory.mktemp("beat"))
    with served(vault, "--quantum", "250") as running:
        running.user("ada", "researcher")
        yield running


def left_at(service: Service, sql: str, number: int) -> tuple[int, float]:
    """Return how a question ended, and when its answer came: as a part of the beat."""
    time.sleep(number * BEAT_S / 12)  # asked at another moment each time
    body = {"sql": sql, "epsilon": 0.01, "fresh": True}
    status, _ = service.call("POST", ASK, body, token=service.tokens["ada"])
    return status, time.monotonic() % BEAT_S  # the same clock as the door's, on one machine


def test_answers_leave_on_the_beat_whatever_they_read(service: Service) -> None:
    for sql in (CHEAP, DEAR):
        found = [left_at(service, sql.format(20 + n), n) for n in range(12)]
        assert {status for status, _ in found} == {200}
        assert statistics.median(at for _, at in found) < BEAT_S / 3, sql
    refused = [left_at(service, CHEAP.format("nothing"), n) for n in range(12)]
    assert {status for status, _ in refused} == {422}
    assert statistics.median(at for _, at in refused) < BEAT_S / 3  # it might have read


def test_without_a_beat_answers_leave_at_any_time(service: Service) -> None:
    """What reads no rows does not wait: the measure above would see an answer that did not."""
    times = []
    for n in range(24):
        time.sleep(n * BEAT_S / 24)
        service.call("GET", "/v1/me", token=service.tokens["ada"])
        times.append(time.monotonic() % BEAT_S)
    assert max(times) > BEAT_S / 2


def test_a_password_is_tried_five_times_a_minute(service: Service) -> None:
    for name in ("ada", "nobody here"):
        wrong = {"user": name, "password": "not this, not this"}
        found = [service.call("POST", "/v1/sign-in", wrong)[0] for _ in range(7)]
        assert found == [401] * 5 + [429] * 2
    right = {"user": "ada", "password": PASSWORD}
    assert service.call("POST", "/v1/sign-in", right)[0] == 429  # it is not said to be right
    assert service.call("POST", "/v1/sign-in", {**right, "user": "owner"})[0] == 200
    body = b'{"user": "ada", "password": "x"}'
    forged = request("POST", "/v1/sign-in", "Content-Type: application/json",
                     "X-Forwarded-For: 203.0.113.9", body=body)  # fmt: skip
    assert replies(service, forged) == [429]


def test_a_whole_network_is_one_place() -> None:
    attempts = Attempts()
    for number in range(TRIES):
        attempts.note(f"2001:db8::{number:x}", "ada")
    with pytest.raises(Refused):
        attempts.note("2001:db8::ffff:1", "ada")
    attempts.note("2001:db8:0:1::1", "ada")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1")
    attempts.note("192.0.2.1", "\ud800" * 10**6)


def test_nobody_fills_the_queue_alone() -> None:
    async def fill() -> list[bool]:
        turns = Turns(Most())

        async def hold(user: str) -> bool:
            try:
                async with turns.turn(user):
                    await asyncio.sleep(0.2)
                    return True
            except Refused:
                return False

        many = [asyncio.create_task(hold("mallory")) for _ in range(QUEUE + 20)]
        await asyncio.sleep(0)
        begun = asyncio.get_running_loop().time()
        assert await hold("ada")
        assert asyncio.get_running_loop().time() - begun < 1
        for task in many:
            task.cancel() if not task.done() else None
        return [t.result() for t in await _ended(many)]

    assert asyncio.run(fill()).count(False) >= QUEUE + 20 - OF_ONE_USER - 2


async def _ended(tasks: list[asyncio.Task[bool]]) -> list[asyncio.Task[bool]]:
    await asyncio.gather(*tasks, return_exceptions=True)
    return [task for task in tasks if not task.cancelled()]


def test_the_first_name_that_is_tried_takes_as_long_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown name is checked against a hash that is made once: whoever comes first waits."""
    done: list[str] = []
    for name in ("hash", "verify"):
        monkeypatch.setattr(argon2.PasswordHasher, name, _noted(name, done))
    known = Argon2Passwords().hash(PASSWORD)
    work = []
    for hashed in (known, ""):
        done.clear()
        assert not Argon2Passwords().check(hashed, "not this, not this")
        work.append(list(done))
    assert work[0] == work[1] != []


def _noted(name: str, done: list[str]) -> Any:
    does = getattr(argon2.PasswordHasher, name)

    def noted(*given: Any) -> Any:
        done.append(name)
        return does(*given)

    return noted


@pytest.mark.slow
def test_a_name_that_is_not_known_takes_as_long(tmp_path: Path) -> None:
    vault = peopled_vault(tmp_path)
    times: dict[str, list[float]] = {"ada": [], "stranger": []}
    with served(vault) as service:
        service.user("ada", "researcher")
        for number in range(12):
            for name, found in times.items():
                begun = time.monotonic()
                wrong = {"user": name, "password": "not this, not this"}
                status, _ = service.call("POST", "/v1/sign-in", wrong)
                found.append(time.monotonic() - begun)
                assert status == 401
            if number % 5 == 4:
                time.sleep(61)  # five tries a minute
    ratio = statistics.median(times["ada"]) / statistics.median(times["stranger"])
    assert 0.6 < ratio < 1.7
