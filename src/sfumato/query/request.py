"""A request: a query, and either an epsilon or the largest errors that are acceptable."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.query.budget_split import LARGEST
from sfumato.query.earlier_answer import Earlier
from sfumato.query.model import Aggregate, Query, query_json
from sfumato.query.plan import Plan, make_plan
from sfumato.query.price import Priced, price_at, price_at_rho, price_for_errors
from sfumato.query.query_from_json import read_query
from sfumato.query.refusal_positions import with_position
from sfumato.query.top_up import top_up_at
from sfumato.vault.card.data_card import Card

# --- The split with the lowest price for several wanted errors
#
# An aggregate that is more exact than requested gives some of its share to the others, until all
# are as exact as they must be. The split depends on the query, the card and the errors, like the
# price; no row is read.


Split = Mapping[str, Fraction]
_TURNS: Final = 8
# most cost of all errors together; each turn evaluates every error about 30 times
_MOST: Final = 32
_LOOKS: Final[Mapping[str, int]] = {  # cost of evaluating an error once; other verbs cost more
    "count": 1, "count_values": 1, "count_people": 1, "count_distinct": 1, "sum": 1, "mean": 8,
}  # fmt: skip


def least_price(
    priced: Priced,
    margins: Mapping[str, Fraction],
    people: int | None,
    at: Callable[[Split], Priced],
) -> Priced:
    """Return the lowest price found: `priced`, or one with a better split of the budget.

    A split is tried only if each number of the answer is an aggregate with a wanted error.
    Otherwise nothing says how exact the other aggregates must be. A split isn't tried if that would
    take long: a price is free, so its computation must be cheap.
    """
    named = _named(priced, margins)
    if named is None:
        return priced
    best, split = priced, dict.fromkeys(named, Fraction(1))
    for _ in range(_TURNS):
        try:
            found = at(split)
        except Refused:  # this split can't reach the errors
            return best
        best = min(best, found, key=lambda one: one.epsilon)
        moved = _moved(found, split, named, people)
        if moved == split:
            return best
        split = moved
    return best


def _named(
    priced: Priced, margins: Mapping[str, Fraction]
) -> dict[str, tuple[Aggregate, Fraction]] | None:
    """Return each aggregate and its wanted error by output name, to look for a better split.

    Return None if no split is tried: an aggregate has no wanted error, or the search would take
    long.
    """
    asked = {name.casefold(): margin for name, margin in margins.items()}
    made: dict[str, tuple[Aggregate, Fraction]] = {}
    for output in priced.plan.question.outputs:
        if isinstance(output.of, Aggregate) and output.name.casefold() in asked:
            made[output.name] = output.of, asked[output.name.casefold()]
    found = [of for of, _ in made.values()]
    is_whole = len(made) == len(asked) and {*found} == {*priced.plan.question.aggregates}
    if not is_whole or not 1 < len(found) == len({*found}):
        return None
    return made if sum(_LOOKS.get(of.verb, _MOST) for of in found) <= _MOST else None


def _moved(
    priced: Priced,
    split: Split,
    named: Mapping[str, tuple[Aggregate, Fraction]],
    people: int | None,
) -> dict[str, Fraction]:
    """Return the split of the budget in which aggregates that are too exact get a smaller share.

    Each share shrinks by the ratio of the error to the wanted error. Shares are thousandths of the
    largest share, rounded up, so that they stay short.
    """
    wanted = {
        name: float(split[name]) * _kept(priced.margin(of, people), float(margin))
        for name, (of, margin) in named.items()
    }
    largest = max(wanted.values())
    return {
        name: Fraction(math.ceil(LARGEST * share / largest), LARGEST)
        for name, share in wanted.items()
    }


def _kept(reached: float | None, margin: float) -> float:
    """Return the fraction of its budget share that an aggregate keeps: its error / wanted error.

    The fraction is at most one, and never zero. It is one if no error can be predicted.
    """
    return 1.0 if reached is None else min(1.0, max(reached / margin, 1 / LARGEST))


@dataclass(frozen=True)
class Request:
    """A query with its price: an epsilon, or a margin at 95 % for named columns."""

    question: Query
    epsilon: Fraction | None = None
    margins: Mapping[str, Fraction] | None = None
    delta: Fraction | None = None
    people: int | None = None
    top_up: str | None = None  # the asker's own operation whose answer this request tops up
    split: Mapping[str, Fraction] | None = None  # shares of the price, by column of the answer
    rho: Fraction | None = None  # rho of the Gaussian noise, without an epsilon: for synthetic data

    def as_json(self) -> Json:
        """Return the request as JSON, as it was asked, so that a retry can be recognised.

        An operation id always has exactly one request.
        """
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
    """Parse a request from the JSON that `as_json` wrote."""
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
    """Price a request, or refuse; nothing is charged and no row is read.

    With an earlier answer, this is the price of a top-up to the request's epsilon.
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
            "Give an epsilon, such as 0.5, or the largest error of a column (--error COLUMN=X; "
            'in Python error={"COLUMN": X}).',
        )
    if request.epsilon is not None:
        return price_at(plan, request.epsilon, delta)
    return _for_errors(card, request, plan, delta)


def _for_errors(card: Card, request: Request, plan: Plan, delta: Fraction) -> Priced:
    """Return the lowest price for the errors, with the requested split or the best one found."""
    margins = request.margins or {}
    best = price_for_errors(plan, margins, delta, request.people)
    if request.split:
        return best
    for allowed in sorted(
        {delta, Fraction(0)}
    ):  # the best split for Laplace noise is not the best for Gaussian

        def at(split: Split, allowed: Fraction = allowed) -> Priced:
            made = make_plan(card, request.question, split)
            return price_for_errors(made, margins, allowed, request.people)

        best = least_price(best, margins, request.people, at)
    return best


def _whole(request: Request) -> Fraction:
    if request.epsilon is None or request.margins:
        raise Refused(
            "bad-budget",
            "A top-up needs an epsilon: the whole price after the top-up.",
            "Give --epsilon 2 to raise an answer of epsilon 1 to 2; --error does not go with it.",
        )
    return request.epsilon
