"""Questions have one canonical form, and JSON that reads back to the same question."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.question import (
    OPERATORS,
    VERBS,
    Aggregate,
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    IsNull,
    Not,
    Output,
    Predicate,
    Question,
    canonical,
    question_json,
    read_question,
)
from sfumato.core.refusal import Refused

NAMES = st.sampled_from(["age", "zip", "salary"])
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
CONSTANTS = st.one_of(st.booleans(), st.integers(-99, 99), st.fractions(), TEXTS).map(Constant.of)
LEAVES = st.one_of(
    st.builds(Compare, NAMES, st.sampled_from(OPERATORS), CONSTANTS),
    st.builds(Among, NAMES, st.lists(CONSTANTS, min_size=1, max_size=4).map(tuple)),
    st.builds(IsNull, NAMES),
)
PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(All, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)
OUTPUTS = st.builds(
    Output,
    TEXTS,
    st.one_of(NAMES, st.builds(Aggregate, st.sampled_from(VERBS), NAMES)),
)
QUESTIONS = st.builds(
    Question,
    st.just("clinic"),
    st.lists(OUTPUTS, max_size=4).map(tuple),
    st.one_of(st.none(), PREDICATES),
    st.lists(NAMES, max_size=2).map(tuple),
    st.one_of(st.none(), st.integers(1, 99)),
    st.one_of(st.none(), st.integers(1, 99)),
)


@given(QUESTIONS)
def test_a_question_reads_back_from_its_json(question: Question) -> None:
    assert read_question(json.loads(json.dumps(question_json(question)))) == question


@given(PREDICATES)
def test_the_canonical_form_is_stable(predicate: Predicate) -> None:
    assert canonical(canonical(predicate)) == canonical(predicate)


@given(st.lists(PREDICATES, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_order_doubles_and_nesting_do_not_change_the_canonical_form(
    parts: list[Predicate], dice: object
) -> None:
    shuffled = [*parts[::-1], parts[0]]
    nested = All((All(tuple(shuffled[:2])), *shuffled[2:]))
    assert canonical(All(tuple(parts))) == canonical(nested)


def test_a_float_means_the_number_that_was_typed() -> None:
    assert Constant.of(0.1).number == Fraction(1, 10)


@pytest.mark.parametrize(
    "shape",
    [
        None,
        [],
        {},
        {"data_set": "x", "outputs": [], "evil": 1},
        {"data_set": 3, "outputs": []},
        {"data_set": "x", "outputs": "all"},
        {"data_set": "x", "outputs": [{"name": "n", "verb": "rows", "column": ""}]},
        {"data_set": "x", "outputs": [], "where": {"is": "sql", "text": "1=1"}},
        {"data_set": "x", "outputs": [], "where": {"is": "compare", "column": "a", "op": "~"}},
        {"data_set": "x", "outputs": [], "max_rows": True},
        {"data_set": "x", "outputs": [], "max_rows": 0},
        {"data_set": "x", "outputs": [], "max_rows": 10**9},
        {"data_set": "x" * 2000, "outputs": []},
    ],
)
def test_json_that_is_no_question_is_refused(shape: object) -> None:
    with pytest.raises(Refused):
        read_question(shape)


def test_a_number_that_is_no_number_is_refused() -> None:
    for text in ("1/0", "x", "", "1e5", "9" * 99, "__import__('os')"):
        constant = {"kind": "number", "text": text}
        where = {"is": "compare", "column": "a", "op": "=", "to": constant}
        with pytest.raises(Refused):
            read_question({"data_set": "x", "outputs": [], "where": where})


def test_conditions_that_go_too_deep_are_refused() -> None:
    where: dict[str, object] = {"is": "null", "column": "a"}
    for _ in range(40):
        where = {"is": "not", "of": where}
    with pytest.raises(Refused):
        read_question({"data_set": "x", "outputs": [], "where": where})
