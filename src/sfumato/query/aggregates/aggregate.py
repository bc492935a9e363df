"""Interface of an aggregate function, and the noisy partial aggregates of its answer.

A partial aggregate (`Part`) is one integer for each group of the answer, which the engine sums
exactly. It is released with noise, or through a private choice from a public list. An answer is
computed from one or more partial aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.mechanisms.private_choice import PrivateChoice
from sfumato.dp.mechanisms.running_count import TreeMechanism
from sfumato.dp.refusal import Bug, Refused
from sfumato.query.expression import Expr
from sfumato.query.expression_text import expression_text
from sfumato.query.measure import Tally
from sfumato.query.model import Aggregate
from sfumato.query.typed_expression import ExpressionType
from sfumato.vault.card.data_card import Card

if TYPE_CHECKING:
    from sfumato.query.aggregates.result_ranges import Range
    from sfumato.query.aggregates.taylor_intervals import Taylor

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Mechanism = Noise | PrivateChoice | TreeMechanism


@dataclass(frozen=True)
class Choice:
    """A private choice from a public list, such as a quantile's, in place of a noisy number.

    It compares integer scores of the list's items.
    """

    kind: Literal["quantile", "top", "bounds", "above"]
    at: Fraction = Fraction(0)  # the p of a quantile
    names: int = 1  # the length of a top list
    threshold: int = 0  # the count that first_above looks for


@dataclass(frozen=True)
class Part:
    """A partial aggregate: one integer per group of the answer, with its sensitivity.

    One row changes the integer by at most `per_row`. `per_person` is given instead if the count or
    sum itself bounds each person's contribution to a group, however many rows the person has.
    """

    says: str
    tally: Tally
    per_row: int
    per_person: int | None = None
    choice: Choice | None = None
    runs_along: Expr | None = None  # the period along which a running count runs


@dataclass(frozen=True)
class NoisyPart:
    """A released partial aggregate: its public numbers, and the noise in them.

    The numbers are whole. After a top-up they are the mean of several draws of noise, which may not
    be whole (see `dp/mechanisms/averaged_noise.py`).
    """

    values: Integers | Floats
    noise: Mechanism

    def spread(self) -> Noise:
        """Return the noise of the partial aggregate, which must be the same in every group.

        A private choice has no noise, and a running count has different noise in each period. For
        them, raise Bug.
        """
        if not isinstance(self.noise, Noise):
            raise Bug("a choice or a running count has no one noise to speak of")
        return self.noise


@dataclass(frozen=True)
class Estimate:
    """A released column: the value of each group, its standard deviation and 95 % interval."""

    values: Sequence[object]
    std: Sequence[float | None]
    low: Sequence[object]
    high: Sequence[object]


@dataclass(frozen=True)
class AskedAggregate:
    """An aggregate that a query asks for, with its operands' types and its contribution bounds."""

    card: Card
    aggregate: Aggregate
    operands: tuple[ExpressionType, ...]
    max_rows: int  # contribution bound: most rows per person and cell
    max_points: int  # most points in the public list of a private choice
    # True if each row is a person, because the query has an inner SELECT by person
    is_of_people: bool

    @property
    def operand(self) -> ExpressionType:
        """Return the type of the aggregate's only expression."""
        if len(self.operands) != 1:
            raise Bug("an aggregate over another number of expressions")
        return self.operands[0]

    @property
    def values(self) -> tuple[Expr | None, ...]:
        """Return the physical expressions that the aggregate reads from each row.

        For top and first_above, which choose a key from a public list, the operands' key indexes
        follow.
        """
        is_of_list = self.aggregate.verb in ("top", "first_above")
        codes = (side.code for side in self.operands if is_of_list)
        return (*(side.physical for side in self.operands), *codes)

    def in_words(self) -> str:
        """Describe the operands in plain words."""
        return " and ".join(expression_text(of) for of in self.aggregate.operands)


@dataclass(frozen=True)
class Smooth:
    """An aggregate as a smooth function of its partial aggregates, to propagate their noise.

    Without noise, the function gives the exact answer. `rounding` holds, for each partial
    aggregate, the largest rounding error that one row adds to it. If any rounding error is not
    zero, the first partial aggregate must be the count of rows.
    """

    of: Callable[[Sequence[Taylor]], Range]
    rounding: tuple[float, ...]


@dataclass(frozen=True)
class AggregateKind:
    """The functions that implement one aggregate verb, such as `sum`; the registry lists them.

    `unit` is given if the answer is one partial aggregate times a unit. `smooth` is given if the
    answer is a smooth function of several partial aggregates.
    """

    check: Callable[[AskedAggregate], None]
    parts: Callable[[AskedAggregate], tuple[Part, ...]]
    finish: Callable[[AskedAggregate, Sequence[NoisyPart]], Estimate]
    margin: Callable[[AskedAggregate, Sequence[Noise], int | None], float | None]
    says: Callable[[AskedAggregate], str]
    unit: Callable[[AskedAggregate], Fraction] | None = None
    smooth: Callable[[AskedAggregate], Smooth] | None = None


def one_each(_asked: AskedAggregate) -> Fraction:
    """Return 1, the unit of an aggregate whose answer is its partial aggregate unchanged."""
    return Fraction(1)


def check_sides(asked: AskedAggregate, count: int) -> None:
    """Refuse an aggregate that does not have `count` operands (sides)."""
    if len(asked.operands) != count:
        raise Refused(
            "not-in-language",
            f"The aggregate {asked.aggregate.verb} takes exactly {count} column(s) or "
            "expression(s).",
            "docs/reference/questions.md says what each aggregate takes.",
        )


_PERIODS: Final = "Write COUNT(*) … GROUP BY date_trunc('month', it), or extract(year FROM it)."
_INSTEAD: Final = {
    "boolean": "Write CASE WHEN it THEN 1 ELSE 0 END, or COUNT_IF(it).",
    "date": _PERIODS,
    "timestamp": _PERIODS,
}


def check_number(asked: AskedAggregate, side: ExpressionType) -> None:
    """Refuse an operand (`side`) that is not a number with a lower and an upper bound."""
    name = asked.in_words()
    if not side.is_number:
        raise Refused(
            "type-mismatch",
            f"{name!r} is {side.kind}, and this aggregate takes only numbers.",
            _INSTEAD.get(
                side.kind, "Count it instead, or choose a column of type integer or number."
            ),
            column=name,
        )
    if not side.is_bounded:
        raise Refused(
            "no-bounds",
            f"The data card declares no lower and upper bound for {name!r}.",
            "Bound it yourself with LEAST(GREATEST(x, low), high), or ask the owner to declare "
            "bounds on the card, from knowledge, not from the rows.",
            column=name,
        )


def in_units(steps: Integers | Floats, step: Fraction) -> list[int | float]:
    """Convert numbers of steps to plain numbers, in the column's own unit, each rounded once.

    If the step is whole, whole numbers stay whole.
    """
    above, below = step.numerator, step.denominator
    if below == 1:
        return [x * above for x in steps.tolist()]
    return [x * above / below for x in steps.tolist()]


def spread_evenly(value: float, cells: int) -> list[float]:
    """Return a list with the same number for every group of the answer."""
    return [value] * cells
