"""Limit the memory of all request bodies together; refuse a body that exceeds it.

A body of up to 1 MB stays in memory until its request is answered. Two thousand connections with
such bodies could need more memory than there is. Uploads are streamed, so they do not count.
The first 8 KB of each body do not count either: an attacker who fills the limit with a few
connections then blocks no sign-in and no question.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfumato.dp.refusal import Refused
from sfumato.server.http.connection_limits import FILES
from sfumato.system.ip_networks import network_of

MOST: Final = 64 * 1024 * 1024
SHARE: Final = 4  # bodies from one network may use a quarter of the memory
# the first bytes of each body, which are not counted; the number of connections is limited, too
SMALL: Final = 8 * 1024


@dataclass
class BodyMemory:
    """ASGI middleware that limits the total size of request bodies in memory.

    One client network may use a quarter of it.
    """

    app: ASGIApp
    most: int = MOST
    held: Counter[str] = field(default_factory=Counter)  # bytes, by client network

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request; count its body towards the memory limit until it is answered.

        Refuse a body that exceeds the limit, or the quarter of its client's network.
        """
        if scope["type"] != "http" or (scope["method"], scope["path"]) in FILES:
            await self.app(scope, receive, send)
            return
        place = network_of(scope["client"][0]) if scope.get("client") else "?"
        come = taken = 0

        async def counted() -> Message:
            nonlocal come, taken
            message = await receive()
            come += len(message.get("body", b""))
            size = max(0, come - SMALL) - taken
            if size and not self._fits(place, size):
                await _thrown_away(message, receive)
                raise Refused(
                    "too-many",
                    "The service is receiving too much data at once, from you or from others.",
                    "Send the request again in a minute.",
                )
            taken += size
            self.held[place] += size
            return message

        try:
            await self.app(scope, counted, send)
        finally:
            self._let_go(place, taken)

    def _fits(self, place: str, size: int) -> bool:
        of_all, of_one = self.held.total() + size, self.held[place] + size
        return of_all <= self.most and of_one <= self.most // SHARE

    def _let_go(self, place: str, size: int) -> None:
        self.held[place] -= size
        if not self.held[place]:
            del self.held[place]


async def _thrown_away(message: Message, receive: Receive) -> None:
    """Read the rest of a refused body and drop it, so that the client receives the refusal.

    The time limits of the connection still apply.
    """
    while message["type"] == "http.request" and message.get("more_body", False):
        message = await receive()
