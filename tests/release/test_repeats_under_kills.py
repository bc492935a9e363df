"""Many ask the same at once: each pays once, though the whole service is killed in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import pytest

import sfumato
from sfumato.vault.users import Caller
from support.served_vault import Service, start
from support.service_with_users import WIDE
from support.small_vaults import card, write_patients

USERS: Final = tuple(f"user{number}" for number in range(6))
QUESTIONS: Final = 12
PRICE: Final = 0.01
PASSWORD: Final = "soft edges, no outline"  # noqa: S105  # of nobody but these tests
OPERATOR: Final = Caller("the test", frozenset({"operate"}))
Told = dict[tuple[str, int], Any]


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """Return a vault that six people may ask, of whom a seventh asks first."""
    folder = tmp_path / "vault"
    sfumato.create(folder, anchor=tmp_path / "anchors" / "anchor")
    with sfumato.open(folder) as opened:
        opened.add("patients", write_patients(tmp_path / "patients.csv"), card(WIDE))
        for name in (*USERS, "first"):
            opened.enrol(name, "researchers")
    return folder


def tokens(vault: Path) -> dict[str, str]:
    with sfumato.open(vault) as opened:
        access = opened.house.desk.access
        found = {}
        for name in (*USERS, "first"):
            link = access.invite(OPERATOR, name, ["researcher"])["invitation"]
            found[name] = str(access.take_up(str(link), PASSWORD, name)["token"])
        return found


def ask(service: Service, token: str, number: int, op: str) -> tuple[int, Any]:
    sql = f"SELECT COUNT(*) AS n FROM patients WHERE age > {20 + number}"
    body = {"sql": sql, "epsilon": PRICE, "op": op}
    return service.call("POST", "/v1/data-sets/patients/ask", body, token=token)


def all_ask(service: Service, words: dict[str, str]) -> Iterator[threading.Thread]:
    """Yield the threads of users who ask every question; each keeps what they were told."""

    def asking(user: str) -> None:
        for number in range(QUESTIONS):
            try:
                status, said = ask(service, words[user], number, f"op {number}")
            except (OSError, HTTPException):  # the service was killed
                return
            if status == 200:
                TOLD[user, number] = said

    for user in USERS:
        yield threading.Thread(target=asking, args=(user,))


TOLD: Final[Told] = {}


def test_a_kill_in_the_middle_charges_nobody_twice(vault: Path) -> None:
    TOLD.clear()
    words = tokens(vault)
    service = start(vault)
    for number in range(0, QUESTIONS, 2):  # what stands then; the others are new to all
        status, first = ask(service, words["first"], number, f"op {number}")
        assert status == 200, first
    for pause_s in (0.01, 0.05, 0.2, None):
        threads = list(all_ask(service, words))
        for thread in threads:
            thread.start()
        if pause_s is not None:
            time.sleep(pause_s)
            service.kill()
        for thread in threads:
            thread.join(120)
        if pause_s is not None:
            again = start(vault)
            _close(service)
            service = again
    service.process.terminate()
    service.process.wait(20)
    _close(service)
    assert len(TOLD) == len(USERS) * QUESTIONS
    _check(vault)


def _close(service: Service) -> None:
    if service.process.stderr is not None:
        service.process.stderr.close()


def _check(vault: Path) -> None:
    with sfumato.open(vault) as opened:
        ledger = opened.house.ledger
        assert ledger.verified()["ok"]
        price = None
        for user in USERS:
            account = ledger.store.account(f"user:patients/{user}")
            assert account is not None
            price = price or account.spent
            assert account.spent == price
        assert price is not None
        assert price.epsilon == QUESTIONS * 10**7  # in units of 1e-9
        for number in range(QUESTIONS):
            rows = {str(TOLD[user, number]["rows"]) for user in USERS}
            assert len(rows) == 1
        assert all(ledger.has_receipt(said["receipt"]) for said in TOLD.values())
