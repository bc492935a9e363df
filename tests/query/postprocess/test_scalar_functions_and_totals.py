"""Roots, logarithms and totals of released numbers: read, refused, reckoned, with honest errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Refused
from sfumato.query.aggregates.aggregate import NoisyPart
from sfumato.query.expression import FunctionCall, Ref, Total, power
from sfumato.query.model import Aggregate, Formula, Output, Query, query_json
from sfumato.query.number_types import absolute
from sfumato.query.plan import Plan, make_plan
from sfumato.query.postprocess.formula_errors import FormulaErrors
from sfumato.query.postprocess.formulas import evaluate_formula
from sfumato.query.postprocess.released_conditions import evaluate_released
from sfumato.query.postprocess.totals import rows_of_totals
from sfumato.query.price import price_at
from sfumato.query.query_from_json import read_query
from sfumato.query.sql.select import read_sql
from sfumato.query.typed_expression import ExpressionType
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

COUNT, SUM = len(ROWS), sum(a for a, _ in ROWS)
MEAN = SUM / COUNT


@pytest.fixture(scope="module")
def card() -> Card:
    return read_card("t", toml(CARD))


# --- functions of one number ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "of", "made"),
    [
        ("abs", -3, 3),
        ("abs", 2.5, 2.5),
        ("sqrt", 9, 3),
        ("sqrt", -1, None),
        ("ln", 1, 0),
        ("ln", 0, None),
        ("ln", -2, None),
        ("exp", 0, 1),
        ("exp", 10**6, None),
        ("sqrt", None, None),
    ],
)
def test_a_function_has_its_value_or_none(name: str, of: object, made: object) -> None:
    (curve,) = (
        FunctionCall(known, Ref("x")) for known in ("abs", "sqrt", "ln", "exp") if known == name
    )
    assert evaluate_released(curve, {"x": of}) == made


@pytest.mark.parametrize("exponent", ["1", "2", "3", "8", "-1", "-2", "1/2", "3/2"])
@pytest.mark.parametrize("of", [3, 0.5, -2])
def test_a_power_is_what_it_says_or_nothing_below_zero(of: float, exponent: str) -> None:
    by = Fraction(exponent)
    made = evaluate_released(power(Ref("x"), by), {"x": of})
    if of < 0 and by.denominator > 1:
        assert made is None
    else:
        assert made == pytest.approx(of ** float(by))


def test_a_power_that_takes_too_long_is_refused_in_either_way() -> None:
    with pytest.raises(Refused, match="not-in-language"):
        power(Ref("x"), Fraction(9))
    with pytest.raises(Refused, match="not-in-language"):
        read_sql("SELECT POWER(COUNT(*), 9) FROM t", "t")


@pytest.mark.parametrize(
    ("select", "truth", "least", "most", "first_order"),
    [
        ("SQRT(COUNT(*))", math.sqrt(COUNT), 0.945, 0.98, True),
        ("SQRT(AVG(a))", math.sqrt(MEAN), 0.945, 0.98, True),
        ("LN(SUM(a))", math.log(SUM), 0.945, 0.98, True),
        ("LOG10(COUNT(*))", math.log10(COUNT), 0.945, 0.98, True),
        ("EXP(AVG(a) / 50)", math.exp(MEAN / 50), 0.945, 0.98, True),
        ("ABS(COUNT(*) - SUM(a))", SUM - COUNT, 0.945, 0.98, True),
        ("ABS(AVG(a) - 50)", abs(MEAN - 50), 0.95, 1.0, False),
        ("POWER(AVG(a), 2)", MEAN**2, 0.945, 0.98, True),
        ("POWER(COUNT(*), -0.5)", COUNT**-0.5, 0.945, 0.98, True),
        ("SUM(a) / SQRT(COUNT(*))", SUM / math.sqrt(COUNT), 0.95, 1.0, True),
        ("1.96 * SQRT(AVG(a)) / SQRT(COUNT(*))", 1.96 * math.sqrt(MEAN / COUNT), 0.95, 1.0, True),
    ],
)  # fmt: skip
def test_the_interval_of_a_function_holds_as_often_as_it_says(
    card: Card, select: str, truth: float, least: float, most: float, *, first_order: bool
) -> None:
    plan = plan_of(card, f"{select} AS r")
    noisy = released(price_at(plan, Fraction(2), Fraction(0)), exact_parts(plan), 8_000)
    of = FormulaErrors(plan, formula_of(plan), noisy)
    values, std, bars = evaluate_formula(of, columns_of_all(plan, noisy))
    held = [bar is not None and bar[0] <= truth <= bar[1] for bar in as_pairs(bars)]
    assert least <= np.mean(held) <= most
    if first_order:
        off = [float(str(v)) - truth for v in values if v is not None]
        told = [s for s in std if s is not None]
        assert len(told) > 0.99 * len(std)
        assert np.median(told) == pytest.approx(np.sqrt(np.mean(np.square(off))), rel=0.1)


@pytest.mark.parametrize(
    ("select", "has_ends", "has_std"),
    [
        ("SQRT(COUNT(*) - COUNT(a))", True, False),  # it may be the root of less than nothing
        ("LN(COUNT(*) - COUNT(a))", True, False),
        ("ABS(COUNT(*) - COUNT(a))", True, False),  # it bends at zero
        ("EXP(SUM(a))", False, False),
        ("EXP(COUNT(*) - COUNT(a))", True, False),  # as wide as that, its slope says nothing
        ("LN(COUNT(*))", True, True),
    ],
)
def test_where_a_function_bends_or_ends_less_is_said(
    card: Card, select: str, *, has_ends: bool, has_std: bool
) -> None:
    plan = plan_of(card, f"{select} AS r")
    noisy = released(price_at(plan, Fraction(1), Fraction(0)), exact_parts(plan), 200)
    of = FormulaErrors(plan, formula_of(plan), noisy)
    _, std, bars = evaluate_formula(of, columns_of_all(plan, noisy))
    pairs = [bar for bar in as_pairs(bars) if bar is not None]
    assert len(pairs) == len(bars)
    ends = np.isfinite(np.array(pairs)).all(axis=1)
    assert np.mean(ends) == pytest.approx(float(has_ends), abs=0.1)
    assert np.mean([s is not None for s in std]) == pytest.approx(float(has_std), abs=0.1)


def test_an_even_power_is_never_below_zero(card: Card) -> None:
    plan = plan_of(card, "POWER(COUNT(*) - COUNT(a), 2) AS r")
    noisy = released(price_at(plan, Fraction(1), Fraction(0)), exact_parts(plan), 200)
    of = FormulaErrors(plan, formula_of(plan), noisy)
    _, _, bars = evaluate_formula(of, columns_of_all(plan, noisy))
    assert all(bar is not None and bar[0] >= 0 for bar in as_pairs(bars))


# --- totals over the rows of the answer ----------------------------------------------------------

SEXES = ["f", "m", "f", "m", "f"]
TOWNS = ["x", "x", "y", "y", "z"]
EXACT = [400, 900, 1500, 250, 800]


Columns = dict[str, Sequence[object]]


def of_five_rows(
    card: Card, select: str, draws: int
) -> tuple[list[object], list[float | None], list[object]]:
    """Return values, stds and intervals of a count in five rows, drawn so many times."""
    plan = plan_of(card, f"sex, town, COUNT(*) AS n, {select} AS r", "GROUP BY sex, town")
    dice, noise = np.random.default_rng(7), Noise("laplace", Fraction(30))
    chance = 1 - math.exp(-1 / noise.width())
    drawn = dice.geometric(chance, 5 * draws) - dice.geometric(chance, 5 * draws)
    part = NoisyPart((np.array(EXACT * draws) + drawn).astype(np.int64), noise)
    columns: Columns = {"sex": SEXES * draws, "town": TOWNS * draws, "n": part.values.tolist()}
    formula = formula_of(plan)
    times = [draw for draw in range(draws) for _ in range(5)]  # an answer of its own each
    rows = {
        total: rows_of_totals(Total(total.of, (*total.by, "t")), {**columns, "t": times})
        for total in rows_of_totals(formula.expr, columns)
    }
    known = {total: next(iter(found.values())) for total, found in rows.items()}
    return evaluate_formula(FormulaErrors(plan, formula, [part], known), columns)


def test_a_total_is_of_all_rows_or_of_those_with_the_same_keys(card: Card) -> None:
    columns: Columns = {"sex": SEXES, "town": TOWNS, "n": [1, 2, 3, 4, 5]}
    for by, totals in [("", [15] * 5), ("PARTITION BY sex", [9, 6, 9, 6, 9]),
                       ("PARTITION BY town", [3, 3, 7, 7, 5]),
                       ("PARTITION BY town, sex", [1, 2, 3, 4, 5])]:  # fmt: skip
        select = f"sex, town, COUNT(*) AS n, SUM(COUNT(*)) OVER ({by}) AS r"
        plan = plan_of(card, select, "GROUP BY sex, town")
        formula = formula_of(plan)
        part = NoisyPart(np.arange(1, 6), Noise("laplace", Fraction(1)))
        rows = rows_of_totals(formula.expr, columns)
        values, _, _ = evaluate_formula(FormulaErrors(plan, formula, [part], rows), columns)
        assert values == totals


@pytest.mark.parametrize(
    ("select", "truths", "first_order"),
    [
        ("SUM(COUNT(*)) OVER ()", [sum(EXACT)] * 5, True),
        ("COUNT(*) * 1.0 / SUM(COUNT(*)) OVER ()", [n / sum(EXACT) for n in EXACT], True),
        ("ROUND(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (), 1)",
         [round(100 * n / sum(EXACT), 1) for n in EXACT], False),
        ("COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY sex)",
         [n / (2700 if sex == "f" else 1150) for n, sex in zip(EXACT, SEXES, strict=True)], True),
    ],
)  # fmt: skip
def test_the_interval_of_a_share_holds_and_its_std_counts_the_shared_noise_once(
    card: Card, select: str, truths: Sequence[float], *, first_order: bool
) -> None:
    values, std, bars = of_five_rows(card, select, 1_500)
    for row, truth in enumerate(truths):
        pairs = as_pairs(bars[row::5])
        assert np.mean([b is not None and b[0] <= truth <= b[1] for b in pairs]) > 0.93
        if first_order:
            off = [float(str(v)) - truth for v in values[row::5]]
            told = [float(str(s)) for s in std[row::5]]
            assert np.median(told) == pytest.approx(np.sqrt(np.mean(np.square(off))), rel=0.12)


def test_a_total_alone_is_as_sure_as_it_says_and_no_more(card: Card) -> None:
    _, _, bars = of_five_rows(card, "SUM(COUNT(*)) OVER ()", 4_000)
    held = np.mean([b is not None and b[0] <= sum(EXACT) <= b[1] for b in as_pairs(bars[::5])])
    assert 0.93 < held < 0.97


def share(n: str = "n", *by: str) -> Query:
    outputs = (
        Output("sex", Ref("sex")),
        Output("n", Aggregate("count")),
        Output("m", Aggregate("mean", (Ref("a"),))),
        Output("r", Formula(Total(Ref(n), by))),
    )
    return Query("t", outputs, group_by=(Ref("sex"),))


def test_a_total_survives_its_own_json_and_costs_nothing(card: Card) -> None:
    question = share("n", "sex")
    assert read_query(query_json(question)) == question
    make_plan(card, question)
    one = plan_of(card, "sex, COUNT(*) / SUM(COUNT(*)) OVER () AS r", "GROUP BY sex")
    assert one.digest() == plan_of(card, "sex, COUNT(*)", "GROUP BY sex").digest()


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (share("m"), "not-in-language"),
        (share("r"), "unknown-column"),
        (share("sex"), "unknown-column"),
        (share("nobody"), "unknown-column"),
        (share("n", "m"), "unknown-column"),
        (share("n", "nobody"), "unknown-column"),
    ],
)
def test_a_total_of_no_count_or_by_no_key_is_refused(
    card: Card, question: Query, code: str
) -> None:
    with pytest.raises(Refused) as refused:
        make_plan(card, question)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sex, COUNT(*) / SUM(COUNT(*)) OVER () AS r FROM t GROUP BY sex HAVING COUNT(*) > 5",
        "SELECT sex, COUNT(*) FROM t GROUP BY sex HAVING SUM(COUNT(*)) OVER () > 5",
        "SELECT sex, SUM(COUNT(*)) OVER (PARTITION BY town) + 1 FROM t GROUP BY sex",
        "SELECT sex, SUM(COUNT(*)) OVER (ROWS 1 PRECEDING) + 1 FROM t GROUP BY sex",
        "SELECT SUM(a) OVER () FROM t",
        "SELECT COUNT(*) FROM t WHERE SUM(COUNT(*)) OVER () > 5",
        "SELECT AVG(n) FROM (SELECT who, SUM(COUNT(*)) OVER () AS n FROM t GROUP BY who)",
    ],
)
def test_a_window_that_is_no_total_of_the_answers_rows_is_refused(card: Card, text: str) -> None:
    with pytest.raises(Refused, match="not-in-language"):
        make_plan(card, read_sql(text, "t"))


def test_the_error_of_a_share_is_told_before(card: Card) -> None:
    plan = plan_of(card, "sex, COUNT(*) / SUM(COUNT(*)) OVER () AS r", "GROUP BY sex")
    priced = price_at(plan, Fraction(1), Fraction(0))
    alone = priced.margin(Aggregate("count"), 1000)
    margin = priced.margin(formula_of(plan), 1000)
    assert alone is not None
    assert margin is not None
    assert alone / 2000 < margin < 3 * alone / 2000  # half of two thousand, and a sum of two
    private = plan_of(card, "town, COUNT(*) / SUM(COUNT(*)) OVER () AS r", "GROUP BY town")
    assert price_at(private, Fraction(1), Fraction(1, 10**6)).margin(formula_of(private), 9) is None


def planned(card: Card, text: str) -> Plan:
    return make_plan(card, read_sql(text, "t"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY a)", "QUANTILE_CONT(a, 0.9)"),
        ("PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY a DESC)", "QUANTILE_CONT(a, 0.1)"),
        ("PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY a)", "MEDIAN(a)"),
        ("MODE() WITHIN GROUP (ORDER BY sex)", "MODE(sex)"),
        ("APPROX_COUNT_DISTINCT(town)", "COUNT(DISTINCT town)"),
        ("SUM(CEIL(b))", "SUM(0 - FLOOR(0 - b))"),
    ],
)
def test_what_is_written_in_two_ways_is_one_question(card: Card, one: str, other: str) -> None:
    first, second = (planned(card, f"SELECT {text} FROM t") for text in (one, other))
    assert first.digest() == second.digest()


def test_a_size_of_rows_has_the_bounds_that_it_can_have(card: Card) -> None:
    plan = planned(card, "SELECT AVG(ABS(b)), AVG(ABS(a - 200)) FROM t")
    sides = [(asked.operand.lower, asked.operand.upper, asked.operand.step) for asked in plan.asked]
    assert sorted(sides) == [(0, 10, Fraction(1, 2)), (100, 200, Fraction(1))]


def test_powers_of_powers_are_refused_before_they_keep_anybody_busy() -> None:
    text = "COUNT(*)"
    for _ in range(15):
        text = f"POWER({text}, 8)"
    for asked in (text, text.replace("COUNT(*)", "a").join(("SUM(", ")"))):
        with pytest.raises(Refused) as refused:
            read_sql(f"SELECT {asked} AS r FROM t", "t")
        assert refused.value.code == "question-too-large"


def test_nothing_to_the_power_of_zero_is_nothing_so_it_is_not_said_to_be_one() -> None:
    for asked in ("POWER(COUNT(*), 0)", "SUM(POWER(a, 0))", "SUM(a ** 0)"):
        with pytest.raises(Refused, match="power of zero"):
            read_sql(f"SELECT {asked} AS r FROM t", "t")


def test_sizes_of_sizes_stay_short() -> None:
    x = ExpressionType("integer", Ref("v1"), -9, 9)
    size = absolute(x)
    assert (size.lower, size.upper) == (0, 9)
    assert absolute(size) == size
