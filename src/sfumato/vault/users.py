"""Users of a service, their roles, and the actions that roles and tokens permit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sfumato.dp.refusal import Refused

ROLES: Final = ("owner", "operator", "researcher", "auditor")
# The permission that each API verb needs. read: see; ask: spend budget; own: act on one's own data
# sets; operate: run the service; watch: see its health; audit: read the ledger.
ACTIONS: Final = ("read", "ask", "own", "operate", "watch", "audit")
OF_ROLE: Final[Mapping[str, frozenset[str]]] = {
    "owner": frozenset({"read", "ask", "own"}),
    "operator": frozenset({"operate", "watch"}),
    "researcher": frozenset({"read", "ask"}),
    "auditor": frozenset({"audit"}),
}
KINDS: Final = ("token", "session", "invite")


@dataclass(frozen=True)
class Caller:
    """The authenticated caller: the user, and the actions and data sets that the token permits."""

    user: str
    actions: frozenset[str]
    # names in casefold; None: every data set that they may see
    data_sets: frozenset[str] | None = None
    token: str = ""  # the id of the token that authenticated them; "" in an embedded vault
    # signed in by password or in the vault's folder, not by an API token
    is_themselves: bool = True

    def may(self, action: str) -> bool:
        """Say whether the caller's token permits the action.

        Unknown actions are never permitted.
        """
        return action in self.actions and action in ACTIONS

    def reaches(self, data_set: str) -> bool:
        """Say whether the caller's token is valid for this data set."""
        return self.data_sets is None or data_set.casefold() in self.data_sets


@dataclass(frozen=True)
class User:
    """A user who may sign in: their roles, and the hash of their password."""

    name: str
    roles: tuple[str, ...]
    created: str
    password: str = ""  # argon2id; "" until the user accepts the invitation
    is_blocked: bool = False

    @property
    def actions(self) -> frozenset[str]:
        """Return all actions that the user's roles permit, such as read or ask."""
        return frozenset().union(*(OF_ROLE.get(role, frozenset()) for role in self.roles))


@dataclass(frozen=True)
class Token:
    """An access token for programs, a session or an invitation; only its hash is stored."""

    id: str
    user: str
    kind: str
    label: str
    digest: str  # SHA-256 of the whole token, in hex; the token itself is not stored
    actions: tuple[str, ...]
    data_sets: tuple[str, ...] | None
    created: str
    expires: str
    revoked: str = ""  # time of revocation; "" if it is valid


def check_words(*words: str) -> None:
    """Refuse names of users or groups that are empty, too long, unprintable or contain "/"."""
    for word in words:
        if not 1 <= len(word) <= 100 or not word.isprintable() or "/" in word:
            raise Refused(
                "unknown-user",
                "The name of a user or group must be 1 to 100 printable characters without '/'.",
                "Choose another name.",
            )
