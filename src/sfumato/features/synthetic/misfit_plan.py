"""How far the counts of questions lie from what is expected of them, as a few noisy numbers.

A number is the sum of |scale * count - expected| over all cells of its questions, whole. One person
moves the counts of a question by its L1 sensitivity at most, and |.| moves no more than what stands
in it, so the number moves by scale times the sum of these (misfit_plan.proof.md).
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
    MOST_CELLS,
    Candidate,
    Integers,
    digest_of,
    in_order_of_cells,
)
from sfumato.query.plan import MAX_TOTAL, Plan, make_plan
from sfumato.vault.card.data_card import Card

MOST: Final = 1_000  # questions of all numbers together


@dataclass(frozen=True, eq=False)
class Misfit:
    """One number: its questions with what is expected of each, in parts of a count."""

    says: str
    scale: int  # expected numbers are so many times as large as counts
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, eq=False)
class Planned:
    """One number with its plans, and the noise that it gets."""

    misfit: Misfit
    plans: tuple[Plan, ...]
    expected: tuple[Integers, ...]  # flat, in the order of each plan's cells
    noise: Noise

    def as_json(self) -> Json:
        """Return what decides the number."""
        pairs = zip(self.plans, self.expected, strict=True)
        return {
            "says": self.misfit.says,
            "scale": self.misfit.scale,
            "of": [[plan.digest(), digest_of(expected)] for plan, expected in pairs],
            "noise": self.noise.as_json(),
        }


@dataclass(frozen=True, eq=False)
class Misfits:
    """Some numbers under one price, of which each has an even part."""

    numbers: tuple[Planned, ...]
    epsilon: Fraction

    @property
    def event(self) -> Event:
        """Return what all numbers cost together."""
        return PureEvent(self.epsilon)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Return the plan of every question."""
        return tuple(plan for one in self.numbers for plan in one.plans)

    def as_json(self) -> Json:
        """Return what decides the numbers."""
        return {"epsilon": str(self.epsilon), "numbers": [one.as_json() for one in self.numbers]}

    def shape(self) -> Json:
        """Return what it looks like without its constants: what is frozen if it is stopped."""
        return {"misfits": [plan.shape() for plan in self.plans]}

    def in_words(self) -> str:
        """Return what is measured, in plain words."""
        return (
            f"how far {len(self.plans):,} marginals of {self.plans[0].card.name} lie from those of "
            f"a twin, as {len(self.numbers)} sums"
        )


def make_misfits(card: Card, misfits: Sequence[Misfit], epsilon: Fraction) -> Misfits:
    """Return the numbers at a price for all of them, or refuse; nothing is read or charged."""
    count = sum(len(one.candidates) for one in misfits)
    if not 1 <= count <= MOST or any(not one.candidates for one in misfits):
        raise Refused(
            "question-too-large", f"An error is of 1 to {MOST} marginals.", "Take fewer columns."
        )
    each = epsilon / len(misfits)
    made = Misfits(tuple(_planned(card, one, each) for one in misfits), epsilon)
    if sum(plan.measure.cells for plan in made.plans) > MOST_CELLS:
        raise Refused(
            "question-too-large", "The questions have too many cells together.", "Choose fewer."
        )
    return made


def _planned(card: Card, misfit: Misfit, epsilon: Fraction) -> Planned:
    plans = tuple(make_plan(card, one.question) for one in misfit.candidates)
    pairs = list(zip(plans, misfit.candidates, strict=True))
    expected = tuple(in_order_of_cells(plan, one.expected) for plan, one in pairs)
    noise = Noise("laplace", laplace.scale_for(reach(misfit, plans), epsilon))
    if _largest(misfit, plans, expected) >= MAX_TOTAL or not noise.is_drawable():
        raise Refused(
            "noise-out-of-range",
            "The error's sum, or its noise, is larger than is added up exactly.",
            "Ask for a twin of fewer rows, or at a larger epsilon.",
        )
    return Planned(misfit, plans, expected, noise)


def reach(misfit: Misfit, plans: Sequence[Plan]) -> int:
    """Return the most that one person moves the number."""
    return misfit.scale * sum(plan.parts[0].l1 for plan in plans)


def _largest(misfit: Misfit, plans: Sequence[Plan], expected: Sequence[Integers]) -> int:
    """Return what the number cannot pass, by the card."""
    counted = sum(plan.card.limits.rows for plan in plans)
    return misfit.scale * counted + sum(int(one.sum()) for one in expected)
