"""How often a password may be tried: five times a minute for an account from one place."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict, deque
from typing import Final

from sfumato.core.network import network_of
from sfumato.core.refusal import Refused

MINUTE_S: Final = 60.0
TRIES: Final = 5  # of one account from one place
TRIES_OF_PLACE: Final = 30  # of all accounts from one place
REMEMBERED: Final = 10_000


class Attempts:
    """The tries of the last minute, of each account and place, in this process."""

    def __init__(self) -> None:
        self._tries: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, place: str, account: str) -> None:
        """Count a try, or refuse it; a refused try is none."""
        now = time.monotonic()
        place, account = network_of(place), _short(account)
        keys = (((place, account), TRIES), ((place,), TRIES_OF_PLACE))
        with self._lock:
            found = [(self._recent(key, now), most) for key, most in keys]
            if any(len(tries) >= most for tries, most in found):
                raise _too_many()
            for tries, _ in found:
                tries.append(now)

    def _recent(self, key: tuple[str, ...], now: float) -> deque[float]:
        tries = self._tries.setdefault(key, deque())
        self._tries.move_to_end(key)
        while tries and tries[0] <= now - MINUTE_S:
            tries.popleft()
        while len(self._tries) > REMEMBERED:
            self._tries.popitem(last=False)
        return tries


def _too_many() -> Refused:
    return Refused("too-many", "Too many tries within a minute.", "Wait a minute and try again.")


def _short(account: str) -> str:
    """Return a key of one length, however long the name that somebody tries is."""
    return hashlib.sha256(account.encode("utf-8", "backslashreplace")).hexdigest()
