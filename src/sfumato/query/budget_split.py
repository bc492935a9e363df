"""Split a price over the partial aggregates of an answer: for the least error, or as requested.

The total error is the sum of the noise variances over all aggregates and their partial aggregates,
in units of what one row can change. Laplace noise on a partial aggregate of weight w has a variance
like 1/w^2. If c aggregates share it, the sum of c/w^2 is least for w proportional to the cube root
of c. Gaussian noise would need the square root. The difference is below 2 % up to c = 3, so one
split serves both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.query.aggregates.aggregate import Part
from sfumato.query.model import Aggregate, Query

LARGEST: Final = 1000  # largest requested share, relative to the default share of 1
_FINE: Final = 1000  # cube roots are rounded to multiples of 1/1000, so that weights stay short
Used = Sequence[tuple[Aggregate, tuple[Part, ...]]]


def weights_of(used: Used, wanted: Mapping[Aggregate, Fraction]) -> dict[Part, Fraction]:
    """Return each partial aggregate's share of the price, as requested or for the least error.

    The shares sum to exactly one.
    """
    made = _asked(used, wanted) if wanted else _least_error(used)
    total = sum(made.values(), Fraction(0))
    return {part: weight / total for part, weight in made.items()}


def _least_error(used: Used) -> dict[Part, Fraction]:
    counts: dict[Part, int] = {}
    for _, parts in used:
        for part in parts:
            counts[part] = counts.get(part, 0) + 1
    return {part: Fraction(round(_FINE * c ** (1 / 3)), _FINE) for part, c in counts.items()}


def _asked(used: Used, wanted: Mapping[Aggregate, Fraction]) -> dict[Part, Fraction]:
    """Return the weight of each partial aggregate, from the shares that the asker requested.

    An aggregate divides its share evenly over its partial aggregates. A partial aggregate that
    several aggregates use adds up its shares.
    """
    made: dict[Part, Fraction] = {}
    for aggregate, parts in used:
        share = wanted.get(aggregate, Fraction(1)) / len(parts)
        for part in parts:
            made[part] = made.get(part, Fraction(0)) + share
    return made


def wanted_of(question: Query, split: Mapping[str, Fraction]) -> dict[Aggregate, Fraction]:
    """Return the requested share of the price for each named aggregate, or refuse.

    An aggregate without a request counts with a share of 1.
    """
    made: dict[Aggregate, Fraction] = {}
    for name, share in split.items():
        made[_named(question, name)] = share
        if not Fraction(1, LARGEST) <= share <= LARGEST:
            raise Refused(
                "bad-budget",
                f"The share of {name!r} is not between 1/{LARGEST} and {LARGEST}.",
                "Give each column a share relative to the others, such as 3 and 1.",
            )
    return made


def _named(question: Query, name: str) -> Aggregate:
    for output in question.outputs:
        if output.name.casefold() == name.casefold() and isinstance(output.of, Aggregate):
            return output.of
    names = [o.name for o in question.outputs if isinstance(o.of, Aggregate) and o.is_shown]
    raise Refused(
        "unknown-column",
        f"The answer has no aggregate named {name!r}.",
        "Name one of: "
        + (", ".join(names) or "none")
        + (
            "; name a formula's aggregates by asking for them too: SUM(x) AS s, COUNT(*) AS n, s "
            "/ n AS r."
        ),
        column=name,
    )
