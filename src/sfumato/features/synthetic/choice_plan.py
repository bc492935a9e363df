"""The plan of a private choice: select the queries whose counts differ most from expected counts.

The utility of a candidate is weight * (sum of |count - expected| - penalty), an integer. One person
changes a query's counts by at most its L1 sensitivity. So the utility changes by at most weight
times this sensitivity, in either direction. The exponential mechanism uses twice the largest such
change of all candidates (exponential.proof.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.accounting.privacy_events import Event, ExponentialEvent, JointEvent
from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.exponential import rate_for
from sfumato.dp.refusal import Bug, Refused
from sfumato.query.expression import canonical_json
from sfumato.query.model import Query
from sfumato.query.plan import Plan, make_plan
from sfumato.vault.card.data_card import Card

Integers = NDArray[np.int64]
MOST: Final = 400  # the most candidates of a choice
MAX_CELLS: Final = 10_000_000  # the most cells of all candidates together


@dataclass(frozen=True, eq=False)
class Candidate:
    """A marginal that a private choice may select: its count query, and its expected counts.

    The query counts rows by public keys. The expected counts have one axis per GROUP BY key.
    """

    question: Query
    expected: Integers  # one axis per key
    penalty: int = 0
    weight: int = 1
    ends: tuple[int, int] = (0, 0)  # if a spanning tree is chosen: the edge that this candidate is


@dataclass(frozen=True, eq=False)
class PrivateChoicePlan:
    """The plan of a private choice of marginals: query plans, expected counts, and price.

    It chooses one candidate, or the edges of a spanning tree in as many rounds.
    """

    kind: Literal["one", "tree"]
    plans: tuple[Plan, ...]
    candidates: tuple[Candidate, ...]
    expected: tuple[Integers, ...]  # of each candidate: flat, in the order of its plan's cells
    epsilon: Fraction  # per round
    rounds: int

    @property
    def event(self) -> Event:
        """Return the privacy event of all rounds, for which the ledger is charged."""
        one = ExponentialEvent(self.epsilon)
        return one if self.rounds == 1 else JointEvent((one,) * self.rounds)

    @property
    def rate(self) -> Fraction:
        """Return the exponential mechanism's rate in a round: how fast chances grow with utility.

        It follows from epsilon, and from the most that one person changes a utility.
        """
        pairs = zip(self.plans, self.candidates, strict=True)
        most = max(plan.parts[0].l1 * one.weight for plan, one in pairs)
        return rate_for(self.epsilon, most, monotone=False)

    def as_json(self) -> Json:
        """Return all data that determine the private choice, as JSON for the ledger."""
        pairs = zip(self.candidates, self.plans, self.expected, strict=True)
        return {
            "kind": self.kind,
            "epsilon": str(self.epsilon),
            "rounds": self.rounds,
            "candidates": [
                [plan.digest(), digest_of(expected), one.penalty, one.weight, list(one.ends)]
                for one, plan, expected in pairs
            ],
        }

    def shape(self) -> Json:
        """Return the private choice without its constants, as the shape of its queries.

        If a limit stops the read, this shape is frozen: similar requests are refused.
        """
        return {"choice": self.kind, "of": [plan.shape() for plan in self.plans]}

    def in_words(self) -> str:
        """Return a text for the ledger and the twin's stamp that describes the private choice."""
        what = "a tree of pairs" if self.kind == "tree" else "one"
        return (
            f"the choice of {what} among {len(self.candidates):,} marginals of "
            f"{self.plans[0].card.name}, by how far each is from a model of released numbers"
        )


def make_distances(
    card: Card, candidates: Sequence[Candidate], kind: Literal["one", "tree"], price: Fraction
) -> PrivateChoicePlan:
    """Plan a private choice of marginals with epsilon `price` per round, or refuse.

    Planning reads no row and charges nothing.
    """
    if not 1 <= len(candidates) <= MOST:
        raise Refused(
            "question-too-large",
            f"A private choice of marginals (counts by a few columns) needs 1 to {MOST} "
            "candidates.",
            "Give at least one candidate, and not more than that.",
        )
    plans = tuple(make_plan(card, one.question) for one in candidates)
    if sum(plan.measure.cells for plan in plans) > MAX_CELLS:
        raise Refused(
            "question-too-large",
            "All candidates of the private choice together have too many cells.",
            "Give fewer candidates, or candidates with fewer columns.",
        )
    pairs = zip(plans, candidates, strict=True)
    expected = tuple(in_order_of_cells(plan, one.expected) for plan, one in pairs)
    ends = {end for one in candidates for end in one.ends}
    rounds = len(ends) - 1 if kind == "tree" else 1
    made = PrivateChoicePlan(kind, plans, tuple(candidates), expected, price, rounds)
    if made.rate <= 0:  # fail before anything is charged
        raise Bug("a choice at no rate")
    return made


def in_order_of_cells(plan: Plan, expected: Integers) -> Integers:
    """Reorder a query's expected counts to the order in which its plan counts groups.

    So expected and true counts can be compared group by group. `expected` has one axis per GROUP BY
    key.
    """
    sizes = [key.key.size for key in plan.keys]
    is_count = len(plan.parts) == 1 and plan.parts[0].part.tally.kind == "rows"
    if None in sizes or not is_count or plan.question.having is not None:
        raise Bug("a distance is of one count of rows over public keys")
    places = [[key.of for key in plan.keys].index(of) for of in plan.question.group_by]
    turned = expected.transpose(np.argsort(places)) if places else expected
    if list(turned.shape) != sizes:
        raise Bug("what is expected does not have the question's cells")
    return np.ascontiguousarray(turned.ravel())


def digest_of(expected: Integers) -> str:
    """Return the SHA-256 of a query's expected counts, which stands for them in the ledger."""
    return hashlib.sha256(canonical_json(expected.tolist()).encode()).hexdigest()
