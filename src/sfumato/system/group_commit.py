"""Group commit: run concurrent acts in one batch, with one sync of the disk.

The first thread leads: it runs its batch. Acts that arrive meanwhile queue, and form the next batch
in order of arrival. Each act still succeeds or is refused by itself. The threads of a batch wake
once: after the leader's call has returned and `before_wake` is done.
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
MAX_BATCH: Final = 64  # most acts in one batch, so that transactions have a bounded size


@dataclass(frozen=True)
class Outcome(Generic[Gives]):
    """Outcome of one act in a batch (a group commit): its result, or its own error."""

    gives: Gives | None = None
    error: Exception | None = None


@dataclass(eq=False)
class _Waiting(Generic[Act, Gives]):
    """One queued act; its thread sleeps until the act is done, or until it has to run a batch."""

    act: Act
    bell: SimpleQueue[None] = field(default_factory=SimpleQueue)  # ten times faster than an Event
    is_woken: bool = False
    is_taken: bool = False
    ended: Outcome[Gives] | None = None

    def wake(self) -> None:
        """Wake the thread that waits for this act.

        If the act is still queued, the caller must hold the lock, because `_leave` needs it.
        """
        self.is_woken = True
        self.bell.put(None)


class GroupCommit(Generic[Act, Gives]):
    """Queue of acts for one file or database, run in batches; safe under threads and forks."""

    def __init__(
        self,
        run_one: Callable[[Act], Gives],
        run_batch: Callable[[Sequence[Act]], Sequence[Outcome[Gives]] | None],
        before_wake: Callable[[], None] = lambda: None,
    ) -> None:
        """Set the functions that run one act, and several acts in one batch.

        If `run_batch` returns None, `run_one` runs each act. `before_wake` runs once per batch of
        several acts, before the threads of the batch wake. The next batch may already run at that
        time. `before_wake` doesn't run after an act that was alone.
        """
        self._run_one = run_one
        self._run_batch = run_batch
        self._before_wake = before_wake
        self._lock = threading.Lock()
        self._queue: list[_Waiting[Act, Gives]] = []
        self._is_led = False
        _QUEUES.add(self)

    def run(self, act: Act) -> Gives:
        """Run an act, in a batch with acts that wait; return its result, or raise its own error."""
        mine: _Waiting[Act, Gives] = _Waiting(act)
        with self._lock:
            self._queue.append(mine)
            is_first, self._is_led = not self._is_led, True
        if not is_first:
            self._wait(mine)
        if not mine.is_taken:
            return self._lead(mine)
        return self._result_of(mine)

    def leave_parent(self) -> None:
        """Empty the queue in a forked child; the waiting threads exist only in the parent."""
        self._lock = threading.Lock()
        self._queue, self._is_led = [], False

    def _wait(self, mine: _Waiting[Act, Gives]) -> None:
        has_heard = False
        try:
            mine.bell.get()
            has_heard = True
        finally:
            if not has_heard:  # Ctrl-C: leave the queue, so that no other thread waits for this one
                self._leave(mine)

    def _leave(self, mine: _Waiting[Act, Gives]) -> None:
        with self._lock:
            if mine in self._queue:
                self._queue.remove(mine)
                if mine.is_woken:
                    self._pass_on()

    def _lead(self, mine: _Waiting[Act, Gives]) -> Gives:
        with self._lock:
            taken, self._queue = self._queue[:MAX_BATCH], self._queue[MAX_BATCH:]
            for one in taken:
                one.is_taken = True
        try:
            if len(taken) == 1:
                return self._led(lambda: self._run_one(mine.act))
            self._led(lambda: self._do(taken))
            self._before_wake()
        finally:
            for one in taken:
                if one is not mine:
                    one.wake()
        return self._result_of(mine)

    def _led(self, work: Callable[[], T]) -> T:
        """Run this thread's batch as the leader; then wake the next leader, even after an error."""
        try:
            return work()
        finally:
            with self._lock:
                self._pass_on()

    def _do(self, taken: Sequence[_Waiting[Act, Gives]]) -> None:
        ended = self._run_batch([one.act for one in taken])
        for one, how in zip(taken, ended or (), strict=ended is not None):
            one.ended = how

    def _pass_on(self) -> None:
        """Wake the next waiting thread, if any, to run a batch; the caller holds the lock."""
        self._is_led = bool(self._queue)
        if self._queue:
            self._queue[0].wake()

    def _result_of(self, mine: _Waiting[Act, Gives]) -> Gives:
        ended = mine.ended
        if ended is None:  # the batch did not run this act: run it alone
            return self._run_one(mine.act)
        if ended.error is not None:
            raise ended.error
        return ended.gives  # type: ignore[return-value]  # None only if that is the act's result


_QUEUES: Final[WeakSet[GroupCommit]] = WeakSet()  # type: ignore[type-arg]  # acts of any type


def _after_fork() -> None:
    for queue in list(_QUEUES):
        queue.leave_parent()


os.register_at_fork(after_in_child=_after_fork)
