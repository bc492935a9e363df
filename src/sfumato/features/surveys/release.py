"""What an invited person gives away with a survey's ballot, charged before the token is signed.

The charge stands under the person, once in a survey, with the day and no time of it. Nothing of
the report is in it, and nothing of the token either: the blinded token alone, of which any token
could be the one (features/surveys/blind_signatures.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sfumato.dp.accounting.privacy_events import PureEvent, privacy_cost
from sfumato.dp.accounting.privacy_filter import cap_of
from sfumato.dp.budget import Budget
from sfumato.dp.refusal import Refused
from sfumato.release.ledger_guard import Ledger
from sfumato.vault.ledger_entries import Charge, Charged, Debtor

LOCAL: Final = "local-dp"
_SHAPE: Final = hashlib.sha256(b"sfumato-ballot/1").hexdigest()


@dataclass(frozen=True)
class BallotCharge:
    """Whose invitation gets a token, and what a ballot of the survey gives away at most."""

    survey: str
    invitation: str  # SHA-256 (hex) of the code
    account: str
    epsilon: Fraction
    lifetime: Fraction
    blinded: bytes


def respondent_account(name: str) -> str:
    """Return the account of what one invited person gives away in surveys."""
    return f"respondent:{name}"


def open_respondents(ledger: Ledger, accounts: Sequence[str], lifetime: Fraction) -> None:
    """Open the accounts that are not there, or refuse: nobody has two caps, and none is changed.

    Whoever was promised one lifetime is asked under another in no survey: what they were told to
    be the most would not be it, or would end before its time.
    """
    cap = cap_of(Budget(lifetime, Fraction(0)))
    found = [ledger.store.account(account) for account in accounts]
    if not all(one is None or one.cap == cap for one in found) or not all(
        ledger.open_account(account, cap).cap == cap for account in accounts
    ):
        raise Refused(
            "bad-request",
            "Some of these people have been told another lifetime sum, in another survey of yours.",
            "Publish this survey with the lifetime of that one, or invite them without a name.",
        )


def charge_ballot(ledger: Ledger, asked: BallotCharge) -> bool:
    """Charge the person for the token, durably; say whether they had paid before; or refuse.

    The same invitation with the same blinded token has paid before, and may be signed again:
    a reply that was lost costs nobody their voice. With another one it is refused, and so is
    another invitation of the same person.
    """
    try:
        outcome = ledger.charge(_charge(asked))
        return isinstance(outcome, Charged) and outcome.paid_before
    except Refused as refused:
        kept = refused
    if kept.code == "op-reused":
        raise Refused(
            "invitation-used",
            "This invitation has been given its ballot already.",
            "Answer on the device where you began; or ask who invited you for another.",
        )
    if kept.code == "budget-exceeded":
        raise Refused(
            "budget-exceeded",
            "This person has given away as much in surveys as was promised to be the most.",
            "Ask who invited you; nothing was sent, and nothing was charged.",
        )
    raise kept


def _charge(asked: BallotCharge) -> Charge:
    said = f"{asked.survey}\n{asked.invitation}\n{asked.blinded.hex()}"
    return Charge(
        user=f"survey/{asked.survey}",
        op=asked.account,  # so two codes of one person are one ballot
        request=hashlib.sha256(said.encode("ascii")).hexdigest(),
        answer_key=f"ballot/{asked.survey}/{asked.account}",
        shape=_SHAPE,
        debtors=(Debtor(asked.account, cap_of(Budget(asked.lifetime, Fraction(0)))),),
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
