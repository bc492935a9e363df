"""What an asker sends: a question, and either an epsilon or the errors they can live with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from sfumato.core.card import Card
from sfumato.core.expression import Json
from sfumato.core.question import Question, question_json
from sfumato.core.refusal import Refused
from sfumato.plan.plan import make_plan
from sfumato.plan.price import Priced, price_at, price_for_errors


@dataclass(frozen=True)
class Request:
    """A question with its price: an epsilon, or a margin at 95 % for named columns."""

    question: Question
    epsilon: Fraction | None = None
    margins: Mapping[str, Fraction] | None = None
    delta: Fraction | None = None
    people: int | None = None

    def as_json(self) -> Json:
        """Return what was asked as it was asked; what an operation id stands for."""
        margins = sorted((self.margins or {}).items())
        return {
            "question": question_json(self.question),
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "margins": [[name, str(margin)] for name, margin in margins],
            "delta": None if self.delta is None else str(self.delta),
            "people": self.people,
        }


def priced_request(card: Card, request: Request) -> Priced:
    """Return the priced plan, or refuse; nothing is charged and no row is read."""
    plan = make_plan(card, request.question)
    delta = card.delta_per_request if request.delta is None else request.delta
    if (request.epsilon is None) == (not request.margins):
        raise Refused(
            "bad-budget",
            "A question needs either an epsilon or an error.",
            "Give --epsilon 0.5, or --error COLUMN=X.",
        )
    if request.epsilon is not None:
        return price_at(plan, request.epsilon, delta)
    return price_for_errors(plan, request.margins or {}, delta, request.people)
