"""The plan to measure a synthetic twin's error: noisy sums of |count - expected count|.

One distance is the sum of |scale * count - expected| over all cells of its queries, an integer. One
person changes a query's counts by at most its L1 sensitivity, and |.| never increases a change. So
the distance changes by at most scale times the sum of the queries' sensitivities
(misfit_plan.proof.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sfumato.dp.accounting.privacy_events import Event, PureEvent
from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms import laplace
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.choice_plan import (
    MAX_CELLS,
    Candidate,
    Integers,
    digest_of,
    in_order_of_cells,
)
from sfumato.query.plan import MAX_TOTAL, Plan, make_plan
from sfumato.vault.card.data_card import Card

MAX_QUERIES: Final = 1_000  # the most queries of all numbers together


@dataclass(frozen=True, eq=False)
class TwinError:
    """One distance between a twin and the rows that is to be measured.

    It has the count queries on the rows, and the twin's own scaled counts to compare them with.
    """

    says: str
    scale: int  # counts are multiplied by this before they are compared with the expected counts
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, eq=False)
class Planned:
    """One distance to measure, ready for the release: the plans of its queries, and its noise."""

    misfit: TwinError
    plans: tuple[Plan, ...]
    expected: tuple[Integers, ...]  # flat, in the order of each plan's cells
    noise: Noise

    def as_json(self) -> Json:
        """Return all data that determine the distance, as JSON."""
        pairs = zip(self.plans, self.expected, strict=True)
        return {
            "says": self.misfit.says,
            "scale": self.misfit.scale,
            "of": [[plan.digest(), digest_of(expected)] for plan, expected in pairs],
            "noise": self.noise.as_json(),
        }


@dataclass(frozen=True, eq=False)
class TwinErrorPlan:
    """The plan of one release of a twin's distances from the rows, which split a price evenly."""

    numbers: tuple[Planned, ...]
    epsilon: Fraction

    @property
    def event(self) -> Event:
        """Return the privacy event of all distances together."""
        return PureEvent(self.epsilon)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Return the plans of all queries that the distances read."""
        return tuple(plan for one in self.numbers for plan in one.plans)

    def as_json(self) -> Json:
        """Return all data that determine the distances, as JSON."""
        return {"epsilon": str(self.epsilon), "numbers": [one.as_json() for one in self.numbers]}

    def shape(self) -> Json:
        """Return the shapes of the queries that the distances read: the queries without constants.

        If a limit stops the read, this shape is frozen: similar requests are refused.
        """
        return {"misfits": [plan.shape() for plan in self.plans]}

    def in_words(self) -> str:
        """Return a text that describes what the distances measure."""
        return (
            f"how far {len(self.plans):,} marginals of {self.plans[0].card.name} lie from those of "
            f"a twin, as {len(self.numbers)} sums"
        )


def make_misfits(card: Card, misfits: Sequence[TwinError], epsilon: Fraction) -> TwinErrorPlan:
    """Plan a synthetic twin's distances from the rows at one total price, or refuse.

    Planning reads no row and charges nothing.
    """
    count = sum(len(one.candidates) for one in misfits)
    if not 1 <= count <= MAX_QUERIES or any(not one.candidates for one in misfits):
        raise Refused(
            "question-too-large",
            f"Measuring the synthetic twin's error needs 1 to {MAX_QUERIES} marginals (counts by "
            "a few columns).",
            "Make the twin of fewer columns.",
        )
    each = epsilon / len(misfits)
    made = TwinErrorPlan(tuple(_planned(card, one, each) for one in misfits), epsilon)
    if sum(plan.measure.cells for plan in made.plans) > MAX_CELLS:
        raise Refused(
            "question-too-large",
            "The marginals for measuring the synthetic twin's error have too many cells together.",
            "Make the twin of fewer columns, or of columns with fewer keys.",
        )
    return made


def _planned(card: Card, misfit: TwinError, epsilon: Fraction) -> Planned:
    plans = tuple(make_plan(card, one.question) for one in misfit.candidates)
    pairs = list(zip(plans, misfit.candidates, strict=True))
    expected = tuple(in_order_of_cells(plan, one.expected) for plan, one in pairs)
    noise = Noise("laplace", laplace.scale_for(reach(misfit, plans), epsilon))
    if _largest(misfit, plans, expected) >= MAX_TOTAL or not noise.is_drawable():
        raise Refused(
            "noise-out-of-range",
            "The synthetic twin's error, or the noise on it, is too large a number to be "
            "computed exactly.",
            "Ask for a twin of fewer rows, or at a larger epsilon.",
        )
    return Planned(misfit, plans, expected, noise)


def reach(misfit: TwinError, plans: Sequence[Plan]) -> int:
    """Return the sensitivity of a distance: how far one person can move it at most."""
    return misfit.scale * sum(plan.parts[0].l1 for plan in plans)


def _largest(misfit: TwinError, plans: Sequence[Plan], expected: Sequence[Integers]) -> int:
    """Return an upper bound on a distance from the card's row limits, to check that it fits."""
    counted = sum(plan.card.limits.rows for plan in plans)
    return misfit.scale * counted + sum(int(one.sum()) for one in expected)
