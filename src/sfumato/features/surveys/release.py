"""Charge an invited person's account for a survey ballot, before the token is signed.

The ledger entry names the person's account, once per survey, with the day but no time. It contains
nothing of the report or the token. It has a digest that covers the blinded token, which could hide
any token (features/surveys/blind_signatures.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sfumato.dp.accounting.privacy_events import PureEvent, privacy_cost
from sfumato.dp.accounting.privacy_filter import cap_from_budget
from sfumato.dp.budget import Budget
from sfumato.dp.refusal import Refused
from sfumato.release.ledger_guard import Ledger
from sfumato.vault.ledger_entries import Charge, Charged, Debtor

LOCAL: Final = "local-dp"
_SHAPE: Final = hashlib.sha256(b"sfumato-ballot/1").hexdigest()


@dataclass(frozen=True)
class BallotCharge:
    """A charge for one ballot token: the invitation, its account, and the ballot's epsilon."""

    survey: str
    invitation: str  # SHA-256 (hex) of the code
    account: str
    epsilon: Fraction
    lifetime: Fraction
    blinded: bytes


def respondent_account(name: str) -> str:
    """Return the name of the ledger account for one invited person's surveys."""
    return f"respondent:{name}"


def open_respondents(ledger: Ledger, accounts: Sequence[str], lifetime: Fraction) -> None:
    """Open the missing accounts of invited people, with the lifetime cap on epsilon.

    Refuse if an account has another cap, because a cap never changes. A person who was promised one
    lifetime cap can't be invited under another: one of the two promises would be wrong.
    """
    cap = cap_from_budget(Budget(lifetime, Fraction(0)))
    found = [ledger.store.account(account) for account in accounts]
    if not all(one is None or one.cap == cap for one in found) or not all(
        ledger.open_account(account, cap).cap == cap for account in accounts
    ):
        raise Refused(
            "bad-request",
            "Another survey of yours promised some of these people a different lifetime limit on "
            "their epsilon.",
            "Publish this survey with the same lifetime limit, or invite these people without a "
            "name.",
        )


def charge_ballot(ledger: Ledger, asked: BallotCharge) -> bool:
    """Charge a person for one ballot token, durably; return True if it was charged before.

    The same invitation with the same blinded token is charged once and may be signed again. So a
    lost reply does not lose the ballot. Another blinded token for the same invitation is refused,
    and so is a second invitation of the same person.
    """
    try:
        outcome = ledger.charge(_charge(asked))
        return isinstance(outcome, Charged) and outcome.paid_before
    except Refused as refused:
        kept = refused
    if kept.code == "op-reused":
        raise Refused(
            "invitation-used",
            "This invitation was already used for a ballot token.",
            "Answer on the device where you began, or ask who invited you for another invitation.",
        )
    if kept.code == "budget-exceeded":
        raise Refused(
            "budget-exceeded",
            "This ballot would exceed the lifetime limit on epsilon that this person was promised.",
            "Ask who invited you. Nothing was sent, and nothing was charged.",
        )
    raise kept


def _charge(asked: BallotCharge) -> Charge:
    said = f"{asked.survey}\n{asked.invitation}\n{asked.blinded.hex()}"
    return Charge(
        user=f"survey/{asked.survey}",
        op=asked.account,  # one ballot per person, also with two invitation codes
        request=hashlib.sha256(said.encode("ascii")).hexdigest(),
        answer_key=f"ballot/{asked.survey}/{asked.account}",
        shape=_SHAPE,
        debtors=(Debtor(asked.account, cap_from_budget(Budget(asked.lifetime, Fraction(0)))),),
        debt=privacy_cost(PureEvent(asked.epsilon)),
        body={
            "survey": asked.survey,
            "epsilon": float(asked.epsilon),
            "delta": 0.0,
            "guarantee": LOCAL,
            "unit": "one respondent's ballot",
            "says": "one ballot of a survey",
        },
        by_day=True,
    )
