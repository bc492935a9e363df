"""A lane for work that is cheaper in one go: what comes while its threads are busy is done next.

Whoever comes alone is done at once, alone. No more than a few lie in one go, so that nobody waits
for a crowd, and each is told how their own work ended, whatever became of the others'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from sfumato.dp.refusal import Refused
from sfumato.server.ipc.worker_threads import Threads

Item = TypeVar("Item")
Gives = TypeVar("Gives")
MOST: Final = 256  # in one go


@dataclass(frozen=True)
class _Waiting(Generic[Item, Gives]):
    """One piece of work, and whom to tell."""

    item: Item
    told: asyncio.Future[Gives]


@dataclass(eq=False)
class _Place:
    """A place at work, which the next gets once: when the work is over, or when it is late."""

    free: Callable[[], None]
    is_left: bool = False

    def leave(self) -> None:
        if not self.is_left:
            self.is_left = True
            self.free()


class Batcher(Generic[Item, Gives]):
    """The queue of one kind of work; used on the loop alone."""

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Gives | Exception]],
        threads: Threads,
        *,
        most: int = MOST,
        late_s: float | None = None,
    ) -> None:
        """Hold how several are done, which gives a value or an error for each.

        As many are at work as there are threads; or one, and one more for each that is late.
        """
        self._work = work
        self._threads = threads
        self._most = most
        self._late_s = late_s
        self._idle = threads.most if late_s is None else 1
        self._queue: list[_Waiting[Item, Gives]] = []
        self._turns: set[asyncio.Task[None]] = set()

    async def done(self, item: Item) -> Gives:
        """Return what the work gives for the item; or raise its refusal."""
        loop = asyncio.get_running_loop()
        mine: _Waiting[Item, Gives] = _Waiting(item, loop.create_future())
        self._queue.append(mine)
        if len(self._queue) == 1:
            loop.call_soon(self._begin)  # with all that is heard in this turn of the loop
        return await mine.told

    def _begin(self) -> None:
        while self._queue and self._idle:
            some, self._queue = self._queue[: self._most], self._queue[self._most :]
            self._idle -= 1
            task = asyncio.create_task(self._go(some))
            self._turns.add(task)
            task.add_done_callback(self._turns.discard)

    async def _go(self, some: list[_Waiting[Item, Gives]]) -> None:
        place = _Place(self._free)
        late = None
        if self._late_s is not None:
            late = asyncio.get_running_loop().call_later(self._late_s, place.leave)
        try:
            await self._do(some)
        finally:
            if late is not None:
                late.cancel()
            place.leave()

    def _free(self) -> None:
        self._idle += 1
        self._begin()

    async def _do(self, some: list[_Waiting[Item, Gives]]) -> None:
        """Do them, and tell each; a refusal of the disk is everybody's, a fault is one's own."""
        work = self._threads.done(self._work, [one.item for one in some])
        (given,) = await asyncio.gather(work, return_exceptions=True)
        if isinstance(given, BaseException) and not isinstance(given, Refused) and len(some) > 1:
            for one in some:
                await self._do([one])
            return
        ends = [given] * len(some) if isinstance(given, BaseException) else given
        for one, ended in zip(some, ends, strict=True):
            _tell(one.told, ended)


def _tell(told: asyncio.Future[Any], ended: object) -> None:  # Any: whoever waits knows
    if told.done():  # whoever waited is gone
        return
    if isinstance(ended, BaseException):
        told.set_exception(ended)
    else:
        told.set_result(ended)
