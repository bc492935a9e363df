"""An event loop whose TLS server counts connections before the handshake.

The loop's own server reports a connection only after its handshake, so slow handshakes escape the
limits. This server accepts and counts first.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

import uvloop

from sfumato.server.http.connection_limits import GuardedProtocol, Limits, Place

AT_ONCE: Final = 64  # the most connections that are accepted before other events run
NO_ROOM_S: Final = 0.5  # how long to pause, in seconds, when no file descriptor is left
Make = Callable[[], GuardedProtocol]


def guarded_loop(limits: Limits) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a factory of event loops whose TLS servers limit connections from the first byte."""

    class GuardedLoop(uvloop.Loop):
        # Any: the arguments of any server; the stubs disagree about the result
        async def create_server(self, *given: Any, **named: Any) -> Any:
            """Listen on uvicorn's socket.

            With a TLS context, use the server that counts before the handshake.
            """
            if named.get("ssl") is None:
                return await super().create_server(*given, **named)
            return EncryptingServer(self, given[0], named["sock"], named["ssl"], limits)

    return GuardedLoop


class EncryptingServer:
    """A TLS server that accepts and counts a connection, then starts its handshake."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make: Make,
        listening: socket.socket,
        context: ssl.SSLContext,
        limits: Limits,
    ) -> None:
        self._loop = loop
        self._make = make
        self._listening = listening
        self._context = context
        self._limits = limits
        self._beginning: set[asyncio.Task[None]] = set()
        self._rest: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Stop accepting connections, and cancel the handshakes under way."""
        self._loop.remove_reader(self._listening)
        if self._rest is not None:
            self._rest.cancel()
        for task in self._beginning:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until all TLS handshakes under way have ended."""
        await asyncio.gather(*self._beginning, return_exceptions=True)

    def _listen(self) -> None:
        self._rest = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                link, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor is left: try again later
                self._loop.remove_reader(self._listening)
                self._rest = self._loop.call_later(NO_ROOM_S, self._listen)
                return
            self._begin(link, Place(str(address[0])))

    def _begin(self, link: socket.socket, place: Place) -> None:
        if place.has_too_many(self._limits):
            place.let_go()
            link.close()
            return
        task = self._loop.create_task(self._encrypted(link, place))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _encrypted(self, link: socket.socket, place: Place) -> None:
        """Do the TLS handshake of an accepted connection.

        After a handshake, the protocol later counts the connection as closed. If it fails, this
        method counts it as closed.
        """
        made = self._make()
        made.place = place
        link.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(
                lambda: made,
                link,
                ssl=self._context,
                ssl_handshake_timeout=self._limits.head_s,
            )
        except OSError:  # the client is late, is gone, or does not speak TLS: send no reply
            pass
        finally:
            if cast("Any", made.transport) is None:  # Any: the stub denies that it may be None
                place.let_go()
