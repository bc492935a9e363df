"""The columns of a table with one row for each person: what is publicly known of each.

They are physical `u0`, `u1`, ...; where several such tables stand beside each other, the numbers
run on from one to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.query.expression import Arithmetic, Case, Compare, Constant, Expr, Ref
from sfumato.query.model import EachPerson, Reduce
from sfumato.query.number_types import LARGEST, plain, within_reach
from sfumato.query.typecheck import typecheck
from sfumato.query.typed_expression import Scope, Typed, whole

FINE: Final = (10_000, 1_000, 100)  # parts of a step: a person's mean is rounded down to one
MOST_KEYS: Final = 1_000  # of a text, that a person's may be told apart by; more stay private
_ROOM: Final = 8  # for what is done with it on the way to a sum over all people


def reduced_columns(
    source: EachPerson, inner: Scope, most: int, people: int, *, start: int = 0
) -> dict[str, Typed]:
    """Return the columns by name in small letters; `most` rows a person, of so many people."""
    places = inner_places(source.columns, start)
    return {
        column.name.casefold(): _reduced(column, inner, place, most, people)
        for column, place in zip(source.columns, places, strict=True)
    }


def inner_places(columns: Sequence[Reduce], start: int = 0) -> list[int]:
    """Return where each column's first tally stands; a mean is a sum and, next to it, a count."""
    places, place = [], start
    for column in columns:
        places.append(place)
        place += width_of(column)
    return places


def width_of(column: Reduce) -> int:
    """Return how many tallies a column is made of."""
    return 2 if column.verb == "mean" else 1


def _reduced(column: Reduce, inner: Scope, at: int, most: int, people: int) -> Typed:
    place = Ref(f"u{at}")
    if column.of is None:
        if column.verb != "count":
            raise Refused("not-in-language", f"{column.verb} needs a column.", "Name a column.")
        return Typed("integer", place, 1, most, is_bounded=True)
    if column.verb == "count":
        raise Refused(
            "not-in-language", "count takes no expression.", "Count values with count_values."
        )
    side = typecheck(column.of, inner)
    if side.is_number:
        side = plain(side)
    if column.verb == "count_values":
        return Typed("integer", place, 0, most, is_bounded=True)
    has_order = side.unit is None and (side.is_number or side.kind in ("date", "timestamp"))
    if column.verb in ("minimum", "maximum") and (has_order or side.kind == "text"):
        keys = side.keys if side.kind == "text" and len(side.keys or ()) <= MOST_KEYS else None
        return replace(side, physical=place, keys=keys, code=_code(place, keys))
    if column.verb not in ("sum", "mean") or not side.is_number:
        raise Refused(
            "type-mismatch",
            f"The inner SELECT cannot take {column.verb} of a {side.kind}.",
            "Count it, or take MIN or MAX of a number, text or date, or SUM of a number.",
        )
    _check_bounded(side)
    lower, upper = min(side.lower, side.lower * most), max(side.upper, side.upper * most)
    made = replace(side, physical=place, lower=lower, upper=upper, keys=None, code=None)
    return within_reach(
        made
        if column.verb == "sum"
        else _mean(side, made, Ref(f"u{at + 1}"), _parts_of_step(side, most, people))
    )


def _code(place: Ref, keys: Sequence[Constant] | None) -> Expr | None:
    """Return which of the keys a person's text is; that it is of none of them is null."""
    if keys is None:
        return None
    return Case(tuple((Compare(place, "=", key), whole(i)) for i, key in enumerate(keys)), None)


def _mean(side: Typed, total: Typed, count: Ref, fine: int) -> Typed:
    """Return a person's mean, rounded down to a part of the column's step; null of nothing."""
    wide = replace(total, lower=total.lower * fine, upper=total.upper * fine)
    above = Arithmetic("*", within_reach(wide).physical, whole(fine))
    return replace(
        total,
        physical=Arithmetic("/", above, count),
        lower=side.lower * fine,
        upper=side.upper * fine,
        step=side.step / fine,
    )


def _parts_of_step(side: Typed, most: int, people: int) -> int:
    """Return the most parts that leave room for the sums of a person, and of all people."""
    size = max(abs(side.lower), abs(side.upper), 1) * max(most, people) * _ROOM
    return next((fine for fine in FINE if size * fine <= LARGEST), FINE[-1])


def _check_bounded(side: Typed) -> None:
    if not side.is_bounded:
        raise Refused(
            "no-bounds",
            "A number without declared bounds cannot be summed.",
            "Bound it first: LEAST(GREATEST(x, low), high), or ask the owner to declare bounds.",
        )
