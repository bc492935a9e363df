"""Group commit: acts that wait at once are done together, and one sync of the disk serves all.

Whoever comes first leads. What comes while a leader is busy waits, and is done next, all of it in
one go and in the order of its coming; each act is still accepted or refused by itself. Nobody is
told how their act ended before the leader's call has returned, nor before what belongs to the whole
go is done: so whoever waited sleeps once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final, Generic, TypeVar
from weakref import WeakSet

Act = TypeVar("Act")
Gives = TypeVar("Gives")
T = TypeVar("T")
MOST: Final = 64  # acts that are done in one go, so that no transaction grows without end


@dataclass(frozen=True)
class Outcome(Generic[Gives]):
    """How one act ended: with what it gives, or with its own refusal."""

    gives: Gives | None = None
    error: Exception | None = None


@dataclass(eq=False)
class _Waiting(Generic[Act, Gives]):
    """One act, whose thread sleeps until it is over or its turn to lead has come."""

    act: Act
    bell: SimpleQueue[None] = field(default_factory=SimpleQueue)  # an Event costs ten times that
    is_woken: bool = False
    is_taken: bool = False
    ended: Outcome[Gives] | None = None

    def wake(self) -> None:
        """Ring; for one in the queue its lock is held, so that whoever leaves knows if it rang."""
        self.is_woken = True
        self.bell.put(None)


class GroupCommit(Generic[Act, Gives]):
    """The queue of one place where acts are written; safe under threads and forks."""

    def __init__(
        self,
        alone: Callable[[Act], Gives],
        several: Callable[[Sequence[Act]], Sequence[Outcome[Gives]] | None],
        before_told: Callable[[], None] = lambda: None,
    ) -> None:
        """Hold how one act is done, and how several are: None says that each is done alone.

        What is to be done before several are told is done while the next go is led, once for all.
        """
        self._alone = alone
        self._several = several
        self._before_told = before_told
        self._lock = threading.Lock()
        self._queue: list[_Waiting[Act, Gives]] = []
        self._is_led = False
        _QUEUES.add(self)

    def done(self, act: Act) -> Gives:
        """Return what the act gives, once it is over; or raise its own refusal."""
        mine: _Waiting[Act, Gives] = _Waiting(act)
        with self._lock:
            self._queue.append(mine)
            is_first, self._is_led = not self._is_led, True
        if not is_first:
            self._wait(mine)
        if not mine.is_taken:
            return self._lead(mine)
        return self._told(mine)

    def leave_parent(self) -> None:
        """In a forked child: whoever waited or led is in the parent alone."""
        self._lock = threading.Lock()
        self._queue, self._is_led = [], False

    def _wait(self, mine: _Waiting[Act, Gives]) -> None:
        has_heard = False
        try:
            mine.bell.get()
            has_heard = True
        finally:
            if not has_heard:  # Ctrl-C: nobody may wait for who is gone
                self._leave(mine)

    def _leave(self, mine: _Waiting[Act, Gives]) -> None:
        with self._lock:
            if mine in self._queue:
                self._queue.remove(mine)
                if mine.is_woken:
                    self._pass_on()

    def _lead(self, mine: _Waiting[Act, Gives]) -> Gives:
        with self._lock:
            taken, self._queue = self._queue[:MOST], self._queue[MOST:]
            for one in taken:
                one.is_taken = True
        try:
            if len(taken) == 1:
                return self._led(lambda: self._alone(mine.act))
            self._led(lambda: self._do(taken))
            self._before_told()
        finally:
            for one in taken:
                if one is not mine:
                    one.wake()
        return self._told(mine)

    def _led(self, work: Callable[[], T]) -> T:
        """Return what the work gives; the next may lead then, whatever came of it."""
        try:
            return work()
        finally:
            with self._lock:
                self._pass_on()

    def _do(self, taken: Sequence[_Waiting[Act, Gives]]) -> None:
        ended = self._several([one.act for one in taken])
        for one, how in zip(taken, ended or (), strict=ended is not None):
            one.ended = how

    def _pass_on(self) -> None:
        """Let the next lead, if anybody waits; the lock is held."""
        self._is_led = bool(self._queue)
        if self._queue:
            self._queue[0].wake()

    def _told(self, mine: _Waiting[Act, Gives]) -> Gives:
        ended = mine.ended
        if ended is None:  # nothing of it was done: it is done by itself
            return self._alone(mine.act)
        if ended.error is not None:
            raise ended.error
        return ended.gives  # type: ignore[return-value]  # None only where that is what it gives


_QUEUES: Final[WeakSet[GroupCommit]] = WeakSet()  # type: ignore[type-arg]  # of whatever acts


def _after_fork() -> None:
    for queue in list(_QUEUES):
        queue.leave_parent()


os.register_at_fork(after_in_child=_after_fork)
