"""SUM(column): values clamped to the card's bounds, in whole steps of its grid.

One row moves the sum by at most max(|lower|, |upper|) steps: it is there or it is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.core.card import Card, Column
from sfumato.core.measure import Tally
from sfumato.core.noise.kind import Noise
from sfumato.core.question import Aggregate
from sfumato.core.refusal import Bug, Refused
from sfumato.core.sensitivity import of_sum
from sfumato.plan.verbs.verb import (
    Estimate,
    NoisyPart,
    Part,
    Verb,
    in_units,
    spread_evenly,
    value_column,
)


def check_number(card: Card, aggregate: Aggregate) -> None:
    """Refuse what is not a number with both bounds declared."""
    column = card.column(aggregate.column)
    if not column.is_numeric:
        raise Refused(
            "type-mismatch",
            f"{column.name!r} is {column.type}, and only numbers can be added up.",
            "Count it instead, or choose a column of type integer or number.",
            column=column.name,
        )
    column.bounds()


def _parts(card: Card, aggregate: Aggregate) -> tuple[Part, ...]:
    lower, upper = card.column(aggregate.column).bounds()
    return (Part(Tally("sum", value_column(card, aggregate)), of_sum(lower, upper)),)


def _finish(column: Column | None, parts: Sequence[NoisyPart]) -> Estimate:
    if column is None:
        raise Bug("a sum without a column")
    (part,) = parts
    step = float(column.step)
    margin = part.noise.margin() * step
    values = in_units(part.values, column.step)
    return Estimate(
        values,
        spread_evenly(part.noise.std() * step, len(values)),
        [v - margin for v in values],
        [v + margin for v in values],
    )


def _margin(column: Column | None, noises: Sequence[Noise], _size: int | None) -> float | None:
    return None if column is None else noises[0].margin() * float(column.step)


def _says(aggregate: Aggregate) -> str:
    return f"the sum of {aggregate.column}"


SUM = Verb(check_number, _parts, _finish, _margin, _says)
