"""Those who come slowly, large, twice at once, or not in HTTP: they harm nobody but themselves."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from sfumato.server.console.session import COOKIE, csrf_of
from sfumato.server.http.connection_limits import Limits, guarded
from support.process_tree import PATIENCE_S
from support.raw_http import Raw, raw, replies, request, statuses
from support.served_vault import Service, served_with
from support.service_with_users import peopled_vault, strays

HEAD_S, BODY_S = 1.0, 2.0
KEEP = "Connection: keep-alive"
HELLO = request("GET", "/v1/hello", KEEP)
LAST = request("GET", "/v1/hello")
JSON = "Content-Type: application/json"
WRONG = json.dumps({"user": "ada", "password": "x" * 20}).encode()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service that waits a second for a head, and two for a body."""
    vault = peopled_vault(tmp_path_factory.mktemp("served"))
    with served_with(vault, head_s=HEAD_S, body_s=BODY_S, of_one_place=80) as running:
        yield running
        assert strays(running) == []


@pytest.fixture(autouse=True)
def unharmed(service: Service) -> Iterator[None]:
    """Look after each test whether the service still answers another."""
    yield
    assert service.call("GET", "/v1/hello")[0] == 200


def test_a_head_that_does_not_come_ends_the_connection(service: Service) -> None:
    for begun in (b"", b"GET /v1/hel", HELLO[:-2], b"\r\n"):
        with raw(service) as opened:
            opened.send(begun)
            ended = opened.ended_within(PATIENCE_S)
            assert ended is not None
            assert ended > HEAD_S / 2


def test_a_head_that_drips_ends_the_connection(service: Service) -> None:
    with raw(service) as opened:
        begun = time.monotonic()
        while opened.is_open() and time.monotonic() - begun < PATIENCE_S:
            opened.send(b"X")
            time.sleep(0.05)
        assert not opened.is_open()


@pytest.mark.parametrize(
    "first",
    [
        HELLO,
        request("GET", "/v1/hello", KEEP, "Content-Length: 3", body=b"abc"),
        # answered before its body is there, which then ends
        request("GET", "/v1/hello", KEEP, "Content-Length: 3") + b"ab",
        request("POST", "/nowhere", KEEP, "Content-Length: 3") + b"ab",
    ],
)
def test_the_second_head_of_a_connection_has_no_more_time(service: Service, first: bytes) -> None:
    with raw(service) as opened:
        opened.send(first)
        time.sleep(0.3)
        opened.send(b"c" if first.endswith(b"ab") else b"")
        time.sleep(0.1)
        begun = time.monotonic()
        opened.send(b"GET /v1/hello HTTP/1.1\r\n")
        while opened.is_open() and time.monotonic() - begun < PATIENCE_S:
            opened.link.setblocking(False)
            with suppress(BlockingIOError):
                opened.link.recv(65536)
            opened.send(b"X")
            time.sleep(0.05)
        assert not opened.is_open()


def test_blank_lines_keep_no_connection_open(service: Service) -> None:
    with raw(service) as opened:
        opened.send(HELLO)
        begun = time.monotonic()
        opened.link.settimeout(1)
        opened.link.recv(65536)
        while opened.is_open() and time.monotonic() - begun < PATIENCE_S:
            opened.send(b"\r\n")
            time.sleep(0.1)
        assert not opened.is_open()


def _one_reply(opened: Raw) -> bytes:
    """Return the reply to `hello`, all of it: the connection stays open."""
    said = b""
    while not said.endswith(b"}"):
        part = opened.link.recv(65536)
        assert part, said
        said += part
    return said


def test_an_answered_connection_that_says_nothing_is_let_go_of(
    service: Service, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Where an idle connection has a second, it is hung up on; here it has thirty."""
    vault = peopled_vault(tmp_path_factory.mktemp("idle"))
    with served_with(vault, idle_s=1) as hasty, raw(hasty) as let_go, raw(service) as kept:
        for opened in (let_go, kept):
            for _ in range(2):  # between two requests there is time enough
                opened.send(HELLO)
                assert statuses(_one_reply(opened)) == [200]
                assert opened.is_open()
        assert let_go.ended_within(25) is not None
        assert kept.is_open()
        kept.send(LAST)
        assert statuses(kept.rest()) == [200]


def test_a_body_that_does_not_come_ends_the_connection(service: Service) -> None:
    with raw(service) as opened:
        opened.send(request("POST", "/v1/sign-in", JSON, "Content-Length: 100") + b'{"user"')
        begun = time.monotonic()
        said = opened.rest(PATIENCE_S)
        assert statuses(said) == [408]
        assert time.monotonic() - begun > BODY_S / 2


@pytest.mark.parametrize("path", ["/v1/uploads", "/uploads"])
def test_a_file_may_take_longer_than_other_bodies(service: Service, path: str) -> None:
    token, piece = service.owner(), b"1,2\n" * 10_000
    head = request(
        "PUT", f"{path}?name=rows.csv", f"Authorization: Bearer {token}",
        f"Cookie: {COOKIE}={token}", f"X-CSRF: {csrf_of(token)}", "Sec-Fetch-Site: same-origin",
        f"Content-Length: {8 * 40_000}",
    )  # fmt: skip
    with raw(service) as opened:
        opened.send(head)
        for _ in range(8):
            time.sleep(BODY_S / 6)
            opened.send(piece)
        assert statuses(opened.rest(10)) == [200]


def test_a_file_of_nobodys_keeps_no_connection(service: Service) -> None:
    head = request("PUT", "/uploads?name=rows.csv", KEEP, "Sec-Fetch-Site: same-origin",
                   f"Content-Length: {100_000}")  # fmt: skip
    with raw(service) as opened:
        opened.send(head + b"x" * 100_000)
        said = opened.rest(5)
        assert statuses(said) == [403]
        assert b"\r\nconnection: close\r\n" in said.lower()
        assert not opened.is_open()


def test_a_reply_is_followed_by_none_that_nobody_asked_for(service: Service) -> None:
    with raw(service) as opened:
        opened.send(request("GET", "/v1/hello", KEEP, "Content-Length: 100") + b"begun")
        assert statuses(opened.rest(PATIENCE_S)) == [200]


def test_a_large_head_is_refused(service: Service) -> None:
    for many in (
        [f"X-{n}: {'y' * 900}" for n in range(20)],
        [f"X-{n}: y" for n in range(101)],
        ["X: " + "y" * 17_000],
    ):
        assert replies(service, request("GET", "/v1/hello", *many)) == [431]
    assert replies(service, request("GET", "/v1/hello?" + "y" * 17_000)) == [431]
    assert replies(service, request("GET", "/v1/hello", *(f"X-{n}: y" for n in range(90)))) == [200]


@pytest.mark.parametrize(
    "begun", [b"GET /v1/hello HTTP/1.1\r\nX: ", b"GET /", b"GET / HTTP/1.1\r\n"]
)
def test_a_header_without_an_end_is_not_kept(service: Service, begun: bytes) -> None:
    with raw(service) as opened:
        opened.send(begun + b"y" * 65_536)
        assert statuses(opened.rest(PATIENCE_S)) in ([431], [400])  # and not 408, for its time


def test_what_comes_after_a_refused_head_is_not_done(service: Service) -> None:
    large = request("GET", "/v1/hello", KEEP, "X: " + "y" * 17_000)
    assert replies(service, large + HELLO) == [431]
    assert replies(service, HELLO + large + HELLO) in ([200], [200, 431], [431], [])


def test_half_open_connections_stop_nobody(tmp_path: Path) -> None:
    vault = peopled_vault(tmp_path)
    with served_with(vault, head_s=PATIENCE_S, of_one_place=80) as patient, ExitStack() as held:
        half_open = [held.enter_context(raw(patient)) for _ in range(60)]
        for opened in half_open:
            opened.send(HELLO[:-2])
        for _ in range(10):
            assert replies(patient, request("GET", "/v1/hello")) == [200]
        assert all(opened.is_open() for opened in half_open)  # nobody waited for their end


def test_one_place_opens_so_many_connections_and_no_more(service: Service) -> None:
    with ExitStack() as held:
        opened = [held.enter_context(raw(service)) for _ in range(100)]
        time.sleep(0.3)
        refused = [one for one in opened if not one.is_open()]
        assert 20 <= len(refused) <= 25  # others of this place may have been open still
        assert statuses(refused[-1].rest(1)) == [503]
    time.sleep(0.3)
    assert replies(service, LAST) == [200]


def test_pipelined_requests_are_answered_in_order(service: Service) -> None:
    sign_in = request("POST", "/v1/sign-in", KEEP, JSON, body=b"[")
    assert replies(service, HELLO + sign_in + HELLO + request("GET", "/nowhere")) == [
        200, 400, 200, 404,
    ]  # fmt: skip


def test_a_body_over_one_megabyte_is_refused_however_it_comes(service: Service) -> None:
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    chunked = request("POST", "/v1/sign-in", JSON, "Transfer-Encoding: chunked")
    assert replies(service, chunked + 17 * chunk + b"0\r\n\r\n", 3)[:1] == [413]
    whole = request("POST", "/v1/sign-in", JSON, body=b" " * (1024 * 1024 + 1))
    assert replies(service, whole, 3)[:1] == [413]
    small = chunked + b"2\r\n{}\r\n0\r\n\r\n"
    assert replies(service, small) == [400]


def test_a_body_may_come_in_one_large_piece(service: Service) -> None:
    """What a kernel hands over at once is not ours to choose: a body's end may be 200 KB long."""
    assert asyncio.run(_statuses_of_pieces(b'{"user": "', b"x" * 200_000 + b'"}')) == [200]


async def _statuses_of_pieces(*pieces: bytes) -> list[int]:
    async def app(_scope: object, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    ours, theirs = socket.socketpair()
    config = Config(app, interface="asgi3", lifespan="off")
    config.load()
    with theirs:
        loop = asyncio.get_running_loop()
        make = partial(guarded(Limits()), config, ServerState(), {})
        transport, protocol = await loop.create_connection(make, sock=ours)
        length = sum(map(len, pieces))
        head = request("POST", "/v1/sign-in", JSON, f"Content-Length: {length}")
        for piece in (head, *pieces):
            protocol.data_received(piece)
        await asyncio.sleep(0.2)
        transport.abort()
        await asyncio.sleep(0)
        theirs.settimeout(5)
        return statuses(theirs.recv(65536))


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
@pytest.mark.parametrize("is_read", [True, False])
def test_whoever_does_not_read_is_let_go_of_too(connection: str, *, is_read: bool) -> None:
    """What is left of a reply is little: nothing is held up by it, but it would stay for ever."""
    assert asyncio.run(_left_open(connection, is_read=is_read)) == (0, is_read)


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
@pytest.mark.parametrize(("each", "is_whole"), [(65_536, True), (64, False)])
def test_a_large_reply_may_be_read_slowly(connection: str, each: int, *, is_whole: bool) -> None:
    """It takes several times what somebody has to read on; but who only sips is let go of."""
    found = _left_open(connection, is_read=True, size=200_000, each=each, pause_s=0.1)
    assert asyncio.run(found) == (0, is_whole)


async def _left_open(
    connection: str,
    *,
    is_read: bool,
    size: int = 50_000,  # more than the system takes, and less than the transport stops at
    each: int = 65_536,
    pause_s: float = 0.0,
) -> tuple[int, bool]:
    """Return how many connections are open after a while, and whether all of a reply was read."""

    async def app(_scope: object, _receive: object, send: Any) -> None:
        length = (b"content-length", str(size).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": b"x" * size})

    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    config = Config(app, interface="asgi3", lifespan="off", timeout_keep_alive=1)
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()
    make = partial(guarded(Limits(unread_s=0.5)), config, state, {})
    with theirs:
        transport, protocol = await loop.create_connection(make, sock=ours)
        protocol.data_received(request("GET", "/", f"Connection: {connection}"))
        await asyncio.sleep(0.2)
        assert transport.get_write_buffer_size() > 0
        theirs.setblocking(False)
        read = 0
        while is_read and read < size:
            came = await asyncio.wait_for(loop.sock_recv(theirs, each), 10)
            if not came:
                break
            read += len(came)
            await asyncio.sleep(pause_s)
        until = loop.time() + 20
        while state.connections and loop.time() < until:
            await asyncio.sleep(0.05)
        return len(state.connections), read >= size


def test_a_gap_in_chunks_is_refused(service: Service) -> None:
    chunked = request("POST", "/v1/sign-in", JSON, "Transfer-Encoding: chunked")
    for body in (b"zz\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n", b"2\r\n{}x\r\n0\r\n\r\n"):
        assert replies(service, chunked + body, HEAD_S)[:1] in ([400], [413])


SMUGGLED = {
    "both lengths": ("Content-Length: 6", "Transfer-Encoding: chunked"),
    "two lengths": ("Content-Length: 5", "Content-Length: 6"),
    "a list of lengths": ("Content-Length: 5, 6",),
    "a signed length": ("Content-Length: +5",),
    "a hexadecimal length": ("Content-Length: 0x5",),
    "another encoding last": ("Transfer-Encoding: chunked, identity",),
    "an encoding unknown": ("Transfer-Encoding: xchunked",),
    "an encoding twice": ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "a space before the colon": ("Transfer-Encoding : chunked",),
    "a folded line": ("X: y\r\n z",),
    "a bare line feed": ("X: y\nTransfer-Encoding: chunked",),
    "a letter 0": ("X: y\0z",),
    "a bare carriage return": ("X: y\rTransfer-Encoding: chunked",),
}


@pytest.mark.parametrize("shape", SMUGGLED)
def test_nothing_is_smuggled(service: Service, shape: str) -> None:
    """One reply at most, to what both a proxy and the service would take for one request."""
    body = b"0\r\n\r\n" + LAST
    said = replies(service, request("POST", "/nowhere", KEEP, *SMUGGLED[shape]) + body, HEAD_S + 1)
    assert 200 not in said, said
    assert said in ([400], [400, 400], [404, 400], [408], [404], []), said


def test_a_host_that_this_is_not_is_refused(service: Service) -> None:
    port = urlsplit(service.url).port
    for host in (
        "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "localhost.", " ",
        "evil.example:localhost", "[::1", "[::1].evil.example", "localhost@evil.example",
        "2130706433", "0", "localhost, evil.example", "localhost\tevil", "localhost:x@evil",
    ):  # fmt: skip
        said = replies(service, request("GET", "/v1/hello", host=host))
        assert said == [400], host
    for host in ("localhost", f"localhost:{port}", "127.0.0.1", "[::1]:80", "LOCALHOST"):
        assert replies(service, request("GET", "/v1/hello", host=host)) == [200], host


def test_a_missing_or_doubled_host_is_refused(service: Service) -> None:
    assert replies(service, b"GET /v1/hello HTTP/1.1\r\nConnection: close\r\n\r\n") == [400]
    assert replies(service, b"GET /v1/hello HTTP/1.0\r\n\r\n") == [400]
    assert replies(service, request("GET", "/v1/hello", "Host: localhost")) == [400]
    assert replies(service, request("GET", "/v1/hello", "host: evil.example")) == [400]


def test_http_1_0_is_answered_once(service: Service) -> None:
    old = b"GET /v1/hello HTTP/1.0\r\nHost: localhost\r\n\r\n"
    assert replies(service, old + old) == [200]


@pytest.mark.parametrize("method", "HEAD OPTIONS TRACE CONNECT PUT PATCH DELETE PROPFIND".split())
def test_a_method_that_no_route_has_is_refused(service: Service, method: str) -> None:
    for path in ("/v1/hello", "/v1/nowhere"):
        said = replies(service, request(method, path))
        assert said[:1] in ([405], [404], [400]) or (method, said) == ("HEAD", [200]), said


def test_a_trace_gives_nothing_back(service: Service) -> None:
    with raw(service) as opened:
        opened.send(request("TRACE", "/v1/hello", "Authorization: Bearer sfm1_secret"))
        assert b"sfm1_secret" not in opened.rest(0.5)


def test_a_range_and_an_upgrade_change_nothing(service: Service) -> None:
    for header in (
        "Range: bytes=0-1", "Range: bytes=" + ",".join(f"{n}-{n}" for n in range(1000)),
        "Connection: Upgrade, close\r\nUpgrade: h2c",
        "Connection: Upgrade, close\r\nUpgrade: websocket",
        "Expect: 100-continue", "Expect: the moon", "X-HTTP-Method-Override: DELETE",
    ):  # fmt: skip
        assert replies(service, request("GET", "/v1/hello", header)) == [200], header


def test_a_path_means_what_it_says(service: Service) -> None:
    for path in (
        "/v1/hello%00", "/v1%2Fhello", "/v1/hello/", "//v1/hello", "/v1/../v1/hello", "/v1/%2e%2e",
        "/v1/hello%2F..", "/V1/hello", "/v1/hello;x=y", "/v1\\hello", "/%", "/%ff%fe", "*",
        "/v1/data-sets/%00", "/v1/data-sets/a%2Fbudget",
    ):  # fmt: skip
        said = replies(service, request("GET", path))
        assert said in ([404], [400], [401]), (path, said)
    raw_bytes = b"GET /v1/\xff\xfe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert replies(service, raw_bytes) in ([400], [404])


def test_a_token_that_is_too_long_harms_nobody_else(service: Service) -> None:
    """Bytes grow sixfold on the line: a head that is small enough here was too large there."""
    with raw(service) as opened:
        head = b"GET /v1/me HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
        opened.send(head + b"\xff" * 15_000 + b"\r\n\r\n")
        assert statuses(opened.rest(1)) == [401]


def test_what_is_no_http_is_refused(service: Service) -> None:
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500, b"PRI * HTTP/2.0\r\n\r\nSM",
        b"\0" * 2000, b"GET /v1/hello\r\n\r\n", b"GET  /v1/hello HTTP/1.1\r\n\r\n", b"\xff" * 100,
        b"GET /v1/hello HTTP/9.9\r\nHost: localhost\r\n\r\n", b"get /v1/hello http/1.1\r\n\r\n",
    ):  # fmt: skip
        assert replies(service, data, HEAD_S + 1) in ([400], [408], []), data[:20]


def test_a_client_that_leaves_is_no_fault(service: Service) -> None:
    for _ in range(5):
        with raw(service) as opened:
            opened.send(request("POST", "/v1/sign-in", JSON, "Content-Length: 100") + b"{")
            time.sleep(0.02)


def test_limits_hold_for_the_vault_that_is_served(tmp_path: Path, service: Service) -> None:
    assert len(WRONG) < 1024  # a small body, in time, is read
    said = replies(service, request("POST", "/v1/sign-in", JSON, body=WRONG), 5)
    assert said == [401]
