"""All bodies that are in the edge at one time: beyond a sum of them, whoever sends more waits.

A body of up to 1 MB lies in memory until its request is answered; two thousand connections that
each send one would take more memory than there may be. An upload is passed on as it comes, so its
parts are not counted. Nor is the first of a body: whoever holds the sum with a few connections
stops nobody's sign-in, and nobody's question.
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
SHARE: Final = 4  # one place may have a quarter of it
SMALL: Final = 8 * 1024  # of each body, which has room always: there are only so many connections


@dataclass
class BodyMemory:
    """The app, whose requests' bodies are no more than so many bytes at any time."""

    app: ASGIApp
    most: int = MOST
    held: Counter[str] = field(default_factory=Counter)  # bytes, by where they come from

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, its body counted until it is answered."""
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
                    "too-many", "Too much is being sent at once.", "Send it again in a while."
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
    """Read the rest and keep none of it, so that the refusal is heard; the clock still runs."""
    while message["type"] == "http.request" and message.get("more_body", False):
        message = await receive()
