"""A private choice at the door: plan, price, charge, read, choose, record; as a release goes.

What comes out is which of the questions were chosen, and nothing of their counts. The same choice
again stands under the asker's operation, free.
"""

from __future__ import annotations

import json
from typing import Any, Final

from sfumato.core.account import Charge, Charged, Pending
from sfumato.core.expression import spelled
from sfumato.core.loss import debt_of
from sfumato.core.ports import EngineStopped
from sfumato.core.question import question_json
from sfumato.core.refusal import Bug
from sfumato.door.accounts import debtors
from sfumato.door.diary import relation
from sfumato.door.ledger import question_failed
from sfumato.door.locks.dp import GUARANTEE, farthest
from sfumato.door.release import PATIENCE_S, Door, Order
from sfumato.door.said import digest
from sfumato.plan.distances import Distances
from sfumato.plan.explain import bounding_in_words

FORMAT: Final = "choice/1"
MECHANISM: Final = "exponential mechanism"


def choose(door: Door, order: Order, distances: Distances) -> tuple[int, ...]:
    """Return the places of what was chosen, charged before a row was read; or refuse."""
    charge = _charge(door, order, distances)
    outcome = door.ledger.charge(charge, order.may_still)
    if isinstance(outcome, Pending):  # its answer stands under its own operation alone
        raise Bug("an operation waits for itself")
    if not isinstance(outcome, Charged):
        return _places(outcome.answer)
    text = _read(door, order, distances, charge)
    return _places(door.ledger.settle(charge.user, charge.op, text).answer)


def _places(answer: str) -> tuple[int, ...]:
    stored: dict[str, Any] = json.loads(answer)  # Any: of our own ledger
    if stored.get("format") != FORMAT:
        raise Bug("what stands there is no choice")
    return tuple(int(place) for place in stored["chosen"])


def _read(door: Door, order: Order, distances: Distances, charge: Charge) -> str:
    """Read and choose; whatever goes wrong is one constant code, with no error as its context."""
    text, stopped = None, False
    try:
        sealed = [door.engine.measure(order.table, plan.measure) for plan in distances.plans]
        chosen = farthest(sealed, distances, door.pool.dice)
        said = {"format": FORMAT, "version": order.card.version, "chosen": list(chosen)}
        text = spelled(said)
    except EngineStopped:
        stopped = True
    except Exception:  # noqa: BLE001  # the door is where everything else is caught
        stopped = False
    if text is None:
        door.ledger.fail(charge.user, charge.op, charge.shape if stopped else None)
        raise question_failed()
    return text


def _charge(door: Door, order: Order, distances: Distances) -> Charge:
    card, identity = order.card, distances.as_json()
    shape, event = digest(distances.shape()), distances.event
    first = distances.plans[0]
    return Charge(
        user=order.asker.user,
        op=order.op,
        request=digest({"choice": identity, "data_set": card.name}),
        answer_key=digest({"choice": identity, "of": [order.asker.user, order.op]}),
        shape=shape,
        debtors=debtors(card, order.asker.user, order.asker.groups),
        debt=debt_of(event),
        patience_s=PATIENCE_S,
        body={
            "choice": identity,
            "question": question_json(first.question),
            "code": door.code,
            "bounding": bounding_in_words(first),
            "mechanism": MECHANISM,
            "says": distances.in_words(),
            "shape": shape,
            "data_set": card.name,
            "version": card.version,
            "people": card.people,
            "unit": card.unit,
            "relation": relation(card),
            "guarantee": GUARANTEE,
            "event": event.name,
            "epsilon": str(event.epsilon),
            "delta": "0",
            "noise": [{"kind": MECHANISM, "epsilon_a_round": str(distances.epsilon)}],
            "selection": None,
        },
    )
