"""One database connection that threads share by a lock: opened on first use, reopened if lost.

After a fork, the child opens its own connection, and does not touch the parent's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import WeakSet

from sfumato.dp.refusal import Bug
from sfumato.storage.database import DatabaseLink, Fault, FaultCode, exception_of

T = TypeVar("T")


class SharedConnection:
    """One database connection for several threads, which hold `lock` while they use it.

    It is opened on first use.
    """

    def __init__(self, connect: Callable[[], DatabaseLink]) -> None:
        self._connect = connect
        self.lock = threading.RLock()
        self.link: DatabaseLink | None = None
        self.made = 0  # number of connections made; data read before a reconnect may be gone
        _HELD.add(self)

    def connected(self) -> DatabaseLink:
        """Return the open connection; open it if necessary. The caller holds the lock."""
        if self.link is None:
            self.link = self._connect()
            self.made += 1
        return self.link

    def seen(self, look: Callable[[DatabaseLink], T]) -> T:
        """Read from the shared connection by `look`; reconnect once if the connection is lost."""
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
                    raise exception_of(code)
        raise Bug("unreachable")

    def drop(self) -> None:
        """Close the shared connection; the next use opens a new one."""
        with self.lock:
            link, self.link = self.link, None
            if link is not None:
                link.close()

    def leave_parent(self) -> None:
        """Forget the parent's connection in a forked child, without closing it."""
        if self.link is not None:
            _LEFT.append(self.link)
        self.link = None
        self.lock = threading.RLock()


_LEFT: Final[
    list[DatabaseLink]
] = []  # never closed: closing a connection here would end the parent's transaction
_HELD: Final[WeakSet[SharedConnection]] = WeakSet()


def _after_fork() -> None:
    for held in list(_HELD):
        held.leave_parent()


os.register_at_fork(after_in_child=_after_fork)
