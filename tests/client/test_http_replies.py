"""A service that does not tell the truth about how much it says takes no more than its room."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sfumato import Refused
from sfumato.client import http_replies, remote_vault

MOST = 1 << 20
HELLO = b'{"wire": 1}'


class Liar(BaseHTTPRequestHandler):
    """Says what its path asks for."""

    protocol_version = "HTTP/1.1"
    lie = ""

    def do_GET(self) -> None:
        self.send_response(200 if self.lie != "busy" else 429)
        match self.lie:
            case "endless":
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                with suppress(OSError):
                    while True:
                        self.wfile.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
            case "packed":
                self._whole(gzip.compress(HELLO + b" " * 50 * MOST), "gzip")
            case "busy":
                self.send_header("Retry-After", "9" * 400)
                self._whole(b'{"refused": {"code": "too-many", "cause": "a", "next": "b"}}')
            case _:
                self._whole(HELLO)

    def _whole(self, body: bytes, packed: str | None = None) -> None:
        if packed is not None:
            self.send_header("Content-Encoding", packed)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return where the liar is."""
    monkeypatch.setattr(http_replies, "MAX_BYTES", MOST)
    monkeypatch.setattr(remote_vault, "PAUSES_S", ())
    monkeypatch.setattr(Liar, "lie", "")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Liar)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def asked(url: str, *, is_awaited: bool) -> dict[str, object]:
    """Return what it says, to a client that waits or to one that is awaited."""

    async def awaited() -> dict[str, object]:
        made = remote_vault.AsyncTransport(url, "", lambda n: b"0" * n)
        try:
            return await made.call("hello", {})
        finally:
            await made.close()

    if is_awaited:
        return asyncio.run(awaited())
    made = remote_vault.HttpTransport(url, "", lambda n: b"0" * n)
    try:
        return made.call("hello", {})
    finally:
        made.close()


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_reply_without_an_end_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch, *, is_awaited: bool
) -> None:
    assert asked(url, is_awaited=is_awaited) == {"wire": 1}
    monkeypatch.setattr(Liar, "lie", "endless")
    with pytest.raises(Refused) as refused:
        asked(url, is_awaited=is_awaited)
    assert refused.value.code == "too-large"


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_packed_reply_is_not_unpacked(
    url: str, monkeypatch: pytest.MonkeyPatch, *, is_awaited: bool
) -> None:
    monkeypatch.setattr(Liar, "lie", "packed")
    with pytest.raises(Refused) as refused:
        asked(url, is_awaited=is_awaited)
    assert refused.value.code == "service-down"


@pytest.mark.parametrize("is_awaited", [False, True])
def test_nobody_waits_for_ever_because_they_are_told_to(
    url: str, monkeypatch: pytest.MonkeyPatch, *, is_awaited: bool
) -> None:
    monkeypatch.setattr(Liar, "lie", "busy")
    monkeypatch.setattr(remote_vault, "PAUSES_S", (0.0,))
    monkeypatch.setattr(http_replies, "MAX_PAUSE_S", 0.01)
    assert asked(url, is_awaited=is_awaited)["refused"]["code"] == "too-many"  # type: ignore[index]  # JSON
