"""Release a private choice: plan, price, charge, read, choose, record.

Only the indices of the chosen candidates are released, and none of their counts. The result is
stored under the user's operation, so a repetition is free. The error of a twin (misfit_release.py)
is released in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from sfumato.dp.accounting.privacy_events import Event, privacy_cost
from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Bug
from sfumato.features.synthetic.choice_plan import PrivateChoicePlan
from sfumato.query.contribution_bounds import bounds_text
from sfumato.query.expression import canonical_json
from sfumato.query.model import query_json
from sfumato.query.plan import Plan
from sfumato.release.accounts import debtors
from sfumato.release.charged_reads import RowReader, read_for_charge
from sfumato.release.guarantees.central_dp import GUARANTEE, choose_farthest
from sfumato.release.payment import on_card
from sfumato.release.plan_description import digest
from sfumato.release.release_order import Order, ReleaseContext
from sfumato.release.wait_limit import BASE_LIMIT_S
from sfumato.vault.ledger_entries import Charge, Charged, Pending

FORMAT: Final = "choice/1"
MECHANISM: Final = "exponential mechanism"


class Wanted(Protocol):
    """The interface of a priced release that is no ordinary query.

    It is a private choice of marginals, or a twin's error.
    """

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Return the plan of every query that the release reads."""
        ...

    @property
    def event(self) -> Event:
        """Return the privacy event of the release."""
        ...

    def as_json(self) -> Json:
        """Return all data that determine the release, as JSON for the ledger."""
        ...

    def shape(self) -> Json:
        """Return the shape of the release's queries: the queries without their constants."""
        ...

    def in_words(self) -> str:
        """Return a text that describes the release, for people."""
        ...


def choose(door: ReleaseContext, order: Order, distances: PrivateChoicePlan) -> tuple[int, ...]:
    """Charge the budget, choose marginals privately, and return the chosen ones' indices."""
    noise: Json = {"kind": MECHANISM, "epsilon_a_round": str(distances.epsilon)}
    charge = charge_for(door, order, distances, ("choice", MECHANISM, [noise]))

    def look(reader: RowReader) -> Json:
        sealed = [
            reader.read(partial(door.engine.measure, order.table, plan.measure))
            for plan in distances.plans
        ]
        return {
            "format": FORMAT,
            "chosen": list(choose_farthest(sealed, distances, door.pool.dice)),
        }

    stored = looked(door, order, charge, look)
    return tuple(int(place) for place in of_format(stored, FORMAT)["chosen"])


def looked(
    door: ReleaseContext, order: Order, charge: Charge, look: Callable[[RowReader], Json]
) -> str:
    """Return an operation's stored result, or charge the operation and compute the result.

    The charge is durable before `look` reads a row. The new result is stored, so a repetition is
    free.
    """
    outcome = door.ledger.charge(charge)
    # impossible: the result is stored only under the operation itself
    if isinstance(outcome, Pending):
        raise Bug("an operation waits for itself")
    if not isinstance(outcome, Charged):
        return outcome.answer
    text = _read(door, order, charge, look)
    return door.ledger.settle(charge.user, charge.op, text).answer


def of_format(answer: str, form: str) -> dict[str, Any]:  # Any: JSON of our own ledger
    """Parse the stored JSON result of a release; raise Bug if it has another format."""
    stored: dict[str, Any] = json.loads(answer)
    if stored.get("format") != form:
        raise Bug("the stored result has another format")
    return stored


def _read(
    door: ReleaseContext, order: Order, charge: Charge, look: Callable[[RowReader], Json]
) -> str:
    """Read the rows for a paid charge, and return the result as JSON text.

    Every failure on the rows gives the same refusal code.
    """

    def text(reader: RowReader) -> str:
        return canonical_json({**look(reader), "version": order.card.version})

    return read_for_charge(door.ledger, charge, text)


def charge_for(
    door: ReleaseContext, order: Order, wanted: Wanted, how: tuple[str, str, list[Json]]
) -> Charge:
    """Build the ledger charge of one release; `how` is its kind, its mechanism and its noise."""
    kind, mechanism, noise = how
    card, identity, event = order.card, wanted.as_json(), wanted.event
    shape, first = digest(wanted.shape()), wanted.plans[0]
    return Charge(
        user=order.asker.user,
        op=order.op,
        request=digest({kind: identity, "data_set": card.name}),
        answer_key=digest({kind: identity, "of": [order.asker.user, order.op]}),
        shape=shape,
        debtors=debtors(card, order.asker.user, order.asker.groups),
        debt=privacy_cost(event),
        wait_limit_s=BASE_LIMIT_S,
        body={
            kind: identity,
            "question": query_json(first.question),
            "code": door.code,
            "bounding": bounds_text(first),
            "mechanism": mechanism,
            "says": wanted.in_words(),
            "shape": shape,
            **on_card(card),
            "guarantee": GUARANTEE,
            "event": event.name,
            "epsilon": str(event.epsilon),
            "delta": "0",
            "noise": noise,
            "selection": None,
        },
        check_access=order.check_access,
    )
