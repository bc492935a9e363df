"""door.release: plan, price, charge, read, noise, record. The only way from private to public."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Never

from sfumato.core.account import Charge, Charged, Settled, Standing
from sfumato.core.card import Card
from sfumato.core.loss import debt_of
from sfumato.core.ports import Engine, EngineStopped, IntegerArray
from sfumato.core.question import Json, question_json, spelled
from sfumato.core.refusal import Bug
from sfumato.door.accounts import debtors
from sfumato.door.diary import answer_text, receipt, shown
from sfumato.door.ledger import Ledger, question_failed
from sfumato.door.locks.dp import GUARANTEE, blurred
from sfumato.door.pool import NoisePool
from sfumato.plan.price import Priced
from sfumato.plan.request import Request, priced_request

RELATION: Final = "add or remove one"


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
    fresh: bool = False


@dataclass(frozen=True)
class Release:
    """What may be seen: the answer as the asker named it, and its receipt."""

    answer: Json
    receipt: Json


def release(door: Door, order: Order) -> Release:
    """Return the answer, whose charge was durable before a row was read; or refuse."""
    priced = priced_request(order.card, order.request)
    noise = _drawn(door.pool, priced)
    charge = _charge(order, priced)
    outcome = door.ledger.charge(charge)
    if isinstance(outcome, Standing):
        return _released(door.ledger, order, priced, outcome)
    cells = _read(door, order, priced, charge, noise)
    settled = door.ledger.settle(charge.user, charge.op, answer_text(priced, cells))
    return _released(door.ledger, order, priced, _standing(outcome, settled))


def _drawn(pool: NoisePool, priced: Priced) -> list[IntegerArray]:
    """Draw before the charge: what cannot be drawn is refused unpaid, and no row was read yet."""
    return [pool.take(noise, priced.plan.measure.cells) for noise in priced.noises]


def _charge(order: Order, priced: Priced) -> Charge:
    identity: Json = {
        "plan": priced.plan.canonical(),
        "epsilon": str(priced.epsilon),
        "delta": str(priced.delta),
        "noise": [noise.as_json() for noise in priced.noises],
    }
    fresh = {"fresh": [order.asker.user, order.op]} if order.fresh else {}
    return Charge(
        user=order.asker.user,
        op=order.op,
        request=_digest({**identity, "fresh": order.fresh}),
        answer_key=_digest({**identity, **fresh}),
        shape=_digest(priced.plan.canonical()),
        debtors=debtors(order.card, order.asker.user, order.asker.groups),
        debt=debt_of(priced.event),
        body={
            "question": question_json(priced.plan.question),
            "data_set": order.card.name,
            "version": order.card.version,
            "people": order.card.people,
            "unit": order.card.unit,
            "relation": RELATION,
            "guarantee": GUARANTEE,
            "event": priced.event.name,
            "epsilon": str(priced.epsilon),
            "delta": str(priced.delta),
            "noise": identity["noise"],
        },
    )


def _digest(value: Json) -> str:
    return hashlib.sha256(spelled(value).encode()).hexdigest()


def _read(
    door: Door, order: Order, priced: Priced, charge: Charge, noise: list[IntegerArray]
) -> tuple[IntegerArray, ...]:
    """Read the rows and blur them; whatever goes wrong is one constant code, and stays paid.

    The except blocks are left before anything is raised, so that no error that has touched a
    row hangs on ours as its context.
    """
    cells = None
    stopped = False
    try:
        cells = blurred(door.engine.measure(order.table, priced.plan.measure), noise)
    except EngineStopped:
        stopped = True
    except Exception:  # noqa: BLE001  # the door is where everything else is caught
        stopped = False
    if cells is None:
        _failed(door.ledger, charge, charge.shape if stopped else None)
    return cells


def _failed(ledger: Ledger, charge: Charge, shape: str | None) -> Never:
    ledger.fail(charge.user, charge.op, shape)
    raise question_failed()


def _standing(charged: Charged, settled: Settled) -> Standing:
    names = tuple(account.name for account in charged.accounts)
    paid_now = () if charged.paid_before else names
    return Standing(settled.head, charged.seq, settled.answer, charged.accounts, paid_now)


def _released(ledger: Ledger, order: Order, priced: Priced, standing: Standing) -> Release:
    if not standing.answer:
        raise Bug("an answer that stands is empty")
    answer = shown(priced, standing.answer)
    return Release(answer, receipt(ledger, order.card, priced, standing, order.op))
