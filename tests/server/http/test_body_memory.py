"""Bodies that are in the edge at one time have a sum: who sends more hears when to come again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import cast
from urllib.parse import urlsplit

import pytest
from starlette.types import Message, Receive, Send

from sfumato.dp.refusal import Refused
from sfumato.server.http.body_memory import MOST, SHARE, SMALL, BodyMemory
from sfumato.server.http.connection_limits import Limits, Place
from support.served_vault import Service, served
from support.service_with_users import peopled_vault, strays

MB = 1024 * 1024
HERE, THERE = "127.0.0.1", "127.0.0.2"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service."""
    with served(peopled_vault(tmp_path_factory.mktemp("bodies"))) as running:
        running.owner()
        yield running
        assert strays(running) == []


def opened(service: Service, place: str, size: int, path: str) -> socket.socket:
    """Return a connection from a place that has sent the head of a request with a body."""
    port = urlsplit(service.url).port or 80
    link = socket.create_connection((HERE, port), timeout=30, source_address=(place, 0))
    kind = b"application/json" if path.startswith("/v1") else b"application/x-www-form-urlencoded"
    head = (
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n"
        b"Content-Type: %s\r\nContent-Length: %d\r\n\r\n"
    )
    link.sendall(head % (path.encode(), kind, size))
    return link


def answer(link: socket.socket) -> bytes:
    """Return the first of the reply."""
    parts = b""
    while b"\r\n\r\n" not in parts:
        part = link.recv(65536)
        if not part:
            break
        parts += part
    return parts


@pytest.mark.parametrize("path", ["/v1/data-sets/patients/ask", "/data-sets/patients/ask"])
def test_a_body_too_many_is_refused_until_there_is_room(service: Service, path: str) -> None:
    whole = b" " * (MB - 1000)
    with ExitStack() as held:

        def send(place: str, *, is_whole: bool) -> socket.socket:
            link = held.enter_context(closing(opened(service, place, len(whole), path)))
            link.sendall(whole if is_whole else whole[:-1])
            return link

        for _ in range(MOST // SHARE // MB):
            send(HERE, is_whole=False)
        refused = answer(send(HERE, is_whole=True))
        assert refused.startswith(b"HTTP/1.1 429 ")
        assert b"\r\nretry-after: 5\r\n" in refused.lower()
        assert service.call("GET", "/v1/hello")[0] == 200  # which has no body
        assert not answer(send(THERE, is_whole=True)).startswith(b"HTTP/1.1 429 ")
    with closing(opened(service, HERE, len(whole), path)) as link:
        link.sendall(whole)
        assert not answer(link).startswith(b"HTTP/1.1 429 ")


def test_all_places_together_have_a_sum_too(service: Service) -> None:
    whole, path = b" " * (MB - 1000), "/v1/data-sets/patients/ask"
    with ExitStack() as held:
        for number in range(2, 2 + SHARE):
            for _ in range(MOST // SHARE // MB):
                place = f"127.0.0.{number}"
                link = held.enter_context(closing(opened(service, place, len(whole), path)))
                link.sendall(whole[:-1])
        with closing(opened(service, HERE, len(whole), path)) as link:
            link.sendall(whole)
            assert answer(link).startswith(b"HTTP/1.1 429 ")


def test_a_file_is_passed_on_and_counts_for_nothing(service: Service) -> None:
    large = b"a,b\n" + b"1,2\n" * (6 * MB)
    status, said = service.call("PUT", "/v1/uploads?name=rows.csv", large, token=service.owner())
    assert (status, said["bytes"]) == (200, len(large))


def test_a_form_that_is_larger_as_json_breaks_nobodys_line(service: Service) -> None:
    """The door hangs up on what is too large, and all who wait on the line would hear nothing."""
    for name in (b"\x01", b"\xc3\xa9"):
        form = b"user=x&password=" + name * (900_000 // len(name))
        with closing(opened(service, HERE, len(form), "/sign-in")) as link:
            link.sendall(form)
            assert answer(link).startswith(b"HTTP/1.1 413 ")


def test_a_small_body_has_room_however_much_is_held() -> None:
    assert asyncio.run(_codes_beside_a_full_place(MB, SMALL, SMALL + MB)) == [429, 200, 429]


async def _codes_beside_a_full_place(*sizes: int) -> list[int]:
    codes, gate = [], asyncio.Event()

    async def app(_scope: object, receive: Receive, _send: object) -> None:
        try:
            while (await receive()).get("more_body"):
                pass
            codes.append(200)
        except Refused:
            codes.append(429)

    bodies = BodyMemory(app)

    async def sent(size: int, *, is_whole: bool) -> None:
        parts = [{"type": "http.request", "body": b" " * size, "more_body": not is_whole}]

        async def receive() -> Message:
            if not parts:
                await gate.wait()
            return parts.pop() if parts else {"type": "http.request"}

        scope = {"type": "http", "method": "POST", "path": "/v1/sign-in", "client": (HERE, 1)}
        await bodies(scope, receive, cast("Send", None))

    held = [sent(MB - 1, is_whole=False) for _ in range(MOST // SHARE // MB)]
    waiting = [asyncio.create_task(one) for one in held]
    await asyncio.sleep(0)
    for size in sizes:
        await sent(size, is_whole=True)
    gate.set()
    await asyncio.gather(*waiting)
    return codes[: len(sizes)]


def test_one_network_is_one_place_however_many_addresses_it_has() -> None:
    limits = Limits(of_one_place=3)
    held = [Place(f"2001:db8::{number}") for number in range(4)]
    another = Place("2001:db8:0:1::1")
    assert held[-1].has_too_many(limits)
    assert not another.has_too_many(limits)
    held.pop().let_go()
    assert not held[-1].has_too_many(limits)
    for place in (*held, another):
        place.let_go()
        place.let_go()  # once is enough
    last = Place("2001:db8::1")
    assert not last.has_too_many(Limits(of_one_place=1))
    last.let_go()
