"""Questions have one canonical form, and JSON that reads back to the same question."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.dp.refusal import Refused
from sfumato.query.aggregates.registry import AGGREGATES
from sfumato.query.canonical_conditions import canonical_condition
from sfumato.query.expression import (
    FIELDS,
    OPERATORS,
    SIGNS,
    UNITS,
    All,
    Among,
    AnyOf,
    Arithmetic,
    Case,
    Clamp,
    Coalesce,
    Compare,
    Constant,
    DateField,
    DateTrunc,
    Expr,
    Floor,
    IsNull,
    LiteralValue,
    Not,
    Predicate,
    Ref,
    StartsWith,
)
from sfumato.query.model import (
    REDUCTIONS,
    Aggregate,
    Joined,
    JoinedPersonTable,
    Order,
    Output,
    PersonColumn,
    PersonTable,
    Query,
    query_json,
)
from sfumato.query.query_from_json import read_query

NAMES = st.sampled_from(["age", "zip", "salary"])
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
CONSTANTS = st.one_of(st.booleans(), st.integers(-99, 99), st.fractions(), TEXTS).map(Constant.of)
EXPRESSIONS: st.SearchStrategy[Expr] = st.recursive(
    st.one_of(st.builds(Ref, NAMES), st.builds(LiteralValue, CONSTANTS)),
    lambda inner: st.one_of(
        st.builds(Arithmetic, st.sampled_from(SIGNS), inner, inner),
        st.builds(Floor, inner),
        st.builds(Clamp, inner, st.none() | CONSTANTS, st.none() | CONSTANTS),
        st.builds(Coalesce, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(
            Case,
            st.tuples(st.tuples(st.builds(IsNull, inner), inner)),
            st.none() | inner,
        ),
        st.builds(DateTrunc, st.sampled_from(UNITS), inner),
        st.builds(DateField, st.sampled_from(FIELDS), inner),
    ),
    max_leaves=4,
)
LEAVES = st.one_of(
    st.builds(Compare, EXPRESSIONS, st.sampled_from(OPERATORS), CONSTANTS),
    st.builds(Among, EXPRESSIONS, st.lists(CONSTANTS, min_size=1, max_size=4).map(tuple)),
    st.builds(StartsWith, EXPRESSIONS, TEXTS),
    st.builds(IsNull, EXPRESSIONS),
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
SOME_AGGREGATES = st.builds(
    Aggregate,
    st.sampled_from(sorted(AGGREGATES)),
    st.lists(EXPRESSIONS, max_size=2).map(tuple),
    st.none() | st.fractions(0, 1),
    st.none() | st.integers(1, 99),
    st.none() | st.tuples(CONSTANTS, CONSTANTS),
)
OUTPUTS = st.builds(Output, TEXTS, st.one_of(EXPRESSIONS, SOME_AGGREGATES), st.booleans())
SOURCES = st.builds(
    PersonTable,
    st.lists(
        st.builds(PersonColumn, TEXTS, st.sampled_from(REDUCTIONS), st.none() | EXPRESSIONS),
        max_size=2,
    ).map(tuple),
    st.none() | PREDICATES,
    NAMES,
)
BOUNDS = st.none() | st.integers(1, 99)
REFS = st.builds(Ref, NAMES)
JOINS = st.lists(
    st.builds(Joined, NAMES, st.lists(NAMES, max_size=2).map(tuple), st.booleans()), max_size=1
).map(tuple)
SMALL = st.builds(
    PersonTable,
    st.lists(
        st.builds(PersonColumn, TEXTS, st.sampled_from(REDUCTIONS), st.none() | REFS), max_size=2
    ).map(tuple),
    st.none() | st.builds(IsNull, REFS),
    NAMES,
)
BESIDE = st.lists(st.builds(JoinedPersonTable, SMALL, NAMES, JOINS, st.booleans()), max_size=2)
QUESTIONS = st.builds(
    Query,
    st.just("clinic"),
    st.lists(OUTPUTS, max_size=3).map(tuple),
    st.none() | PREDICATES,
    st.lists(EXPRESSIONS, max_size=2).map(tuple),
    BOUNDS,
    BOUNDS,
    st.none() | SOURCES,
    st.none() | PREDICATES,
    st.lists(st.builds(Order, TEXTS, st.booleans()), max_size=2).map(tuple),
    BOUNDS,
    NAMES,
    JOINS,
    BESIDE.map(tuple),
)


@given(QUESTIONS)
def test_a_question_reads_back_from_its_json(question: Query) -> None:
    assert read_query(json.loads(json.dumps(query_json(question)))) == question


@given(PREDICATES)
def test_the_canonical_form_is_stable(predicate: Predicate) -> None:
    assert canonical_condition(canonical_condition(predicate)) == canonical_condition(predicate)


@given(st.lists(PREDICATES, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_order_doubles_and_nesting_do_not_change_the_canonical_form(
    parts: list[Predicate], dice: object
) -> None:
    shuffled = [*parts[::-1], parts[0]]
    nested = All((All(tuple(shuffled[:2])), *shuffled[2:]))
    assert canonical_condition(All(tuple(parts))) == canonical_condition(nested)


def test_a_float_means_the_number_that_was_typed() -> None:
    assert Constant.of(0.1).number == Fraction(1, 10)


COLUMN = {"is": "column", "name": "a"}


@pytest.mark.parametrize(
    "shape",
    [
        None,
        [],
        {},
        {"data_set": "x", "outputs": [], "evil": 1},
        {"data_set": 3, "outputs": []},
        {"data_set": "x", "outputs": "all"},
        {"data_set": "x", "outputs": [{"name": "n", "verb": "rows", "of": []}]},
        {"data_set": "x", "outputs": [], "where": {"is": "sql", "text": "1=1"}},
        {
            "data_set": "x",
            "outputs": [],
            "where": {"is": "compare", "of": {"is": "column", "name": "a"}, "op": "~"},
        },
        {"data_set": "x", "outputs": [], "where": {"is": "null", "of": "a", "evil": 1}},
        {"data_set": "x", "outputs": [], "group_by": [{"is": "sql", "text": "1"}]},
        {"data_set": "x", "outputs": [], "order": [["a"]]},
        {"data_set": "x", "outputs": [], "source": {"columns": [], "evil": 1}},
        {"data_set": "x", "outputs": [], "beside": {}},
        {"data_set": "x", "outputs": [], "beside": [{"table": "y"}]},
        {"data_set": "x", "outputs": [], "beside": [{"source": {"columns": []}, "keeps_all": 1}]},
        {"data_set": "x", "outputs": [], "beside": [{"source": {"columns": []}, "on": []}]},
        {"data_set": "x", "outputs": [], "max_rows": True},
        {"data_set": "x", "outputs": [], "max_rows": 0},
        {"data_set": "x", "outputs": [], "max_rows": 10**9},
        {"data_set": "x" * 2000, "outputs": []},
    ],
)
def test_json_that_is_no_question_is_refused(shape: object) -> None:
    with pytest.raises(Refused):
        read_query(shape)


def test_a_number_that_is_no_number_is_refused() -> None:
    for text in ("1/0", "x", "", "1e5", "9" * 99, "__import__('os')"):
        constant = {"kind": "number", "text": text}
        of = {"is": "column", "name": "a"}
        where = {"is": "compare", "of": of, "op": "=", "to": constant}
        with pytest.raises(Refused):
            read_query({"data_set": "x", "outputs": [], "where": where})


def test_conditions_that_go_too_deep_are_refused() -> None:
    where: dict[str, object] = {"is": "null", "of": {"is": "column", "name": "a"}}
    for _ in range(60):
        where = {"is": "not", "of": where}
    with pytest.raises(Refused):
        read_query({"data_set": "x", "outputs": [], "where": where})
