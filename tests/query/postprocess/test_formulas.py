"""Arithmetic over aggregates: what it is read as, what it is refused for, and what its error is."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from sfumato.dp.confidence.ratio_of_sums import MAX_NUMBERS
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Refused
from sfumato.query.contribution_bounds import bounds_text
from sfumato.query.expression import Arithmetic, Case, Compare, Constant, Floor, LiteralValue, Ref
from sfumato.query.model import Aggregate, Formula, Output, Query, query_json
from sfumato.query.plan import Plan, make_plan
from sfumato.query.postprocess.formula_errors import FormulaErrors
from sfumato.query.postprocess.formulas import evaluate_formula
from sfumato.query.postprocess.having_order_limit import is_selected_after_noise
from sfumato.query.postprocess.linear_forms import Linear, Ratio, linear_form, units_of
from sfumato.query.postprocess.released_conditions import evaluate_released
from sfumato.query.price import price_at, price_for_errors
from sfumato.query.query_from_json import read_query
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card, read_card
from support.formula_answers import (
    CARD,
    ROWS,
    as_pairs,
    columns_of_all,
    exact_parts,
    formula_of,
    plan_of,
    released,
)
from support.small_vaults import card as toml


@pytest.fixture(scope="module")
def card() -> Card:
    return read_card("t", toml(CARD))


def shown(plan: Plan) -> list[str]:
    return [output.name for output in plan.question.outputs if output.is_shown]


# --- reading -----------------------------------------------------------------------------------


def test_each_aggregate_of_a_formula_is_an_output_that_is_paid_once(card: Card) -> None:
    plan = plan_of(card, "SUM(a) / COUNT(*) AS r, SUM(a) * 2 AS twice, SUM(a) AS s")
    assert shown(plan) == ["r", "twice", "s"]
    assert len(plan.parts) == 2
    assert formula_of(plan, "twice").expr == Arithmetic("*", Ref("s"), LiteralValue(Constant.of(2)))


@pytest.mark.parametrize(
    ("formula", "rest"),
    [
        ("SUM(a) / COUNT(*)", ""),
        ("ROUND(100.0 * SUM(a) / NULLIF(COUNT(*), 0), 1)", ""),
        ("COUNT(*) - SUM(a)", ""),
        ("SUM(a) AS s, COUNT(*) AS n, s / n", ""),
        ("COUNT(*)", "HAVING SUM(a) > 3 * COUNT(*)"),
        ("COUNT(*)", "ORDER BY SUM(a) / COUNT(*) DESC"),
    ],
)
def test_whatever_is_reckoned_of_the_same_aggregates_is_one_answer(
    card: Card, formula: str, rest: str
) -> None:
    plain = plan_of(card, "SUM(a), COUNT(*)")
    assert plan_of(card, formula, rest).digest() == plain.digest()


def test_another_aggregate_is_another_answer(card: Card) -> None:
    one, other = plan_of(card, "SUM(a) / COUNT(*)"), plan_of(card, "SUM(a) / COUNT(a)")
    assert one.digest() != other.digest()


def test_an_earlier_name_may_be_reckoned_with_but_a_group_stays_a_group(card: Card) -> None:
    plan = plan_of(card, "COUNT(*) AS a, FLOOR(a / 10) AS d", "GROUP BY FLOOR(a / 10)")
    assert [type(o.of) for o in plan.question.outputs] == [Aggregate, Floor]
    plan = plan_of(card, "COUNT(*) AS n, SUM(a) AS s, ROUND(s / n) AS r")
    assert isinstance(formula_of(plan), Formula)


def test_rounding_is_of_halves_up_and_up_is_down_of_the_opposite() -> None:
    question = read_sql("SELECT ROUND(SUM(a), 1) AS r, CEIL(SUM(a)::double) AS c FROM t", "t")
    (rounded, ceiled) = (o.of for o in question.outputs if isinstance(o.of, Formula))
    name = next(o.name for o in question.outputs if not o.is_shown)
    assert evaluate_released(rounded.expr, {name: 2.25}) == 2.3
    assert evaluate_released(rounded.expr, {name: -2.25}) == -2.2
    assert evaluate_released(ceiled.expr, {name: 2.1}) == 3


def test_having_compares_formulas_and_order_sorts_by_them(card: Card) -> None:
    plan = plan_of(
        card, "sex, COUNT(*) AS n", "GROUP BY sex HAVING SUM(a) / n > 2 AND n > 1 ORDER BY n / 2"
    )
    assert shown(plan) == ["sex", "n"]
    assert len(plan.aggregates) == 2


def test_a_formula_survives_its_own_json() -> None:
    question = read_sql("SELECT ROUND(AVG(a) - AVG(b), 2) AS r FROM t", "t")
    assert read_query(query_json(question)) == question


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT COUNT(*) / a FROM t", "unknown-column"),
        ("SELECT sex, COUNT(*) + sex FROM t GROUP BY sex", "unknown-column"),
        ("SELECT COUNT(*) + nobody FROM t", "unknown-column"),
        ("SELECT SQRT(a) AS r, COUNT(*) FROM t GROUP BY r", "not-in-language"),
        ("SELECT COUNT(*) + MODE(sex) FROM t", "unknown-column"),
        ("SELECT COUNT(*) || 'x' FROM t", "not-in-language"),
        ("SELECT COUNT(*) + 'x' FROM t", "not-in-language"),
        ("SELECT CASE WHEN COUNT(*) > 5 THEN 'many' ELSE 'few' END FROM t", "not-in-language"),
        ("SELECT date_trunc('day', COUNT(*)) + 1 FROM t", "not-in-language"),
        ("SELECT ROUND(COUNT(*), a) FROM t", "not-in-language"),
        ("SELECT ROUND(COUNT(*), 99) FROM t", "not-in-language"),
        ("SELECT CAST(COUNT(*) AS TEXT) FROM t", "not-in-language"),
        ("SELECT SUM(COUNT(*)) + 1 FROM t", "not-in-language"),
        ("SELECT QUANTILE_CONT(a, [0.1, 0.9]) * 2 FROM t", "not-in-language"),
        ("SELECT COUNT(*) * 2 AS r, r * 2 AS s FROM t", "unknown-column"),
        ("SELECT COUNT(*) FROM t HAVING COUNT(*) / 2", "not-in-language"),
        ("SELECT COUNT(*) AS n FROM t HAVING n / a > 1", "not-in-language"),
        ("SELECT sex, COUNT(*) AS n FROM t GROUP BY sex HAVING n * 2 > 'x'", "type-mismatch"),
        ("SELECT a, COUNT(*) AS n FROM t GROUP BY 2", "not-in-language"),
        ("SELECT COUNT(*) + 1 AS n FROM t GROUP BY n", "not-in-language"),
        ("SELECT COUNT(*) OVER () + 1 FROM t", "not-in-language"),
    ],
)
def test_what_is_no_arithmetic_over_the_answers_own_numbers_is_refused(
    card: Card, text: str, code: str
) -> None:
    with pytest.raises(Refused) as refused:
        make_plan(card, read_sql(text, "t"))
    assert refused.value.code == code


def test_a_formula_of_a_formula_is_refused_in_every_spelling(card: Card) -> None:
    outputs = (
        Output("n", Aggregate("count")),
        Output("r", Formula(Ref("n"))),
        Output("s", Formula(Arithmetic("*", Ref("r"), Ref("r")))),
    )
    with pytest.raises(Refused, match="unknown-column"):
        make_plan(card, Query("t", outputs))


def test_a_formula_alone_asks_for_rows_no_more_than_a_constant_does(card: Card) -> None:
    with pytest.raises(Refused, match="no-aggregate"):
        make_plan(card, Query("t", (Output("r", Formula(LiteralValue(Constant.of(1)))),)))


# --- values ------------------------------------------------------------------------------------


def test_null_stays_null_and_over_zero_is_null() -> None:
    over = Arithmetic("/", Ref("s"), Ref("n"))
    assert evaluate_released(over, {"s": 5, "n": 0}) is None
    assert evaluate_released(over, {"s": None, "n": 2}) is None
    assert evaluate_released(over, {"s": 5, "n": 2}) == 2.5
    huge = Arithmetic("*", Ref("s"), Ref("s"))
    assert evaluate_released(huge, {"s": 1e200}) is None


def test_a_case_takes_the_first_branch_that_holds() -> None:
    many = Compare(Ref("n"), ">", Constant.of(10))
    case = Case(((many, Arithmetic("/", Ref("s"), Ref("n"))),), LiteralValue(Constant.of(0)))
    assert evaluate_released(case, {"s": 40, "n": 20}) == 2
    assert evaluate_released(case, {"s": 40, "n": 10}) == 0


# --- errors ------------------------------------------------------------------------------------


TRUE = {"sa": sum(a for a, _ in ROWS), "sb": sum(b for _, b in ROWS), "n": len(ROWS)}
TRUE["sa+n"] = TRUE["sa"] + TRUE["n"]
MEAN_A, MEAN_B = TRUE["sa"] / TRUE["n"], TRUE["sb"] / TRUE["n"]


@pytest.mark.parametrize(
    ("select", "truth", "least", "most"),
    [
        ("SUM(a) * 1.2 - 3 * COUNT(*)", TRUE["sa"] * 1.2 - 3 * TRUE["n"], 0.945, 0.956),
        ("SUM(a) / COUNT(*)", MEAN_A, 0.945, 0.98),
        ("100 * SUM(b) / (SUM(a) + COUNT(*))", 100 * TRUE["sb"] / TRUE["sa+n"], 0.945, 0.98),
        ("1000 * COUNT(*) / SUM(a)", 1000 / MEAN_A, 0.945, 0.98),
        ("AVG(a) * 2 + 1", MEAN_A * 2 + 1, 0.945, 0.98),
        ("AVG(a) - AVG(b)", MEAN_A - MEAN_B, 0.95, 1.0),
        ("AVG(a) * AVG(b)", MEAN_A * MEAN_B, 0.95, 1.0),
        ("AVG(b) / AVG(a) + SUM(a) / COUNT(a)", MEAN_B / MEAN_A + MEAN_A, 0.95, 1.0),
        ("ROUND(AVG(a) - SUM(b) / COUNT(*), 1)", round(MEAN_A - MEAN_B, 1), 0.95, 1.0),
        ("COALESCE(SUM(a) / COUNT(*), 0)", MEAN_A, 0.945, 0.98),
        ("CASE WHEN COUNT(*) > 10 THEN AVG(a) ELSE 0 END", MEAN_A, 0.95, 1.0),
    ],
)  # fmt: skip
def test_the_interval_of_a_formula_holds_as_often_as_it_says(
    card: Card, select: str, truth: float, least: float, most: float
) -> None:
    plan = plan_of(card, f"{select} AS r")
    priced = price_at(plan, Fraction(2), Fraction(0))
    noisy = released(priced, exact_parts(plan), 8_000)
    columns = columns_of_all(plan, noisy)
    values, std, bars = evaluate_formula(FormulaErrors(plan, formula_of(plan), noisy), columns)
    held = [bar is not None and bar[0] <= truth <= bar[1] for bar in as_pairs(bars)]
    assert least <= np.mean(held) <= most
    told = [s for s in std if s is not None]
    if told:
        middle = [abs(float(str(v)) - truth) for v in values if v is not None]
        assert np.median(told) == pytest.approx(np.sqrt(np.mean(np.square(middle))), rel=0.1)


def test_the_std_of_a_sum_is_exact_and_a_part_that_stands_twice_counts_once(card: Card) -> None:
    plan = plan_of(card, "SUM(a) + COUNT(*) - SUM(a) / 4 AS r")
    priced = price_at(plan, Fraction(1), Fraction(0))
    noisy = released(priced, exact_parts(plan), 3)
    _, std, _ = evaluate_formula(
        FormulaErrors(plan, formula_of(plan), noisy), columns_of_all(plan, noisy)
    )
    parts = {a.verb: noise for a, noise in zip(plan.aggregates, priced.noises, strict=True)}
    assert isinstance(parts["sum"], Noise)
    assert isinstance(parts["count"], Noise)
    assert std == [pytest.approx(math.hypot(parts["sum"].std() * 3 / 4, parts["count"].std()))] * 3


def test_no_std_is_said_where_the_divisor_may_be_zero_but_an_interval_is(card: Card) -> None:
    plan = plan_of(card, "SUM(a) / (COUNT(*) - COUNT(a)) AS r")
    priced = price_at(plan, Fraction(1), Fraction(0))
    noisy = released(priced, exact_parts(plan), 500)
    values, std, bars = evaluate_formula(
        FormulaErrors(plan, formula_of(plan), noisy), columns_of_all(plan, noisy)
    )
    assert np.mean([s is not None for s in std]) < 0.05
    assert all(bar is not None for bar in bars)
    assert all(v is None or math.isfinite(float(str(v))) for v in values)


def test_the_error_is_told_before_and_is_that_of_the_answer(card: Card) -> None:
    plan = plan_of(card, "SUM(a) / COUNT(*) AS r, SUM(a) - COUNT(*) AS d, AVG(a) AS m")
    priced = price_at(plan, Fraction(1), Fraction(0))
    ratio, difference = (priced.margin(formula_of(plan, n), 1000) for n in ("r", "d"))
    mean = priced.margin(Aggregate("mean", (Ref("a"),)), 1000)
    assert ratio is not None
    assert mean is not None
    assert mean < ratio < 4 * mean  # not about the middle, and so less sure
    assert difference == priced.margin(formula_of(plan, "d"), None)
    assert priced.margin(formula_of(plan, "r"), 1) == 50  # half the public range


def test_a_price_is_found_for_the_error_of_a_formula(card: Card) -> None:
    plan = plan_of(card, "SUM(a) / COUNT(*) AS r, SUM(a) AS s")
    priced = price_for_errors(plan, {"r": Fraction(2)}, Fraction(0), 1000)
    margin = priced.margin(formula_of(plan), 1000)
    assert margin is not None
    assert margin == pytest.approx(2, rel=0.01)
    assert margin <= 2


@pytest.mark.parametrize(
    ("select", "margins", "code"),
    [
        ("MAX(a) - MIN(a) AS r", {"r": Fraction(5)}, "error-needs-size"),
        ("SUM(a) / COUNT(*) AS r", {"r": Fraction(1, 10**9)}, "error-out-of-reach"),
        ("SUM(a) / COUNT(*) AS r", {"q": Fraction(1)}, "unknown-column"),
        ("SUM(a) / (COUNT(*) - COUNT(*)) AS r", {"r": Fraction(99)}, "error-out-of-reach"),
    ],
)
def test_an_error_that_no_price_gives_is_refused(
    card: Card, select: str, margins: dict[str, Fraction], code: str
) -> None:
    with pytest.raises(Refused) as refused:
        price_for_errors(plan_of(card, select), margins, Fraction(0), 1000)
    assert refused.value.code == code


def test_each_of_several_units_is_surer_so_that_all_hold_at_once(card: Card) -> None:
    plan = plan_of(card, "ABS(SUM(a)) * ABS(COUNT(*)) AS r, SUM(a) + COUNT(*) AS one")
    priced = price_at(plan, Fraction(1), Fraction(0))
    noisy = released(priced, exact_parts(plan), 3)
    alone, both = (FormulaErrors(plan, formula_of(plan, name), noisy) for name in ("one", "r"))
    assert [len(of.wide.ranges) for of in (alone, both)] == [1, 2]
    for unit, held in both.wide.ranges.items():
        (part,) = (part for part, _ in unit.weights)  # type: ignore[union-attr]  # two sums
        margin = (held.high - held.low) / 2
        assert margin.tolist() == [both.noise(part).within(Fraction(975, 1000))] * 3


def test_a_running_count_has_its_interval_alone_and_none_beside_others(card: Card) -> None:
    with pytest.raises(Refused, match="needs a period"):
        plan_of(card, "RUNNING_COUNT(*) * 2 AS r")


def random_formula(dice: random.Random, depth: int) -> str:
    if depth == 0 or dice.random() < 0.2:
        return dice.choice(
            [
                "COUNT(*)",
                "SUM(a)",
                "SUM(b)",
                "AVG(a)",
                "AVG(b)",
                "STDDEV(a)",
                "CORR(a, b)",
                "2",
                "0",
            ]
        )
    x, y = random_formula(dice, depth - 1), random_formula(dice, depth - 1)
    return dice.choice(
        [f"({x} + {y})", f"({x} - {y})", f"({x} * {y})", f"({x} / {y})", f"ROUND({x}, 1)",
         f"COALESCE({x}, {y})", f"CASE WHEN {x} > {y} THEN {x} ELSE {y} END", f"LEAST({x}, 9)"]
    )  # fmt: skip


def test_whatever_is_reckoned_its_interval_is_around_it(card: Card) -> None:
    dice, seen = random.Random(2), 0
    while seen < 60:
        try:
            plan = plan_of(card, f"COUNT(*) AS n, {random_formula(dice, 3)} AS r")
        except Refused:  # a constant, or one aggregate alone by another name
            continue
        if not isinstance(next(o.of for o in plan.question.outputs if o.name == "r"), Formula):
            continue
        priced = price_at(plan, Fraction(1), Fraction(0))
        numbers = [dice.choice((0, 1, -3, 50, 2000, 10**7)) for _ in plan.parts]
        noisy = released(priced, numbers, 3)
        reckoning = FormulaErrors(plan, formula_of(plan), noisy)
        values, std, bars = evaluate_formula(reckoning, columns_of_all(plan, noisy))
        for value, bar in zip(values, as_pairs(bars), strict=True):
            assert bar is not None
            if value is not None and all(map(math.isfinite, bar)):
                seen += 1
                middle, slack = float(str(value)), 1e-6 * max(1.0, *map(abs, bar))
                assert bar[0] - slack <= middle <= bar[1] + slack
        assert all(s is None or (math.isfinite(s) and s >= 0) for s in std)


@pytest.mark.parametrize(
    ("select", "ends"),
    [
        ("CASE WHEN COUNT(*) > 5 THEN 1 END", (1, 1)),
        ("CASE WHEN COUNT(*) > 5 THEN 1 ELSE NULL END", (1, 1)),
        ("LEAST(GREATEST(3 / CASE WHEN COUNT(*) > 5 THEN 1 END, 0), 9)", (3, 3)),
        ("CASE WHEN COUNT(*) > 5 THEN 1 ELSE 0 END", (0, 1)),
        ("COALESCE(CASE WHEN COUNT(*) > 5 THEN 1 END, 0)", (0, 1)),
        ("COALESCE(CASE WHEN COUNT(*) > 5 THEN CASE WHEN SUM(a) > 1 THEN 1 END END, 0)", (0, 1)),
        ("COALESCE(CASE WHEN COUNT(*) > 5 THEN 1 ELSE 2 END, 0)", (1, 2)),
    ],
)
def test_the_interval_of_what_may_be_null_is_that_of_what_it_may_be_otherwise(
    card: Card, select: str, ends: tuple[float, float]
) -> None:
    plan = plan_of(card, f"{select} AS r")
    priced = price_at(plan, Fraction(1), Fraction(0))
    noisy = released(priced, exact_parts(plan), 3)
    _, _, bars = evaluate_formula(
        FormulaErrors(plan, formula_of(plan), noisy), columns_of_all(plan, noisy)
    )
    assert bars == [list(ends)] * 3
    assert priced.margin(formula_of(plan), 1000) == (ends[1] - ends[0]) / 2


@pytest.mark.parametrize(
    ("select", "rest", "is_chosen"),
    [
        ("CASE WHEN COUNT(*) > 5 THEN AVG(a) ELSE 0 END", "", True),
        ("1 + CASE WHEN COUNT(*) > 5 THEN AVG(a) END", "", True),
        ("SUM(a) / CASE WHEN COUNT(*) > 5 THEN COUNT(*) ELSE 5 END", "", True),
        ("SUM(a) / NULLIF(COUNT(*), 0)", "", False),
        ("SUM(CASE WHEN a > 5 THEN 1 ELSE 0 END) / COUNT(*)", "", False),
        ("COUNT(*)", "HAVING COUNT(*) > 5", True),
    ],
)
def test_what_is_chosen_by_its_own_noise_is_told_apart(
    card: Card, select: str, rest: str, is_chosen: bool
) -> None:
    assert is_selected_after_noise(plan_of(card, f"{select} AS r", rest).question) == is_chosen


@pytest.mark.parametrize(
    ("select", "known"),
    [
        ("(COUNT(*) - COUNT(a)) * (COUNT(*) - COUNT(b))", 0),
        ("AVG(a) / (SUM(a) + 100 * SUM(b))", 0),
        ("COUNT(*) * (COUNT(*) - COUNT(a))", 1),
        ("COUNT(*) * SUM(a)", 1),
        ("0 * AVG(a)", 1),
        ("AVG(a) * 0", 1),
    ],
)
def test_a_std_of_the_first_order_is_kept_back_near_zero(
    card: Card, select: str, known: int
) -> None:
    plan = plan_of(card, f"{select} AS r")
    priced = price_at(plan, Fraction(1), Fraction(0))
    noisy = released(priced, exact_parts(plan), 500)
    _, std, _ = evaluate_formula(
        FormulaErrors(plan, formula_of(plan), noisy), columns_of_all(plan, noisy)
    )
    assert np.mean([s is not None for s in std]) == pytest.approx(known, abs=0.06)


@pytest.mark.parametrize(
    ("select", "is_said"),
    [
        ("COUNT(DISTINCT who) FILTER (WHERE a > 5)", True),
        ("COUNT(DISTINCT CASE WHEN a > 5 THEN who END) / COUNT(*)", True),
        ("COUNT(DISTINCT who)", False),
        ("SUM(CASE WHEN a > 5 THEN 1 END)", False),
    ],
)
def test_that_people_meet_a_condition_by_the_rows_that_count_is_said(
    card: Card, select: str, is_said: bool
) -> None:
    said = bounds_text(plan_of(card, f"{select} AS r"))
    assert ("if one of these rows does" in said) == is_said


def quotient_of(count: int) -> tuple[Arithmetic, dict[str, Linear]]:
    """Return one number over the sum of others, so many in all, and what each is of."""
    names = [f"x{place}" for place in range(count)]
    bottom: Ref | Arithmetic = Ref(names[1])
    for name in names[2:]:
        bottom = Arithmetic("+", bottom, Ref(name))
    one = Fraction(1)
    sums = {name: Linear(Fraction(0), ((place, one),)) for place, name in enumerate(names)}
    return Arithmetic("/", Ref(names[0]), bottom), sums


def test_a_quotient_of_more_numbers_than_its_tail_is_known_for_is_made_of_units() -> None:
    few, many = quotient_of(MAX_NUMBERS), quotient_of(MAX_NUMBERS + 1)
    assert isinstance(linear_form(*few), Ratio)
    assert linear_form(*many) is None
    assert len(list(units_of(*few))) == 1
    assert len(list(units_of(*many))) == 2  # the number above, and the sum below


def test_a_sum_within_bounds_of_a_person_is_foreseen_within_them(card: Card) -> None:
    question = read_sql("SELECT SUM(a) / COUNT(*) AS r FROM t", "t")

    def margin(upper: int) -> float:
        bounds = Constant.of(0), Constant.of(upper)
        outputs = tuple(
            replace(o, of=replace(o.of, person_sum_bounds=bounds))
            if isinstance(o.of, Aggregate) and o.of.verb == "sum"
            else o
            for o in question.outputs
        )
        plan = make_plan(card, replace(question, outputs=outputs))
        found = price_at(plan, Fraction(1), Fraction(0)).margin(formula_of(plan), 500)
        assert found is not None
        return found

    assert 0 < margin(25) < margin(50) < margin(100)
    assert margin(25) == pytest.approx(margin(50) / 2, rel=0.1)  # each at the upper end
