"""A condition in canonical form holds where it held before, and leaves open what it left open."""

from __future__ import annotations

import random
from collections import Counter

from asking import Asking
from plain_reading import Reading, card, some_rows
from sfumato.core.expression import All, AnyOf, Not, Predicate, canonical
from sfumato.core.question import Question
from sfumato.core.refusal import Refused
from sfumato.plan.scope import card_scope
from sfumato.plan.tables import view_of


def denied(rng: random.Random, condition: Predicate, depth: int = 3) -> Predicate:
    """Return the condition under NOTs and beside others, some of them its own opposite."""
    if depth == 0:
        return condition
    inner = denied(rng, condition, depth - 1)
    kind = rng.choice((All, AnyOf))
    several = (inner, Not(condition), inner) if rng.random() < 0.3 else (inner,)
    return rng.choice((inner, Not(inner), Not(inner), Not(Not(inner)), kind(several)))


def test_a_condition_turned_holds_of_the_same_rows() -> None:
    rng, seen, turned = random.Random(1), Counter[bool | None](), 0
    reading = Reading(card_scope(view_of(card(), Question("t", ()))[0]))
    for _ in range(3000):
        condition = denied(rng, Asking(rng).condition(1))
        made = canonical(condition)
        turned += made != condition
        assert canonical(made) == made
        for row in some_rows(rng, 2, 2):
            try:
                truth = reading.holds(condition, row.cells)
            except Refused:  # an expression that no card can bound
                break
            assert reading.holds(made, row.cells) is truth, (condition, row.texts)
            seen[truth] += 1
    assert turned > 1500
    assert min(seen[truth] for truth in (True, False, None)) > 500
