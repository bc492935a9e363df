"""Compute one site's masked input to a secure sum: charge it, read rows, add noise, mask.

The ledger's answer does not contain the masked numbers. They stay in memory until the round's next
stage, for a retry after a lost reply (features/federated/secure_rounds.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sfumato.dp.accounting.privacy_events import Event, privacy_cost
from sfumato.dp.accounting.privacy_filter import fits_under_cap
from sfumato.dp.budget import DELTA_UNITS, EPSILON_UNITS
from sfumato.dp.json_values import Json
from sfumato.dp.ports import IntegerArray, RandomSource
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.participant import Participant
from sfumato.features.federated.agreement import Agreement
from sfumato.features.federated.sum_plan import FORMAT, SumPlan
from sfumato.query.contribution_bounds import bounds_json, bounds_text
from sfumato.query.expression import canonical_json
from sfumato.query.model import query_json
from sfumato.query.plan_text import odds_text, plan_text
from sfumato.release.accounts import debtors, exceeded, left_to_pay
from sfumato.release.charged_reads import RowReader, read_for_charge
from sfumato.release.guarantees.central_dp import NoisyCells
from sfumato.release.guarantees.secure_aggregation import GUARANTEE, mask_noisy, shares_of
from sfumato.release.guarded_release import accounts_paying
from sfumato.release.ledger_guard import Ledger
from sfumato.release.payment import Payment, on_card, payment_json, relation, signed_payment
from sfumato.release.plan_description import digest
from sfumato.release.receipts import answer_text, not_dp_json, shown_answer
from sfumato.release.release_order import Asker
from sfumato.vault.budget_windows import spent_in_all
from sfumato.vault.card.data_card import Card
from sfumato.vault.engine_port import Engine
from sfumato.vault.ledger_entries import Charge, Charged, LedgerHead

KIND: Final = "secure-sum"
MECHANISM: Final = "skellam"


@dataclass(frozen=True)
class SumDependencies:
    """What a site needs for its part of a secure sum: ledger, engine, and a random source."""

    ledger: Ledger
    engine: Engine
    dice: RandomSource
    code: str = ""


@dataclass(frozen=True)
class SumOrder:
    """A user's request for one site's input to a secure sum: card, rows, plan and nonce.

    The nonce of the round names the ledger operation that pays.
    """

    card: Card
    table: str
    sum: SumPlan
    asker: Asker
    nonce: bytes
    # refuses if the site may no longer pay for the round
    may_still: Callable[[], None] = lambda: None

    @property
    def agreement(self) -> Agreement:
        """Return the agreement between the sites."""
        return self.sum.agreement


@dataclass(frozen=True)
class SumPart:
    """One site's part of a round: its masked numbers, and the receipt of its charge."""

    message: bytes
    receipt: Json


def can_pay(door: SumDependencies, order: SumOrder) -> None:
    """Refuse a round before it begins if this site cannot pay for it; charges nothing."""
    door.ledger.check_history()
    check_fits(door.ledger, order.card, order.asker, order.sum.event)


def check_fits(ledger: Ledger, card: Card, asker: Asker, event: Event) -> None:
    """Refuse a privacy event that exceeds the cap of any account that pays; charges nothing."""
    debt = privacy_cost(event)
    for account in accounts_paying(ledger, card, asker):
        if not fits_under_cap(account.cap, account.spent, debt):
            raise exceeded(account, debt)


def price_of(door: SumDependencies, card: Card, asker: Asker, sum_: SumPlan) -> Json:
    """Return a sum's price at this site, whether it fits, and the budget left; spends nothing."""
    accounts = accounts_paying(door.ledger, card, asker)
    debt = privacy_cost(sum_.event)
    after = spent_in_all(accounts[0]) + debt
    unit = "person" if card.by_person else "row"
    return {
        "epsilon": float(sum_.epsilon),
        "delta": float(sum_.delta),
        "error": sum_.margins(),
        "fits": all(fits_under_cap(account.cap, account.spent, debt) for account in accounts),
        "left": left_to_pay(accounts[1], accounts),
        "noise": list(noise_json(sum_)),
        "says": says(sum_),
        "against": against(sum_.agreement),
        **bounds_json(sum_.plan),
        "odds": odds_text(after.epsilon / EPSILON_UNITS, after.delta / DELTA_UNITS, unit),
        "mechanism": MECHANISM,
        "cells": sum_.plan.measure.cells,
        "at": [],
        "split": [],
        "rank_error": {},
        "error_by_people": {},  # do not estimate margins from a guessed number of people
        "spent": False,
    }


def sum_part(door: SumDependencies, order: SumOrder, participant: Participant) -> SumPart:
    """Charge the round, read the rows once, and return this site's masked numbers; or refuse.

    The charge is durable before a row is read. A nonce that was charged before is never read again.
    Noise shares are drawn before the charge, so their running time does not depend on any row.
    """
    shares = shares_of(order.sum, door.dice)
    charge = _charge(door, order)
    outcome = door.ledger.charge(charge)
    if not isinstance(outcome, Charged) or outcome.paid_before:
        raise Refused(
            "sum-message-refused",
            "The site has already sent its message of this round, and sends only one.",
            "Begin another round of the secure sum.",
        )
    message = _read(door, order, charge, participant, shares)
    stored = canonical_json(
        {"format": FORMAT, "version": order.card.version, "about": order.sum.about}
    )
    settled = door.ledger.settle(charge.user, charge.op, stored)
    names = tuple(account.name for account in outcome.accounts)
    paid = Payment(charge.op, order.sum.epsilon, order.sum.delta, names)
    return SumPart(message, _receipt(door.ledger, order, outcome, paid, settled.head))


def summed_answer(sum_: SumPlan, total: IntegerArray, sites: int) -> Json:
    """Format a finished sum as an answer in the query's columns; reads no row."""
    priced = sum_.priced(sites)
    answer = shown_answer(priced, answer_text(priced, NoisyCells(tuple(sum_.parts_of(total)))))
    said: Json = {
        "epsilon": float(sum_.epsilon),
        "delta": float(sum_.delta),
        "says": says(sum_),
        "question": query_json(sum_.plan.question),
        "data_set": sum_.plan.card.name,
        "version": sum_.plan.card.version,
        "guarantee": GUARANTEE,
        "against": against(sum_.agreement),
        "relation": relation(sum_.plan.card),
        **bounds_json(sum_.plan),
        "mechanism": MECHANISM,
        "noise": [noise.as_json() for noise in priced.noises],
    }
    return {**answer, "receipt": said}


def _read(
    door: SumDependencies,
    order: SumOrder,
    charge: Charge,
    participant: Participant,
    shares: Sequence[IntegerArray],
) -> bytes:
    """Read the rows and return this site's masked numbers; all failures get one refusal code."""

    def look(reader: RowReader) -> bytes:
        sealed = reader.read(lambda: door.engine.measure(order.table, order.sum.plan.measure))
        return mask_noisy(sealed, order.sum, participant, shares)

    return read_for_charge(door.ledger, charge, look)


def _charge(door: SumDependencies, order: SumOrder) -> Charge:
    card, sum_, agreement = order.card, order.sum, order.sum.agreement
    terms: Json = {
        "about": sum_.about,
        "federation": agreement.as_json(),
        "nonce": order.nonce.hex(),
    }
    shape = digest(sum_.plan.shape())
    return Charge(
        user=order.asker.user,
        op=operation_of(order.nonce),
        request=digest(terms),
        answer_key=digest({**terms, "version": card.version, "people": card.people}),
        shape=shape,
        debtors=debtors(card, order.asker.user, order.asker.groups),
        debt=privacy_cost(sum_.event),
        body={
            KIND: terms,
            "question": query_json(sum_.plan.question),
            "code": door.code,
            "says": says(sum_),
            "bounding": bounds_text(sum_.plan),
            "mechanism": MECHANISM,
            "shape": shape,
            **on_card(card),
            "guarantee": GUARANTEE,
            "against": against(agreement),
            "event": sum_.event.name,
            "epsilon": str(sum_.epsilon),
            "delta": str(sum_.delta),
            "noise": noise_json(sum_),
            "selection": None,
        },
        check_access=order.may_still,
    )


def operation_of(nonce: bytes) -> str:
    """Return the name of the ledger operation that pays for the round with this nonce."""
    return f"sum-{nonce.hex()}"


def says(sum_: SumPlan) -> str:
    """Return the sentence of receipts that says what a sum computes, over which sites."""
    agreement = sum_.agreement
    count = len(agreement.members)
    return f"{plan_text(sum_.plan)}, added up over {count} sites ({agreement.name})"


def against(agreement: Agreement) -> str:
    """Describe, for a receipt, against whom a guarantee holds, and who pays at several sites."""
    t = agreement.colluders
    who = "one site" if t == 1 else f"{t} sites"
    return (
        f"whoever sees the sum, and the convener together with any {who}; "
        "somebody at several of the sites pays at each of them"
    )


def noise_json(sum_: SumPlan) -> Sequence[Json]:
    """Return the noise of each count or sum for receipts: in total over all sites, and per site."""
    return [
        {
            "kind": "skellam",
            "variance": str(summand.variance),
            "share": str(sum_.share(summand)),
            "grid": summand.grid,
        }
        for summand in sum_.summands
    ]


def _receipt(
    ledger: Ledger, order: SumOrder, outcome: Charged, paid: Payment, head: LedgerHead
) -> Json:
    card, sum_ = order.card, order.sum
    accounts = {account.name: account for account in outcome.accounts}
    return {
        **payment_json(paid, head.seq, card.name, accounts),
        "says": says(sum_),
        "data_set": card.name,
        "version": card.version,
        "people": card.people,
        "guarantee": GUARANTEE,
        "against": against(sum_.agreement),
        "relation": relation(card),
        **bounds_json(sum_.plan),
        "mechanism": MECHANISM,
        **not_dp_json(ledger, card.people),
        **ledger.sign(signed_payment(paid, head, outcome.seq)),
    }
