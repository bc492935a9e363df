"""The guarded release: plan, price, charge, read rows, add noise, record.

Every number that leaves the vault for a query passes through `release` or `begin_all`.
"""

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
from sfumato.release.guarantees.central_dp import NoiseOrMechanism
from sfumato.release.ledger_guard import Ledger
from sfumato.release.noise_pool import NoisePool
from sfumato.release.noisy_answers import can_batch, draw_noise, read_all, read_rows
from sfumato.release.payment import on_card
from sfumato.release.plan_description import PlanDescription, PlanPaper, digest
from sfumato.release.receipts import answer_version, receipt, shown_answer
from sfumato.release.release_order import Asker, Order, PaidOrder, Release, ReleaseContext
from sfumato.release.top_up_source import priced_for
from sfumato.release.wait_limit import wait_limit
from sfumato.vault.card.data_card import Card
from sfumato.vault.ledger_entries import (
    Account,
    AnswerToStore,
    Charge,
    Charged,
    OperationState,
    Paid,
    Pending,
    Settled,
)

MAX_BATCHED_NUMBERS: Final = (
    1_000  # most numbers in an answer of a batch; each number takes 5 microseconds or more
)


def accounts_paying(ledger: Ledger, card: Card, asker: Asker) -> list[Account]:
    """Return the accounts that pay for a question: of the people, data set, groups and user."""
    paying = debtors(card, asker.user, asker.groups)
    return list(ledger.paying(paying).values())


def release(door: ReleaseContext, order: Order) -> Release:
    """Answer one question: charge its price durably, then read the rows and add noise.

    A repeated operation returns its stored answer and pays nothing.
    """
    order, priced, noise = _prepared(door, order)
    charge = _charge(door, order, priced)
    outcome = door.ledger.charge(charge)
    # another operation of the same user has paid: continue that one
    if isinstance(outcome, Pending):
        charge = replace(charge, op=outcome.op)
        outcome = door.ledger.charge(charge)
    if isinstance(outcome, Pending):
        raise Bug("an operation waits for itself")
    begun = PaidOrder(order, priced, noise, charge, outcome)
    if isinstance(outcome, OperationState):
        return _release_of(door, begun, outcome)
    settled = _settling(begun, read_rows(door, begun))
    stored = door.ledger.settle(settled.user, settled.op, settled.answer, settled.names)
    return _release_of(door, begun, _standing(outcome, stored))


def begin_all(
    door: ReleaseContext, orders: Sequence[Order]
) -> list[PaidOrder | Release | Exception | None]:
    """Charge several questions in one ledger transaction, before any row is read.

    Return for each question the paid order, its stored answer, its error, or None. None means that
    nothing was charged. The caller then runs `release`, which refuses the question or waits.
    """
    ready = [_ready_to_pay(door, order) for order in orders]
    paid = iter(door.ledger.charge_all([one[-1] for one in ready if one is not None]))
    return [None if one is None else _begun(door, one, next(paid)) for one in ready]


_Ready = tuple[Order, Priced, list[NoiseOrMechanism], Charge]


def _ready_to_pay(door: ReleaseContext, order: Order) -> _Ready | None:
    """Price one question of a batch and draw its noise; return None if it can't be batched.

    A question isn't batched if it is refused, has private keys, or has so many results that it
    would delay the others.
    """
    with contextlib.suppress(Refused):
        priced = _priced(door, order, order.card)
        measure = priced.plan.measure
        if measure.is_public and measure.cells * len(priced.noises) <= MAX_BATCHED_NUMBERS:
            return order, priced, _drawn(door.pool, priced), _charge(door, order, priced)
    return None


def _begun(
    door: ReleaseContext, ready: _Ready, paid: Paid
) -> PaidOrder | Release | Exception | None:
    if not isinstance(paid, Charged | OperationState):
        return paid
    begun = PaidOrder(*ready, paid, can_batch(door.engine, ready[1].plan))
    return begun if isinstance(paid, Charged) else _by_itself(door, begun, paid)


def answer_all(door: ReleaseContext, several: Sequence[PaidOrder]) -> list[Release | Exception]:
    """Answer several paid COUNT questions by one scan of the rows and one ledger transaction."""
    read = read_all(door, several)
    pairs = zip(several, read, strict=True)
    ended = iter(end_all(door, [(one, text) for one, text in pairs if isinstance(text, str)]))
    return [next(ended) if isinstance(text, str) else text for text in read]


def end_all(
    door: ReleaseContext, read: Sequence[tuple[PaidOrder, str]]
) -> list[Release | Exception]:
    """Store the answers of several paid questions in one ledger transaction.

    Return for each question its release or its own error.
    """
    ended = door.ledger.settle_all([_settling(begun, text) for begun, text in read])
    return [_ended(door, begun, settled) for (begun, _), settled in zip(read, ended, strict=True)]


def _ended(
    door: ReleaseContext, begun: PaidOrder, settled: Settled | Exception
) -> Release | Exception:
    if not isinstance(settled, Settled):
        return settled
    if not isinstance(begun.outcome, Charged):
        return Bug("rows of a stored answer were read again")
    return _by_itself(door, begun, _standing(begun.outcome, settled))


def _by_itself(
    door: ReleaseContext, begun: PaidOrder, standing: OperationState
) -> Release | Exception:
    """Return the release of one question of a batch; an error is returned, not raised.

    So the error of one question doesn't stop the batch.
    """
    try:
        return _release_of(door, begun, standing)
    except Exception as error:  # noqa: BLE001  # raised to whoever asked for it
        return error


def _release_of(door: ReleaseContext, begun: PaidOrder, standing: OperationState) -> Release:
    """Return the stored answer as the asker sees it: with own column names, and a receipt."""
    priced = _as_answered(door, begun.order, begun.priced, standing.answer)
    return _released(door, begun.charge, priced, standing)


def _settling(begun: PaidOrder, text: str) -> AnswerToStore:
    charge = begun.charge
    known = {account.name: account.window for account in begun.outcome.accounts}
    names = [d.account for d in charge.debtors]
    windows = [window for name in names if (window := known.get(name)) is not None]
    return AnswerToStore(charge.user, charge.op, text, (*names, *windows))


def _priced(door: ReleaseContext, order: Order, card: Card) -> Priced:
    return priced_for(door.ledger, door.plans, order.asker.user, card, order.request)


def _prepared(door: ReleaseContext, order: Order) -> tuple[Order, Priced, list[NoiseOrMechanism]]:
    """Price the question and draw its noise, before anything is charged.

    If the current card refuses the question, a retry uses the card version of its stored answer. If
    the current card accepts it, a retry still pays nothing, because the ledger knows the operation.
    `_as_answered` then shows the answer with the card version for which it was computed.
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


def _ready(door: ReleaseContext, order: Order) -> tuple[Priced, list[NoiseOrMechanism]]:
    priced = _priced(door, order, order.card)
    return priced, _drawn(door.pool, priced)


def _on_the_card_it_was_answered_on(door: ReleaseContext, order: Order) -> Order:
    """Return the order with the card version of its stored answer, if an answer is stored.

    Without a stored answer, return the order unchanged.
    """
    answer = door.ledger.answer_of(order.asker.user, order.op)
    if answer is None:
        return order
    version = answer_version(answer)
    card = order.card_of_version(version)  # None if the operation was about another data set
    return order if card is None else replace(order, card=card)


def _drawn(pool: NoisePool, priced: Priced) -> list[NoiseOrMechanism]:
    """Draw the noise of a question before its charge: nobody pays for noise that can't be drawn.

    With private keys, the number of groups isn't known yet. So the function draws once per
    mechanism, which shows that the noise can be drawn.
    """
    cells = priced.plan.measure.cells if priced.selection is None else 1
    if priced.earlier is not None and priced.earlier.keys is not None:
        cells = len(priced.earlier.keys)
    return [draw_noise(pool, mechanism, cells) for mechanism in priced.noises]


def _charge(door: ReleaseContext, order: Order, priced: Priced) -> Charge:
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
        wait_limit_s=wait_limit(priced),
        body=paper.body,
        check_access=order.check_access,
    )


def is_free(door: ReleaseContext, priced: Priced, card: Card, asker: Asker) -> bool:
    """Say whether a question is free, because all its paying accounts have paid for this answer.

    One of the paying accounts is the asker's own. So this doesn't reveal another user's questions,
    for which the asker's own account hasn't paid.
    """
    key = _answer_key(door.plans.said(priced), _raised(priced))
    paying = debtors(card, asker.user, asker.groups)
    return door.ledger.is_paid_by(key, tuple(debtor.account for debtor in paying))


def _answer_key(said: PlanDescription, more: Json) -> str:
    """Return the key under which the ledger stores the answer of a question at its price.

    Top-ups and answers with fresh noise have keys of their own; `more` tells them apart.
    """
    return digest({**said.identity, **more}) if more else said.answer_key


def _raised(priced: Priced) -> Json:
    return {} if priced.earlier is None else {"top_up_of": priced.earlier.digest}


def _paper(door: ReleaseContext, order: Order, priced: Priced) -> PlanPaper:
    """Return the ledger entry's body for a question and its price, and the request's digest.

    The body doesn't name the asker, so it can be cached for all askers.
    """
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


def _as_answered(door: ReleaseContext, order: Order, priced: Priced, answer: str) -> Priced:
    """Return the priced plan on the card version for which the stored answer was computed.

    The owner may have signed a newer card since.
    """
    version = door.plans.version(answer, answer_version)
    if version == order.card.version:
        return priced
    card = order.card_of_version(version)
    if card is None:
        raise Bug("an answer has a version that nobody signed")
    return _priced(door, order, card)


def _released(
    door: ReleaseContext, charge: Charge, priced: Priced, standing: OperationState
) -> Release:
    if not standing.answer:
        raise Bug("a stored answer is empty")
    answer = door.plans.shown(priced, standing.answer, shown_answer)
    said = door.plans.said(priced)
    return Release(answer, receipt(door.ledger, priced, said, charge=charge, standing=standing))
