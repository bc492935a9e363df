"""BOUNDS(x) and FIRST_ABOVE(key, n): searches over noisy counts that are never released.

BOUNDS returns the powers of two between which most values are, for a column without declared
bounds. One such query tells the owner what to clamp to. FIRST_ABOVE returns the first of some
public keys, in their order, whose count of rows reaches n. The price of both is that of a private
choice (bounds_search.proof.md, sparse_vector.proof.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfumato.dp.mechanisms.bounds_search import bin_count, bin_starts
from sfumato.dp.refusal import Bug, Refused
from sfumato.query.aggregates.aggregate import (
    AggregateKind,
    AskedAggregate,
    Choice,
    Estimate,
    NoisyPart,
    Part,
    check_sides,
)
from sfumato.query.aggregates.order_statistics import no_margin, without_bars
from sfumato.query.expression import Case, Compare, Constant, Expr, IsNull, LiteralValue, Not
from sfumato.query.grouping_keys import PlanKey, plan_key
from sfumato.query.measure import Tally
from sfumato.vault.card.card_json import plain_number


def _whole(value: int) -> Constant:
    return Constant("number", str(value))


# --- bounds --------------------------------------------------------------------------------------


def _check_bounds(asked: AskedAggregate) -> None:
    check_sides(asked, 1)
    if not asked.operand.is_number:
        raise Refused(
            "type-mismatch",
            f"{asked.in_words()!r} is {asked.operand.kind}, and BOUNDS takes only numbers.",
            "Name a column of type integer or number.",
        )
    if bin_count(_digits(asked)) > asked.max_points:
        raise Refused(
            "question-too-large",
            "The question has too many cells for BOUNDS.",
            "Group by fewer keys.",
        )


def _digits(asked: AskedAggregate) -> int:
    """Return the number of binary digits that the largest possible value needs, in steps."""
    return max(1, max(abs(asked.operand.lower), abs(asked.operand.upper)).bit_length())


def _bounds_parts(asked: AskedAggregate) -> tuple[Part, ...]:
    digits = _digits(asked)
    tally = Tally("histogram", _bin(asked.operand.physical, digits), size=bin_count(digits))
    return (Part(_says_bounds(asked), tally, 1, choice=Choice("bounds")),)


def _bin(value: Expr, digits: int) -> Expr:
    """Return, as an expression, the index of the value's bin; NULL has no bin.

    The bins are separated by powers of two.
    """
    starts = list(enumerate(bin_starts(digits)))
    whens = tuple(
        (Compare(value, ">=", _whole(start)), LiteralValue(_whole(place)))
        for place, start in reversed(starts[1:])
    )
    inner = Case(whens, LiteralValue(_whole(0)))
    return Case(((Not(IsNull(value)), inner),), None)


def _finish_bounds(asked: AskedAggregate, parts: Sequence[NoisyPart]) -> Estimate:
    step = asked.operand.step
    values = [
        [plain_number(end * step) for end in (low, high)] if is_found else None
        for is_found, low, high in parts[0].values.tolist()
    ]
    return without_bars(values)


def _says_bounds(asked: AskedAggregate) -> str:
    return f"the powers of two between which most of {asked.in_words()} is"


# --- the first above -----------------------------------------------------------------------------


def _key(asked: AskedAggregate) -> PlanKey:
    return plan_key(asked.aggregate.operands[0], asked.operand)


def _check_above(asked: AskedAggregate) -> None:
    check_sides(asked, 1)
    key = _key(asked)
    if key.keys is None or len(key.keys) > asked.max_points:
        raise Refused(
            "keys-needed",
            f"{asked.in_words()!r} has no public list of values to search, or one that is too "
            "long.",
            "Use declared keys, bins such as FLOOR(x / 10) * 10, or months of a bounded date.",
        )
    if asked.aggregate.most is None:
        raise Refused(
            "not-in-language",
            "FIRST_ABOVE needs a second argument, the count that a group must reach.",
            "Write FIRST_ABOVE(key, 100).",
        )


def _above_parts(asked: AskedAggregate) -> tuple[Part, ...]:
    key = _key(asked)
    if key.keys is None:
        raise Bug("a search through no list")
    tally = Tally("histogram", key.key.value, size=len(key.keys))
    choice = Choice("above", threshold=asked.aggregate.most or 1)
    return (Part(_says_above(asked), tally, 1, choice=choice),)


def _finish_above(asked: AskedAggregate, parts: Sequence[NoisyPart]) -> Estimate:
    key = _key(asked)
    shown: list[Any] = [key.shown(constant) for constant in key.keys or ()]
    places = parts[0].values[:, 0].tolist()
    return without_bars([None if place < 0 else shown[place] for place in places])


def _says_above(asked: AskedAggregate) -> str:
    return f"the first {asked.in_words()} of which {asked.aggregate.most} rows or more are counted"


BOUNDS = AggregateKind(_check_bounds, _bounds_parts, _finish_bounds, no_margin, _says_bounds)
FIRST_ABOVE = AggregateKind(_check_above, _above_parts, _finish_above, no_margin, _says_above)
