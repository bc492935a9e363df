"""When an answer leaves says nothing of what was read; how often a door may be tried is bounded."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import argon2
import pytest

import sfumato
from sfumato import Refused
from sfumato.features.access.password_store import Argon2Passwords
from sfumato.features.access.sign_in_limits import (
    ACCOUNT_S,
    MINUTE_S,
    NOTED_S,
    REMEMBERED,
    TRIES,
    TRIES_OF_ACCOUNT,
    TRIES_OF_PLACE,
    Attempts,
    device_proof,
    is_known_device,
)
from sfumato.server.ipc.fair_semaphore import OF_ONE_USER, QUEUE, FairSemaphore, Limit
from sfumato.system.ip_networks import network_of
from support.raw_http import replies, request
from support.served_vault import PASSWORD, Service, served
from support.service_with_users import peopled_vault
from support.small_vaults import make_vault

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
    right = {"user": "ada", "password": PASSWORD}
    device = service.call("POST", "/v1/sign-in", right)[1]["device"]
    for name in ("ada", "nobody here"):
        wrong = {"user": name, "password": "not this, not this"}
        found = [service.call("POST", "/v1/sign-in", wrong)[0] for _ in range(7)]
        assert found == [401] * 5 + [429] * 2
    assert service.call("POST", "/v1/sign-in", right)[0] == 429  # it is not said to be right
    assert service.call("POST", "/v1/sign-in", {**right, "device": "0" * 64})[0] == 429
    assert service.call("POST", "/v1/sign-in", {**right, "device": device})[0] == 200
    assert service.call("POST", "/v1/sign-in", {**right, "user": "owner"})[0] == 200
    body = b'{"user": "ada", "password": "x"}'
    forged = request("POST", "/v1/sign-in", "Content-Type: application/json",
                     "X-Forwarded-For: 203.0.113.9", body=body)  # fmt: skip
    assert replies(service, forged) == [429]


@dataclass
class Hands:
    """A clock that stands where it was put."""

    at: float = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.at


def wrong(attempts: Attempts, place: str, name: str, device: str = "") -> bool:
    """Try a wrong password; return whether it was looked at."""
    is_tried = False
    with suppress(Refused), attempts.trying(place, name, device):
        is_tried = True
        raise Refused("not-signed-in", "It is wrong.", "Try again.")
    return is_tried


def test_a_whole_network_is_one_place() -> None:
    attempts = Attempts(Hands())
    for number in range(TRIES):
        assert wrong(attempts, f"2001:db8::{number:x}", "ada")
    assert not wrong(attempts, "2001:db8::ffff:1", "ada")
    assert wrong(attempts, "2001:db8:0:1::1", "ada")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1")
    assert wrong(attempts, "192.0.2.1", "\ud800" * 10**6)


def test_an_account_has_one_limit_over_all_places() -> None:
    clock = Hands()
    attempts = Attempts(clock)
    tried = [wrong(attempts, f"192.0.2.{number}", "ada") for number in range(100)]
    assert sum(tried) == TRIES_OF_ACCOUNT
    assert wrong(attempts, "192.0.2.1", "eve")
    assert wrong(attempts, "192.0.2.1", "ada", device="known")  # its user is not locked out
    clock.at = MINUTE_S + 1
    assert not wrong(attempts, "192.0.2.200", "ada")
    clock.at = ACCOUNT_S + 1
    assert wrong(attempts, "192.0.2.200", "ada")


def test_who_is_refused_makes_no_limit_forgotten() -> None:
    attempts = Attempts(Hands())
    tried = [wrong(attempts, f"192.0.2.{number}", "ada") for number in range(100)]
    assert sum(tried) == TRIES_OF_ACCOUNT
    names = [wrong(attempts, "198.51.100.1", f"name {number}") for number in range(REMEMBERED)]
    assert sum(names) == TRIES_OF_PLACE
    assert not wrong(attempts, "192.0.2.200", "ada")


def test_a_known_device_has_a_limit_too() -> None:
    attempts = Attempts(Hands())
    tried = [wrong(attempts, "192.0.2.1", "ada", device="known") for _ in range(TRIES + 3)]
    assert sum(tried) == TRIES
    assert wrong(attempts, "192.0.2.1", "ada")


def test_right_passwords_lock_no_address() -> None:
    attempts = Attempts(Hands())
    for number in range(2 * TRIES_OF_PLACE):  # a class behind one address
        with attempts.trying("192.0.2.1", f"student {number}"):
            pass
    tried = [wrong(attempts, "192.0.2.1", f"name {number}") for number in range(100)]
    assert sum(tried) == TRIES_OF_PLACE


def test_a_proof_of_a_device_is_for_one_user_and_password() -> None:
    proof = device_proof("ada", "hash one")
    assert is_known_device("ada", "hash one", proof)
    assert not is_known_device("ada", "hash two", proof)
    assert not is_known_device("eve", "hash one", proof)
    assert not is_known_device("ada", "", device_proof("ada", ""))
    assert not is_known_device("ada", "hash one", "")


def test_wrong_tries_are_noted_together_and_rarely(tmp_path: Path) -> None:
    clock = Hands()
    with sfumato.open(make_vault(tmp_path)) as vault:
        desk = vault.house.desk
        access = replace(desk.access, attempts=Attempts(clock))
        link = access.owner_link()
        access.take_up(str(link), PASSWORD, "192.0.2.1")
        for place, name in (("192.0.2.2", "owner"), ("192.0.2.3", "owner"), ("192.0.2.4", "x")):
            with pytest.raises(Refused):
                access.sign_in(name, "not this, not this", place)
        notes = vault.house.ledger.store.notes
        assert notes("sign-ins-failed") == ()
        clock.at = NOTED_S + 1
        with pytest.raises(Refused):
            access.sign_in("y", "not this, not this", "192.0.2.5")
        (entry,) = notes("sign-ins-failed")
        assert json.loads(entry.body) == {"users": {"owner": 2}, "unknown_names": 2}


def test_nobody_fills_the_queue_alone() -> None:
    async def fill() -> list[bool]:
        turns = FairSemaphore(Limit())

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
