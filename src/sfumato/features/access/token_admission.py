"""The look at a token before anything else is done: whose it is, and what it opens."""

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

REMEMBERED_S: Final = 2.0  # a revoked token opens nothing any more within 5 s, on every node
REMEMBERED: Final = 10_000


@dataclass(frozen=True)
class _Seen:
    caller: Caller
    expires: str
    until: float


class Admission:
    """Tokens that were looked up are remembered for two seconds, hits only."""

    def __init__(self, store: AccessStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._lock = threading.Lock()

    def caller(self, token: str) -> Caller:
        """Return whose token it is and what it opens, or refuse; one refusal for all reasons."""
        digest = token_digest(token)
        seen = None if digest is None else self._remembered(digest) or self._looked_up(digest)
        if seen is None or datetime.fromisoformat(seen.expires) <= self._now():
            raise not_signed_in()
        return seen.caller

    def recalled(self, token: str) -> Caller | None:
        """Return whom `caller` would, if they were looked up just now; else None, for a look."""
        digest = token_digest(token)
        seen = None if digest is None else self._remembered(digest)
        if seen is None or datetime.fromisoformat(seen.expires) <= self._now():
            return None
        return seen.caller

    def returned(self, user: str, token: str) -> Caller:
        """Return whoever began a job, as they are now; or refuse.

        A token that was revoked since lets it go no further; one that merely became old does.
        """
        known = self._store.user(user)
        found = [t for t in self._store.tokens(user) if t.id == token and not t.revoked]
        if known is None or known.is_blocked or not found or found[0].kind == "invite":
            raise not_signed_in()
        return _caller(known, found[0])

    def forget(self) -> None:
        """Look every token up again: one was revoked, or a user was changed, on this node."""
        with self._lock:
            self._seen.clear()

    def _remembered(self, digest: str) -> _Seen | None:
        with self._lock:
            seen = self._seen.get(digest)
        return seen if seen is not None and time.monotonic() < seen.until else None

    def _looked_up(self, digest: str) -> _Seen | None:
        until = time.monotonic() + REMEMBERED_S  # counted from before the look
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
    """Return what the token opens, of what its user's roles let them do now."""
    reach = None if token.data_sets is None else frozenset(map(str.casefold, token.data_sets))
    actions = user.actions & frozenset(token.actions)
    return Caller(user.name, actions, reach, token.id, is_themselves=token.kind == "session")


def not_signed_in() -> Refused:
    """Return the one refusal for no token, a wrong one, an old one and a revoked one."""
    return Refused(
        "not-signed-in",
        "There is no token, or it is wrong, too old, or revoked.",
        "Sign in, or give a token that you were handed.",
    )
