"""One connection that is made when first needed, lent to one thread at a time, and made anew.

A fork leaves it alone: the child makes its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import WeakSet

from sfumato.dp.refusal import Bug
from sfumato.storage.database import DatabaseLink, Fault, FaultCode, spoken

T = TypeVar("T")


class SharedConnection:
    """A connection, perhaps; whoever uses it holds the lock."""

    def __init__(self, connect: Callable[[], DatabaseLink]) -> None:
        self._connect = connect
        self.lock = threading.RLock()
        self.link: DatabaseLink | None = None
        self.made = 0  # how often the connection was made: what another saw may be undone
        _HELD.add(self)

    def connected(self) -> DatabaseLink:
        """Return the connection, made if there is none; the lock is held."""
        if self.link is None:
            self.link = self._connect()
            self.made += 1
        return self.link

    def seen(self, look: Callable[[DatabaseLink], T]) -> T:
        """Return what is seen through the connection; a lost one is made anew, once."""
        with self.lock:
            code: FaultCode
            for is_last in (False, True):
                try:
                    link = self.connected()
                    link.check_place()
                    return look(link)
                except Fault as fault:
                    code = fault.code
                self.drop()
                if is_last or code != "lost":
                    raise spoken(code)
        raise Bug("unreachable")

    def drop(self) -> None:
        """Let go of the connection; the next use makes a new one."""
        with self.lock:
            link, self.link = self.link, None
            if link is not None:
                link.close()

    def leave_parent(self) -> None:
        """In a forked child: keep the parent's connection untouched, and make our own."""
        if self.link is not None:
            _LEFT.append(self.link)
        self.link = None
        self.lock = threading.RLock()


_LEFT: Final[
    list[DatabaseLink]
] = []  # kept for ever: closing one here would end the parent's transactions
_HELD: Final[WeakSet[SharedConnection]] = WeakSet()


def _after_fork() -> None:
    for held in list(_HELD):
        held.leave_parent()


os.register_at_fork(after_in_child=_after_fork)
