"""Connection limits: slow or large request heads, slow transfers, and too many connections."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sfumato.system.ip_networks import Network, is_within, network_of

HEAD_BYTES: Final = 16 * 1024
HEADERS: Final = 100
RATE_S: Final = 10.0  # the time window in which an upload's rate is measured, in seconds
# the minimum rate of an upload, and of a client that reads a large reply
BYTES_A_SECOND: Final = 16 * 1024


@dataclass(frozen=True)
class Limits:
    """Time limits for requests in seconds, and limits on the number of open connections."""

    # for the whole head; counted from its first byte, or from the start of the connection
    head_s: float = 10.0
    body_s: float = 60.0  # for the body of any request but an upload
    connections: int = 2000
    of_one_place: int = 1000
    unread_s: float = 30.0  # for a client that does not read its reply; restarts after progress
    only: tuple[Network, ...] = ()  # networks that may connect besides this machine; () allows all


_PLACES: Final[Counter[str]] = Counter()  # open connections of this process, by network


class Place:
    """The network of a client, which counts as one open connection until `let_go`.

    For IPv6 it is the /64 network, since its 2^64 addresses belong to one subscriber.
    """

    def __init__(self, address: str) -> None:
        self._network = network_of(address)
        self._is_counted = True
        _PLACES[self._network] += 1

    def has_too_many(self, limits: Limits) -> bool:
        """Return True if too many connections are open, either in all or from this network."""
        return _PLACES.total() > limits.connections or _PLACES[self._network] > limits.of_one_place

    def let_go(self) -> None:
        """Count this connection as closed. A second call has no effect."""
        if not self._is_counted:
            return
        self._is_counted = False
        _PLACES[self._network] -= 1
        if _PLACES[self._network] <= 0:
            del _PLACES[self._network]


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on slow, large and numerous connections."""

    limits: ClassVar[Limits] = Limits()
    place: Place | None = None  # set already if TLS came first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the request's head, or close a connection beyond the limits.

        A client that bypasses the configured proxies is disconnected too.
        """
        super().connection_made(transport)
        self._head_bytes = self._raw_bytes = self._body_bytes = 0
        self._is_in_head = True
        self._came_whole = False  # whether the received data ended a head or a request
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._left = 0  # unread bytes of the reply when the timer started
        address = self.client[0] if self.client else "?"
        if self.place is None:
            self.place = Place(address)
        if self.limits.only and not is_within(address, self.limits.only):
            # this client bypasses the proxy and sends clear text, so close without a reply
            transport.abort()
        elif self.place.has_too_many(self.limits):
            self._end(503, "Too many connections.")
        else:
            self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and no longer count the connection as open."""
        self._stop_timer()
        self._stop_waiting()
        if self.place is not None:
            self.place.let_go()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes.

        Start the timer of the request's head, and limit the head's size.
        """
        if self.transport.is_closing():
            return
        if self._is_in_head and self._timer is None and not self._is_answering():
            self._begin_head()
        self._came_whole = False
        super().data_received(data)
        is_more_of_it = self._is_in_head and not self._came_whole
        self._raw_bytes = self._raw_bytes + len(data) if is_more_of_it else 0
        # count here, because the parser reports a header only at its end
        if self._raw_bytes > RAW_BYTES:
            self._end(431, TOO_LARGE)

    def on_url(self, url: bytes) -> None:
        """Add the URL's bytes to the size of the request's head."""
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header's bytes to the size of the request's head."""
        self._head_bytes += len(name) + len(value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request and its body's time limit, unless the request's head is too large."""
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
        """Forward a chunk of the body, unless the request was refused at its head."""
        self._body_bytes += len(body)
        if not self._is_in_head:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the body's time limit, because the request is complete."""
        self._came_whole = True  # bytes that follow the end of a body do not count as a head
        self._stop_timer()
        self._head_bytes = 0
        if not self._is_in_head:
            super().on_message_complete()
        self._is_in_head = True

    def pause_writing(self) -> None:
        """Start the time limit for a client that does not read its reply (called by asyncio)."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """Stop the time limit, because the client reads its reply again (called by asyncio)."""
        if not self.transport.is_closing():
            self._stop_waiting()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Start the next request.

        If the connection is closing, limit the time to read the reply.
        """
        super().on_response_complete()
        if self.transport.is_closing():
            self._wait_for_reader()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; limit the time in which the client may read what is left."""
        super().timeout_keep_alive_handler()
        self._wait_for_reader()

    def send_400_response(self, msg: str) -> None:
        """Send status 400 for invalid HTTP.

        Limit the time in which the client may read the reply.
        """
        super().send_400_response(msg)
        self._wait_for_reader()

    def _is_answering(self) -> bool:
        cycle = cast("Any", self.cycle)  # Any: None before a request, though the stub denies it
        return cycle is not None and not cycle.response_complete

    def _is_next(self) -> bool:
        """Return True if bytes written now would answer the incoming request, no earlier one."""
        cycle = cast("Any", self.cycle)  # Any: as above
        if cycle is None or self._is_in_head:
            return not self._is_answering()
        return not (cycle.response_started or self.pipeline)

    def _begin_head(self) -> None:
        self._timer = self.loop.call_later(self.limits.head_s, self._late)

    def _count_bytes(self) -> None:
        """Start a new time window in which an upload's rate is measured."""
        self._body_bytes = 0
        self._timer = self.loop.call_later(RATE_S, self._check_rate)

    def _check_rate(self) -> None:
        """Close the connection of an upload that is too slow.

        An upload is not closed while the server itself has paused reading.
        """
        if self._body_bytes < RATE_S * BYTES_A_SECOND and not self.flow.read_paused:
            self._late()
        else:
            self._count_bytes()

    def _wait_for_reader(self) -> None:
        """Start a timer that checks how much of the reply the client has read.

        Without the timer, a closed connection would stay open as long as bytes are unread.
        """
        self._stop_waiting()
        self._left = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(self.limits.unread_s, self._check_reader)

    def _check_reader(self) -> None:
        """Close the connection, unless the client reads its reply at the minimum rate."""
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
        if self._is_next():  # without this, the client would take it as a part of another reply
            self.transport.write(_reply(status, why))
        self.transport.close()
        self._wait_for_reader()


def guarded(limits: Limits) -> type[GuardedProtocol]:
    """Return a uvicorn protocol class that enforces these limits."""
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
