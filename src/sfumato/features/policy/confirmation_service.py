"""The confirmation service: a second person confirms that added rows are of new people.

The second person is another owner or an operator. Without their confirmation no row of the add is
read. Embedded vaults have no users, so there the owner's statement is enough (see
docs/explanation/sharp-edges.md).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.policy.approvals import APPROVED, DECLINED, WAITING
from sfumato.features.policy.caps_service import check_second
from sfumato.features.policy.confirmations import Confirmation, ConfirmationStore
from sfumato.release.independent_approver import SecondPerson
from sfumato.release.ledger_guard import Ledger
from sfumato.vault.ports import Clock
from sfumato.vault.users import Caller, User

# how long a job waits for a confirmation, and how long a confirmation is valid
LASTS: Final = timedelta(hours=24)


@dataclass(frozen=True)
class Confirmations:
    """Asks second persons of one vault to confirm that added rows are of new people."""

    ledger: Ledger
    store: ConfirmationStore
    dice: RandomSource
    clock: Clock

    def ask(self, caller: Caller, user: User, job: str, said: tuple[str, str]) -> Confirmation:
        """Ask a user to confirm that the people of an add job are new; return the confirmation.

        If the job's last confirmation waits, or was given within the last day, return it instead of
        a new one. `said` is a pair: the data set and its people domain.
        """
        known = self.store.of_job(job)
        if known is not None and (known.state == WAITING or self._is_agreed(known)):
            return known
        data_set, people = said
        asked = Confirmation(
            id=self.dice.draw(8).hex(),
            job=job,
            data_set=data_set,
            people=people,
            asked_of=user.name,
            asked_by=caller.user,
            asked_at=self.clock.now(),
        )
        self.ledger.note("people-asked", asdict(asked))
        self.store.add(asked)
        return asked

    def second_person(self, caller: Caller, user: User | None) -> User:
        """Return the named user if they can be the second person: another owner or operator.

        Refuse any other user.
        """
        is_one = user is not None and not user.is_blocked and user.name != caller.user
        if user is None or not is_one or not user.actions & {"own", "operate"}:
            raise Refused(
                "not-allowed",
                "The second person must be another owner or operator of this service.",
                "Name the user who will confirm that the added rows are of new people.",
            )
        SecondPerson(self.ledger.store).check(user.name, caller.user, is_served=bool(caller.token))
        return user

    def waits(self, job: str, begun: str) -> bool:
        """Return True if the add job still waits for a confirmation, which takes at most a day."""
        known = self.store.of_job(job)
        if known is None:
            return not self._is_old(begun)
        return known.state == WAITING and not self._is_old(known.asked_at)

    def asked_of(self, job: str) -> str | None:
        """Return the name of the user whose confirmation the add job waits for, or None."""
        known = self.store.of_job(job)
        return known.asked_of if known is not None and known.state == WAITING else None

    def check(self, job: str, user: str) -> None:
        """Refuse an add job that this second person has not confirmed within the last day."""
        known = self.store.of_job(job)
        if known is None or not self._is_agreed(known) or known.decided_by != user:
            raise Refused(
                "second-person-needed",
                "The named second person did not confirm that these are other people.",
                "Ask them to confirm it under Approvals, then add the rows again.",
            )

    def _is_agreed(self, known: Confirmation) -> bool:
        return known.state == APPROVED and not self._is_old(known.decided_at)

    def _is_old(self, at: str) -> bool:
        now = datetime.fromisoformat(self.clock.now())
        return now - datetime.fromisoformat(at) > LASTS

    def holds(self, confirmation: str) -> bool:
        """Return True if there is a confirmation with this id."""
        return confirmation.isalnum() and self.store.find(confirmation) is not None

    def waiting(self, caller: Caller) -> list[Json]:
        """Return the confirmations that the caller requested or was asked for, in any state."""
        return [_shown(one) for one in self.store.all() if _may_see(caller, one)]

    def decide(self, caller: Caller, confirmation: str, is_approved: bool) -> Json:
        """Confirm as the user who was asked, or decline as that user or as the requester."""
        check_second(caller)
        found = self.store.find(confirmation)
        if found is None or not _may_see(caller, found) or found.state != WAITING:
            raise _unknown()
        if is_approved and caller.user != found.asked_of:
            raise Refused(
                "not-allowed",
                f"{found.asked_of} was asked to confirm this, so you cannot confirm it.",
                f"Ask {found.asked_of!r} to confirm it under Approvals.",
            )
        if is_approved:
            second = SecondPerson(self.ledger.store)
            request = ("people-asked", found.id)
            is_served = bool(caller.token)
            second.check(caller.user, found.asked_by, request, is_served=is_served)
        state = APPROVED if is_approved else DECLINED
        said: Json = {"approval": found.id, "state": state, "by": caller.user}
        # Noted first: no rows are added on a confirmation that the ledger does not have.
        self.ledger.note("people-decided", said)
        if not self.store.decide(found.id, state, caller.user, self.clock.now()):
            raise _unknown()
        return {"approval": found.id, "state": state}


def _may_see(caller: Caller, one: Confirmation) -> bool:
    return caller.user in (one.asked_of, one.asked_by) and caller.reaches(one.data_set)


def _unknown() -> Refused:
    return Refused(
        "approval-unknown",
        "No request with this id waits for a confirmation.",
        "Take the id from the list of approvals (page Approvals, or GET /v1/approvals).",
    )


def _shown(one: Confirmation) -> Json:
    shape = asdict(one)
    return {"approval": shape.pop("id"), "kind": "people", **shape}
