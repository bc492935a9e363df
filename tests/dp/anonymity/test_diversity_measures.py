"""Measures against another library's numbers, against fractions, and by hand where they differ."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.anonymity.anonymity_check import check
from sfumato.dp.anonymity.coded_table import NOTHING, Table, Value, decoded, read_numbers, table_of
from sfumato.dp.anonymity.equivalence_classes import key_of
from sfumato.dp.refusal import Refused
from support.k_anonymity_plain import Rows, classes, measures, rows_of, shares

# What pycanon 1.3.5 says of these tables (in its own environment, 2026-11).
GOLDEN: list[dict[str, Any]] = json.loads((Path(__file__).parent / "pycanon.json").read_text())
NAMES = [case["name"] for case in GOLDEN]


@pytest.mark.parametrize("case", GOLDEN, ids=NAMES)
def test_k_alpha_l_t_beta_and_delta_are_those_of_pycanon(case: dict[str, Any]) -> None:
    """Counts to the last digit; divided ones to one unit in the last place, logarithms to two."""
    found = _checked(case)
    assert (found.k, found.of_all("l")) == (case["k"], case["l"])
    for name in ("alpha", "t", "beta", "delta"):
        ours, theirs = found.of_all(name), case[name]
        assert abs(ours - theirs) <= (2 if name == "delta" else 1) * math.ulp(theirs), name


@pytest.mark.parametrize("case", GOLDEN, ids=NAMES)
def test_where_the_last_digit_differs_the_fraction_says_who_is_right(case: dict[str, Any]) -> None:
    """alpha, t and beta are fractions of counts, rounded once; delta is no farther than pycanon's.

    By hand: of nine salaries a class holds the three lowest, so t is 3/8 = 0.375; pycanon, which
    adds up rounded shares, says 0.37500000000000006.
    """
    found, plain = _checked(case), rows_of(table_of(case["columns"]))
    of_each = []
    for hidden in case["sensitive"]:
        known = [one for one in case["sensitive"] if one != hidden and case["others_known"]]
        of_each.append(measures(plain, [*case["quasi"], *known], hidden))
    for name in ("alpha", "t", "beta"):
        assert found.of_all(name) == max(one[name] for one in of_each), name
    gains = [_furthest(plain, case, hidden) for hidden in case["sensitive"]]
    truth = max((abs((q / p).ln()) for q, p in gains), default=Decimal(0))
    ours, theirs = Decimal(found.of_all("delta")), Decimal(case["delta"])
    assert abs(ours - truth) <= max(abs(theirs - truth), Decimal(math.ulp(float(truth))))


def _furthest(rows: Rows, case: dict[str, Any], hidden: str) -> tuple[Decimal, Decimal]:
    """Return the two shares that are farthest apart: of a class, and of the table."""
    known = [one for one in case["sensitive"] if one != hidden and case["others_known"]]
    of_all = shares(rows, hidden)
    pairs = [
        (q, of_all[value])
        for one in classes(rows, [*case["quasi"], *known])
        for value, q in shares(one, hidden).items()
    ]
    q, p = max(pairs, key=lambda pair: max(pair[0] / pair[1], pair[1] / pair[0]))
    return Decimal(q.numerator) / q.denominator, Decimal(p.numerator) / p.denominator


def test_the_fractions_of_the_textbook_case_are_met() -> None:
    (li,) = (case for case in GOLDEN if case["name"] == "li")
    assert (_checked(li).of_all("t"), li["t"]) == (0.375, 0.37500000000000006)


@pytest.mark.parametrize("case", GOLDEN, ids=NAMES)
def test_entropy_l_is_that_of_pycanon_but_where_values_are_even(case: dict[str, Any]) -> None:
    found = math.floor(_checked(case).of_all("entropy_l"))
    is_even = case["name"] in ("hospital salary", "li", "li disease", "even")
    assert found == case["entropy_l"] + is_even


def test_three_even_values_are_worth_three_though_pycanon_says_two() -> None:
    """exp(ln 3) is 3, but in floats a hair less, which pycanon cuts down to 2."""
    table = table_of({"a": ["x"] * 3 + ["y"] * 3, "s": ["p", "q", "r"] * 2})
    assert check(table, ["a"], ["s"]).of_all("entropy_l") == 3


def test_recursive_diversity_is_measured_from_the_most_frequent_value() -> None:
    """r1 < c (r_l + ... + r_m), r1 the most frequent: of 5, 2, 1 and l = 3 the tail is 1, so 5.

    pycanon sorts the other way round: 1 / (5) + 1, cut down to 1, for whatever counts.
    """
    values = ["p"] * 5 + ["q"] * 2 + ["r"]
    found = check(table_of({"a": ["x"] * 8, "s": values}), ["a"], ["s"])
    assert (found.of_all("l"), found.of_all("recursive_c")) == (3, 5)


def test_enhanced_beta_holds_each_value_against_its_own_share() -> None:
    """p = 1/4, 3/4; a class of q = 1/2, 1/2: gains 1 and -1/3, and -ln(1/4) is above 1: beta is 1.

    A class where the rare value is alone gains 3, above 1.386: no beta is enough. pycanon takes
    the smaller of the largest gain and the largest -ln p of any value: 1.386.
    """
    mixed = table_of({"a": ["x"] * 4 + ["y"] * 4, "s": [*"pqqq", *"pqqq"]})
    assert check(mixed, ["a"], ["s"]).of_all("enhanced_beta") == 0
    half = table_of({"a": ["x"] * 2 + ["z"] * 6, "s": [*"pq", *"pqqqqq"]})
    assert check(half, ["a"], ["s"]).of_all("enhanced_beta") == pytest.approx(1)
    alone = table_of({"a": ["x"] + ["y"] * 3, "s": [*"p", *"qqq"]})
    assert check(alone, ["a"], ["s"]).of_all("enhanced_beta") == math.inf


def test_rows_with_a_missing_value_are_a_class_though_pycanon_leaves_them_out() -> None:
    """A row whose zip is missing is told from all others by just that: k is 1, not 2."""
    table = table_of({"zip": ["1", "1", None]})
    assert (check(table, ["zip"]).k, check(table, ["zip"]).classes) == (1, 2)


def test_a_class_that_lacks_a_value_is_said_beside_delta() -> None:
    """ln(q/p) of a value that the class does not hold is infinite; delta leaves such values out."""
    table = table_of({"a": ["x", "x", "y", "y"], "s": [*"pq", *"qq"]})
    found = check(table, ["a"], ["s"])
    assert found.of_all("delta") == pytest.approx(math.log(2))
    assert found.of_all("lacking") == 1


VALUES: st.SearchStrategy[Value] = st.sampled_from(["a", "b", "", None, 1, 2.5, True, False])
TEXTS = st.sampled_from("pqr")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(VALUES, TEXTS, st.integers(0, 4)), min_size=1, max_size=30))
def test_every_measure_is_what_fractions_say(rows: list[tuple[Value, str, int]]) -> None:
    table = table_of(
        {"a": [r[0] for r in rows], "s": [r[1] for r in rows], "n": [r[2] for r in rows]}
    )
    plain = rows_of(table)
    for column in ("n", "s"):
        found = check(table, ["a"], [column]).sensitive[column]
        expected = measures(plain, ["a"], column)
        assert {name: found[name] for name in expected} == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("pqrst")), min_size=1, max_size=40)
)
def test_weights_are_as_good_as_rows(rows: list[tuple[str, str]]) -> None:
    whole = table_of({"a": [r[0] for r in rows], "s": [r[1] for r in rows]})
    kinds = sorted(set(rows))
    weights = np.array([rows.count(kind) for kind in kinds], np.int64)
    columns = table_of({"a": [k[0] for k in kinds], "s": [k[1] for k in kinds]}).columns
    assert check(Table(columns, len(kinds), weights), ["a"], ["s"]) == check(whole, ["a"], ["s"])


def test_the_worst_classes_come_first() -> None:
    table = table_of({"a": [*"xxxyyz"], "s": [*"pqpppq"]})
    found = check(table, ["a"], ["s"]).worst
    assert [(one.values, one.size, one.held["s"]["l"]) for one in found] == [
        (("z",), 1, 1), (("y",), 2, 1), (("x",), 3, 2),
    ]  # fmt: skip
    assert [one.size for one in check(table, ["a"]).worst] == [1, 2, 3]


def test_all_other_columns_are_quasi_identifiers_unless_named() -> None:
    table = table_of({"a": [1, 1], "b": [1, 2], "s": [1, 1]})
    assert check(table, sensitive=["s"]).quasi == ("a", "b")
    assert check(table, sensitive=["s"]).k == 1


def test_a_table_without_rows_has_no_classes() -> None:
    found = check(table_of({"a": [], "s": []}), ["a"], ["s"])
    assert (found.rows, found.k, found.classes, found.worst) == (0, 0, 0, ())


def test_a_million_different_texts_are_a_million_classes() -> None:
    table = table_of({"a": [f"person {n}" for n in range(1_000_000)]})
    found = check(table, ["a"])
    assert (found.k, found.classes, found.alone) == (1, 1_000_000, 1_000_000)


def test_without_quasi_identifiers_all_rows_are_one_class() -> None:
    assert check(table_of({"s": [1, 2, 3]}), [], ["s"]).k == 3


def test_a_column_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="unknown-column: The table has no column 'b'"):
        check(table_of({"a": [1]}), ["b"])


def test_mixed_kinds_are_different_values() -> None:
    assert check(table_of({"a": [1, "1", True, None, 1.5]}), ["a"]).classes == 5


@pytest.mark.parametrize(("texts", "values"), [
    (["1", "-2.5", "", "1e3"], [1, -2.5, None, 1000]),
    (["1", "NA"], [1, None]),
    (["NA", "DE"], ["NA", "DE"]),
    (["01", "2"], ["01", "2"]),
    (["+491", "2"], ["+491", "2"]),
    (["1_0", "2"], ["1_0", "2"]),
    (["1.1", "1.10"], ["1.1", "1.10"]),
    (["1", "x", ""], ["1", "x", None]),
    (["inf", "1"], ["inf", "1"]),
    (["\u0663", "1"], ["\u0663", "1"]),
    (["9" * 400, "1"], ["9" * 400, "1"]),
    (["1e999", "1"], ["1e999", "1"]),
    (["1e-320", "1"], ["1e-320", "1"]),
    (["9007199254740993", "9007199254740992"], [9007199254740993, 9007199254740992]),
    (["0.1234567890123456781", "0.1234567890123456782"],
     ["0.1234567890123456781", "0.1234567890123456782"]),
], ids=ascii)  # fmt: skip
def test_texts_are_numbers_only_if_nothing_is_lost_by_that(
    texts: list[str], values: list[Value]
) -> None:
    assert read_numbers(texts) == values
    column = decoded("c", texts, np.arange(len(texts)))
    assert [column.written[code] for code in column.codes.tolist()] == texts


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("0123456789.-+eE_ NA"), max_size=6), unique=True))
def test_no_text_is_altered_by_being_read(texts: list[str]) -> None:
    """Several ways to say that nothing is known of a number are the exception: all are empty."""
    column = decoded("c", texts, np.arange(len(texts)))
    written = [column.written[code] for code in column.codes.tolist()]
    nothing = [text for text in texts if text in NOTHING]
    expected = ["" if text in nothing and len(nothing) > 1 else text for text in texts]
    assert written in (texts, expected)


def _checked(case: dict[str, Any]) -> Any:
    table = table_of(case["columns"])
    return check(table, case["quasi"], case["sensitive"], others_known=case["others_known"])


@pytest.mark.parametrize("count", [2**21, 2**31])
def test_rows_that_differ_in_the_first_of_many_wide_columns_stay_apart(count: int) -> None:
    """Without a guard the number of a row passes 64 bits, and what is above is lost."""
    rows = np.array(list(product((0, count - 1), (0, 1), (0, 1))), dtype=np.int64)
    columns = [(np.ascontiguousarray(column), count) for column in rows.T]
    key = key_of(columns, len(rows))
    assert len(set(key.tolist())) == len(rows)
    assert (key >= 0).all()
    assert key.tolist() == key_of(columns, len(rows)).tolist()


def test_rows_that_are_alike_in_many_wide_columns_are_of_one_class() -> None:
    rows = np.array([(7, 2**40, 3), (7, 2**40, 3), (8, 2**40, 3)], dtype=np.int64)
    key = key_of([(np.ascontiguousarray(column), 2**41) for column in rows.T], 3)
    assert key[0] == key[1] != key[2]
