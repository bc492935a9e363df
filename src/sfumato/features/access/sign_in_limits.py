"""Rate limits of sign-in: how often a password may be tried, from where, and by which device.

A wrong try counts for the account at its place, for the account over all places, and for the place.
A device that has signed in before has a limit of its own: nobody who tries from elsewhere, or from
the same address, locks its user out. The limits are those of one process.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.system.ip_networks import network_of

MINUTE_S: Final = 60.0
TRIES: Final = 5  # of one account from one place, or from one known device, in a minute
TRIES_OF_ACCOUNT: Final = 20  # of one account over all places, in ACCOUNT_S
ACCOUNT_S: Final = 600.0
TRIES_OF_PLACE: Final = 60  # of all accounts from one place, in a minute
REMEMBERED: Final = 10_000
NOTED_S: Final = 600.0  # so often at most are failed tries noted in the ledger
_DEVICE: Final = b"sfumato-device/1\n"


@dataclass(frozen=True)
class _Limit:
    key: tuple[str, ...]
    most: int
    within_s: float


class Attempts:
    """The wrong tries of the last minutes, in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tries: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()
        self._failed: Counter[str] = Counter()
        self._noted = clock()
        self._lock = threading.Lock()

    @contextmanager
    def trying(self, place: str, account: str, device: str = "") -> Iterator[None]:
        """Count a try that is refused inside; refuse it at once where there were too many.

        Args:
            place: The address that it comes from.
            account: The name that is tried.
            device: The proof of a known device; "" for a device that is not known.
        """
        now, limits = self._clock(), _limits(network_of(place), _short(account), device)
        with self._lock:
            found = [(self._recent(limit, now), limit) for limit in limits]
            if any(len(tries) >= limit.most for tries, limit in found):
                raise _too_many()
            for tries, limit in found:
                self._tries[limit.key] = tries
                tries.append(now)
            while len(self._tries) > REMEMBERED:
                self._tries.popitem(last=False)
        yield
        with self._lock:  # it was right: it counts for nothing
            for tries, _ in found:
                if now in tries:
                    tries.remove(now)

    def failed(self, user: str) -> Counter[str] | None:
        """Count a wrong try of a user, "" for an unknown name; return what is to be noted now."""
        now = self._clock()
        with self._lock:
            self._failed[user] += 1
            if now - self._noted < NOTED_S:
                return None
            self._noted, due = now, self._failed
            self._failed = Counter()
        return due

    def _recent(self, limit: _Limit, now: float) -> deque[float]:
        """Return the tries that count; new ones are kept once they are let through.

        Else whoever is refused could name thousands, for nothing, until all limits are forgotten.
        """
        tries = self._tries.get(limit.key, deque())
        if limit.key in self._tries:
            self._tries.move_to_end(limit.key)
        while tries and tries[0] <= now - limit.within_s:
            tries.popleft()
        return tries


def device_proof(name: str, hashed: str) -> str:
    """Return what a device keeps that has signed in: it lasts until the password is changed.

    The key is the stored hash of the password, whose salt and digest nobody else knows, so a proof
    cannot be made elsewhere, and tells nothing of either.
    """
    return hmac.new(hashed.encode(), _DEVICE + name.encode(), hashlib.sha256).hexdigest()


def is_known_device(name: str, hashed: str, proof: str) -> bool:
    """Return whether the device has signed in with this password before."""
    return bool(hashed) and hmac.compare_digest(
        device_proof(name, hashed).encode(), proof.encode("utf-8", "backslashreplace")
    )


def _limits(place: str, account: str, device: str) -> tuple[_Limit, ...]:
    if device:
        return (_Limit((account, "device", device), TRIES, MINUTE_S),)
    return (
        _Limit((place, account), TRIES, MINUTE_S),
        _Limit(("any place", account, ""), TRIES_OF_ACCOUNT, ACCOUNT_S),
        _Limit((place,), TRIES_OF_PLACE, MINUTE_S),
    )


def _too_many() -> Refused:
    return Refused(
        "too-many",
        "There were too many wrong tries.",
        "Wait a minute and try again, or sign in from a device that has signed in before.",
    )


def _short(account: str) -> str:
    """Return a key of one length, however long the name that somebody tries is."""
    return hashlib.sha256(account.encode("utf-8", "backslashreplace")).hexdigest()
