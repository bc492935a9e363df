"""The release step of secure aggregation: add this site's share of the noise, then the masks.

The noise share of one site is too small to protect its numbers alone. So one function adds noise
and masks, and only the masked message leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from sfumato.dp.mechanisms import skellam
from sfumato.dp.ports import IntegerArray, RandomSource
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
    """One term of a sum over federated sites; it converts a site's values to integer units."""

    def on_grid(self, values: IntegerArray) -> IntegerArray: ...


S = TypeVar("S", bound=Summand)


class Question(Protocol):
    """A question that several federated sites answer together by secure aggregation."""

    @property
    def plan(self) -> Plan: ...


class NoisyQuestion(Question, Protocol, Generic[S]):
    """A question over federated sites with a DP answer; each site draws a share of the noise."""

    @property
    def summands(self) -> Sequence[S]: ...
    def share(self, summand: S) -> Fraction: ...


class Task(Protocol):
    """A federated training task, which gives each site a public weight in the average."""

    def weight_of(self, site: str) -> Fraction: ...


class Lesson(Protocol):
    """Settings of one round (lesson) of federated training: model size, noise and training task."""

    @property
    def size(self) -> int: ...
    @property
    def sum(self) -> NoisySum: ...
    @property
    def lesson(self) -> Task: ...


def shares_of(sum_: NoisyQuestion[S], dice: RandomSource) -> list[IntegerArray]:
    """Draw this site's share of the noise, one fresh draw per group of the answer and term."""
    cells = sum_.plan.measure.cells
    return [skellam.sample(sum_.share(summand), cells, dice) for summand in sum_.summands]


def mask_noisy(
    sealed: Sealed[Cells],
    sum_: NoisyQuestion[S],
    participant: Participant,
    shares: Sequence[IntegerArray],
) -> bytes:
    """Add this site's noise share and masks to its exact numbers; return the masked message."""
    exact = unseal(sealed)
    if exact.keys is not None:
        raise Bug("the engine answered private keys that nobody chose from")
    parts = []
    for place, (summand, share) in enumerate(zip(sum_.summands, shares, strict=True)):
        parts.append(summand.on_grid(exact.parts[sum_.plan.tally_of(place)]) + share)
    return participant.masked(np.concatenate(parts).astype(np.int64))


def mask_exact(sealed: Sealed[Cells], sum_: Question, participant: Participant) -> bytes:
    """Add this site's masks, but no noise, to its numbers, for `secure-average (not DP)`.

    The masks alone hide the numbers of this site. The round reveals the exact sum over all sites
    that take part.
    """
    exact = unseal(sealed)
    if exact.keys is not None:
        raise Bug("the engine answered private keys that nobody chose from")
    parts = [exact.parts[sum_.plan.tally_of(place)] for place in range(len(sum_.plan.parts))]
    return participant.masked(np.concatenate(parts).astype(np.int64))


def learning_share(plan: Lesson, dice: RandomSource) -> IntegerArray:
    """Draw this site's share of the noise of one federated training round."""
    return skellam.sample(plan.sum.share, plan.size, dice)


def learning_masked(
    sealed: Sealed[IntegerArray],
    plan: Lesson,
    participant: Participant,
    share: IntegerArray,
    dice: RandomSource,
) -> bytes:
    """Round a site's gradient sum or model update, and add its noise share and its masks.

    The engine has already clipped each row's gradient. If a whole update is sent, this function
    multiplies it by its public weight and clips it. Rounding checks the norm again in whole steps.
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
