"""Rows come in over HTTP: a file, a proposed card, a data set, an amended card."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

import sfumato
from sfumato.wire.json_text import json_text
from support.served_vault import Service, served
from support.small_vaults import PATIENTS_CARD, card, make_vault, write_csv, write_patients

OVER = ("done", "failed", "cancelled")
MB = 10**6


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service of an empty vault that takes files of 2 MB."""
    folder = tmp_path_factory.mktemp("uploads")
    with served(make_vault(folder), "--max-upload", "2") as running:
        running.owner()
        for name, role in (
            ("pia", "operator"),
            ("ada", "researcher"),
            ("aud", "auditor"),
        ):
            running.user(name, role)
        running.user_from_folder("otto", "owner")  # a second person whom the owner did not invite
        yield running


def folder_of(service: Service) -> Path:
    arguments = service.process.args
    assert isinstance(arguments, list)
    return Path(str(arguments[5]))


def incoming(service: Service) -> list[Path]:
    place = folder_of(service) / "incoming"
    return sorted(place.iterdir()) if place.is_dir() else []


def call(
    service: Service, method: str, path: str, body: object = None, *, by: str = "owner"
) -> tuple[int, Any]:
    return service.call(method, path, body, token=service.tokens[by])


def upload(service: Service, name: str, data: bytes, by: str = "owner") -> tuple[int, Any]:
    return call(service, "PUT", f"/v1/uploads?name={quote(name, safe='')}", data, by=by)


def patients(folder: Path, people: int = 200) -> bytes:
    return write_patients(folder / "patients.csv", people).read_bytes()


def add(service: Service, name: str, sent: str, text: str, by: str = "owner", **more: str) -> Any:
    body = json_text({"name": name, "upload": sent, "card": card(text), **more}).encode()
    return call(service, "POST", "/v1/data-sets", body, by=by)


def ended(service: Service, job: str, by: str = "owner") -> Any:
    deadline = time.monotonic() + 90
    while True:
        status, said = call(service, "GET", f"/v1/jobs/{job}", by=by)
        if status == 200 and said["state"] in OVER:
            return said
        assert time.monotonic() < deadline, said
        time.sleep(0.1)


def agree(service: Service, name: str, by: str) -> None:
    found = call(service, "GET", "/v1/approvals", by=by)[1]["approvals"]
    (one,) = [one for one in found if (one["data_set"], one["state"]) == (name, "waiting")]
    path = f"/v1/approvals/{one['approval']}"
    assert call(service, "POST", path, {"approve": True}, by=by)[0] == 200


def begun_upload(service: Service, size: int, sent: bytes) -> socket.socket:
    """Return a connection over which an upload has begun, and no more than that."""
    place = urlsplit(service.url)
    connection = socket.create_connection((place.hostname or "", place.port or 0))
    head = (
        f"PUT /v1/uploads?name=slow.csv HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Authorization: Bearer {service.tokens['owner']}\r\nContent-Length: {size}\r\n\r\n"
    )
    connection.sendall(head.encode() + sent)
    return connection


def until_empty(service: Service) -> None:
    deadline = time.monotonic() + 30
    while incoming(service):
        assert time.monotonic() < deadline, incoming(service)
        time.sleep(0.1)


def until_begun(service: Service) -> None:
    deadline = time.monotonic() + 30
    while not incoming(service):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_owner_uploads_and_adds_and_the_file_is_gone(service: Service, tmp_path: Path) -> None:
    status, sent = upload(service, "patients.csv", patients(tmp_path))
    assert status == 200
    files = incoming(service)
    assert [path.stat().st_mode & 0o777 for path in files] == [0o600] * len(files)
    status, said = call(service, "GET", f"/v1/uploads/{sent['upload']}")
    assert status == 200
    assert {"name": "age", "type": "integer"} in said["columns"]
    assert said["card"]["columns"]["name"] == {"hidden": True}
    assert "canary" not in str(said)
    assert "20000" not in str(said)
    status, job = add(service, "patients", sent["upload"], PATIENTS_CARD)
    assert (status, job["kind"]) == (200, "add")
    said = ended(service, job["job"])
    assert (said["state"], said["failed"]) == ("done", None)
    until_empty(service)
    assert call(service, "GET", f"/v1/uploads/{sent['upload']}")[0] == 404
    shown = call(service, "GET", "/v1/data-sets/patients")[1]
    assert (shown["version"], shown["budget"]["epsilon"]) == ("2026-11", 3.0)
    sql = "SELECT COUNT(*) AS n FROM patients"
    body = {"sql": sql, "epsilon": Decimal("0.9")}
    asked = json_text(body).encode()
    status, answer = call(service, "POST", "/v1/data-sets/patients/ask", asked)
    assert status == 200
    assert abs(answer["rows"][0][0] - 200) < 40
    assert call(service, "GET", "/v1/data-sets/patients", by="otto")[0] == 404


def test_a_cards_numbers_come_exactly(service: Service, tmp_path: Path) -> None:
    _, sent = upload(service, "rows.csv", patients(tmp_path), by="otto")
    text = PATIENTS_CARD.replace("city-hospital-patients", "otto-people")
    body = card(text)
    body["caps"] = {"user": {"epsilon": "1/3"}}
    body["budget"] = {"epsilon": Decimal("0.30000000000000000001"), "delta": 0}
    made = json_text(
        {"name": "exact", "upload": sent["upload"], "card": body, "different_people": "owner"}
    )
    nobody = made.replace('"owner"', '"otto"').encode()
    assert call(service, "POST", "/v1/data-sets", nobody, by="otto")[0] == 403
    _, job = call(service, "POST", "/v1/data-sets", made.encode(), by="otto")
    agree(service, "exact", by="owner")
    assert ended(service, job["job"], by="otto")["state"] == "done"
    with sfumato.open(folder_of(service)) as vault:
        found = vault.house.catalogue.find("exact")
    assert found is not None
    assert found.owner == "otto"
    assert str(found.card.user_cap and found.card.user_cap.epsilon) == "1/3"
    assert found.card.budget.epsilon == Decimal("0.30000000000000000001")


def test_another_owners_upload_is_not_there(service: Service, tmp_path: Path) -> None:
    _, sent = upload(service, "mine.csv", patients(tmp_path))
    theirs = call(service, "GET", f"/v1/uploads/{sent['upload']}", by="otto")
    nobodys = call(service, "GET", f"/v1/uploads/{'0' * 24}", by="otto")
    assert theirs == nobodys
    assert (theirs[0], theirs[1]["refused"]["code"]) == (404, "upload-unknown")
    assert add(service, "stolen", sent["upload"], PATIENTS_CARD, by="otto")[0] == 404
    assert call(service, "GET", "/v1/uploads/..%2F..%2Fledger")[0] == 404


@pytest.mark.parametrize("role", ["pia", "ada", "aud"])
def test_only_owners_bring_rows(service: Service, role: str, tmp_path: Path) -> None:
    before = incoming(service)
    assert upload(service, "rows.csv", patients(tmp_path), by=role)[0] == 403
    assert add(service, "rows", "0" * 24, PATIENTS_CARD, by=role)[0] == 403
    assert call(service, "GET", f"/v1/uploads/{'0' * 24}", by=role)[0] == 403
    amend = {"card": {"version": "2"}}
    assert call(service, "PUT", "/v1/data-sets/patients/card", amend, by=role)[0] == 403
    assert incoming(service) == before


def test_nobody_uploads_without_a_token(service: Service, tmp_path: Path) -> None:
    before = incoming(service)
    data = patients(tmp_path)
    assert service.call("PUT", "/v1/uploads?name=rows.csv", data)[0] == 401
    assert service.call("PUT", "/v1/uploads?name=rows.csv", data * 400)[0] == 401
    assert incoming(service) == before


@pytest.mark.parametrize("name", ["rows.exe", "rows", "rows.doc.gz", ".", "", "x\n.csv"])
def test_a_file_that_is_no_table_is_refused(service: Service, name: str) -> None:
    assert upload(service, name, b"a,b\n1,2\n")[0] == 422


def test_a_files_name_is_never_a_path(service: Service) -> None:
    status, sent = upload(service, "../../../keys/salt.csv", b"a,b\n1,2\n")
    assert (status, sent["name"]) == (200, "../../../keys/salt.csv")
    place = folder_of(service) / "incoming" / f"{sent['upload']}.csv"
    assert place.read_bytes() == b"a,b\n1,2\n"
    assert not list((folder_of(service) / "keys").glob("*.csv"))


def test_a_file_that_is_too_large_is_refused_and_not_kept(service: Service) -> None:
    before = incoming(service)
    status, said = upload(service, "large.csv", b"a\n" * 1_100_000)
    assert (status, said["refused"]["code"]) == (413, "too-large")
    assert incoming(service) == before


def test_a_file_that_lies_about_its_size_is_refused_too(service: Service) -> None:
    before = incoming(service)
    place = urlsplit(service.url)
    with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
        head = (
            f"PUT /v1/uploads?name=large.csv HTTP/1.1\r\nHost: {place.netloc}\r\n"
            f"Authorization: Bearer {service.tokens['owner']}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n"
        )
        connection.sendall(head.encode())
        part = b"a\n" * 50_000
        for _ in range(25):
            connection.sendall(b"%x\r\n" % len(part) + part + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert b" 413 " in connection.recv(4096).partition(b"\r\n")[0]
    assert incoming(service) == before


def test_a_file_that_breaks_off_is_not_kept(service: Service) -> None:
    before = len(incoming(service))
    connection = begun_upload(service, MB, b"a,b\n1,2\n" * 100)
    deadline = time.monotonic() + 20
    while len(incoming(service)) == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    connection.close()
    while len(incoming(service)) > before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_upload_that_only_drips_is_ended(service: Service) -> None:
    before = len(incoming(service))
    with begun_upload(service, MB, b"a,b\n") as connection:
        connection.settimeout(30)
        assert b" 408 " in connection.recv(4096)
    deadline = time.monotonic() + 20
    while len(incoming(service)) > before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_owners_files_are_not_more_than_their_share(service: Service) -> None:
    data = b"a\n" * (MB - 10)
    statuses = [upload(service, "big.csv", data, by="otto")[0] for _ in range(5)]
    assert statuses == [200, 200, 200, 200, 413]


def test_a_bad_card_is_refused_before_any_row_is_read(service: Service, tmp_path: Path) -> None:
    _, sent = upload(service, "rows.csv", b"patient_id,age\np1,3\n")
    status, said = add(service, "bad", sent["upload"], "unit = 'row'")
    assert (status, said["refused"]["code"]) == (422, "bad-card")
    assert call(service, "GET", f"/v1/uploads/{sent['upload']}")[0] == 200


def test_an_add_that_fails_says_why_and_keeps_the_file(service: Service, tmp_path: Path) -> None:
    _, sent = upload(service, "rows.csv", b"patient_id,age\np1,canary\n")
    text = PATIENTS_CARD.replace("city-hospital-patients", "few")
    status, job = add(service, "few", sent["upload"], text, different_people="otto")
    assert status == 200
    agree(service, "few", by="otto")
    said = ended(service, job["job"])
    assert (said["state"], said["failed"]["code"]) == ("failed", "source-unreadable")
    assert "canary" not in str(said)
    assert call(service, "GET", f"/v1/uploads/{sent['upload']}")[0] == 200


def test_an_owner_amends_what_no_row_was_prepared_by(service: Service) -> None:
    path = "/v1/data-sets/patients/card"
    changes: dict[str, object] = {"version": "2026-12", "ask": {"who": ["students"]}, "size": 150}
    status, shown = call(service, "PUT", path, {"card": changes})
    assert (status, shown["version"], shown["who"]) == (200, "2026-12", ["students"])
    assert call(service, "PUT", path, {"card": changes})[0] == 409
    for key, value in (
        ("unit", "row"),
        ("people", "others"),
        ("columns", {"age": {"type": "integer", "lower": 0, "upper": 200}}),
        ("budget", {"epsilon": 9}),
        ("limits", {"rows": 5}),
        ("nulls", []),
    ):
        status, said = call(service, "PUT", path, {"card": {"version": "3", key: value}})
        assert said["refused"]["code"] in ("bad-card", "same-people"), key
    assert call(service, "PUT", path, {"card": {"version": "3"}}, by="otto")[0] == 404
    body = {"sql": "SELECT COUNT(*) AS n FROM patients", "epsilon": 0.09}
    answer = call(service, "POST", "/v1/data-sets/patients/ask", body)[1]
    assert abs(answer["rows"][0][0] - 200) < 250
    assert answer["receipt"]["version"] == "2026-12"


def counted(rows: Any) -> float:
    return float(sum(row[1] for row in rows))


def test_amended_bounds_are_counted_with(tmp_path: Path) -> None:
    rows = [(f"p{n // 2}", ("10001", "10002")[n % 2]) for n in range(2000)]
    source = write_csv(tmp_path / "visits.csv", ("patient_id", "zip"), rows)
    text = """
unit = "patient_id"
version = "1"
budget = { epsilon = 900 }
[columns.zip]
type = "text"
keys = ["10001", "10002"]
"""
    sql = "SELECT zip, COUNT(*) AS n FROM visits GROUP BY zip"
    with sfumato.open(make_vault(tmp_path)) as vault:
        vault.add("visits", source, card(text))
        before = vault["visits"].ask(sql, epsilon=100)
        assert abs(counted(before.rows) - 1000) < 20
        changes = {"version": "2", "max_groups": 2}
        vault.call("amend", {"data_set": "visits", "card": changes})
        after = vault["visits"].ask(sql, epsilon=100)
        assert abs(counted(after.rows) - 2000) < 20
        # a new version of the rows goes on from the amended one, and sweeps nothing that is used
        vault.add("visits", source, card(text.replace('version = "1"', 'version = "3"')))


def test_a_killed_door_leaves_no_half_file(tmp_path: Path) -> None:
    with served(make_vault(tmp_path)) as service:
        service.owner()
        connection = begun_upload(service, MB, b"a,b\n1,2\n" * 100)
        until_begun(service)
        os.kill(_door(service), signal.SIGKILL)
        until_empty(service)
        connection.close()


def test_a_killed_door_goes_on_with_an_add(tmp_path: Path) -> None:
    with served(make_vault(tmp_path)) as service:
        service.owner()
        _, sent = upload(service, "patients.csv", patients(tmp_path, 150_000))
        _, job = add(service, "patients", sent["upload"], PATIENTS_CARD)
        deadline = time.monotonic() + 30
        while call(service, "GET", f"/v1/jobs/{job['job']}")[1]["state"] == "waiting":
            assert time.monotonic() < deadline
        os.kill(_door(service), signal.SIGKILL)
        said = ended(service, job["job"])
        assert (said["state"], said["failed"]) == ("done", None)
        until_empty(service)
        with sfumato.open(folder_of(service)) as vault:
            assert len(vault.house.catalogue.cards()) == 1
            kinds = [entry.kind for entry in vault.house.ledger.store.entries()]
            assert kinds.count("card-signed") == 1


def test_a_large_file_is_never_whole_in_memory(tmp_path: Path) -> None:
    with served(make_vault(tmp_path)) as service:
        service.owner()
        upload(service, "small.csv", b"a,b\n1,2\n")
        children = _children(service)
        before = [_most_memory(child) for child in children]
        assert upload(service, "large.csv", b"a,b\n1,2\n" * (15 * MB))[0] == 200
        grown = [_most_memory(c) - b for c, b in zip(children, before, strict=True)]
        assert max(grown) < 40 * 1024, grown


def _children(service: Service) -> list[int]:
    process = service.process.pid
    return [int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _door(service: Service) -> int:
    return _children(service)[0]


def _most_memory(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])
