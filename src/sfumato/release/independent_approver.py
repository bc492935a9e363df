"""Check that an approver is independent: their access does not come from the asker.

A user who may invite others could invite a helper. Or they could re-invite a known user and sign in
as that user. So an approver does not count in three cases:

- The asker gave them access or changed their roles, directly or through others.
- Their access changed after the request.
- In a service, the ledger has no entry of their access. The entry may have been lost.

Invitations made in the vault's folder come from the administrator of the machine. They count as
given by nobody.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.vault.ports import LedgerStore

_GRANTS_OF_ACCESS: Final = ("user-added", "user-invited", "user-changed")
_ID_OF: Final = {"airlock-submitted": "request", "cap-asked": "approval", "people-asked": "id"}


@dataclass(frozen=True)
class SecondPerson:
    """Test of an approver's independence of the asker, by access events in the ledger."""

    store: LedgerStore

    def check(
        self,
        approver: str,
        asked_by: str,
        request: tuple[str, str] | None = None,
        *,
        is_served: bool,
    ) -> None:
        """Refuse an approver who depends on the asker, or whose access is newer than the request.

        Args:
            approver: The user who is to approve.
            asked_by: The user who has asked.
            request: The kind of the request's ledger entry and its id; None before there is one.
            is_served: Whether users are those of a service. In an embedded vault they are names.
        """
        let_in_by, newest = self._access()
        if is_served and approver not in newest:
            raise _not_independent(f"the ledger does not say who let {approver!r} in")
        if asked_by in _sources(approver, let_in_by):
            raise _not_independent(f"{asked_by!r} gave {approver!r} access or their role")
        asked_at = None if request is None else self._position(*request)
        if asked_at is not None and newest.get(approver, 0) > asked_at:
            raise _not_independent(f"{approver!r} got access after the request")

    def _access(self) -> tuple[dict[str, set[str]], dict[str, int]]:
        """Return who gave each user access, and the number of the newest ledger entry about it."""
        let_in_by: dict[str, set[str]] = defaultdict(set)
        newest: dict[str, int] = {}
        for kind in _GRANTS_OF_ACCESS:
            for entry in self.store.notes(kind):
                body = json.loads(entry.body)
                let_in_by[body["user"]].add(body["by"])
                newest[body["user"]] = max(entry.seq, newest.get(body["user"], 0))
        return let_in_by, newest

    def _position(self, kind: str, request: str) -> int:
        """Return the sequence number of the ledger entry of a request; 0 if there is none."""
        bodies = ((entry.seq, json.loads(entry.body)) for entry in self.store.notes(kind))
        return max((seq for seq, body in bodies if body[_ID_OF[kind]] == request), default=0)


def _sources(user: str, let_in_by: dict[str, set[str]]) -> set[str]:
    """Return all users who gave this user access, directly or through other users."""
    found: set[str] = set()
    left = [user]
    while left:
        new = let_in_by.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def _not_independent(why: str) -> Refused:
    return Refused(
        "not-allowed",
        f"This needs a second person who does not depend on the first one: {why}.",
        "Ask an owner or operator who had access before, and not through the first person. "
        "Whoever runs the machine invites one in the vault's folder: sfumato invite NAME --role "
        "operator --vault DIR",
    )
