"""Who may do what: the people of a service, their roles, and what a token lets them do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ROLES: Final = ("owner", "operator", "researcher", "auditor")
# What a verb needs: see, spend, act on one's own data sets, run the service, see how it does,
# read the record.
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
    """Whoever is calling, what their token lets them do, and on which data sets."""

    user: str
    actions: frozenset[str]
    data_sets: frozenset[str] | None = None  # casefolded; None is every one that they may see
    token: str = ""  # the id of the token that let them in; "" in an embedded vault
    is_themselves: bool = True  # by a password, or in the folder; not by a token for programs

    def may(self, action: str) -> bool:
        """Say whether the token lets them do this; what is not known nobody may do."""
        return action in self.actions and action in ACTIONS

    def reaches(self, data_set: str) -> bool:
        """Say whether the token is for this data set too."""
        return self.data_sets is None or data_set.casefold() in self.data_sets


@dataclass(frozen=True)
class User:
    """Somebody who may sign in: their roles, and the hash of their password."""

    name: str
    roles: tuple[str, ...]
    created: str
    password: str = ""  # argon2id; "" until an invitation was taken up
    is_blocked: bool = False

    @property
    def actions(self) -> frozenset[str]:
        """Return everything that their roles let them do."""
        return frozenset().union(*(OF_ROLE.get(role, frozenset()) for role in self.roles))


@dataclass(frozen=True)
class Token:
    """What was handed out; of its secret only the hash is kept."""

    id: str
    user: str
    kind: str
    label: str
    digest: str  # SHA-256 of the whole token, in hex
    actions: tuple[str, ...]
    data_sets: tuple[str, ...] | None
    created: str
    expires: str
    revoked: str = ""  # when, if it was
