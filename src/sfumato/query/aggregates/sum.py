"""SUM(expression): values are clamped to their bounds, in whole steps of their grid.

Adding or removing one row changes the sum by at most max(|lower|, |upper|) steps. With `within`,
each person's sum in a group is clamped instead, however many rows the person has.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Refused
from sfumato.dp.sensitivity import of_sum
from sfumato.query.aggregates.aggregate import (
    AggregateKind,
    AskedAggregate,
    Estimate,
    NoisyPart,
    Part,
    check_number,
    check_sides,
    in_units,
    spread_evenly,
)
from sfumato.query.measure import Tally


def _check(asked: AskedAggregate) -> None:
    check_sides(asked, 1)
    if asked.aggregate.person_sum_bounds is None:
        check_number(asked, asked.operand)
    else:
        _clamp(asked)


def _clamp(asked: AskedAggregate) -> tuple[int, int]:
    """Return the bounds on each person's sum in a group, in steps; or refuse."""
    check_number(asked, asked.operand)
    within = asked.aggregate.person_sum_bounds or ()
    steps = [c.number / asked.operand.step for c in within if c.kind == "number"]
    if len(steps) != 2 or any(s.denominator != 1 for s in steps) or steps[0] >= steps[1]:
        raise Refused(
            "not-in-language",
            f"The bounds on a person's sum must be two multiples of {asked.operand.step}, the "
            "lower one first.",
            "Write within=(low, high), for example within=(0, 500).",
        )
    return int(steps[0]), int(steps[1])


def _parts(asked: AskedAggregate) -> tuple[Part, ...]:
    side = asked.operand
    per_row = (
        max(of_sum(side.lower, side.upper), 1) if side.lower < side.upper else _even(side.upper)
    )
    says = f"sum of {asked.in_words()}"
    if asked.aggregate.person_sum_bounds is None:
        return (Part(says, Tally("sum", side.physical), per_row),)
    low, high = _clamp(asked)
    tally = Tally("sum", side.physical, clamp=(low, high))
    return (Part(f"{says}, clamped a person", tally, per_row, per_person=max(abs(low), abs(high))),)


def _even(value: int) -> int:
    """Return the sensitivity of a sum that adds the constant `value` for every row: at least 1.

    A sum of zeros gets noise too, as no mechanism has the sensitivity 0.
    """
    return max(abs(value), 1)


def _finish(asked: AskedAggregate, parts: Sequence[NoisyPart]) -> Estimate:
    (part,) = parts
    step = float(asked.operand.step)
    margin = part.spread().margin() * step
    values = in_units(part.values, asked.operand.step)
    return Estimate(
        values,
        spread_evenly(part.spread().std() * step, len(values)),
        [v - margin for v in values],
        [v + margin for v in values],
    )


def _margin(asked: AskedAggregate, noises: Sequence[Noise], _size: int | None) -> float | None:
    return noises[0].margin() * float(asked.operand.step)


def _says(asked: AskedAggregate) -> str:
    return f"the sum of {asked.in_words()}"


def _unit(asked: AskedAggregate) -> Fraction:
    return asked.operand.step


SUM = AggregateKind(_check, _parts, _finish, _margin, _says, _unit)
