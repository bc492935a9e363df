"""The guarded release: plan, price, charge, read, noise, record. The only way out for a number."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Bug, Refused
from sfumato.query.price import Priced
from sfumato.release.accounts import debtors
from sfumato.release.ledger_guard import Ledger
from sfumato.release.locks.central_dp import Drawn
from sfumato.release.noise_pool import NoisePool
from sfumato.release.noisy_answers import can_batch, draw_noise, read_all, read_rows
from sfumato.release.payment import on_card
from sfumato.release.plan_description import PlanDescription, PlanPaper, digest
from sfumato.release.receipts import answer_version, receipt, shown_answer
from sfumato.release.release_order import Asker, Begun, Door, Order, Release
from sfumato.release.top_up_source import priced_for
from sfumato.release.wait_limit import wait_limit
from sfumato.vault.card.data_card import Card
from sfumato.vault.ledger_entries import (
    Account,
    Charge,
    Charged,
    OperationState,
    Paid,
    Pending,
    Settled,
    Settling,
)

FEW: Final = 1_000  # numbers of an answer that others wait for, at 5 microseconds each or more


def accounts_paying(ledger: Ledger, card: Card, asker: Asker) -> list[Account]:
    """Return the accounts of all who pay: the people, the data set, groups, the user."""
    paying = debtors(card, asker.user, asker.groups)
    return list(ledger.paying(paying).values())


def release(door: Door, order: Order) -> Release:
    """Return the answer, whose charge was durable before a row was read; or refuse."""
    order, priced, noise = _prepared(door, order)
    charge = _charge(door, order, priced)
    outcome = door.ledger.charge(charge)
    if isinstance(outcome, Pending):  # paid already, by an operation of the asker's own: go on
        charge = replace(charge, op=outcome.op)
        outcome = door.ledger.charge(charge)
    if isinstance(outcome, Pending):
        raise Bug("an operation waits for itself")
    begun = Begun(order, priced, noise, charge, outcome)
    if isinstance(outcome, OperationState):
        return _as_it_stands(door, begun, outcome)
    settled = _settling(begun, read_rows(door, begun))
    stands = door.ledger.settle(settled.user, settled.op, settled.answer, settled.names)
    return _as_it_stands(door, begun, _standing(outcome, stands))


def begin_all(door: Door, orders: Sequence[Order]) -> list[Begun | Release | Exception | None]:
    """Return the questions that are paid, all in one go, before a row is read; or what stands.

    None has changed nothing, and is left to `release`: whatever is refused, and who has to wait.
    """
    ready = [_ready_to_pay(door, order) for order in orders]
    paid = iter(door.ledger.charge_all([one[-1] for one in ready if one is not None]))
    return [None if one is None else _begun(door, one, next(paid)) for one in ready]


_Ready = tuple[Order, Priced, list[Drawn], Charge]


def _ready_to_pay(door: Door, order: Order) -> _Ready | None:
    """Return what is to be paid; None too where the noise or the answer may hold up the others."""
    with contextlib.suppress(Refused):
        priced = _priced(door, order, order.card)
        measure = priced.plan.measure
        if measure.is_public and measure.cells * len(priced.noises) <= FEW:
            return order, priced, _drawn(door.pool, priced), _charge(door, order, priced)
    return None


def _begun(door: Door, ready: _Ready, paid: Paid) -> Begun | Release | Exception | None:
    if not isinstance(paid, Charged | OperationState):
        return paid
    begun = Begun(*ready, paid, can_batch(door.engine, ready[1].plan))
    return begun if isinstance(paid, Charged) else _by_itself(door, begun, paid)


def answer_all(door: Door, several: Sequence[Begun]) -> list[Release | Exception]:
    """Return the answers of counts that are paid, read in one pass and written in one go."""
    read = read_all(door, several)
    pairs = zip(several, read, strict=True)
    ended = iter(end_all(door, [(one, text) for one, text in pairs if isinstance(text, str)]))
    return [next(ended) if isinstance(text, str) else text for text in read]


def end_all(door: Door, read: Sequence[tuple[Begun, str]]) -> list[Release | Exception]:
    """Return the answers once all stand, written in one go; each may be refused by itself."""
    ended = door.ledger.settle_all([_settling(begun, text) for begun, text in read])
    return [_ended(door, begun, settled) for (begun, _), settled in zip(read, ended, strict=True)]


def _ended(door: Door, begun: Begun, settled: Settled | Exception) -> Release | Exception:
    if not isinstance(settled, Settled):
        return settled
    if not isinstance(begun.outcome, Charged):
        return Bug("what stood already was read again")
    return _by_itself(door, begun, _standing(begun.outcome, settled))


def _by_itself(door: Door, begun: Begun, standing: OperationState) -> Release | Exception:
    """Return what stands, or its own error: the others of the go have paid, and are told theirs."""
    try:
        return _as_it_stands(door, begun, standing)
    except Exception as error:  # noqa: BLE001  # raised to whoever asked for it
        return error


def _as_it_stands(door: Door, begun: Begun, standing: OperationState) -> Release:
    """Return what stands, as its asker may see it."""
    priced = _as_answered(door, begun.order, begun.priced, standing.answer)
    return _released(door, begun.charge, priced, standing)


def _settling(begun: Begun, text: str) -> Settling:
    charge = begun.charge
    known = {account.name: account.window for account in begun.outcome.accounts}
    names = [d.account for d in charge.debtors]
    windows = [window for name in names if (window := known.get(name)) is not None]
    return Settling(charge.user, charge.op, text, (*names, *windows))


def _priced(door: Door, order: Order, card: Card) -> Priced:
    return priced_for(door.ledger, door.plans, order.asker.user, card, order.request)


def _prepared(door: Door, order: Order) -> tuple[Order, Priced, list[Drawn]]:
    """Return the order with its price and its noise, drawn before anything is charged.

    What the card of today refuses may have been answered under an earlier one: then it is that
    one's. What today's card does not refuse pays nothing a second time either, for the operation
    is known, and is shown by the card that it was answered on (`_as_answered`).
    """
    refused: Refused
    try:
        return order, *_ready(door, order)
    except Refused as told:
        refused = told
    again = _on_the_card_it_was_answered_on(door, order)
    if again is order:
        raise refused
    return again, *_ready(door, again)


def _ready(door: Door, order: Order) -> tuple[Priced, list[Drawn]]:
    priced = _priced(door, order, order.card)
    return priced, _drawn(door.pool, priced)


def _on_the_card_it_was_answered_on(door: Door, order: Order) -> Order:
    """Return the order; a retry of what was answered keeps its card, whatever the owner did."""
    answer = door.ledger.answer_of(order.asker.user, order.op)
    if answer is None:
        return order
    version = answer_version(answer)
    card = order.earlier(version)  # None where the operation was about another data set
    return order if card is None else replace(order, card=card)


def _drawn(pool: NoisePool, priced: Priced) -> list[Drawn]:
    """Draw before the charge: what cannot be drawn is refused unpaid, and no row was read yet.

    How many private keys will be shown nobody knows before; one draw each shows that it can be.
    """
    cells = priced.plan.measure.cells if priced.selection is None else 1
    if priced.earlier is not None and priced.earlier.keys is not None:
        cells = len(priced.earlier.keys)
    return [draw_noise(pool, mechanism, cells) for mechanism in priced.noises]


def _charge(door: Door, order: Order, priced: Priced) -> Charge:
    said = door.plans.said(priced)
    fresh: Json = {"fresh": [order.asker.user, order.op]} if order.fresh else {}
    raised = _raised(priced)
    more = bool(raised or fresh)
    write = partial(_paper, door, order, priced)
    paper = write() if more else door.plans.paper(priced, write)
    return Charge(
        user=order.asker.user,
        op=order.op,
        request=paper.request,
        answer_key=_answer_key(said, {**raised, **fresh}),
        shape=said.shape,
        debtors=debtors(order.card, order.asker.user, order.asker.groups),
        debt=said.debt,
        patience_s=wait_limit(priced),
        body=paper.body,
        may_still=order.may_still,
    )


def is_free(door: Door, priced: Priced, card: Card, asker: Asker) -> bool:
    """Say whether the asker's own accounts, and all others, have paid for this very answer before.

    What another has asked is not told by it: then the asker's own account has not paid.
    """
    key = _answer_key(door.plans.said(priced), _raised(priced))
    paying = debtors(card, asker.user, asker.groups)
    return door.ledger.is_paid_by(key, tuple(debtor.account for debtor in paying))


def _answer_key(said: PlanDescription, more: Json) -> str:
    """Return the key of the answer; a top-up and fresh noise have their own."""
    return digest({**said.identity, **more}) if more else said.answer_key


def _raised(priced: Priced) -> Json:
    return {} if priced.earlier is None else {"top_up_of": priced.earlier.digest}


def _paper(door: Door, order: Order, priced: Priced) -> PlanPaper:
    """Return what the chain says of the request, but for who makes it."""
    request: Json = {**order.request.as_json(), "fresh": order.fresh}
    body = {
        **door.plans.said(priced).body,
        "request": request,
        "code": door.code,
        **on_card(order.card),
        **_raised(priced),
    }
    return PlanPaper(digest(request), body)


def _standing(charged: Charged, settled: Settled) -> OperationState:
    names = tuple(account.name for account in charged.accounts)
    paid_now = () if charged.paid_before else names
    return OperationState(settled.head, charged.seq, settled.answer, settled.accounts, paid_now)


def _as_answered(door: Door, order: Order, priced: Priced, answer: str) -> Priced:
    """Return the plan that the answer was given under: a retry outlives the owner's new version."""
    version = door.plans.version(answer, answer_version)
    if version == order.card.version:
        return priced
    card = order.earlier(version)
    if card is None:
        raise Bug("an answer stands under a version that nobody signed")
    return _priced(door, order, card)


def _released(door: Door, charge: Charge, priced: Priced, standing: OperationState) -> Release:
    if not standing.answer:
        raise Bug("an answer that stands is empty")
    answer = door.plans.shown(priced, standing.answer, shown_answer)
    said = door.plans.said(priced)
    return Release(answer, receipt(door.ledger, priced, said, charge=charge, standing=standing))
