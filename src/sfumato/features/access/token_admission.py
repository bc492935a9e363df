"""Authenticate access tokens: return a token's user, and the actions that the token permits."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.access.secret_tokens import token_digest
from sfumato.vault.ports import Clock
from sfumato.vault.service_ports import AccessStore
from sfumato.vault.users import Caller, Token, User

REMEMBERED_S: Final = 2.0  # cache time; every node must reject a revoked token within 5 s
REMEMBERED: Final = 10_000  # cached tokens


@dataclass(frozen=True)
class _Seen:
    caller: Caller
    expires: str
    until: float


class Admission:
    """Authenticates access tokens by a store lookup and a cache.

    The cache keeps the tokens that it found in the store for two seconds, but no unknown or revoked
    ones. Each use checks whether the token has expired.
    """

    def __init__(self, store: AccessStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._lock = threading.Lock()

    def caller(self, token: str) -> Caller:
        """Return the caller to whom this access token belongs; refuse an invalid token.

        Every invalid token gets the same refusal.
        """
        digest = token_digest(token)
        seen = None if digest is None else self._remembered(digest) or self._looked_up(digest)
        if seen is None or datetime.fromisoformat(seen.expires) <= self._now():
            raise not_signed_in()
        return seen.caller

    def cached_caller(self, token: str) -> Caller | None:
        """Return the token's caller from the cache; None if the store must be read."""
        digest = token_digest(token)
        seen = None if digest is None else self._remembered(digest)
        if seen is None or datetime.fromisoformat(seen.expires) <= self._now():
            return None
        return seen.caller

    def caller_of_job(self, user: str, token: str) -> Caller:
        """Return the user who began a job as a caller with their current rights.

        Refuse if the user is blocked or the token was revoked; an expired token is accepted.
        """
        known = self._store.user(user)
        found = [t for t in self._store.tokens(user) if t.id == token and not t.revoked]
        if known is None or known.is_blocked or not found or found[0].kind == "invite":
            raise not_signed_in()
        return _caller(known, found[0])

    def forget(self) -> None:
        """Clear the cache of tokens, after a token was revoked or a user changed on this node."""
        with self._lock:
            self._seen.clear()

    def _remembered(self, digest: str) -> _Seen | None:
        with self._lock:
            seen = self._seen.get(digest)
        return seen if seen is not None and time.monotonic() < seen.until else None

    def _looked_up(self, digest: str) -> _Seen | None:
        # the age counts from the moment before the store was read
        until = time.monotonic() + REMEMBERED_S
        token = self._store.token(digest)
        user = None if token is None else self._store.user(token.user)
        if token is None or user is None or token.revoked or user.is_blocked:
            return None
        if token.kind == "invite":
            return None
        seen = _Seen(_caller(user, token), token.expires, until)
        with self._lock:
            self._seen[digest] = seen
            while len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
        return seen

    def _now(self) -> datetime:
        return datetime.fromisoformat(self._clock.now())


def _caller(user: User, token: Token) -> Caller:
    """Return the caller of a token: its actions, limited to the user's current roles."""
    reach = None if token.data_sets is None else frozenset(map(str.casefold, token.data_sets))
    actions = user.actions & frozenset(token.actions)
    return Caller(user.name, actions, reach, token.id, is_themselves=token.kind == "session")


def not_signed_in() -> Refused:
    """Return the refusal of a missing, wrong, expired or revoked token: the same for all four."""
    return Refused(
        "not-signed-in",
        "Your access token is missing, wrong, expired or revoked.",
        "Sign in again, or give a valid token.",
    )
