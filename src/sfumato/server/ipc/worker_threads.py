"""Threads beside the loop: what may wait for a disk or a database is done on one of them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from sfumato.dp.refusal import Bug

T = TypeVar("T")


@dataclass(frozen=True)
class _Work:
    """What is to be done, and whom to tell."""

    work: Callable[..., Any]  # Any: whoever waits knows what it gives
    values: tuple[object, ...]
    loop: asyncio.AbstractEventLoop
    told: asyncio.Future[Any]  # Any: as above


class Threads:
    """So many threads at most, started when they are first needed; they end with the process.

    What a pool of the standard library would do, for a third of its price: its futures are made
    for threads that wait, and here only the loop does.
    """

    def __init__(self, most: int, name: str) -> None:
        self.most = most
        self._name = name
        self._started = 0
        self._queue: SimpleQueue[_Work] = SimpleQueue()

    async def done(self, work: Callable[..., T], *values: object) -> T:
        """Return what the work gives, done on a thread; called on the loop alone."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Work(work, values, loop, told))
        if self._started < self.most:
            self._started += 1
            name = f"{self._name} {self._started}"
            threading.Thread(target=self._run, daemon=True, name=name).start()
        return await told

    def _run(self) -> None:
        while True:
            _do(self._queue.get())


def _do(todo: _Work) -> None:
    given: object = None
    error: BaseException | None = None
    try:
        given = todo.work(*todo.values)
    except StopIteration:  # no future takes one, and whoever waits would wait for ever
        error = Bug("work on a thread has ended without a value")
    except BaseException as raised:  # noqa: BLE001  # a face: it is raised where it is waited for
        error = raised
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        todo.loop.call_soon_threadsafe(_tell, todo.told, given, error)


def _tell(
    told: asyncio.Future[Any], given: object, error: BaseException | None
) -> None:  # Any: as above
    if told.done():  # whoever waited was cancelled
        return
    if error is not None:
        told.set_exception(error)
    else:
        told.set_result(given)
