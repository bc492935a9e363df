"""Who may read rows just now: few at once, fewer of one user, and a queue that ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Final

from sfumato.wire import Refused

QUEUE: Final = 100
OF_ONE_USER: Final = 50  # so that nobody fills the queue alone


@dataclass(frozen=True)
class Most:
    """How much is worked on at once, and waits; and how much of one user's."""

    at_once: int = 12  # mostly they wait for a disk: docs/decisions/0019, 0086
    of_one_user: int = 2
    waiting: int = QUEUE
    waiting_of_one: int = OF_ONE_USER


@dataclass(frozen=True, eq=False)
class _Waiting:
    """Somebody in the queue; the place is theirs once it has a result."""

    user: str
    place: asyncio.Future[None]


@dataclass(frozen=True, eq=False)
class _Turn:
    """A place while the block lasts."""

    turns: Turns
    user: str

    async def __aenter__(self) -> None:
        await self.turns.begin(self.user)

    async def __aexit__(self, *_: object) -> None:
        self.turns.end(self.user)


class Turns:
    """The queue of long verbs of one door: whoever waits longest and may run is let in.

    Whoever leaves hands the place on, so that nobody else is woken to look.
    """

    def __init__(self, most: Most) -> None:
        self._most = most
        self._running: Counter[str] = Counter()
        self._queue: list[_Waiting] = []

    def turn(self, user: str) -> _Turn:
        """Return a place to hold with `async with`, once it is this user's turn."""
        return _Turn(self, user)

    async def begin(self, user: str) -> None:
        """Take a place; refuse at once where too many wait already."""
        most = self._most
        if len(self._queue) >= most.waiting or self._waiting(user) >= most.waiting_of_one:
            raise Refused("too-many", "Too many questions wait already.", "Ask again in a while.")
        if self._is_free(user):  # then nobody waits whom it would be taken from
            self._running[user] += 1
        else:
            await self._waited(user)

    async def _waited(self, user: str) -> None:
        mine = _Waiting(user, asyncio.get_running_loop().create_future())
        self._queue.append(mine)
        try:
            await mine.place
        except asyncio.CancelledError:
            if mine in self._queue:
                self._queue.remove(mine)
            else:  # the place was handed over just before
                self.end(user)
            raise

    def end(self, user: str) -> None:
        """Give the place back, and on to whoever waits longest and may run."""
        self._running[user] -= 1
        if not self._running[user]:
            del self._running[user]
        for waiting in list(self._queue):
            if self._running.total() >= self._most.at_once:
                return
            if self._is_free(waiting.user):
                self._queue.remove(waiting)
                self._running[waiting.user] += 1
                if not waiting.place.cancelled():
                    waiting.place.set_result(None)

    def _waiting(self, user: str) -> int:
        return sum(waiting.user == user for waiting in self._queue)

    def _is_free(self, user: str) -> bool:
        is_room = self._running.total() < self._most.at_once
        return is_room and self._running[user] < self._most.of_one_user
