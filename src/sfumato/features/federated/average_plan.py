"""The plan of a sum over several sites without noise: `secure-average (not DP)`.

Each site's card must allow such sums. A sum covers all sites of the agreement or none: a second sum
without one site would reveal that site's numbers. It covers whole tables: a filter or group could
match only one site's or one person's rows.
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
from sfumato.dp.secure_aggregation.round_terms import MAX_BITS, MIN_BITS
from sfumato.features.federated.agreement import Agreement
from sfumato.features.federated.sum_plan import MAX_SIZE, check_additive, most_of, too_large
from sfumato.query.expression import Ref, canonical_json
from sfumato.query.model import Aggregate, Formula, Query
from sfumato.query.plan import Plan, make_plan
from sfumato.query.price import Priced
from sfumato.vault.card.data_card import Card
from sfumato.vault.card.secure_average_terms import GUARANTEE, not_without_noise

FORMAT: Final = "average-over-sites/1"
_NOTHING: Final = Fraction(1, 1 << 80)  # a positive noise scale, for aggregates that divide by it


class NoNoise(Noise):
    """Noise of standard deviation 0, because formatting an answer needs a `Noise` object.

    The answer shows no errors, so the zeros are never shown.
    """

    def std(self) -> float:
        """Return 0, the standard deviation without noise."""
        return 0.0

    def margin(self) -> float:
        """Return 0, the error margin of a number without noise."""
        return 0.0

    def within(self, confidence: Fraction) -> float:  # 0 at any confidence
        """Return 0, the error margin without noise at any confidence."""
        return 0.0


@dataclass(frozen=True)
class AveragePlan:
    """A query over all sites of an agreement, without noise; built without reading rows."""

    plan: Plan
    joined: Agreement  # as the owner has stored it

    @property
    def agreement(self) -> Agreement:
        """Return the agreement with its floor raised to all sites, so that no site may drop out."""
        return whole(self.joined)

    @property
    def size(self) -> int:
        """Return the number of integers that each site sends: one for each count or sum."""
        return len(self.plan.parts) * self.plan.measure.cells

    @cached_property
    def bits(self) -> int:
        """Return the bits per integer of the masked sum, so that no sum overflows; or refuse."""
        most = max(most_of(self.plan.card, bounded) for bounded in self.plan.parts)
        bits = (len(self.joined.members) * most + 1).bit_length() + 1
        if bits > MAX_BITS:
            raise Refused(
                "numbers-too-large",
                "The sum can become too large to be exact.",
                "Ask the owners for coarser steps, or for smaller limits.rows on their cards.",
            )
        return max(MIN_BITS, bits)

    @cached_property
    def about(self) -> str:
        """Return the hash of query, card bounds and agreement that a round's terms contain.

        It must be equal at all sites. Sites whose cards have other bounds or keys get another hash.
        """
        kept = {k: v for k, v in self.plan.canonical().items() if k not in ("people", "version")}
        said: Json = {
            "format": FORMAT,
            "guarantee": GUARANTEE,
            "question": kept,
            "agreement": self.joined.digest,
        }
        return f"{FORMAT} {hashlib.sha256(canonical_json(said).encode()).hexdigest()}"

    @cached_property
    def cohort(self) -> str:
        """Return one hash over the keys of all sites, to find out if earlier sums had other sites.

        It does not depend on the agreement's name, so a renamed agreement has the same hash.
        """
        keys = sorted(member.identity.hex() for member in self.joined.members)
        return hashlib.sha256(canonical_json({"sites": keys}).encode()).hexdigest()

    @cached_property
    def shape(self) -> str:
        """Return the hash of the card's version and of the query's shape.

        The shape is the query without its constants. If an engine limit stops the query, the ledger
        records this hash, and the site refuses the query from then on.
        """
        said: Json = {"average": self.plan.shape(), "version": self.plan.card.version}
        return hashlib.sha256(canonical_json(said).encode()).hexdigest()

    def unpriced(self) -> Priced:
        """Return a placeholder price, needed only to format an answer; nothing is charged."""
        noises = tuple(NoNoise("gaussian", _NOTHING) for _ in self.plan.parts)
        return Priced(self.plan, Fraction(0), Fraction(0), PureEvent(_NOTHING), noises)

    def parts_of(self, total: IntegerArray) -> list[IntegerArray]:
        """Split the sum's integers into one array for each count or sum of the query."""
        return list(np.asarray(total).reshape(len(self.plan.parts), self.plan.measure.cells))


def whole(agreement: Agreement) -> Agreement:
    """Return the agreement with its floor raised to all its sites, so that none may drop out."""
    return replace(agreement, floor=len(agreement.members))


@lru_cache(maxsize=256)
def plan_average(card: Card, question: Query, agreement: Agreement) -> AveragePlan:
    """Plan the query over the agreement's sites; refuse what the card does not allow."""
    check_allowed(card, agreement)
    _check_whole(question)
    plan = make_plan(card, question)
    check_additive(plan)
    made = AveragePlan(plan, agreement)
    if made.size > MAX_SIZE:
        raise too_large(made.size)
    return made


def check_allowed(card: Card, agreement: Agreement) -> None:
    """Refuse unless the card allows sums without noise over this number of sites."""
    if card.averages is None:
        raise not_without_noise(
            f"the data card of {card.name!r} does not allow sums without noise (it has no "
            "secure_average)"
        )
    if len(agreement.members) < card.averages.sites:
        raise not_without_noise(
            f"the card of {card.name!r} needs {card.averages.sites} sites, and "
            f"{agreement.name!r} has {len(agreement.members)}"
        )


def _check_whole(question: Query) -> None:
    """Refuse a query that does not cover a whole table of plain columns.

    A query that filters, groups, joins, limits rows or computes columns is refused.
    """
    picks = (question.where, question.source, question.max_rows, question.max_groups)
    is_whole = not question.group_by and not question.joins and picks == (None,) * len(picks)
    if not is_whole or not all(_is_plain(output.of) for output in question.outputs):
        raise not_without_noise(
            "a sum without noise must cover all rows of one table and plain columns, without "
            "WHERE, GROUP BY, JOIN, sub-query, own limits or computed columns"
        )


def _is_plain(of: object) -> bool:
    """Return True for an output that a sum without noise may have.

    That is an aggregate of plain columns, or a formula of other output columns.
    """
    if isinstance(of, Formula):
        return True
    return isinstance(of, Aggregate) and of == Aggregate(of.verb, of.operands) and _all_columns(of)


def _all_columns(aggregate: Aggregate) -> bool:
    return all(isinstance(expr, Ref) for expr in aggregate.operands)
