"""COUNT(*), COUNT(column) and COUNT(DISTINCT person)."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.core.card import Card, Column
from sfumato.core.measure import Tally
from sfumato.core.noise.kind import Noise
from sfumato.core.question import Aggregate
from sfumato.core.refusal import Refused
from sfumato.core.sensitivity import of_count
from sfumato.plan.verbs.verb import Estimate, NoisyPart, Part, Verb, spread_evenly, value_column


def _check_rows(_card: Card, _aggregate: Aggregate) -> None:
    """Any card lets its rows be counted."""


def _check_values(card: Card, aggregate: Aggregate) -> None:
    card.column(aggregate.column)


def _check_people(card: Card, _aggregate: Aggregate) -> None:
    if not card.by_person:
        raise Refused(
            "type-mismatch",
            f"The unit of {card.name!r} is a row: it does not say which rows are one person's.",
            "Ask COUNT(*), which counts rows.",
        )


def _row_parts(_card: Card, _aggregate: Aggregate) -> tuple[Part, ...]:
    return (Part(Tally("rows"), of_count()),)


def _value_parts(card: Card, aggregate: Aggregate) -> tuple[Part, ...]:
    return (Part(Tally("values", value_column(card, aggregate)), of_count()),)


def _people_parts(_card: Card, _aggregate: Aggregate) -> tuple[Part, ...]:
    return (Part(Tally("people"), of_count()),)


def _finish(_column: Column | None, parts: Sequence[NoisyPart]) -> Estimate:
    (part,) = parts
    margin = part.noise.margin()
    values = [int(v) for v in part.values.tolist()]
    return Estimate(
        values,
        spread_evenly(part.noise.std(), len(values)),
        [v - margin for v in values],
        [v + margin for v in values],
    )


def _margin(_column: Column | None, noises: Sequence[Noise], _size: int | None) -> float | None:
    return noises[0].margin()


def _says_rows(_aggregate: Aggregate) -> str:
    return "the number of rows"


def _says_values(aggregate: Aggregate) -> str:
    return f"the number of rows with a value for {aggregate.column}"


def _says_people(_aggregate: Aggregate) -> str:
    return "the number of people"


COUNT = Verb(_check_rows, _row_parts, _finish, _margin, _says_rows)
COUNT_VALUES = Verb(_check_values, _value_parts, _finish, _margin, _says_values)
COUNT_PEOPLE = Verb(_check_people, _people_parts, _finish, _margin, _says_people)
