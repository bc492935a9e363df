"""Limits on a connection before any request is one: slow heads, large heads, too many of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sfumato.system.ip_networks import Network, is_within, network_of

HEAD_BYTES: Final = 16 * 1024
HEADERS: Final = 100
RATE_S: Final = 10.0  # over which an upload's rate is counted
BYTES_A_SECOND: Final = 16 * 1024  # of an upload, at least, and of a large reply


@dataclass(frozen=True)
class Limits:
    """How slowly a request may come, and how many connections may be open."""

    head_s: float = 10.0  # to send a whole head, from its first byte or the connection's begin
    body_s: float = 60.0  # to send the body of anything but an upload
    connections: int = 2000
    of_one_place: int = 1000
    unread_s: float = 30.0  # to read on, where the rest of a reply waits for it; and again
    only: tuple[Network, ...] = ()  # who may connect, besides this machine; () is anybody


_PLACES: Final[Counter[str]] = Counter()  # open connections of this process, by network


class Place:
    """Where a connection comes from: counted until it is let go, once.

    Of IPv6, the network: its 2^64 addresses are one subscriber's.
    """

    def __init__(self, address: str) -> None:
        self._network = network_of(address)
        self._is_counted = True
        _PLACES[self._network] += 1

    def has_too_many(self, limits: Limits) -> bool:
        """Say whether this connection is one too many, of its place or of all."""
        return _PLACES.total() > limits.connections or _PLACES[self._network] > limits.of_one_place

    def let_go(self) -> None:
        """Count one connection less."""
        if not self._is_counted:
            return
        self._is_counted = False
        _PLACES[self._network] -= 1
        if _PLACES[self._network] <= 0:
            del _PLACES[self._network]


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's connection, which ends those who come slowly, large, or too often."""

    limits: ClassVar[Limits] = Limits()
    place: Place | None = None  # known already where the connection was encrypted first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to count, unless there are too many already."""
        super().connection_made(transport)
        self._head_bytes = self._raw_bytes = self._body_bytes = 0
        self._is_in_head = True
        self._came_whole = False  # whether a head or a request has ended in what came just now
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._left = 0  # how much of the reply had to be read yet when that timer began
        address = self.client[0] if self.client else "?"
        if self.place is None:
            self.place = Place(address)
        if self.limits.only and not is_within(address, self.limits.only):
            transport.abort()  # somebody goes past the proxy, in clear text: they get no word
        elif self.place.has_too_many(self.limits):
            self._end(503, "Too many connections.")
        else:
            self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count one connection less."""
        self._stop_timer()
        self._stop_waiting()
        if self.place is not None:
            self.place.let_go()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came, unless the head is too large or its first bytes come after a pause."""
        if self.transport.is_closing():
            return
        if self._is_in_head and self._timer is None and not self._is_answering():
            self._begin_head()
        self._came_whole = False
        super().data_received(data)
        is_more_of_it = self._is_in_head and not self._came_whole
        self._raw_bytes = self._raw_bytes + len(data) if is_more_of_it else 0
        if self._raw_bytes > RAW_BYTES:  # the parser tells of a header only where it ends
            self._end(431, TOO_LARGE)

    def on_url(self, url: bytes) -> None:
        """Count the address into the head."""
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the header into the head."""
        self._head_bytes += len(name) + len(value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the request, unless its head is too large."""
        self._came_whole = True
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self._head_bytes > HEAD_BYTES or len(self.headers) > HEADERS:
            self._end(431, TOO_LARGE)
            return
        self._is_in_head = False
        super().on_headers_complete()
        if (self.scope["method"], self.scope["path"]) in FILES:
            self._count_bytes()
        else:
            self._timer = self.loop.call_later(self.limits.body_s, self._late)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, if there is a request that it is of."""
        self._body_bytes += len(body)
        if not self._is_in_head:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the clock: all of the request is here."""
        self._came_whole = True  # the rest of what came with a body's end is not a head's
        self._stop_timer()
        self._head_bytes = 0
        if not self._is_in_head:
            super().on_message_complete()
        self._is_in_head = True

    def pause_writing(self) -> None:
        """Wait for who does not read what they asked for, but not for long."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """Go on: they read."""
        if not self.transport.is_closing():
            self._stop_waiting()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for the last reply to be read; not for long."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._wait_for_reader()

    def timeout_keep_alive_handler(self) -> None:
        """Let go of who says nothing; what they have not read yet, they are to read now."""
        super().timeout_keep_alive_handler()
        self._wait_for_reader()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, to whoever reads it in time."""
        super().send_400_response(msg)
        self._wait_for_reader()

    def _is_answering(self) -> bool:
        cycle = cast("Any", self.cycle)  # Any: None before a request, whatever the stub says
        return cycle is not None and not cycle.response_complete

    def _is_next(self) -> bool:
        """Say whether what is written now is the reply to the request that is coming in."""
        cycle = cast("Any", self.cycle)  # Any: as above
        if cycle is None or self._is_in_head:
            return not self._is_answering()
        return not (cycle.response_started or self.pipeline)

    def _begin_head(self) -> None:
        self._timer = self.loop.call_later(self.limits.head_s, self._late)

    def _count_bytes(self) -> None:
        """Begin a new stretch of an upload."""
        self._body_bytes = 0
        self._timer = self.loop.call_later(RATE_S, self._check_rate)

    def _check_rate(self) -> None:
        """End an upload that comes too slowly; but not one that we ourselves hold up."""
        if self._body_bytes < RATE_S * BYTES_A_SECOND and not self.flow.read_paused:
            self._late()
        else:
            self._count_bytes()

    def _wait_for_reader(self) -> None:
        """Look in a while what was read: a connection that is closed stays while it has bytes."""
        self._stop_waiting()
        self._left = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(self.limits.unread_s, self._check_reader)

    def _check_reader(self) -> None:
        """Hang up, read or not; but not while a large reply is read as fast as uploads come."""
        read = self._left - self.transport.get_write_buffer_size()
        if read < self.limits.unread_s * BYTES_A_SECOND:
            self.transport.abort()
        else:
            self._wait_for_reader()

    def _stop_waiting(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        self._end(408, "The request came too slowly.")

    def _end(self, status: int, why: str) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self._is_next():  # else it would be taken for a part of another reply
            self.transport.write(_reply(status, why))
        self.transport.close()
        self._wait_for_reader()


def guarded(limits: Limits) -> type[GuardedProtocol]:
    """Return the connection with these limits."""
    return type("LimitedProtocol", (GuardedProtocol,), {"limits": limits})


def _reply(status: int, why: str) -> bytes:
    body = why.encode()
    head = (
        f"HTTP/1.1 {status} {why}\r\nconnection: close\r\nretry-after: 5\r\n"
        "cache-control: no-store\r\nx-content-type-options: nosniff\r\n"
        f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


TOO_LARGE: Final = "The head of the request is too large."
RAW_BYTES: Final = 2 * HEAD_BYTES
FILES: Final = (("PUT", "/v1/uploads"), ("PUT", "/uploads"))  # of the API, and of the console
