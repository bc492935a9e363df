"""What is written of a priced plan, whoever asks it: functions of question, card and price alone.

It is spelled once and serves the charge, the receipt and every repeat. A receipt takes texts and
copies: what its reader does with it changes nothing in here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from sfumato.dp.accounting.privacy_events import PrivacyCost, privacy_cost
from sfumato.dp.json_values import Json
from sfumato.query.contribution_bounds import bounds_advice, bounds_of, bounds_text
from sfumato.query.expression import spelled
from sfumato.query.model import query_json
from sfumato.query.plan_text import plan_text, split_text
from sfumato.query.price import Priced
from sfumato.release.locks.central_dp import GUARANTEE


@dataclass(frozen=True)
class PlanDescription:
    """A priced plan in words and digests."""

    identity: Json  # what tells one answer from another, by plan and price
    answer_key: str  # under which its answer stands, if it is neither fresh nor a top-up
    shape: str
    says: str
    bounding: str
    bounds: Json
    advice: tuple[str, ...]
    mechanism: str
    debt: PrivacyCost
    body: Json  # what the chain says of it, but for who asks and how
    parts: tuple[Json, ...]

    def split(self) -> list[Json]:
        """Return how the price is split, as a value of its own: a receipt is its reader's."""
        return [copy_description(part) for part in self.parts]

    def question(self) -> Json:
        """Return the question as plain JSON, as a value of its own."""
        question: Json = copy_description(self.body["question"])
        return question


@dataclass(frozen=True)
class PlanPaper:
    """What the chain says of one request at its price, whoever makes it, and its digest."""

    request: str
    body: Json


def describe_plan(priced: Priced) -> PlanDescription:
    """Return what is written of the priced plan."""
    plan = priced.plan
    identity: Json = {
        "plan": plan.canonical(),
        "epsilon": str(priced.epsilon),
        "delta": str(priced.delta),
        "noise": [noise.as_json() for noise in priced.noises],
        "selection": None if priced.selection is None else priced.selection.as_text(),
    }
    shape, says = digest(plan.shape()), plan_text(plan)
    bounding, mechanism = bounds_text(plan), priced.mechanism
    body: Json = {
        "question": query_json(plan.question),
        "bounding": bounding,
        "mechanism": mechanism,
        "says": says,
        "shape": shape,
        "guarantee": GUARANTEE,
        "event": priced.event.name,
        "epsilon": identity["epsilon"],
        "delta": identity["delta"],
        "noise": identity["noise"],
        "selection": identity["selection"],
    }
    return PlanDescription(
        identity=identity,
        answer_key=digest(identity),
        shape=shape,
        says=says,
        bounding=bounding,
        bounds=bounds_of(plan).as_json(),
        advice=tuple(bounds_advice(priced)),
        mechanism=mechanism,
        debt=privacy_cost(priced.event),
        body=body,
        parts=tuple(split_text(priced)),
    )


def copy_description(value: Any) -> Any:  # Any: of whatever JSON, a value of its own
    """Return the JSON as a value of its own: what its reader does with it changes no other."""
    if isinstance(value, dict):  # most values hold no others: they need no call of their own
        return {k: copy_description(v) if isinstance(v, _HOLDING) else v for k, v in value.items()}
    if isinstance(value, list):
        return [copy_description(v) if isinstance(v, _HOLDING) else v for v in value]
    return value


_HOLDING = (dict, list)


def digest(value: Json) -> str:
    """Return the SHA-256 of the value's one spelling."""
    return hashlib.sha256(spelled(value).encode()).hexdigest()
