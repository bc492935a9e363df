"""The record: one's own questions, the chain, and answer sheets that hold without the vault."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sfumato.features.audit.sheet_verification import check_sheet
from support.served_vault import Service, served
from support.small_vaults import patients_vault, run

SQL = "SELECT zip, COUNT(*) AS n FROM patients GROUP BY zip"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service where two researchers have asked the same, and one of them more."""
    vault = patients_vault(tmp_path_factory.mktemp("served"), "ada", "bob")
    with served(vault) as running:
        for name, sql in (("ada", SQL), ("bob", SQL), ("bob", "SELECT AVG(age) FROM patients")):
            body = {"sql": sql, "epsilon": 0.1}
            token = running.user(name, "researcher")
            status, said = running.call("POST", "/v1/data-sets/patients/ask", body, token=token)
            assert status == 200, said
        running.user("vera", "auditor")
        yield running


def _history(service: Service, name: str) -> list[dict[str, Any]]:
    token = service.tokens[name]
    found: list[dict[str, Any]] = service.call("GET", "/v1/questions", token=token)[1]["questions"]
    return found


def _sheet(service: Service) -> dict[str, Any]:
    token = service.tokens["vera"]
    releases = service.call("GET", "/v1/releases", token=token)[1]["releases"]
    entry = next(one["entry"] for one in releases if not one["repeated"])
    made: dict[str, Any] = service.call("GET", f"/v1/releases/{entry}", token=token)[1]
    return made


def test_everybody_sees_their_own_questions_only(service: Service) -> None:
    assert [one["says"] for one in _history(service, "ada")] == ["the number of rows, for each zip"]
    assert len(_history(service, "bob")) == 2


def test_a_repeated_question_says_that_the_data_set_was_not_charged_again(
    service: Service,
) -> None:
    repeated = _history(service, "bob")[1]
    assert repeated["charged"] == ["user:patients/bob"]
    assert repeated["says"] == "the number of rows, for each zip"


def test_an_answer_is_shown_again_with_the_same_numbers_and_nothing_is_charged(
    service: Service,
) -> None:
    token = service.tokens["ada"]
    before = service.call("GET", "/v1/data-sets/patients/budget", token=token)[1]
    op = _history(service, "ada")[0]["op"]
    first = service.call("GET", f"/v1/questions/{op}", token=token)[1]
    body = {"sql": SQL, "epsilon": 0.1}
    asked = service.call("POST", "/v1/data-sets/patients/ask", body, token=token)[1]
    assert first["rows"] == asked["rows"]
    assert first["receipt"]["free"]
    assert service.call("GET", "/v1/data-sets/patients/budget", token=token)[1] == before


def test_nobody_sees_the_answer_of_another(service: Service) -> None:
    op = _history(service, "bob")[0]["op"]
    status, _ = service.call("GET", f"/v1/questions/{op}", token=service.tokens["ada"])
    assert status == 404


def test_an_auditor_reads_the_chain_and_it_holds(service: Service) -> None:
    token = service.tokens["vera"]
    page = service.call("GET", "/v1/ledger?limit=5", token=token)[1]
    assert [entry["seq"] for entry in page["entries"]] == [1, 2, 3, 4, 5]
    assert page["next"] == 5
    assert service.call("GET", "/v1/ledger/verify", token=token)[1]["ok"]


def test_an_auditor_cannot_ask_nor_see_answers(service: Service) -> None:
    token = service.tokens["vera"]
    body = {"sql": SQL, "epsilon": 0.1}
    assert service.call("POST", "/v1/data-sets/patients/ask", body, token=token)[0] == 403
    assert service.call("GET", "/v1/questions", token=token)[0] == 403


def test_policies_tell_who_may_do_what(service: Service) -> None:
    policies = service.call("GET", "/v1/policies", token=service.tokens["vera"])[1]
    assert policies["owners"] == {"patients": "owner"}
    assert {"user": "vera", "roles": ["auditor"], "blocked": False} in policies["users"]
    asking = [(one["user"], one["group"]) for one in policies["enrolled"]]
    assert asking == [("ada", "researchers"), ("bob", "researchers")]


def test_a_sheet_holds_offline(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "sheet.json"
    sheet = _sheet(service)
    path.write_text(json.dumps(sheet))
    ran = run(tmp_path, "verify", str(path), "--key", sheet["proof"]["key"])
    assert ran.returncode == 0, ran.stderr
    assert "mean of age" in ran.stdout
    other = run(tmp_path, "verify", str(path), "--key", "0" * 64)
    assert other.returncode == 3


def test_a_sheet_names_what_was_released_before_about_the_same_people(service: Service) -> None:
    earlier = _sheet(service)["earlier"]
    assert len(earlier["releases"]) == 1
    assert earlier["not_dp"] == 0


def test_a_sheet_tells_which_code_answered(service: Service) -> None:
    assert len(_sheet(service)["code"]) == 64


@pytest.mark.parametrize("place", range(30))
def test_whatever_is_changed_on_a_sheet_is_found(service: Service, place: int) -> None:
    sheet = _sheet(service)
    assert check_sheet(sheet) == ()
    names = sorted(sheet)
    name = names[place % len(names)]
    sheet[name] = "something else" if not isinstance(sheet[name], str) else sheet[name] + "x"
    assert check_sheet(sheet) != ()


def test_a_forged_sheet_with_a_key_of_its_own_is_found_by_the_vaults(service: Service) -> None:
    sheet = _sheet(service)
    assert check_sheet(sheet, sheet["proof"]["key"]) == ()
    assert check_sheet(sheet, "ab" * 32) != ()


def test_a_sheet_that_was_signed_again_after_an_entry_was_changed_is_found(
    service: Service,
) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from sfumato.query.expression import canonical_json

    sheet = _sheet(service)
    body = json.loads(sheet["entries"][0]["body"])
    body["body"]["epsilon"] = sheet["epsilon"] = "1/1000"
    sheet["entries"][0]["body"] = json.dumps(body)
    key = Ed25519PrivateKey.generate()
    said = {name: value for name, value in sheet.items() if name != "proof"}
    digest = hashlib.sha256(canonical_json(said).encode()).hexdigest()
    signed = {"sheet": "sheet/1", "sha256": digest}
    sheet["proof"] = {
        "signed": signed,
        "signature": key.sign(canonical_json(signed).encode()).hex(),
        "key": key.public_key().public_bytes_raw().hex(),
    }
    assert any("hash" in fault for fault in check_sheet(sheet))


def test_a_repeated_question_is_among_the_releases_with_a_sheet_of_its_own(
    service: Service,
) -> None:
    token = service.tokens["vera"]
    releases = service.call("GET", "/v1/releases", token=token)[1]["releases"]
    (repeated,) = [one for one in releases if one["repeated"] and one["user"] == "bob"]
    assert repeated["charged"] == ["user:patients/bob"]
    sheet = service.call("GET", f"/v1/releases/{repeated['entry']}", token=token)[1]
    assert sheet["outcome"] == "repeated"
    assert check_sheet(sheet, sheet["proof"]["key"]) == ()
