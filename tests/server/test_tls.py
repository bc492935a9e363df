"""Served to others: encrypted, by a certificate that clients check; or by a proxy beside it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import uvicorn
from uvicorn.server import ServerState

import sfumato
from sfumato import Refused
from sfumato.app.processes import Serving, check, proxy_networks
from sfumato.server.http.connection_limits import Limits, guarded
from support.raw_http import Raw, raw, replies, request, statuses
from support.served_vault import Service, served, served_with
from support.service_with_users import peopled_vault
from support.tls_certificates import write_certificate

JSON: Final = "Content-Type: application/json"


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a vault."""
    return peopled_vault(tmp_path_factory.mktemp("tls"))


async def _met(url: str) -> None:
    async with sfumato.connect_async(url, token=""):
        pass


def test_a_client_checks_whose_certificate_it_is(
    vault: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = write_certificate(tmp_path / "right")
    another, _ = write_certificate(tmp_path / "wrong")
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with served(vault, *options) as service:
        assert service.url.startswith("https://")
        trusts = ssl.create_default_context(cafile=str(certificate))
        hello = f"{service.url}/v1/hello"
        with urllib.request.urlopen(hello, timeout=10, context=trusts) as reply:  # noqa: S310
            assert json.load(reply)["wire"] == 1
            assert reply.headers["Strict-Transport-Security"].startswith("max-age=")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        sfumato.connect(service.url, token="").close()
        monkeypatch.setenv("SSL_CERT_FILE", str(another))
        with pytest.raises(Refused, match="does not trust the service's certificate") as refused:
            sfumato.connect(service.url, token="")
        assert refused.value.code == "serve-unsafe"
        assert "SSL_CERT_FILE" in refused.value.next_step
        with pytest.raises(Refused, match="does not trust the service's certificate"):
            asyncio.run(_met(service.url))
        with raw(service) as opened:  # in clear text nothing is said
            opened.send(request("GET", "/v1/hello"))
            assert statuses(opened.rest(5)) == []


def test_who_serves_is_told_by_which_names_nobody_is_let_in(vault: Path, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path / "own")
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with served(vault, *options) as service:
        assert any("--name NAME" in line for line in service.said)
        hello, named = f"{service.url}/v1/hello", {"Host": "school.example"}
        asked = urllib.request.Request(hello, headers=named)  # noqa: S310
        trusts = ssl.create_default_context(cafile=str(certificate))
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=10, context=trusts)  # noqa: S310
        with refused.value as reply:
            assert "sfumato serve --name NAME" in json.load(reply)["refused"]["next"]
    with served(vault, *options, "--name", "school.example") as service:
        assert not any("--name NAME" in line for line in service.said)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "", "localhost.x"])  # noqa: S104
def test_nothing_is_served_to_others_in_clear_text(host: str) -> None:
    with pytest.raises(Refused) as refused:
        check(Serving(vault="v", host=host))
    assert refused.value.code == "serve-unsafe"
    with pytest.raises(Refused, match="without the proxy"):
        check(Serving(vault="v", host=host, is_behind_proxy=True))
    check(
        Serving(vault="v", host=host, is_behind_proxy=True, proxies=("192.0.2.7", "2001:db8::/64"))
    )


@pytest.mark.parametrize("proxy", ["0.0.0.0/0", "::/0", "proxy.example", "", "192.0.2.7/24"])
def test_a_proxy_is_named_by_the_address_that_it_connects_from(proxy: str) -> None:
    with pytest.raises(Refused, match="--proxy takes an address"):
        check(Serving(vault="v", host="192.0.2.1", is_behind_proxy=True, proxies=(proxy,)))
    with pytest.raises(Refused, match="only with --behind-proxy"):
        check(Serving(vault="v", proxies=("192.0.2.7",)))


async def nothing(scope: object, receive: object, send: object) -> None:
    """Be an app."""


class Closing(asyncio.Transport):
    """A connection from some address, which says whether it was hung up on."""

    is_aborted = False

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 5), "sockname": ("192.0.2.1", 80)})
        self.sent = b""

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        """Be let go of."""

    def is_closing(self) -> bool:
        return self.is_aborted

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("192.0.2.7", True), ("192.0.2.8", False), ("::ffff:192.0.2.7", True), ("127.0.0.1", True),
        ("::1", True), ("2001:db8::5", True), ("2001:db9::5", False), ("", False), ("?", False),
    ],
)  # fmt: skip
def test_who_goes_past_a_named_proxy_is_hung_up_on_without_a_word(address: str, may: bool) -> None:
    named = Serving(vault="v", is_behind_proxy=True, proxies=("192.0.2.7", "2001:db8::/64"))
    made = guarded(Limits(only=proxy_networks(named)))
    with asyncio.Runner() as runner:
        link = Closing(address)

        async def connected() -> None:
            config = uvicorn.Config(nothing)
            config.load()
            protocol = made(config, ServerState(), {})
            protocol.connection_made(link)
            protocol.connection_lost(None)

        runner.run(connected())
    assert (not link.is_aborted, link.sent) == (may, b"")


def test_a_certificate_needs_its_key() -> None:
    for lone in (Serving("v", tls_cert="c"), Serving("v", tls_key="k")):
        with pytest.raises(Refused):
            check(lone)


def _tries(service: Service, *headers: str) -> list[int]:
    """Return what ten tries give, each saying that it comes from elsewhere."""
    body = json.dumps({"user": "nobody", "password": "x" * 20}).encode()
    found = []
    for number in range(7):
        said = [header.format(number) for header in headers]
        found += replies(service, request("POST", "/v1/sign-in", JSON, *said, body=body))
    return found


@pytest.fixture(params=[(), ("--behind-proxy",)], ids=["alone", "behind a proxy"])
def service(vault: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    """Return a service that has no proxy, and one that has."""
    with served(vault, *request.param) as running:
        yield running


def test_who_sends_is_whom_the_connection_or_its_proxy_names(service: Service) -> None:
    """A stranger who writes X-Forwarded-For himself does not become another with every try."""
    is_proxied = "--behind-proxy" in str(service.process.args)
    forged = _tries(service, "X-Forwarded-For: 203.0.113.{}")
    assert forged == ([401] * 7 if is_proxied else [401] * 5 + [429] * 2)
    if is_proxied:  # the proxy adds whom it sees at the end: what stood before is the stranger's
        forged = _tries(service, "X-Forwarded-For: 203.0.113.{}, 198.51.100.7")
        assert forged == [401] * 5 + [429] * 2
        networks = _tries(service, "X-Forwarded-For: 2001:db8::{}")
        assert networks == [401] * 5 + [429] * 2


@pytest.mark.parametrize("is_behind_proxy", [False, True])
def test_a_proxy_is_not_taken_for_one_place(vault: Path, *, is_behind_proxy: bool) -> None:
    """All come from there: what one of them may open is the proxy's to say."""
    how = {"is_behind_proxy": is_behind_proxy, "connections": 40, "of_one_place": 3}
    with served_with(vault, **how) as service, ExitStack() as opened:
        links = [opened.enter_context(raw(service)) for _ in range(6)]
        for link in links:
            link.send(request("GET", "/v1/hello"))
        told = [statuses(link.rest(5)) for link in links]
    assert told == ([[200]] * 6 if is_behind_proxy else [[200]] * 3 + [[503]] * 3)


def test_a_handshake_that_does_not_end_is_cut(vault: Path, tmp_path: Path) -> None:
    kept, secret = write_certificate(tmp_path / "keys")
    with served_with(vault, tls_cert=str(kept), tls_key=str(secret), head_s=1.0) as service:
        for begun in (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x16"):
            with raw(service) as opened:
                opened.send(begun)
                ended = opened.ended_within(8)
                assert ended is not None
                assert ended > 0.5


HELLO_BEGUN: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # of a client, without an end


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a certificate for this machine, and its key."""
    return write_certificate(tmp_path_factory.mktemp("certified") / "keys")


def _said_hello(service: Service, kept: Path, place: str = "127.0.0.1") -> bytes:
    """Return what the service says to a client at this address, or nothing if it hangs up."""
    trusts = ssl.create_default_context(cafile=str(kept))
    try:
        with (
            _opened(service, place) as link,
            trusts.wrap_socket(link, server_hostname="localhost") as wrapped,
        ):
            wrapped.sendall(request("GET", "/v1/hello"))
            return wrapped.recv(15)
    except OSError:
        return b""


def _opened(service: Service, place: str) -> socket.socket:
    where = ("127.0.0.1", urlsplit(service.url).port or 443)
    return socket.create_connection(where, timeout=60, source_address=(place, 0))


def _begun(service: Service, place: str = "127.0.0.1") -> Raw:
    opened = Raw(_opened(service, place))
    opened.send(HELLO_BEGUN)
    return opened


def _until(is_so: Callable[[], bool]) -> None:
    """Wait until it is so, for as long as the busiest machine may take."""
    end = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_half_open_handshakes_harm_nobody_else(vault: Path, keys: tuple[Path, Path]) -> None:
    """Five hundred that never end, all of them open until the others have been answered."""
    kept, secret = keys
    how = {"tls_cert": str(kept), "tls_key": str(secret), "head_s": 300.0}
    with served_with(vault, **how) as service, ExitStack() as held:
        opened = [_begun(service) for _ in range(500)]
        for one in opened:
            held.callback(one.link.close)
        assert [_said_hello(service, kept) for _ in range(20)] == [b"HTTP/1.1 200 OK"] * 20
        assert all(one.is_open() for one in opened)


def test_half_open_handshakes_count_as_connections(vault: Path, keys: tuple[Path, Path]) -> None:
    kept, secret = keys
    how = {"tls_cert": str(kept), "tls_key": str(secret), "head_s": 300.0, "of_one_place": 40}
    with served_with(vault, **how) as service, ExitStack() as held:
        opened = [_begun(service) for _ in range(60)]
        for one in opened:
            held.callback(one.link.close)
        _until(lambda: sum(not one.is_open() for one in opened) == 20)
        assert _said_hello(service, kept) == b""
        assert _said_hello(service, kept, "127.0.0.2") == b"HTTP/1.1 200 OK"
        assert sum(one.is_open() for one in opened) == 40  # and the others' place is none of theirs
        for one in opened[:30]:  # some of whom had been let in
            one.link.close()
        _until(lambda: _said_hello(service, kept) == b"HTTP/1.1 200 OK")


def test_whoever_shakes_hands_wrongly_or_late_is_counted_no_more(
    vault: Path, keys: tuple[Path, Path]
) -> None:
    kept, secret = keys
    how = {"tls_cert": str(kept), "tls_key": str(secret), "head_s": 2.0, "of_one_place": 20}
    with served_with(vault, **how) as service:
        for _ in range(30):  # whoever has come and gone is not counted either
            _until(lambda: _said_hello(service, kept) == b"HTTP/1.1 200 OK")
        before = _descriptors(service)
        for _ in range(100):  # no TLS at all
            assert replies(service, request("GET", "/v1/hello")) == []
        with ExitStack() as held:
            opened = [_begun(service) for _ in range(20)]
            for one in opened:
                held.callback(one.link.close)
            _until(lambda: not any(one.is_open() for one in opened))
            _until(lambda: _said_hello(service, kept) == b"HTTP/1.1 200 OK")
        _until(lambda: _descriptors(service) <= before)


def _descriptors(service: Service) -> int:
    """Return how many files and connections the edge has open."""
    keeper = service.process.pid
    children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    (edge,) = (p for p in children if Path(f"/proc/{p}/cmdline").read_bytes().endswith(b"edge\0"))
    return len(list(Path(f"/proc/{edge}/fd").iterdir()))
