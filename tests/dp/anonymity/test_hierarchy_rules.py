"""Hierarchies: what rules make of values, what is proposed, and how rules are written down."""

from __future__ import annotations

import json
import math
import tomllib
from fractions import Fraction

import pytest

from sfumato.dp.anonymity.coded_table import coded, table_of
from sfumato.dp.anonymity.generalization_hierarchy import build
from sfumato.dp.anonymity.hierarchy_files import read_rules, read_taxonomy, rule_json, rules_toml
from sfumato.dp.anonymity.hierarchy_rules import (
    EVERYTHING,
    Dates,
    Intervals,
    Prefixes,
    Rule,
    Taxonomy,
    built,
    proposed,
)
from sfumato.dp.refusal import Refused

RULES: dict[str, Rule] = {
    "age": Intervals((5, 10), 15),
    "zip": Prefixes((3, 1)),
    "born on": Dates(("month", "year")),
    "job": Taxonomy({"nurse": ("health",), 'a "b"': ("other",), "": ("other",)}),
    "sex": EVERYTHING,
}


def test_rules_survive_being_written_down() -> None:
    assert read_rules(tomllib.loads(rules_toml(RULES))) == RULES
    shape = {name: rule_json(rule) for name, rule in RULES.items()}
    assert read_rules(json.loads(json.dumps(shape))) == RULES


def test_each_kind_makes_its_groups() -> None:
    ages = built(coded("age", [17, 24, 25, None]), Intervals((5, 10), 15))
    assert ages.preview(4) == [
        ("17", "[15, 20)", "[15, 25)", "*"), ("24", "[20, 25)", "[15, 25)", "*"),
        ("25", "[25, 30)", "[25, 35)", "*"), ("", "", "", "*"),
    ]  # fmt: skip
    zips = built(coded("zip", ["12345", "12399"]), Prefixes((3, 1)))
    assert zips.preview(2) == [("12345", "123**", "1****", "*"), ("12399", "123**", "1****", "*")]
    days = built(coded("day", ["2026-11-22", "never"]), Dates(("quarter", "decade")))
    assert days.preview(2) == [
        ("2026-11-22", "2026 Q4", "2020s", "*"), ("never", "never", "never", "*"),
    ]  # fmt: skip


def test_losses_are_widths_of_numbers_and_shares_of_the_rest() -> None:
    ages = built(coded("age", [0, 4, 5, 10]), Intervals((5,)))
    assert [losses.tolist() for losses in ages.losses] == [
        [0, 0, 0, 0], [0.4, 0.4, 0, 0], [1, 1, 1, 1],
    ]  # fmt: skip
    jobs = built(coded("job", ["a", "b", "c", "d"]), read_taxonomy("a,x\nb,x\nc,y\nd,z\n"))
    assert [losses.tolist() for losses in jobs.losses] == [
        [0, 0, 0, 0], [0.5, 0.5, 0, 0], [1, 1, 1, 1],
    ]  # fmt: skip


def test_a_hierarchy_that_does_not_nest_is_refused() -> None:
    with pytest.raises(Refused, match="does not nest"):
        build(coded("x", [*"abc"]), [lambda v, _: "2" if v == "c" else "1", lambda _, text: text])


def test_digits_that_stand_for_a_place_are_no_sizes() -> None:
    for name in ("zip", "Postal code", "PLZ"):
        assert proposed(coded(name, [10115, 10117, 20095])) == Prefixes((4, 3, 2, 1))
        assert isinstance(proposed(coded(name, [115, 10117, 20095])), Intervals)
    assert isinstance(proposed(coded("salary", [10115, 10117, 20095])), Intervals)


@pytest.mark.parametrize(("values", "rule"), [
    (list(range(17, 91)), Intervals((2, 8, 32), 0)),
    (["2026-01-02", "2026-03-04", "2025-03-04"], Dates(("month", "quarter", "year", "decade"))),
    (["2026-01-02T03:04", "2026-03-04 05:06:07.5+01:00", "2025-03-04T00:00Z"],
     Dates(("month", "quarter", "year", "decade"))),
    (["00310", "00311", "00420"], Prefixes((4, 3, 2, 1))),
    (["red", "green", "blue"], EVERYTHING),
    ([True, False], EVERYTHING),
    ([], EVERYTHING),
    ([1, "x", None], EVERYTHING),
])  # fmt: skip
def test_a_rule_is_proposed_by_what_the_values_look_like(values: list[object], rule: Rule) -> None:
    column = coded("c", values)  # type: ignore[arg-type]  # values
    assert proposed(column) == rule
    assert built(column, rule).levels[-1].labels in (("*",), ())


def test_a_rule_is_used_again_on_a_new_table() -> None:
    rule = proposed(coded("age", list(range(17, 91))))
    later = built(coded("age", [3, 99]), rule)
    assert later.preview(2)[1] == ("99", "[98, 100)", "[96, 104)", "[96, 128)", "*")


def test_values_outside_a_hierarchy_are_refused_without_naming_them() -> None:
    table = table_of({"zip": ["10", "secret"]})
    hierarchy = built(coded("zip", ["10", "11"]), Prefixes((1,)))
    with pytest.raises(Refused) as refused:
        hierarchy.codes_of(table.columns["zip"])
    assert "secret" not in str(refused.value)
    with pytest.raises(Refused, match="taxonomy lacks"):
        built(table.columns["zip"], Taxonomy({"10": ("1",)}))


def test_a_taxonomy_is_read_from_csv_as_others_write_it() -> None:
    assert read_taxonomy("Private;Work;*\nNever;None;*\n") == Taxonomy(
        {"Private": ("Work",), "Never": ("None",)}
    )
    assert read_taxonomy("a, x\na,x\n") == Taxonomy({"a": ("x",)})
    with pytest.raises(Refused, match="differ in length"):
        read_taxonomy("a,b,c\nd,e\n")
    with pytest.raises(Refused, match="two different lines for the same value"):
        read_taxonomy("a,x\na,y\n")
    for nothing in ("", 'a,"x' + "y" * 200_000):
        with pytest.raises(Refused, match="cannot be read"):
            read_taxonomy(nothing)


@pytest.mark.parametrize("shape", [
    {}, {"kind": "magic"}, {"kind": "intervals"}, {"kind": "intervals", "widths": "x"},
    {"kind": "prefixes", "keep": [1.5]}, {"kind": "prefixes", "keep": [True]},
    {"kind": "dates", "units": ["week"]}, {"kind": "dates", "units": "month"}, [1],
    {"kind": "intervals", "widths": [10**400]}, {"kind": "intervals", "widths": ["5"]},
    {"kind": "intervals", "widths": [5], "start": [1]}, {"kind": "taxonomy", "groups": "x"},
    {"kind": "taxonomy", "groups": {"nurse": "health"}},
], ids=str)  # fmt: skip
def test_what_is_no_rule_is_refused(shape: object) -> None:
    with pytest.raises(Refused, match="cannot be read"):
        read_rules({"age": shape})


NONSENSE: list[Rule] = [
    Intervals((0,)), Intervals((-1,)), Intervals((math.nan,)), Intervals((math.inf,)),
    Intervals((1e-320,)), Intervals((10, 15)), Intervals((5, 5)), Intervals((5,), math.nan),
    Intervals((5,), math.inf), Prefixes((1, 3)), Prefixes((1, -1)), Prefixes((2, 2)),
    Dates(("year", "month")),
]  # fmt: skip


@pytest.mark.parametrize("rule", NONSENSE, ids=str)
def test_a_rule_that_makes_no_sense_is_refused(rule: Rule) -> None:
    with pytest.raises(Refused, match="Correct the rule"):
        built(coded("age", [1, 2, 3]), rule)


def test_an_interval_is_written_exactly_and_holds_its_number() -> None:
    """Six digits would make one class of five, and floats put 2.3 below 2.3."""
    cases: list[tuple[float, list[float]]] = [
        (10.0, [10_000_000 + n for n in range(100)]),
        (0.1, [n / 10 for n in range(30)]),
        (0.05, [n / 100 for n in range(300)]),
        (1e-9, [123456789.000000001]),
    ]
    for width, values in cases:
        (step,) = Intervals((width,)).steps
        for value in values:
            low, high = (Fraction(end) for end in step(value, "").strip("[)").split(", "))
            assert low <= Fraction(str(value)) < high
            assert high - low == Fraction(str(width))


@pytest.mark.parametrize("lines", ["a,b\nb,c\nc,a\n", "a,x,y\nb,y,y\nc,z,z\n", "a,\nb,\n,x\n"])
def test_a_group_is_not_named_like_what_is_outside_it(lines: str) -> None:
    """A cell `b` would be a row that was `a` in one class, and one that was `b` in another."""
    values = [line.split(",")[0] or None for line in lines.splitlines()]
    rule = read_taxonomy(lines)
    if lines.startswith("a,x"):  # `y` is `b` at one level, and `a` and `b` at the next
        assert built(coded("job", values), rule).height == 4
        return
    with pytest.raises(Refused, match="name of a value or group outside it"):
        built(coded("job", values), rule)


def test_what_a_width_of_one_says_of_whole_numbers_is_not_proposed() -> None:
    assert proposed(coded("age", list(range(18, 78)))) == Intervals((4, 16), 16)
    assert proposed(coded("age", [1, 2, 3])) == EVERYTHING
    assert proposed(coded("share", [0.25, 1, 3])) != EVERYTHING


def test_of_long_codes_a_few_prefixes_are_proposed() -> None:
    codes = [f"{n:040d}" for n in range(3)]
    assert proposed(coded("code", codes)) == Prefixes((35, 31, 26, 22, 17, 13, 8, 4))
    for letters in range(2, 9):
        rule = proposed(coded("code", [code[-letters:] for code in codes]))
        assert rule == Prefixes(tuple(range(letters - 1, 0, -1)))


def test_numbers_whose_ends_were_cut_are_proposed_intervals_still() -> None:
    ages = list(range(20, 81))
    assert proposed(coded("age", ["<20", *ages, ">80"])) == proposed(coded("age", ages))
    assert proposed(coded("age", ["<x", *ages])) == EVERYTHING
