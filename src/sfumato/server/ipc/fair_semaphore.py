"""Fair semaphores: limit the work at once, in all and of one user, and let users take turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Final

from sfumato.dp.refusal import Refused

QUEUE: Final = 100
OF_ONE_USER: Final = 50  # so that nobody fills the queue alone
KNOWN: Final = 1000  # users of whom it is known when they were let in


@dataclass(frozen=True)
class Limit:
    """How much is worked on at once, and waits; and how much of one user's.

    Attributes:
        at_once: places at work; the last one is for users who have none.
        of_one_user: places of one user.
        waiting: how many wait, of users who have something at work or in the queue already.
        waiting_of_one: how many of one user's wait.
    """

    at_once: int = 12  # mostly they wait for a disk: decision 0014
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

    turns: FairSemaphore
    user: str

    async def __aenter__(self) -> None:
        await self.turns.begin(self.user)

    async def __aexit__(self, *_: object) -> None:
        self.turns.end(self.user)


class FairSemaphore:
    """The queue of one kind of work, fair by user: who has least at work is let in first.

    Among those it is who was let in longest ago, and among one user's the first to come. So how
    much others have waiting makes nobody wait longer. Whoever leaves hands the place on, so that
    nobody else is woken to look.
    """

    def __init__(self, most: Limit) -> None:
        self._most = most
        self._running: Counter[str] = Counter()
        self._queue: list[_Waiting] = []
        self._let_in: dict[str, int] = {}  # when each user was, the longest ago first
        self._now = 0  # one more for each who is let in
        self.refused = 0  # for want of a place in the queue

    def turn(self, user: str) -> _Turn:
        """Return a place to hold with `async with`, once it is this user's turn."""
        return _Turn(self, user)

    async def begin(self, user: str) -> None:
        """Take a place; refuse at once where too many wait already."""
        if self._is_free(user):  # then nobody waits whom it would be taken from
            self._begun(user)
        elif self._is_full(user):
            self.refused += 1
            raise Refused("too-many", "Too many questions wait already.", "Ask again in a while.")
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
        """Give the place back, and on to whoever is next."""
        self._running[user] -= 1
        if not self._running[user]:
            del self._running[user]
        while (following := self._next()) is not None:
            self._queue.remove(following)
            self._begun(following.user)
            if not following.place.cancelled():
                following.place.set_result(None)

    def counts(self) -> tuple[int, int]:
        """Return how many are at work, and how many wait."""
        return self._running.total(), len(self._queue)

    def _begun(self, user: str) -> None:
        self._running[user] += 1
        self._now += 1
        self._let_in.pop(user, None)
        self._let_in[user] = self._now
        if len(self._let_in) > KNOWN:
            del self._let_in[next(iter(self._let_in))]

    def _next(self) -> _Waiting | None:
        """Return who is next: whose user has least at work, was let in longest ago, came first."""
        free = [one for one in self._queue if self._is_free(one.user)]
        return min(free, key=lambda one: self._share(one.user), default=None)

    def _share(self, user: str) -> tuple[int, int]:
        return self._running[user], self._let_in.get(user, 0)

    def _waiting(self, user: str) -> int:
        return sum(waiting.user == user for waiting in self._queue)

    def _is_full(self, user: str) -> bool:
        """Say whether the user may not wait; who has nothing here always may, with one."""
        waiting = self._waiting(user)
        has_none = not self._running[user] and not waiting
        is_over = len(self._queue) >= self._most.waiting
        return waiting >= self._most.waiting_of_one or (is_over and not has_none)

    def _is_free(self, user: str) -> bool:
        left, running = self._most.at_once - self._running.total(), self._running[user]
        kept = 1 if running else 0  # for users who have none
        return left > kept and running < self._most.of_one_user
