"""Rate limits of sign-in: failed tries per account, per network and per known device.

A failed try counts for the account in its network, for the account in all networks, and for the
network. A device that has signed in before has its own limit, so that failed tries from other
devices don't lock its user out. Each process counts for itself.
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
TRIES: Final = 5  # of one account from one network, or from one known device, per minute
TRIES_OF_ACCOUNT: Final = 20  # of one account from all networks, per ACCOUNT_S
ACCOUNT_S: Final = 600.0
TRIES_OF_PLACE: Final = 60  # of all accounts from one network, per minute
REMEMBERED: Final = 10_000  # limits whose tries are kept
NOTED_S: Final = 600.0  # shortest time between two ledger entries of failed tries
_DEVICE: Final = b"sfumato-device/1\n"


@dataclass(frozen=True)
class _Limit:
    key: tuple[str, ...]
    most: int
    within_s: float


class Attempts:
    """The failed tries to sign in of the last minutes, in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tries: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()
        self._failed: Counter[str] = Counter()
        self._noted = clock()
        self._lock = threading.Lock()

    @contextmanager
    def trying(self, place: str, account: str, device: str = "") -> Iterator[None]:
        """Limit failed tries: run the block, and count it as a failed try if it raises.

        Refuse at once, without running the block, after too many failed tries.

        Args:
            place: The IP address of the client.
            account: The name that is tried.
            device: The proof of a known device; "" for an unknown device.
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
        with self._lock:  # the try succeeded, so it doesn't count
            for tries, _ in found:
                if now in tries:
                    tries.remove(now)

    def failed(self, user: str) -> Counter[str] | None:
        """Count a failed sign-in of a user ("" for an unknown name).

        Returns all counts since the last ledger entry if a new entry is due, else None.
        """
        now = self._clock()
        with self._lock:
            self._failed[user] += 1
            if now - self._noted < NOTED_S:
                return None
            self._noted, due = now, self._failed
            self._failed = Counter()
        return due

    def _recent(self, limit: _Limit, now: float) -> deque[float]:
        """Return a limit's recent tries to sign in, as times in seconds, without storing the limit.

        The caller stores a new limit only if it allows the try. Otherwise refused tries with
        thousands of names could evict all other limits from memory.
        """
        tries = self._tries.get(limit.key, deque())
        if limit.key in self._tries:
            self._tries.move_to_end(limit.key)
        while tries and tries[0] <= now - limit.within_s:
            tries.popleft()
        return tries


def device_proof(name: str, hashed: str) -> str:
    """Return the proof (an HMAC) by which a device that has signed in is recognised.

    The proof is valid until the password changes. Its key is the stored password hash, which only
    the server has. So nobody else can make a proof, and a proof reveals nothing about the hash.
    """
    return hmac.new(hashed.encode(), _DEVICE + name.encode(), hashlib.sha256).hexdigest()


def is_known_device(name: str, hashed: str, proof: str) -> bool:
    """Return True if the device has signed in with the user's current password before."""
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
        "There were too many attempts with a wrong name, password or invitation.",
        "Wait a minute and try again, or use a device that has signed in before.",
    )


def _short(account: str) -> str:
    """Hash a user name to a key of fixed length, because tried names can be very long."""
    return hashlib.sha256(account.encode("utf-8", "backslashreplace")).hexdigest()
