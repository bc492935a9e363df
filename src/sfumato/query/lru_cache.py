"""An LRU cache for the results of a pure function, bounded in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from sfumato.vault.card.data_card import Card

T = TypeVar("T")
PATIENCE_S: Final = 1.0  # longest wait for a value that another thread computes
SHARE: Final = 16  # a value above 1/16 of the bound is not cached: it would evict the rest


class _Hashed:
    """A cache key with its hash, which is computed once, because hashing a whole query is slow."""

    __slots__ = ("hash", "key")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.hash = hash(key)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and self.key == other.key


class _Making:
    """A value that one thread is computing, with the lock for which other threads wait.

    A threading.Event would cost ten times as much as a lock.
    """

    __slots__ = ("over", "waiting")

    def __init__(self) -> None:
        self.over = threading.Lock()  # held by the thread that computes the value
        self.over.acquire()
        self.waiting = 0


class LruCache(Generic[T]):
    """A thread-safe LRU cache; no value shows whether it came from the cache.

    Refusals are never cached. If several threads need a value at the same time, one computes it and
    the others wait for at most a second (PATIENCE_S). Then each computes it alone, because the
    first thread may be slow, or may not exist in a forked process.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: OrderedDict[_Hashed, tuple[T, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._making: dict[_Hashed, _Making] = {}

    def find(self, key: Hashable) -> T | None:
        """Return the cached value and mark it as the most recently used, or None."""
        return self._find(_Hashed(key))

    def _find(self, key: _Hashed) -> T | None:
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def made(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """Return the cached value, or compute it and cache it if it is small enough."""
        hashed = _Hashed(key)
        found = self._find(hashed)
        return self._made(hashed, make, size) if found is None else found

    def _made(self, key: _Hashed, make: Callable[[], T], size: Callable[[T], int]) -> T:
        mine = _Making()
        with self._lock:
            begun = self._making.setdefault(key, mine)
            begun.waiting += begun is not mine
        if begun is not mine and begun.over.acquire(timeout=PATIENCE_S):
            begun.over.release()
        found = None if begun is mine else self._find(key)
        try:
            if found is None:
                found = make()
                self._keep(key, found, size(found))
            return found
        finally:
            if begun is mine:
                with self._lock:
                    del self._making[key]
                mine.over.release()

    def size(self) -> int:
        """Return the bytes in the cache, as measured by the callers' `size` functions."""
        return self._bytes

    def _keep(self, key: _Hashed, value: T, size: int) -> None:
        if size * SHARE > self._most_bytes:
            return
        with self._lock:
            _, before = self._held.pop(key, (None, 0))
            self._held[key] = value, size
            self._bytes += size - before
            while self._bytes > self._most_bytes:
                _, (_, dropped) = self._held.popitem(last=False)
                self._bytes -= dropped


class LruCacheByCard(Generic[T]):
    """An LRU cache of values made from data cards, which are told apart by object identity.

    An entry keeps its card alive, so that no other object can have the same id.
    """

    def __init__(self, most_bytes: int) -> None:
        self._made: LruCache[tuple[Card, T]] = LruCache(most_bytes)

    def of(self, card: Card, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """Return the cached value for this card object, or compute it.

        An equal card that is another object has its own value.
        """
        made = self._made.made((id(card), key), lambda: (card, make()), lambda both: size(both[1]))
        return made[1] if made[0] is card else make()
