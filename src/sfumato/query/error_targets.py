"""The split of a price that several errors need least of.

What is surer than it was asked to be gives of its share to the others, until all are as sure as
they have to be. It is a function of the question, the card and the errors, as the price is: no row
is in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.query.budget_split import LARGEST
from sfumato.query.model import Aggregate
from sfumato.query.price import Priced

Split = Mapping[str, Fraction]
_TURNS: Final = 8
_MOST: Final = 32  # of looks: each turn takes some thirty of them at every error
_LOOKS: Final[Mapping[str, int]] = {  # what one look at an error takes; of what is not here, more
    "count": 1, "count_values": 1, "count_people": 1, "count_distinct": 1, "sum": 1, "mean": 8,
}  # fmt: skip


def least_price(
    priced: Priced,
    margins: Mapping[str, Fraction],
    people: int | None,
    at: Callable[[Split], Priced],
) -> Priced:
    """Return the least price found: the one that was given, or one by a split for these errors.

    A split is looked for where each number of the answer is an aggregate with an error of its own;
    what has none is not to be paid for by the others' being less sure. Nor is it looked for where
    that would take long: a price is free, and whoever asks for one keeps a processor busy.
    """
    named = _named(priced, margins)
    if named is None:
        return priced
    best, split = priced, dict.fromkeys(named, Fraction(1))
    for _ in range(_TURNS):
        try:
            found = at(split)
        except Refused:  # out of reach by this one
            return best
        best = min(best, found, key=lambda one: one.epsilon)
        moved = _moved(found, split, named, people)
        if moved == split:
            return best
        split = moved
    return best


def _named(
    priced: Priced, margins: Mapping[str, Fraction]
) -> dict[str, tuple[Aggregate, Fraction]] | None:
    """Return each aggregate and its error by one of its names; None if one lacks an error."""
    asked = {name.casefold(): margin for name, margin in margins.items()}
    made: dict[str, tuple[Aggregate, Fraction]] = {}
    for output in priced.plan.question.outputs:
        if isinstance(output.of, Aggregate) and output.name.casefold() in asked:
            made[output.name] = output.of, asked[output.name.casefold()]
    found = [of for of, _ in made.values()]
    is_whole = len(made) == len(asked) and {*found} == {*priced.plan.question.aggregates}
    if not is_whole or not 1 < len(found) == len({*found}):
        return None
    return made if sum(_LOOKS.get(of.verb, _MOST) for of in found) <= _MOST else None


def _moved(
    priced: Priced,
    split: Split,
    named: Mapping[str, tuple[Aggregate, Fraction]],
    people: int | None,
) -> dict[str, Fraction]:
    """Return the split by which each aggregate has as much less as it is surer than it has to be.

    Shares are thousandths of the largest, rounded up, so that they stay short.
    """
    wanted = {
        name: float(split[name]) * _kept(priced.margin(of, people), float(margin))
        for name, (of, margin) in named.items()
    }
    largest = max(wanted.values())
    return {
        name: Fraction(math.ceil(LARGEST * share / largest), LARGEST)
        for name, share in wanted.items()
    }


def _kept(reached: float | None, margin: float) -> float:
    """Return how much of its share is left to what reaches this error; never none of it."""
    return 1.0 if reached is None else min(1.0, max(reached / margin, 1 / LARGEST))
