"""COUNT(*), COUNT(expression), COUNT(DISTINCT person) and COUNT(DISTINCT expression)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Refused
from sfumato.dp.sensitivity import of_count
from sfumato.query.aggregates.aggregate import (
    AggregateKind,
    AskedAggregate,
    Estimate,
    NoisyPart,
    Part,
    check_sides,
    in_units,
    one_each,
    spread_evenly,
)
from sfumato.query.measure import Tally


def _check_rows(asked: AskedAggregate) -> None:
    check_sides(asked, 0)


def _check_values(asked: AskedAggregate) -> None:
    check_sides(asked, 1)


def _check_people(asked: AskedAggregate) -> None:
    check_sides(asked, 0)
    if not asked.card.by_person:
        raise Refused(
            "type-mismatch",
            f"The privacy unit of {asked.card.name!r} is a row: the card does not say which rows "
            "are one person's.",
            "Ask COUNT(*), which counts rows.",
        )


def _row_parts(_asked: AskedAggregate) -> tuple[Part, ...]:
    return (Part("count of rows", Tally("rows"), of_count()),)


def _value_parts(asked: AskedAggregate) -> tuple[Part, ...]:
    return (
        Part(f"count of {asked.in_words()}", Tally("values", asked.operand.physical), of_count()),
    )


def _people_parts(_asked: AskedAggregate) -> tuple[Part, ...]:
    return (Part("count of people", Tally("people"), of_count(), per_person=of_count()),)


def _distinct_parts(asked: AskedAggregate) -> tuple[Part, ...]:
    """Return the partial aggregate that counts distinct values.

    A person counts with at most `most` different values, or `max_rows` if the query gives no
    `most`. If each row is a privacy unit, a row counts with one value.
    """
    most = 1 if not asked.card.by_person else asked.aggregate.most or asked.max_rows
    if asked.is_of_people:
        most = 1
    return (
        Part(
            f"count of different {asked.in_words()}",
            Tally("distinct", asked.operand.physical, max_distinct=most),
            of_count(),
            per_person=most,
        ),
    )


def _finish(_asked: AskedAggregate, parts: Sequence[NoisyPart]) -> Estimate:
    (part,) = parts
    margin = part.spread().margin()
    values = in_units(part.values, Fraction(1))
    return Estimate(
        values,
        spread_evenly(part.spread().std(), len(values)),
        [v - margin for v in values],
        [v + margin for v in values],
    )


def _margin(_asked: AskedAggregate, noises: Sequence[Noise], _size: int | None) -> float | None:
    return noises[0].margin()


def _says_rows(_asked: AskedAggregate) -> str:
    return "the number of rows"


def _says_values(asked: AskedAggregate) -> str:
    return f"the number of rows with a value for {asked.in_words()}"


def _says_people(_asked: AskedAggregate) -> str:
    return "the number of people"


def _says_distinct(asked: AskedAggregate) -> str:
    return f"the number of different values of {asked.in_words()}"


COUNT = AggregateKind(_check_rows, _row_parts, _finish, _margin, _says_rows, one_each)
COUNT_VALUES = AggregateKind(_check_values, _value_parts, _finish, _margin, _says_values, one_each)
COUNT_PEOPLE = AggregateKind(_check_people, _people_parts, _finish, _margin, _says_people, one_each)
COUNT_DISTINCT = AggregateKind(
    _check_values, _distinct_parts, _finish, _margin, _says_distinct, one_each
)
