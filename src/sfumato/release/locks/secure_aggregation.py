"""The lock of a sum over sites: exact integers, this site's share of the noise, and masks.

One site's share is not all of the noise: without the masks its numbers are not private. So both go
on in one breath, and what leaves is the masked message alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from sfumato.dp.mechanisms import skellam
from sfumato.dp.ports import Dice, IntegerArray
from sfumato.dp.refusal import Bug
from sfumato.dp.secure_aggregation.distributed_noise import NoisySum
from sfumato.dp.secure_aggregation.dithered_rounding import UNIT_BITS, DitheredGrid
from sfumato.dp.secure_aggregation.participant import Participant
from sfumato.query.measure import Cells
from sfumato.query.plan import Plan
from sfumato.release.unseal import unseal
from sfumato.vault.sealed import Sealed

GUARANTEE: Final = "central-dp"


class Summand(Protocol):
    """One part as it is added up: in whole units."""

    def on_grid(self, values: IntegerArray) -> IntegerArray: ...


S = TypeVar("S", bound=Summand)


class Question(Protocol):
    """A question over sites."""

    @property
    def plan(self) -> Plan: ...


class NoisyQuestion(Question, Protocol, Generic[S]):
    """The same with noise, of which each site draws a share."""

    @property
    def summands(self) -> Sequence[S]: ...
    def share(self, summand: S) -> Fraction: ...


class Task(Protocol):
    """What is learnt, with the public weight of each site."""

    def weight_of(self, site: str) -> Fraction: ...


class Lesson(Protocol):
    """One round of training."""

    @property
    def size(self) -> int: ...
    @property
    def sum(self) -> NoisySum: ...
    @property
    def lesson(self) -> Task: ...


def shares_of(sum_: NoisyQuestion[S], dice: Dice) -> list[IntegerArray]:
    """Return this site's share of each part's noise, a fresh draw for every cell."""
    cells = sum_.plan.measure.cells
    return [skellam.sample(sum_.share(summand), cells, dice) for summand in sum_.summands]


def mask_noisy(
    sealed: Sealed[Cells],
    sum_: NoisyQuestion[S],
    participant: Participant,
    shares: Sequence[IntegerArray],
) -> bytes:
    """Return the site's numbers with its share of the noise, under its masks."""
    exact = unseal(sealed)
    if exact.keys is not None:
        raise Bug("the engine answered private keys that nobody chose from")
    parts = []
    for place, (summand, share) in enumerate(zip(sum_.summands, shares, strict=True)):
        parts.append(summand.on_grid(exact.parts[sum_.plan.tally_of(place)]) + share)
    return participant.masked(np.concatenate(parts).astype(np.int64))


def mask_exact(sealed: Sealed[Cells], sum_: Question, participant: Participant) -> bytes:
    """Return the site's numbers under its masks and without noise: `secure-average (not DP)`.

    The masks are all that hides a site here; the round is over all sites of the agreement.
    """
    exact = unseal(sealed)
    if exact.keys is not None:
        raise Bug("the engine answered private keys that nobody chose from")
    parts = [exact.parts[sum_.plan.tally_of(place)] for place in range(len(sum_.plan.parts))]
    return participant.masked(np.concatenate(parts).astype(np.int64))


def learning_share(plan: Lesson, dice: Dice) -> IntegerArray:
    """Return this site's share of a training round's noise."""
    return skellam.sample(plan.sum.share, plan.size, dice)


def learning_masked(
    sealed: Sealed[IntegerArray],
    plan: Lesson,
    participant: Participant,
    share: IntegerArray,
    dice: Dice,
) -> bytes:
    """Return a site's gradients or its update, clipped, with its share of the noise, masked.

    What a row adds to a sum of gradients was clipped by the engine; a whole update is clipped here,
    after its public weight, and its norm is looked at again in whole steps.
    """
    found, grid = unseal(sealed), plan.sum.grid
    if found.shape != (plan.size,):
        raise Bug("the engine answered with another model than was asked for")
    if isinstance(grid, DitheredGrid):
        steps = grid.rounded(-found, dice)
    else:
        weight = float(plan.lesson.weight_of(participant.name))
        steps = grid.rounded(np.asarray(found * (weight * 2.0**-UNIT_BITS), dtype=np.float64), dice)
    return participant.masked((steps + share).astype(np.int64))
