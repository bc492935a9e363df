"""A vault, a ledger and a client of version 0.1 work unchanged with today's code.

`tests/data/version_0_1/` holds what that version made: a vault, what it answered (`said.json`), the
modules of its client, and the script that made them (`made_by.txt`). None is ever made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import sfumato
from sfumato import Refused
from sfumato.client.answer import Answer
from sfumato.sandbox import base_environment
from support.served_vault import PASSWORD, Service, served

KEPT: Final = Path(__file__).parents[1] / "data" / "version_0_1"
SAID: Final[dict[str, Any]] = json.loads((KEPT / "said.json").read_text("utf-8"))
NAMES: Final = ("patients", "visits")
OLD_CLIENT: Final = """
import json, os, sys
import sfumato
from sfumato.client.remote import connect

assert sfumato.__file__.startswith(sys.argv[1]), sfumato.__file__
url, said = sys.argv[2], json.load(open(sys.argv[3]))
with connect(url, token="", draw=os.urandom) as nobody:
    session = nobody.call("sign-in", {"user": "ada", "password": sys.argv[4]})
with connect(url, token=session["token"], draw=os.urandom) as vault:
    made = {"listed": [one["name"] for one in vault.call("data-sets", {})["data_sets"]]}
    made["rows"], made["free"] = [], []
    for one in said["answers"]:
        answer = vault[one["data_set"]].ask(one["sql"], op=one["op"], **one["terms"])
        made["rows"].append(answer.rows)
        made["free"].append(answer.receipt["free"])
    price = vault["visits"].price("SELECT COUNT(*) AS n FROM visits", epsilon=0.125)
    answer = vault["visits"].ask("SELECT COUNT(*) AS n FROM visits", epsilon=0.125)
    made["new"] = [answer.value, answer.receipt["epsilon"], answer.receipt["free"]]
    made["stream"] = vault["visits"].stream("daily").rows
    made["shown"] = [repr(price), repr(vault["visits"].budget), repr(answer)]
print(json.dumps(made))
"""


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """Return a copy of the old vault, which says where its anchor is now."""
    with tarfile.open(KEPT / "vault.tar.xz") as tar:
        tar.extractall(tmp_path, filter="data")
    settings = tmp_path / "vault" / "vault.json"
    moved = {"anchor": str(tmp_path / "vault" / "anchor")}
    settings.write_text(json.dumps({**json.loads(settings.read_text("utf-8")), **moved}))
    return tmp_path / "vault"


@pytest.fixture
def service(vault: Path) -> Iterator[Service]:
    """Return the old vault, served by today's code."""
    with served(vault) as running:
        yield running


def listed(owner: Any) -> list[dict[str, Any]]:
    """Return the surveys that the owner sees."""
    found: list[dict[str, Any]] = owner.call("surveys", {})["surveys"]
    return found


def without_state(surveys: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the surveys without what depends on today's date."""
    return [{key: value for key, value in one.items() if key != "state"} for one in surveys]


def test_an_old_ledger_verifies_and_says_what_it_said(vault: Path) -> None:
    with sfumato.open(vault) as owner:
        assert owner.call("verify-ledger", {}) == SAID["verified"]
        assert without_state(listed(owner)) == without_state(SAID["surveys"])
        assert [list(row) for row in owner["visits"].stream("daily").rows] == SAID["stream"]


def test_old_answers_are_given_again_for_nothing(vault: Path) -> None:
    with sfumato.open(vault, user="ada") as opened:
        for name in NAMES:
            assert opened.call("card", {"data_set": name}) == SAID["cards"][name]
            assert opened.call("budget", {"data_set": name}) == SAID["budgets"][name]
        for one in SAID["answers"]:
            asked = {key: one[key] for key in ("data_set", "sql", "op")} | one["terms"]
            answer = opened.call("ask", asked)
            assert Answer.of(answer).receipt["free"]
            assert [answer[key] for key in ("columns", "rows", "std", "interval")] == [
                one["answer"][key] for key in ("columns", "rows", "std", "interval")
            ]
        for name in NAMES:
            assert opened.call("budget", {"data_set": name}) == SAID["budgets"][name]


def test_an_old_budget_pays_for_new_questions_and_keeps_its_caps(vault: Path) -> None:
    with sfumato.open(vault, user="ada") as opened:
        answer = opened["patients"].ask("SELECT COUNT(*) AS n FROM patients", epsilon=0.125)
        assert not answer.receipt["free"]
        with pytest.raises(Refused, match="budget-exceeded"):  # of her cap of 1, 0.125 is left
            opened["patients"].ask("SELECT SUM(age) AS n FROM patients", epsilon=0.25)
    with sfumato.open(vault) as owner:
        assert owner.call("verify-ledger", {})["ok"]
        owner.close_days("visits", "daily", until="2026-01-15")
        assert len(owner["visits"].stream("daily").rows) == len(SAID["stream"]) + 5
        (survey,) = listed(owner)
        if survey["state"] == "open":  # it ends on 2026-12-26
            closed = owner.call("close-survey", {"survey": survey["survey"]})
            assert closed["state"] == "closed"


def test_programs_that_were_approved_before_are_approved_now() -> None:
    """An approval is for these bytes, too; who has to change one says so in the changelog."""
    inside = b"".join(path.read_bytes() for path in base_environment._INSIDE)
    assert hashlib.sha256(inside).hexdigest() == (
        "e575a96a80f1a58651c940c758a430e3f58f09f31632df09004e477552adb97f"
    )


def test_an_old_client_asks_a_service_of_today(service: Service, tmp_path: Path) -> None:
    client = KEPT / "client.zip"
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            OLD_CLIENT,
            str(client),
            service.url,
            str(KEPT / "said.json"),
            PASSWORD,
        ],
        env={**os.environ, "PYTHONPATH": str(client)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    made = json.loads(ran.stdout)
    assert made["listed"] == list(NAMES)
    assert made["rows"] == [one["answer"]["rows"] for one in SAID["answers"]]
    assert made["free"] == [True] * len(SAID["answers"])
    assert made["stream"] == SAID["stream"]
    assert "0.125" in made["shown"][0]
    assert made["new"][1:] == [0.125, False]
