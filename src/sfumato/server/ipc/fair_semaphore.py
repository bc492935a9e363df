"""Fair semaphores: limit concurrent work, in total and per user, and let users alternate."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Final

from sfumato.dp.refusal import Refused

QUEUE: Final = 100
OF_ONE_USER: Final = 50  # the most waiting items of one user, so that nobody can fill the queue
KNOWN: Final = 1000  # the most users whose last start is stored


@dataclass(frozen=True)
class Limit:
    """Limits on running and waiting work, of all users together and of each user.

    Attributes:
        at_once: The most running items; the last place is for users who have none running.
        of_one_user: The most running items of one user.
        waiting: Length of the queue; a user with nothing running or waiting may exceed it.
        waiting_of_one: The most waiting items of one user.
    """

    at_once: int = 12  # items mostly wait for a disk: decision 0014
    of_one_user: int = 2
    waiting: int = QUEUE
    waiting_of_one: int = OF_ONE_USER


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A waiting work item; it may run as soon as the future has a result."""

    user: str
    place: asyncio.Future[None]


@dataclass(frozen=True, eq=False)
class _Turn:
    """A user's turn under the semaphore: `async with` acquires it, and releases it at the end."""

    turns: FairSemaphore
    user: str

    async def __aenter__(self) -> None:
        await self.turns.begin(self.user)

    async def __aexit__(self, *_: object) -> None:
        self.turns.end(self.user)


class FairSemaphore:
    """A semaphore that is fair to users: the user with the least running work goes first.

    Of several such users, the one whose last start is longest ago goes first. Each user's queue is
    first in, first out. So the length of one user's queue does not delay others. Work that ends
    lets the next waiting item start, and wakes no other item.
    """

    def __init__(self, most: Limit) -> None:
        self._most = most
        self._running: Counter[str] = Counter()
        self._queue: list[_Waiting] = []
        self._let_in: dict[str, int] = {}  # last start of each user, oldest first
        self._now = 0  # number of starts so far
        self.refused = 0  # number of items that were refused because the queue was full

    def turn(self, user: str) -> _Turn:
        """Return a context manager (`async with`) that waits until work of this user may run."""
        return _Turn(self, user)

    async def begin(self, user: str) -> None:
        """Wait until work of this user may run; refuse at once if the queue is full."""
        if self._is_free(user):  # if it is free, nobody else waits for it
            self._begun(user)
        elif self._is_full(user):
            self.refused += 1
            raise Refused(
                "too-many",
                "Too many requests already wait for the service, yours or others'.",
                "Ask again in a minute.",
            )
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
            else:  # the item got its slot just before it was cancelled
                self.end(user)
            raise

    def end(self, user: str) -> None:
        """Release the semaphore after a user's work, and start the next waiting items."""
        self._running[user] -= 1
        if not self._running[user]:
            del self._running[user]
        while (following := self._next()) is not None:
            self._queue.remove(following)
            self._begun(following.user)
            if not following.place.cancelled():
                following.place.set_result(None)

    def counts(self) -> tuple[int, int]:
        """Return the number of running work items, and the number of waiting ones."""
        return self._running.total(), len(self._queue)

    def _begun(self, user: str) -> None:
        self._running[user] += 1
        self._now += 1
        self._let_in.pop(user, None)
        self._let_in[user] = self._now
        if len(self._let_in) > KNOWN:
            del self._let_in[next(iter(self._let_in))]

    def _next(self) -> _Waiting | None:
        """Return the waiting work item that starts next, or None.

        The user with the least running work goes first, then the user whose last start is longest
        ago, then the item that arrived first.
        """
        free = [one for one in self._queue if self._is_free(one.user)]
        return min(free, key=lambda one: self._share(one.user), default=None)

    def _share(self, user: str) -> tuple[int, int]:
        return self._running[user], self._let_in.get(user, 0)

    def _waiting(self, user: str) -> int:
        return sum(waiting.user == user for waiting in self._queue)

    def _is_full(self, user: str) -> bool:
        """Return True if the user may not queue another work item.

        A user who has no work running or waiting may always queue one item.
        """
        waiting = self._waiting(user)
        has_none = not self._running[user] and not waiting
        is_over = len(self._queue) >= self._most.waiting
        return waiting >= self._most.waiting_of_one or (is_over and not has_none)

    def _is_free(self, user: str) -> bool:
        left, running = self._most.at_once - self._running.total(), self._running[user]
        kept = 1 if running else 0  # the last slot is for users who have none running
        return left > kept and running < self._most.of_one_user
