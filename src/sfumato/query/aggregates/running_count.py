"""RUNNING_COUNT(*): rows up to and including each period, from noisy blocks (tree mechanism)."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.mechanisms.running_count import TreeMechanism
from sfumato.dp.refusal import Bug
from sfumato.dp.sensitivity import of_count
from sfumato.query.aggregates.aggregate import (
    AggregateKind,
    AskedAggregate,
    Estimate,
    NoisyPart,
    Part,
    check_sides,
)
from sfumato.query.measure import Tally


def _check(asked: AskedAggregate) -> None:
    check_sides(asked, 1)


def _parts(asked: AskedAggregate) -> tuple[Part, ...]:
    (along,) = asked.aggregate.operands
    says = f"running count of rows along {asked.in_words()}"
    return (Part(says, Tally("rows"), of_count(), runs_along=along),)


def _finish(_asked: AskedAggregate, parts: Sequence[NoisyPart]) -> Estimate:
    (part,) = parts
    if not isinstance(part.noise, TreeMechanism):
        raise Bug("a running count with the noise of something else")
    values, margins = [int(v) for v in part.values.tolist()], part.noise.margins()
    return Estimate(
        values,
        part.noise.stds(),
        [v - m for v, m in zip(values, margins, strict=True)],
        [v + m for v, m in zip(values, margins, strict=True)],
    )


def _margin(_asked: AskedAggregate, _noises: Sequence[Noise], _size: int | None) -> float | None:
    return None  # the mechanism knows the margin, of the noisiest cell


def _says(asked: AskedAggregate) -> str:
    return f"the number of rows up to {asked.in_words()}"


RUNNING_COUNT = AggregateKind(_check, _parts, _finish, _margin, _says)
