"""A condition in canonical form holds where it held before, and leaves open what it left open."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sfumato.dp.refusal import Refused
from sfumato.query.canonical_conditions import canonical_condition, selection_condition
from sfumato.query.expression import (
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    IsNull,
    Not,
    Predicate,
    Ref,
    walk,
)
from sfumato.query.join import joined_view
from sfumato.query.model import Query
from sfumato.query.name_resolution import card_scope
from sfumato.query.plan import make_plan
from sfumato.query.sql.select import read_sql
from support.query_oracle import Reading, card, some_rows
from support.random_queries import Asking


def denied(rng: random.Random, condition: Predicate, depth: int = 3) -> Predicate:
    """Return the condition under NOTs and beside others, some of them its own opposite."""
    if depth == 0:
        return condition
    inner = denied(rng, condition, depth - 1)
    kind = rng.choice((All, AnyOf))
    several = (inner, Not(condition), inner) if rng.random() < 0.3 else (inner,)
    return rng.choice((inner, Not(inner), Not(inner), Not(Not(inner)), kind(several)))


def listed(rng: random.Random, condition: Predicate) -> Predicate:
    """Return the condition beside others of the same value, so that lists come together."""
    found = [part for part in walk(condition) if isinstance(part, Compare | Among)]
    if not found or rng.random() < 0.3:
        return condition
    of = rng.choice(found)
    constants = of.constants if isinstance(of, Among) else (of.constant,)
    parts: tuple[Predicate, ...] = (
        Compare(of.of, rng.choice(("=", "!=")), rng.choice(constants)),
        Not(IsNull(of.of)),
        Among(of.of, (constants[0], constants[-1])),
        Not(Among(of.of, constants)),
    )
    return rng.choice((All, AnyOf))((condition, *rng.sample(parts, rng.randint(1, 3))))


def test_a_condition_turned_holds_of_the_same_rows() -> None:
    rng, seen, turned = random.Random(1), Counter[bool | None](), 0
    reading = Reading(card_scope(joined_view(card(), Query("t", ()))[0]))
    for _ in range(3000):
        condition = denied(rng, listed(rng, Asking(rng).condition(1)))
        made = canonical_condition(condition)
        chosen = selection_condition(made)
        turned += made != condition
        assert canonical_condition(made) == made
        assert canonical_condition(chosen) == selection_condition(chosen) == chosen
        for row in some_rows(rng, 2, 2):
            try:
                truth = reading.holds(condition, row.cells)
            except Refused:  # an expression that no card can bound
                break
            assert reading.holds(made, row.cells) is truth, (condition, row.texts)
            selected = reading.holds(chosen, row.cells)
            assert (selected is True) is (truth is True), (condition, row.texts)
            seen[truth] += 1
    assert turned > 1500
    assert min(seen[truth] for truth in (True, False, None)) > 500


SAME = [
    ("NOT (age > 3 AND sick)", "age <= 3 OR NOT sick"),
    ("NOT (age > 3 OR NOT sick)", "NOT age > 3 AND sick"),
    ("age NOT BETWEEN 3 AND 5", "age < 3 OR age > 5"),
    ("grade IN (1, 2)", "grade = 2 OR grade = 1"),
    ("grade IN (1, 2, 3)", "grade = 2 OR (grade IN (3, 1) OR grade = 2)"),
    ("grade NOT IN (1, 2)", "grade <> 2 AND NOT grade = 1"),
    ("NOT (grade NOT IN (1, 2) AND sick)", "grade = 1 OR sick = FALSE OR grade = 2"),
    ("sick IS FALSE", "NOT sick"),
    ("sick IS TRUE AND age > 3", "age > 3 AND sick"),
    ("sick IS FALSE OR age > 3", "sick = FALSE OR age > 3"),
    ("age IS NOT NULL AND age > 3", "age > 3"),
    ("age IS NOT NULL AND age NOT IN (3, 4)", "age NOT IN (4, 3)"),
]
OTHERS = [
    ("NOT (sick IS FALSE)", "NOT (sick = FALSE)"),
    ("sick IS NOT FALSE", "sick IS TRUE"),
    ("age IS NOT NULL OR age > 3", "age > 3"),
    ("age IS NOT NULL AND pay > 3", "pay > 3"),
    ("grade = 1 OR pay = 2", "grade IN (1, 2)"),
    ("grade <> 1 OR grade <> 2", "grade NOT IN (1, 2)"),
    ("grade = 1 AND grade = 2", "grade IN (1, 2)"),
]


def asked(condition: str, form: str = "SELECT COUNT(*) FROM t WHERE {}") -> str:
    return make_plan(card(), read_sql(form.format(condition), "t")).digest()


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_spellings_of_one_condition_are_one_question(one: str, other: str) -> None:
    assert asked(one) == asked(other)
    within = "SELECT COUNT(*) FILTER (WHERE {}) FROM t"
    assert asked(one, within) == asked(other, within)


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_two_conditions_are_two_questions(one: str, other: str) -> None:
    assert asked(one) != asked(other)


def test_what_is_false_and_what_is_open_are_told_apart_where_it_matters() -> None:
    known = All((Not(IsNull(Ref("sick"))), Compare(Ref("sick"), "=", Constant.of(False))))
    assert canonical_condition(known) == All(tuple(sorted(known.predicates, key=repr)))
    assert selection_condition(canonical_condition(known)) == known.predicates[1]
    assert canonical_condition(Not(known)) != canonical_condition(Not(known.predicates[1]))
    as_a_key = "SELECT {}, COUNT(*) FROM t GROUP BY 1"
    assert asked("sick IS FALSE", as_a_key) != asked("sick = FALSE", as_a_key)


def test_a_turned_condition_is_hardly_longer() -> None:
    inner: Predicate = IsNull(Ref("age"))
    for place in range(300):
        inner = Not((All, AnyOf)[place % 2]((inner, Compare(Ref("pay"), ">", Constant.of(place)))))
    before, after = (sum(1 for _ in walk(one)) for one in (inner, canonical_condition(inner)))
    assert after <= before
