"""The service of budget caps: lower a cap at once; raise it, if required after an approval.

A second person must approve each raise of a people domain's cap. If the data card says so, this
holds for each raise of the data set's other caps, too.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from fractions import Fraction

from sfumato.dp.accounting.privacy_filter import Cap, cap_from_budget, is_raised
from sfumato.dp.budget import DELTA_UNITS, Budget, read_delta, read_epsilon
from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.policy.approvals import (
    APPROVED,
    DECLINED,
    OUTDATED,
    WAITING,
    Approval,
    ApprovalStore,
)
from sfumato.features.policy.schema import ChangeCap
from sfumato.features.policy.spending import kind_of
from sfumato.release.accounts import (
    cap_json,
    data_set_account,
    group_account,
    left_json,
    people_account,
    spent_json,
    user_account,
)
from sfumato.release.independent_approver import SecondPerson
from sfumato.release.ledger_guard import Ledger
from sfumato.release.permissions import own_listing
from sfumato.vault.budget_windows import windows_stay
from sfumato.vault.card.data_card import Card
from sfumato.vault.ledger_entries import Account
from sfumato.vault.ports import Catalogue, Clock
from sfumato.vault.users import Caller, check_words


@dataclass(frozen=True)
class Caps:
    """Changes the budget caps of one vault; raises may wait for a second person."""

    ledger: Ledger
    catalogue: Catalogue
    approvals: ApprovalStore
    dice: RandomSource
    clock: Clock

    def set(self, caller: Caller, asked: ChangeCap) -> Json:
        """Lower a budget cap at once.

        Raise it at once, or store a request if a second person must approve.
        """
        card = own_listing(self.catalogue, caller, asked.data_set).card
        if card.window is not None:
            raise windows_stay()
        budget, account = _wanted(card, asked)
        now = self._opened(card, account, asked)
        budget = budget if asked.delta is not None else Budget(budget.epsilon, _delta_of(now))
        cap = cap_from_budget(budget)
        if not is_raised(now.cap, cap):
            return self._changed(card, now, cap, "cap-lowered", {"by": caller.user})
        self._check_raise(account, asked.why)
        if account != people_account(card.people) and not card.raised_by_two:
            said: Json = {"by": caller.user, "why": asked.why}
            return self._changed(card, now, cap, "cap-raised", said)
        return self._asked(caller, card, now, budget, asked.why)

    def waiting(self, caller: Caller) -> list[Json]:
        """Return the requests to raise a cap that the caller may see, waiting and decided."""
        check_second(caller)
        return [_approval_json(a) for a in self.approvals.all() if _may_see(caller, a)]

    def decide(self, caller: Caller, approval: str, is_approved: bool) -> Json:
        """Approve or decline a raise of a cap as second person.

        The requester can decline their own request, but not approve it.
        """
        check_second(caller)
        found = self.approvals.find(approval) if approval.isalnum() else None
        if found is None or not _may_see(caller, found) or found.state != WAITING:
            raise _unknown()
        if is_approved and found.asked_by == caller.user:
            raise Refused(
                "not-allowed",
                "You asked for this cap to be raised, so you cannot approve it yourself.",
                "Ask an operator to approve or decline it.",
            )
        if is_approved:
            second = SecondPerson(self.ledger.store)
            request = ("cap-asked", found.id)
            is_served = bool(caller.token)
            second.check(caller.user, found.asked_by, request, is_served=is_served)
        return self._approved(caller, found) if is_approved else self._declined(caller, found)

    def _approved(self, caller: Caller, found: Approval) -> Json:
        """Raise the cap of an approved request, unless the cap has changed since the request.

        The decision is stored first. So a crash between decision and raise leaves the cap
        unchanged.
        """
        self._check_raise(found.account, found.why)
        account = self.ledger.store.account(found.account)
        is_current = account is not None and account.cap == found.before
        self._end(caller, found, APPROVED if is_current else OUTDATED)
        if not is_current:
            return {"approval": found.id, "state": OUTDATED}
        said: Json = {
            "account": found.account,
            "data_set": found.data_set,
            "epsilon": str(found.epsilon),
            "delta": str(found.delta),
            "by": found.asked_by,
            "approver": caller.user,
            "why": found.why,
        }
        cap = cap_from_budget(Budget(found.epsilon, found.delta))
        made = self.ledger.set_cap(found.account, cap, found.before)
        is_raised_now = made.cap == cap
        if is_raised_now:
            self.ledger.note("cap-raised", said)
        return {"approval": found.id, "state": APPROVED if is_raised_now else OUTDATED}

    def _declined(self, caller: Caller, found: Approval) -> Json:
        self._end(caller, found, DECLINED)
        return {"approval": found.id, "state": DECLINED}

    def _end(self, caller: Caller, found: Approval, state: str) -> None:
        if not self.approvals.decide(found.id, state, caller.user, self.clock.now()):
            raise _unknown()
        self.ledger.note("cap-decided", {"approval": found.id, "state": state, "by": caller.user})

    def _opened(self, card: Card, account: str, asked: ChangeCap) -> Account:
        """Return the account. If it does not exist yet, open it with the data card's cap."""
        by_kind = {"group": card.group_cap, "user": card.user_cap}
        cap = cap_from_budget(by_kind.get(asked.of) or card.budget)
        return self.ledger.open_account(account, cap)

    def _changed(self, card: Card, now: Account, cap: Cap, kind: str, said: Json) -> Json:
        made = self.ledger.set_cap(now.name, cap, now.cap)
        if made.cap != cap:
            raise Refused(
                "ledger-busy",
                "Somebody else changed this cap at the same time, so your change was not made.",
                "Look at the present cap, and set it again if it is still needed.",
            )
        body = {"account": now.name, "data_set": card.name, "cap": list(astuple(cap)), **said}
        self.ledger.note(kind, body)
        of, name = kind_of(card, now.name)
        return {
            "of": of,
            "name": name,
            "cap": cap_json(made),
            "spent": spent_json(made),
            "left": left_json(made),
            "approval": None,
        }

    def _asked(self, caller: Caller, card: Card, now: Account, wanted: Budget, why: str) -> Json:
        """Store a request to raise a cap, for a second person to approve, and note it.

        The note is an entry of the ledger.
        """
        approval = Approval(
            id=self.dice.draw(8).hex(),
            data_set=card.name,
            account=now.name,
            before=now.cap,
            epsilon=wanted.epsilon,
            delta=wanted.delta,
            why=why,
            asked_by=caller.user,
            asked_at=self.clock.now(),
        )
        self.ledger.note("cap-asked", _approval_json(approval))
        self.approvals.add(approval)
        of, name = kind_of(card, now.name)
        return {"of": of, "name": name, "cap": cap_json(now), "approval": approval.id}

    def _check_raise(self, account: str, why: str) -> None:
        """Refuse to raise a cap without a reason, or a people's cap after a loss of entries."""
        if not 1 <= len(why.strip()) <= 500 or not why.isprintable():
            raise Refused(
                "bad-request",
                "A cap can be raised only with a reason of 1 to 500 printable characters.",
                "Give the reason as `why`.",
            )
        self.ledger.check_history()
        if account.startswith(people_account("")) and self.ledger.has_lost():
            raise Refused(
                "not-allowed",
                "The ledger has lost entries, so nobody knows how much of these people's privacy "
                "budget is spent.",
                "The cap of these people's budget cannot be raised.",
            )


def _wanted(card: Card, asked: ChangeCap) -> tuple[Budget, str]:
    budget = Budget(
        read_epsilon(asked.epsilon), Fraction(0) if asked.delta is None else read_delta(asked.delta)
    )
    if asked.of in ("group", "user"):
        check_words(asked.name)
    if asked.of == "group" and (asked.name not in card.who or card.group_cap is None):
        raise Refused(
            "bad-request",
            "The data card gives that group no cap of its own, or does not let it ask.",
            "Amend the card: [caps] group gives each group a cap, and [ask] who names the groups.",
        )
    accounts = {
        "people": people_account(card.people),
        "data-set": data_set_account(card.name),
        "group": group_account(card.name, asked.name),
        "user": user_account(card.name, asked.name),
    }
    if asked.of not in accounts:
        raise Refused(
            "bad-request",
            "The field `of` must say whose cap is to be set.",
            f"Use one of {', '.join(accounts)}.",
        )
    return budget, accounts[asked.of]


def _delta_of(account: Account) -> Fraction:
    """Return the delta of an account's cap, as its data card states it.

    The account stores half of it for each of the privacy filter's two tests
    (dp/accounting/privacy_filter.py). So the stored delta is doubled.
    """
    return Fraction(2 * account.cap.delta, DELTA_UNITS)


def check_second(caller: Caller) -> None:
    """Refuse a caller who is no owner or operator, as only they can be a second person."""
    if not (caller.may("own") or caller.may("operate")):
        raise Refused(
            "not-allowed",
            "Only owners and operators may do this.",
            "Ask an operator to do it, or to give you the role.",
        )


def _may_see(caller: Caller, approval: Approval) -> bool:
    """Return True if the caller may see a request to raise a cap.

    Operators see all requests, and requesters see their own.
    """
    is_theirs = caller.may("operate") or approval.asked_by == caller.user
    return is_theirs and caller.reaches(approval.data_set)


def _unknown() -> Refused:
    return Refused(
        "approval-unknown",
        "No request with this id waits for an approval.",
        "Take the id from the list of approvals (page Approvals, or GET /v1/approvals).",
    )


def _approval_json(approval: Approval) -> Json:
    return {
        "approval": approval.id,
        "kind": "cap",
        "data_set": approval.data_set,
        "account": approval.account,
        "epsilon": str(approval.epsilon),
        "delta": str(approval.delta),
        "why": approval.why,
        "asked_by": approval.asked_by,
        "asked_at": approval.asked_at,
        "state": approval.state,
        "decided_by": approval.decided_by,
        "decided_at": approval.decided_at,
    }
