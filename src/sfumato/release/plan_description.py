"""Describe a priced plan in words and digests, for the ledger and for receipts.

A description depends only on question, card and price, not on the asker. It is made once for the
charge, the receipt and every repeat. Receipts take copies, so a caller who changes one does not
change the cached description.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from sfumato.dp.accounting.privacy_events import PrivacyCost, privacy_cost
from sfumato.dp.json_values import Json
from sfumato.query.contribution_bounds import bounds_advice, bounds_of, bounds_text
from sfumato.query.expression import canonical_json
from sfumato.query.model import query_json
from sfumato.query.plan_text import plan_text, split_text
from sfumato.query.price import Priced
from sfumato.release.guarantees.central_dp import GUARANTEE


@dataclass(frozen=True)
class PlanDescription:
    """Description of a priced plan for ledger and receipts: texts, digests, price and bounds."""

    identity: Json  # plan and price, which identify an answer
    answer_key: str  # the key under which the answer is stored, unless it is fresh or a top-up
    shape: str
    says: str
    bounding: str
    bounds: Json
    advice: tuple[str, ...]
    mechanism: str
    debt: PrivacyCost
    body: Json  # the plan's part of the ledger entry, without the asker and the request
    parts: tuple[Json, ...]

    def split(self) -> list[Json]:
        """Return a copy of the budget split: the price of each aggregate."""
        return [copy_description(part) for part in self.parts]

    def question(self) -> Json:
        """Return a copy of the question as plain JSON."""
        question: Json = copy_description(self.body["question"])
        return question


@dataclass(frozen=True)
class PlanPaper:
    """The body of the ledger entry of one request at its price, and the digest of the request."""

    request: str
    body: Json


def describe_plan(priced: Priced) -> PlanDescription:
    """Return the description of a priced plan, for the ledger and for receipts."""
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


def copy_description(value: Any) -> Any:  # Any: JSON of any kind
    """Return a deep copy of a JSON value."""
    if isinstance(value, dict):  # most values are not containers, so they need no recursive call
        return {k: copy_description(v) if isinstance(v, _HOLDING) else v for k, v in value.items()}
    if isinstance(value, list):
        return [copy_description(v) if isinstance(v, _HOLDING) else v for v in value]
    return value


_HOLDING = (dict, list)


def digest(value: Json) -> str:
    """Return the SHA-256 of a JSON value in canonical form, as hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
