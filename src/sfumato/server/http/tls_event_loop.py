"""The edge's loop: who is still shaking hands is a connection like any other, and has as long.

A loop's own server says nothing of a connection before it is encrypted, so none could be counted.
This one accepts and counts first.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

import uvloop

from sfumato.server.http.connection_limits import GuardedProtocol, Limits, Place

AT_ONCE: Final = 64  # that are accepted before others are heard again
NO_ROOM_S: Final = 0.5  # until another look, where this process can open nothing more
Make = Callable[[], GuardedProtocol]


def guarded_loop(limits: Limits) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes a loop whose encrypting servers keep the limits from the first byte."""

    class GuardedLoop(uvloop.Loop):
        # Any: whatever a server is made with; and the stubs disagree on what is made
        async def create_server(self, *given: Any, **named: Any) -> Any:
            """Listen; uvicorn gives the socket, and the context where it is to be encrypted."""
            if named.get("ssl") is None:
                return await super().create_server(*given, **named)
            return EncryptingServer(self, given[0], named["sock"], named["ssl"], limits)

    return GuardedLoop


class EncryptingServer:
    """Accepts, counts, and only then encrypts; whoever is one too many is hung up on."""

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
        """Accept nobody more; whoever is not let in yet is hung up on."""
        self._loop.remove_reader(self._listening)
        if self._rest is not None:
            self._rest.cancel()
        for task in self._beginning:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until nobody is being let in any more."""
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
            except OSError:  # no descriptor is left: who waits is still there later
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
        """Shake hands; from then on the place is the protocol's to let go."""
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
        except OSError:  # late, gone, or no TLS: nobody is told why
            pass
        finally:
            if cast("Any", made.transport) is None:  # Any: the stub says that it never is
                place.let_go()
