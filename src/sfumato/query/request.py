"""What an asker sends: a question, and either an epsilon or the errors they can live with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.query.earlier_answer import Earlier
from sfumato.query.error_targets import Split, least_price
from sfumato.query.model import Query, query_json, read_query
from sfumato.query.plan import Plan, make_plan
from sfumato.query.price import Priced, price_at, price_at_rho, price_for_errors
from sfumato.query.refusal_positions import with_position
from sfumato.query.top_up import top_up_at
from sfumato.vault.card.data_card import Card


@dataclass(frozen=True)
class Request:
    """A question with its price: an epsilon, or a margin at 95 % for named columns."""

    question: Query
    epsilon: Fraction | None = None
    margins: Mapping[str, Fraction] | None = None
    delta: Fraction | None = None
    people: int | None = None
    top_up: str | None = None  # the asker's own operation whose answer this raises
    split: Mapping[str, Fraction] | None = None  # shares of the price, by column of the answer
    rho: Fraction | None = None  # instead of an epsilon: Gaussian noise of that rho, for a twin

    def as_json(self) -> Json:
        """Return what was asked as it was asked; what an operation id stands for."""
        margins = sorted((self.margins or {}).items())
        return {
            "question": query_json(self.question),
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "margins": [[name, str(margin)] for name, margin in margins],
            "delta": None if self.delta is None else str(self.delta),
            "people": self.people,
            **({} if self.top_up is None else {"top_up": self.top_up}),
            **self._split_json(),
            **({} if self.rho is None else {"rho": str(self.rho)}),
        }

    def _split_json(self) -> Json:
        shares = sorted((self.split or {}).items())
        return {"split": [[name, str(share)] for name, share in shares]} if shares else {}


def read_request(shape: Mapping[str, Any]) -> Request:  # Any: JSON that `as_json` wrote
    """Return the request that was written down as it was asked."""
    return Request(
        question=read_query(shape["question"]),
        epsilon=None if shape["epsilon"] is None else Fraction(shape["epsilon"]),
        margins={name: Fraction(margin) for name, margin in shape["margins"]},
        delta=None if shape["delta"] is None else Fraction(shape["delta"]),
        people=shape["people"],
        top_up=shape.get("top_up"),
        split={name: Fraction(share) for name, share in shape.get("split", [])},
        rho=None if shape.get("rho") is None else Fraction(shape["rho"]),
    )


def priced_request(card: Card, request: Request, earlier: Earlier | None = None) -> Priced:
    """Return the priced plan, or refuse; nothing is charged and no row is read.

    With an earlier answer it is the price of raising that one to the epsilon of the request.
    """
    plan = make_plan(card, request.question, request.split)
    try:
        return _priced(card, request, plan, earlier)
    except Refused as found:
        refused = found if found.code != "keys-needed" else _placed(found, card, request.question)
    raise refused


def _placed(refused: Refused, card: Card, question: Query) -> Refused:
    return with_position(refused, card, question, make_plan)


def _priced(card: Card, request: Request, plan: Plan, earlier: Earlier | None) -> Priced:
    if earlier is not None:
        return top_up_at(plan, earlier, _whole(request), request.delta)
    delta = card.delta_per_request if request.delta is None else request.delta
    if request.rho is not None:
        return price_at_rho(plan, request.rho, delta)
    if (request.epsilon is None) == (not request.margins):
        raise Refused(
            "bad-budget",
            "A question needs either an epsilon or an error.",
            "Give an epsilon, such as 0.5, or how far off a column may be (--error COLUMN=X;"
            ' in Python error={"COLUMN": X}).',
        )
    if request.epsilon is not None:
        return price_at(plan, request.epsilon, delta)
    return _for_errors(card, request, plan, delta)


def _for_errors(card: Card, request: Request, plan: Plan, delta: Fraction) -> Priced:
    """Return the least price for the errors, by the split that was asked for or by the best one."""
    margins = request.margins or {}
    best = price_for_errors(plan, margins, delta, request.people)
    if request.split:
        return best
    for allowed in sorted(
        {delta, Fraction(0)}
    ):  # what is best for Laplace noise is not for Gaussian

        def at(split: Split, allowed: Fraction = allowed) -> Priced:
            made = make_plan(card, request.question, split)
            return price_for_errors(made, margins, allowed, request.people)

        best = least_price(best, margins, request.people, at)
    return best


def _whole(request: Request) -> Fraction:
    if request.epsilon is None or request.margins:
        raise Refused(
            "bad-budget",
            "A top-up needs an epsilon: the whole price that the earlier answer is raised to.",
            "Give --epsilon 2 to raise an answer of epsilon 1 to 2; --error does not go with it.",
        )
    return request.epsilon
