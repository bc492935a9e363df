"""A question over several sites without noise: `secure-average (not DP)`, for cards that allow it.

It is over all sites of the agreement or over none: a sum over all of them beside one over all but
one would be the numbers of that one. And it is over whole tables: a filter, or a group, that only
one site's rows meet (or one person's) would make the sum that site's own (or that person's).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from sfumato.dp.accounting.privacy_events import PureEvent
from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.ports import IntegerArray
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.round_terms import LEAST_BITS, MOST_BITS
from sfumato.features.federated.agreement import Agreement
from sfumato.features.federated.sum_plan import MOST_SIZE, check_additive, most_of, too_large
from sfumato.query.expression import Ref, spelled
from sfumato.query.model import Aggregate, Formula, Query
from sfumato.query.plan import Plan, make_plan
from sfumato.query.price import Priced
from sfumato.vault.card.data_card import Card
from sfumato.vault.card.secure_average_terms import GUARANTEE, not_without_noise

FORMAT: Final = "average-over-sites/1"
_NOTHING: Final = Fraction(1, 1 << 80)  # a width, where a verb wants to divide by one


class NoNoise(Noise):
    """What verbs read where numbers have no noise; its errors are not shown."""

    def std(self) -> float:
        """Return that it has none."""
        return 0.0

    def margin(self) -> float:
        """Return that it has none."""
        return 0.0

    def within(self, confidence: Fraction) -> float:  # none, at any
        """Return that it has none."""
        return 0.0


@dataclass(frozen=True)
class AveragePlan:
    """A question over all sites of an agreement, without noise; of no row."""

    plan: Plan
    joined: Agreement  # as the owner has put it down

    @property
    def agreement(self) -> Agreement:
        """Return the agreement of which no site may drop out."""
        return whole(self.joined)

    @property
    def size(self) -> int:
        """Return how many integers each site sends."""
        return len(self.plan.parts) * self.plan.measure.cells

    @cached_property
    def bits(self) -> int:
        """Return the width at which every sum fits."""
        most = max(most_of(self.plan.card, bounded) for bounded in self.plan.parts)
        bits = (len(self.joined.members) * most + 1).bit_length() + 1
        if bits > MOST_BITS:
            raise Refused(
                "numbers-too-large",
                "The sum can grow beyond what is added up exactly.",
                "Ask the owners for coarser steps, or for a card with smaller limits.rows.",
            )
        return max(LEAST_BITS, bits)

    @cached_property
    def about(self) -> str:
        """Return what stands for the sum: sites whose cards differ in what counts find another."""
        kept = {k: v for k, v in self.plan.canonical().items() if k not in ("people", "version")}
        said: Json = {
            "format": FORMAT,
            "guarantee": GUARANTEE,
            "question": kept,
            "agreement": self.joined.digest,
        }
        return f"{FORMAT} {hashlib.sha256(spelled(said).encode()).hexdigest()}"

    @cached_property
    def cohort(self) -> str:
        """Return what stands for whose rows are in the sum, whatever they call their agreement."""
        keys = sorted(member.identity.hex() for member in self.joined.members)
        return hashlib.sha256(spelled({"sites": keys}).encode()).hexdigest()

    @cached_property
    def shape(self) -> str:
        """Return what is not asked again on this version of the card, if it was stopped."""
        said: Json = {"average": self.plan.shape(), "version": self.plan.card.version}
        return hashlib.sha256(spelled(said).encode()).hexdigest()

    def unpriced(self) -> Priced:
        """Return the plan for showing an answer alone; its price and event are nobody's debt."""
        noises = tuple(NoNoise("gaussian", _NOTHING) for _ in self.plan.parts)
        return Priced(self.plan, Fraction(0), Fraction(0), PureEvent(_NOTHING), noises)

    def parts_of(self, total: IntegerArray) -> list[IntegerArray]:
        """Return the sum's integers as the parts of the plan."""
        return list(np.asarray(total).reshape(len(self.plan.parts), self.plan.measure.cells))


def whole(agreement: Agreement) -> Agreement:
    """Return the agreement with a floor of all its sites."""
    return replace(agreement, floor=len(agreement.members))


@lru_cache(maxsize=256)
def plan_average(card: Card, question: Query, agreement: Agreement) -> AveragePlan:
    """Return the question over the agreement's sites, or refuse what the card does not allow."""
    check_allowed(card, agreement)
    _check_whole(question)
    plan = make_plan(card, question)
    check_additive(plan)
    made = AveragePlan(plan, agreement)
    if made.size > MOST_SIZE:
        raise too_large(made.size)
    return made


def check_allowed(card: Card, agreement: Agreement) -> None:
    """Refuse unless the card lets sums over so many sites leave without noise."""
    if card.averages is None:
        raise not_without_noise(f"the card of {card.name!r} has no secure_average")
    if len(agreement.members) < card.averages.sites:
        raise not_without_noise(
            f"the card of {card.name!r} wants {card.averages.sites} sites, and {agreement.name!r} "
            f"has {len(agreement.members)}"
        )


def _check_whole(question: Query) -> None:
    """Refuse whatever picks rows, or lets the asker choose what of a row counts."""
    picks = (question.where, question.source, question.max_rows, question.max_groups)
    is_whole = not question.group_by and not question.joins and picks == (None,) * len(picks)
    if not is_whole or not all(_is_plain(output.of) for output in question.outputs):
        raise not_without_noise(
            "it is over all rows of a table and of columns as they stand, so there is no WHERE, "
            "GROUP BY, JOIN, sub-query, limit of one's own or computed column"
        )


def _is_plain(of: object) -> bool:
    """Say whether it is a verb over columns themselves, or made of released numbers."""
    if isinstance(of, Formula):
        return True
    return isinstance(of, Aggregate) and of == Aggregate(of.verb, of.of) and _all_columns(of)


def _all_columns(aggregate: Aggregate) -> bool:
    return all(isinstance(expr, Ref) for expr in aggregate.of)
