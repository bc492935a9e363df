"""A small thread pool for the event loop, for work that waits for a disk or a database."""

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
    """A queued function call, and the future of its result."""

    work: Callable[..., Any]  # Any: the waiting caller knows the type
    values: tuple[object, ...]
    loop: asyncio.AbstractEventLoop
    told: asyncio.Future[Any]  # Any: as above


class Threads:
    """A pool of daemon threads for the event loop, started on demand up to a limit.

    It costs a third of the standard library's pool. That pool's futures also support threads that
    wait; here only the event loop waits.
    """

    def __init__(self, most: int, name: str) -> None:
        self.most = most
        self._name = name
        self._started = 0
        self._queue: SimpleQueue[_Work] = SimpleQueue()

    async def done(self, work: Callable[..., T], *values: object) -> T:
        """Run a function on one of the threads, and return its result.

        Call this on the event loop only.
        """
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
    except StopIteration:  # a future cannot raise this error, so the caller would wait for ever
        error = Bug("work on a thread has ended without a value")
    except BaseException as raised:  # noqa: BLE001  # it is raised again in the caller
        error = raised
    with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits for the result
        todo.loop.call_soon_threadsafe(_tell, todo.told, given, error)


def _tell(
    told: asyncio.Future[Any], given: object, error: BaseException | None
) -> None:  # Any: as above
    if told.done():  # the caller was cancelled
        return
    if error is not None:
        told.set_exception(error)
    else:
        told.set_result(given)
