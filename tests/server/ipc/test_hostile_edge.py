"""A hostile edge: whatever comes over the line, the door answers it or hangs up, and goes on."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.served_vault import Service, served
from support.service_with_users import invite_all, peopled_vault, strays

LENGTHS = struct.Struct(">II")
ASK = {"sql": "SELECT COUNT(*) AS n FROM patients", "epsilon": 0.001}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return a folder whose path is short enough for a socket."""
    made = Path(tempfile.mkdtemp(prefix="sf-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    """Return a service whose line lies in the folder."""
    vault = peopled_vault(folder)
    with served(vault, TMPDIR=str(folder)) as running:
        invite_all(running)
        yield running
        assert strays(running) == []


@pytest.fixture
def door(folder: Path, service: Service) -> Path:
    """Return where the door listens."""
    return next(folder.glob("sfumato-*/door"))


def packed(header: bytes, body: bytes = b"") -> bytes:
    return LENGTHS.pack(len(header), len(body)) + header + body


def frame(body: bytes = b"", **header: object) -> bytes:
    whole = {"id": 1, "verb": "hello", "token": "", "place": "", "params": {}, **header}
    return packed(json.dumps(whole).encode(), body)


def said(door: Path, data: bytes, answers: int = 1) -> list[tuple[dict[str, Any], Any]]:
    """Return so many answers of the door to these bytes, or what there was when it hung up.

    Where none is awaited nothing more is sent either, and the door finds the end of the line.
    """
    found: list[tuple[dict[str, Any], Any]] = []
    with socket.socket(socket.AF_UNIX) as link, suppress(OSError, struct.error):
        link.connect(str(door))
        link.settimeout(20)
        link.sendall(data)
        if not answers:
            link.shutdown(socket.SHUT_WR)
        with link.makefile("rb") as came:
            while not answers or len(found) < answers:
                head, body = LENGTHS.unpack(came.read(LENGTHS.size))
                found.append((json.loads(came.read(head)), json.loads(came.read(body))))
    return found


@pytest.fixture(autouse=True)
def unharmed(service: Service) -> Iterator[None]:
    """Look after each test whether the door lives, and charged nothing."""
    path = "/v1/data-sets/patients/budget"
    before = service.call("GET", path, token=service.owner())[1]["spent"]
    yield
    assert service.call("GET", path, token=service.owner())[1]["spent"] == before
    assert not any("ended" in line for line in service.said)


def test_the_line_lies_where_nobody_else_comes(door: Path) -> None:
    assert stat.S_IMODE(door.parent.stat().st_mode) == 0o700
    assert door.parent.stat().st_uid == os.geteuid()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0", b"\0" * 8, b"\xff" * 8, b"\xff" * 100_000, b"GET / HTTP/1.1\r\n\r\n",
        LENGTHS.pack(2, 2**32 - 1) + b"{}", LENGTHS.pack(2**32 - 1, 0), LENGTHS.pack(5, 5) + b"{",
        LENGTHS.pack(2, 2 * 1024 * 1024) + b"{}",
        packed(b"[]"), packed(b"null"), packed(b"1"), packed(b"\xff\xfe"), packed(b"{"),
        packed(b"[" * 60_000), packed(b'{"id":' + b"[" * 60_000), packed(b'{"id": ' + b"9" * 5000),
        packed(b'{"a": 1e999999}'), packed(b"{}" + b" " * 70_000),
    ],
)  # fmt: skip
def test_what_is_no_frame_is_not_answered_with_more_than_a_refusal(door: Path, data: bytes) -> None:
    for header, body in said(door, data, 0):
        assert header["code"] == "bad-request"
        assert set(body) == {"refused"}


@pytest.mark.parametrize(
    "header",
    [
        {"verb": "no-such"}, {"verb": None}, {"verb": ["ask"]}, {"verb": "__init__"},
        {"token": None}, {"token": 5}, {"place": None}, {"params": None}, {"params": []},
        {"params": {"data_set": {"a": 1}}}, {"params": {"epsilon": float("nan")}},
        {"params": {"epsilon": 1e400}}, {"params": {"fresh": True}}, {"params": {"x": 0.5}},
    ],
)  # fmt: skip
def test_a_call_of_a_wrong_shape_is_refused(door: Path, header: dict[str, Any]) -> None:
    ((_, body),) = said(door, frame(**header))
    assert body["refused"]["code"] == "bad-request"


def test_a_forged_id_is_given_back_and_nothing_else(door: Path) -> None:
    for number in (-1, 0, 2**70, "x" * 1000, None, [1], {"a": 1}, 1.5):
        ((header, body),) = said(door, frame(id=number))
        assert header["id"] == number
        assert body["wire"] == 1


def test_every_call_needs_a_token_of_its_own(door: Path, service: Service) -> None:
    """A door that remembered who spoke last on the line would let the second one in."""
    good = frame(id=1, verb="me", token=service.tokens["ada"])
    for token in ("", "x", "sfm1_" + "A" * 49, service.tokens["ada"][:-1], "owner"):
        answers = {
            h["id"]: h["code"] for h, _ in said(door, good + frame(id=2, verb="me", token=token), 2)
        }
        assert answers == {1: None, 2: "not-signed-in"}


@pytest.mark.parametrize(
    ("caller", "verb"),
    [("otto", "ask"), ("vera", "ask"), ("otto", "price"), ("ada", "users"), ("ada", "entries"),
     ("owner", "entries"), ("ada", "metrics"), ("vera", "metrics"), ("otto", "policies")],
)  # fmt: skip
def test_the_door_looks_at_the_role_whatever_the_edge_lets_through(
    door: Path, service: Service, caller: str, verb: str
) -> None:
    params = {"data_set": "patients"}
    call = frame(json.dumps(ASK).encode(), verb=verb, token=service.tokens[caller], params=params)
    ((header, _),) = said(door, call)
    assert header["code"] == "not-allowed"


def test_a_body_does_not_overrule_the_address(door: Path, service: Service) -> None:
    made = service.call("POST", "/v1/tokens", {"label": "narrow", "data_sets": ["other"]},
                        token=service.tokens["ada"])[1]  # fmt: skip
    body = json.dumps({**ASK, "data_set": "patients"}).encode()
    for params in ({}, {"data_set": "other"}, {"data_set": "PATIENTS"}):
        ((header, _),) = said(door, frame(body, verb="ask", token=made["token"], params=params))
        assert header["code"] == ("bad-request" if params else "unknown-data-set")


def test_a_name_that_no_database_keeps_is_refused(door: Path, service: Service) -> None:
    for name in ("\ud800", "\0", "a" * 10_000, "x\udfffy"):
        for verb, key in (("card", "data_set"), ("answer", "op"), ("revoke-token", "token")):
            call = frame(verb=verb, token=service.tokens["ada"], params={key: name})
            ((header, _),) = said(door, call)
            assert header["code"] not in (None, "fault"), (verb, name[:5])
        body = json.dumps({"user": name, "password": "x" * 20}).encode()
        ((header, _),) = said(door, frame(body, verb="sign-in", place="elsewhere"))
        assert header["code"] in ("bad-request", "not-signed-in"), name[:5]
