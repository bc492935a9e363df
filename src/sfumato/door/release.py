"""door.release: plan, price, charge, read, noise, record. The only way from private to public."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Never

from sfumato.core.account import Charge, Charged, Pending, Settled, Standing
from sfumato.core.card import Card
from sfumato.core.expression import Json, spelled
from sfumato.core.loss import debt_of
from sfumato.core.noise.chooser import Chooser
from sfumato.core.noise.running import Running
from sfumato.core.ports import Engine, EngineStopped
from sfumato.core.question import question_json
from sfumato.core.refusal import Bug
from sfumato.door.accounts import debtors
from sfumato.door.diary import answer_text, answer_version, key_text, receipt, relation, shown
from sfumato.door.ledger import Ledger, question_failed
from sfumato.door.locks.dp import (
    GUARANTEE,
    BlockDraws,
    Blurred,
    Choosing,
    Drawn,
    Kept,
    blurred,
    chosen,
    chosen_before,
)
from sfumato.door.pool import NoisePool
from sfumato.door.top_up import priced_for
from sfumato.plan.explain import in_words
from sfumato.plan.plan import PEOPLE, Plan
from sfumato.plan.price import Priced
from sfumato.plan.request import Request
from sfumato.plan.verbs.verb import Mechanism

PATIENCE_S: Final = 2 * 3600  # a reader who is older is gone; twice what an engine may take
PATIENT_ROWS: Final = 100_000  # a second, of as many rows as the card lets the question have


@dataclass(frozen=True)
class Asker:
    """Who asks, and with whom they share a cap."""

    user: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Door:
    """What a release needs: the ledger to charge, the engine to read, the noise to add."""

    ledger: Ledger
    engine: Engine
    pool: NoisePool


@dataclass(frozen=True)
class Order:
    """A question at a price, on one version of one data set, by one asker, as one operation."""

    card: Card
    table: str
    request: Request
    asker: Asker
    op: str
    earlier: Callable[[str], Card | None]  # another version's card, for an answer given before
    fresh: bool = False


@dataclass(frozen=True)
class Release:
    """What may be seen: the answer as the asker named it, and its receipt."""

    answer: Json
    receipt: Json


def release(door: Door, order: Order) -> Release:
    """Return the answer, whose charge was durable before a row was read; or refuse."""
    order = _on_the_card_it_was_answered_on(door, order)
    priced = _priced(door, order, order.card)
    noise = _drawn(door.pool, priced)
    charge = _charge(order, priced)
    outcome = door.ledger.charge(charge)
    if isinstance(outcome, Pending):  # paid already, by an operation of the asker's own: go on
        charge = replace(charge, op=outcome.op)
        outcome = door.ledger.charge(charge)
    if isinstance(outcome, Pending):
        raise Bug("an operation waits for itself")
    if isinstance(outcome, Standing):
        return _released(door, charge, _as_answered(door, order, priced, outcome.answer), outcome)
    text = _read(door, order, priced, charge, noise)
    settled = door.ledger.settle(charge.user, charge.op, text)
    standing = _standing(outcome, settled)
    return _released(door, charge, _as_answered(door, order, priced, standing.answer), standing)


def _priced(door: Door, order: Order, card: Card) -> Priced:
    return priced_for(door.ledger, order.asker.user, card, order.request)


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
    return [_draw(pool, mechanism, cells) for mechanism in priced.noises]


def _draw(pool: NoisePool, mechanism: Mechanism, cells: int) -> Drawn:
    if isinstance(mechanism, Running):  # as many blocks as cells
        return BlockDraws(mechanism, pool.take(mechanism.noise, cells))
    return mechanism if isinstance(mechanism, Chooser) else pool.take(mechanism, cells)


def _charge(order: Order, priced: Priced) -> Charge:
    identity: Json = {
        "plan": priced.plan.canonical(),
        "epsilon": str(priced.epsilon),
        "delta": str(priced.delta),
        "noise": [noise.as_json() for noise in priced.noises],
        "selection": None if priced.selection is None else priced.selection.as_text(),
    }
    shape = _digest(priced.plan.shape())
    fresh = {"fresh": [order.asker.user, order.op]} if order.fresh else {}
    raised = {} if priced.earlier is None else {"top_up_of": priced.earlier.digest}
    return Charge(
        user=order.asker.user,
        op=order.op,
        request=_digest({**order.request.as_json(), "fresh": order.fresh}),
        answer_key=_digest({**identity, **raised, **fresh}),
        shape=shape,
        debtors=debtors(order.card, order.asker.user, order.asker.groups),
        debt=debt_of(priced.event),
        patience_s=max(PATIENCE_S, priced.plan.measure.most_rows // PATIENT_ROWS),
        body={
            "question": question_json(priced.plan.question),
            "says": in_words(priced.plan),
            "shape": shape,
            "data_set": order.card.name,
            "version": order.card.version,
            "people": order.card.people,
            "unit": order.card.unit,
            "relation": relation(order.card),
            "guarantee": GUARANTEE,
            "event": priced.event.name,
            "epsilon": str(priced.epsilon),
            "delta": str(priced.delta),
            "noise": identity["noise"],
            "selection": identity["selection"],
            **raised,
        },
    )


def _digest(value: Json) -> str:
    return hashlib.sha256(spelled(value).encode()).hexdigest()


def _read(door: Door, order: Order, priced: Priced, charge: Charge, noise: list[Drawn]) -> str:
    """Read the rows, blur them and write the answer; whatever goes wrong is one constant code.

    The except blocks are left before anything is raised, so that no error that has touched a
    row hangs on ours as its context.
    """
    text = None
    stopped = False
    try:
        text = answer_text(priced, _blurred(door, order, priced, noise))
    except EngineStopped:
        stopped = True
    except Exception:  # noqa: BLE001  # the door is where everything else is caught
        stopped = False
    if text is None:
        _failed(door.ledger, charge, charge.shape if stopped else None)
    return text


def _blurred(door: Door, order: Order, priced: Priced, noise: list[Drawn]) -> Blurred:
    plan = priced.plan
    sealed = door.engine.measure(order.table, plan.measure)
    tallies = [plan.tally_of(place) for place in range(len(plan.parts))]
    if priced.earlier is not None and priced.earlier.keys is not None:
        return chosen_before(sealed, tallies, noise, _kept(door, plan, priced.earlier.keys))
    if priced.selection is None:
        return blurred(sealed, tallies, noise, door.pool.dice)

    def draw(part: int, count: int) -> Drawn:
        return _draw(door.pool, priced.noises[part], count)

    people = plan.measure.tallies.index(PEOPLE)
    return chosen(sealed, tallies, Choosing(people, priced.selection, draw, door.pool.dice))


def _kept(door: Door, plan: Plan, keys: Sequence[Sequence[Json]]) -> Kept:
    return Kept([spelled(list(key)) for key in keys], partial(key_text, plan), door.pool.dice)


def _failed(ledger: Ledger, charge: Charge, shape: str | None) -> Never:
    ledger.fail(charge.user, charge.op, shape)
    raise question_failed()


def _standing(charged: Charged, settled: Settled) -> Standing:
    names = tuple(account.name for account in charged.accounts)
    paid_now = () if charged.paid_before else names
    return Standing(settled.head, charged.seq, settled.answer, charged.accounts, paid_now)


def _as_answered(door: Door, order: Order, priced: Priced, answer: str) -> Priced:
    """Return the plan that the answer was given under: a retry outlives the owner's new version."""
    version = answer_version(answer)
    if version == order.card.version:
        return priced
    card = order.earlier(version)
    if card is None:
        raise Bug("an answer stands under a version that nobody signed")
    return _priced(door, order, card)


def _released(door: Door, charge: Charge, priced: Priced, standing: Standing) -> Release:
    if not standing.answer:
        raise Bug("an answer that stands is empty")
    answer = shown(priced, standing.answer)
    paying = [debtor.account for debtor in charge.debtors]
    return Release(answer, receipt(door.ledger, priced, standing, op=charge.op, paying=paying))
