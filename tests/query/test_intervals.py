"""Every number has an interval, which holds its value, and the truth as often as it says."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal, cast

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sfumato.dp.mechanisms.averaged_noise import average_noise
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Bug, Refused
from sfumato.query.aggregates.aggregate import AskedAggregate, Floats, NoisyPart, Smooth
from sfumato.query.aggregates.registry import AGGREGATES, Registered, aggregate_of
from sfumato.query.measure import Tally
from sfumato.query.model import Aggregate
from sfumato.query.plan import Plan
from sfumato.query.postprocess.formula_errors import FormulaErrors
from sfumato.query.postprocess.formulas import evaluate_formula
from sfumato.query.postprocess.linear_forms import linear_form
from sfumato.query.price import price_at
from sfumato.query.public_ranges import public_range
from sfumato.query.row_evaluation import value_on
from sfumato.vault.card.data_card import Card, read_card
from support.formula_answers import CARD, as_pairs, columns_of_all, formula_of, plan_of, released
from support.small_vaults import card as toml

NUMBERS = [
    "COUNT(*)", "COUNT(a)", "SUM(a)", "SUM(b)", "AVG(a)", "AVG(b)", "VAR_SAMP(a)", "VAR_POP(b)",
    "STDDEV(a)", "STDDEV_POP(b)", "COVAR_SAMP(a, b)", "COVAR_POP(b, a)", "CORR(a, b)",
    "REGR_SLOPE(a, b)", "REGR_INTERCEPT(b, a)", "COUNT(DISTINCT a)", "COUNT(DISTINCT who)",
]  # fmt: skip
SIZES = (1, 2, 5, 20, 100, 1000)
DRAWS = 4_000
LEAST = 0.94
Kind = Literal["laplace", "gaussian"]


@lru_cache
def card() -> Card:
    return read_card("t", toml(CARD))


# --- the truth, by the size of the group ---------------------------------------------------------


def rows_of(size: int) -> list[tuple[int, Fraction]]:
    """Return so many rows, whose first number is above zero and whose second may be below."""
    return [((7 * n) % 61 + 20, Fraction((3 * n) % 11 - 4, 2)) for n in range(size)]


def totals(plan: Plan, rows: Sequence[tuple[int, Fraction]]) -> list[int]:
    """Return what each part is of these rows, each a person's own."""
    return [sum(_adds(bounded.part.tally, row) for row in rows) for bounded in plan.parts]


def _adds(tally: Tally, row: tuple[int, Fraction]) -> int:
    if tally.value is None:
        return 1
    value = value_on(tally.value, {"v0": Fraction(row[0]), "v1": row[1] * 2})
    if tally.kind == "values":
        return int(value is not None)
    assert isinstance(value, Fraction)
    return int(tally.scale * value + tally.offset)


def held(select: str, truth: float, size: int, draws: int = DRAWS) -> tuple[float, float]:
    """Return how often the intervals hold, and the median width."""
    plan = plan_of(card(), f"COUNT(*) AS n, {select} AS r")
    noisy = released(price_at(plan, Fraction(2), Fraction(0)), totals(plan, rows_of(size)), draws)
    found = bars_of(plan, noisy)
    slack = 1e-9 * max(1.0, abs(truth))
    holds = [low - slack <= truth <= high + slack for low, high in found]
    return float(np.mean(holds)), float(np.median([high - low for low, high in found]))


def bars_of(plan: Plan, noisy: Sequence[NoisyPart]) -> list[tuple[float, float]]:
    """Return the intervals of the column r; every one of them is there."""
    _, bars = shown(plan, noisy)
    return bars


def shown(plan: Plan, noisy: Sequence[NoisyPart]) -> tuple[list[object], list[tuple[float, float]]]:
    of = next(o.of for o in plan.question.outputs if o.name == "r")
    if isinstance(of, Aggregate):
        parts = [noisy[place] for place in plan.parts_of(of)]
        made = aggregate_of(of.verb).finish(plan.asked_of(of), parts)
        ends = [float(str(end)) for end in (*made.low, *made.high)]
        return list(made.values), list(
            zip(ends[: len(made.low)], ends[len(made.low) :], strict=True)
        )
    values, _, bars = evaluate_formula(
        FormulaErrors(plan, formula_of(plan), noisy), columns_of_all(plan, noisy)
    )
    pairs = as_pairs(bars)
    assert None not in pairs
    return values, [pair for pair in pairs if pair is not None]


def mean(column: int) -> Callable[[Floats], float]:
    return lambda rows: float(rows[:, column].mean())


FORMULAS: Mapping[str, Callable[[Floats], float]] = {
    "SUM(a) / COUNT(*)": mean(0),
    "SUM(b) / COUNT(*)": mean(1),
    "SUM(b) / SUM(a)": lambda rows: rows[:, 1].sum() / rows[:, 0].sum(),
    "SUM(a) / COUNT(*) + 3": lambda rows: rows[:, 0].mean() + 3,
    "1000 / COUNT(*)": lambda rows: 1000 / len(rows),
    "SQRT(COUNT(*))": lambda rows: math.sqrt(len(rows)),
    "LN(COUNT(*))": lambda rows: math.log(len(rows)),
    "SQRT(SUM(a) / COUNT(*))": lambda rows: math.sqrt(rows[:, 0].mean()),
    "LN(SUM(a))": lambda rows: math.log(rows[:, 0].sum()),
    "POWER(COUNT(*), -0.5)": lambda rows: len(rows) ** -0.5,
    "100.0 * SUM(CASE WHEN a > 50 THEN 1 ELSE 0 END) / COUNT(*)":
        lambda rows: 100 * float(np.mean(rows[:, 0] > 50)),
    "COALESCE(SUM(a) / COUNT(*), 0)": mean(0),
    "AVG(a) - AVG(b)": lambda rows: rows[:, 0].mean() - rows[:, 1].mean(),
    "AVG(a) / COUNT(*)": lambda rows: rows[:, 0].mean() / len(rows),
    "ROUND(SUM(a) / COUNT(*), 1)": lambda rows: math.floor(rows[:, 0].mean() * 10 + 0.5) / 10,
    "CASE WHEN COUNT(*) > 20 THEN SUM(a) / COUNT(*) END": mean(0),
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("select", FORMULAS)
def test_the_intervals_that_are_shown_hold_whatever_the_size_of_a_group(
    select: str, size: int
) -> None:
    rows = np.array([(a, float(b)) for a, b in rows_of(size)])
    share, _ = held(select, float(FORMULAS[select](rows)), size)
    assert share >= LEAST


def with_noise(
    plan: Plan, exact: Sequence[int], kind: Kind, *, rows: int, share: Fraction | int
) -> list[NoisyPart]:
    """Return these numbers many times, with noise of one in so many of all that a row can add."""
    dice, made = np.random.default_rng(7), []
    for number, bounded in zip(exact, plan.parts, strict=True):
        scale = Fraction(rows) / Fraction(share) * bounded.part.per_row
        noise = Noise(kind, scale if kind == "laplace" else 2 * scale**2)
        draw = dice.laplace if kind == "laplace" else dice.normal
        drawn = np.rint(draw(0, noise.width(), DRAWS))
        made.append(NoisyPart((number + drawn).astype(np.int64), noise))
    return made


TIGHT: Mapping[str, Callable[[Floats, Floats], float]] = {
    "VAR_SAMP(a)": lambda a, b: float(a.var(ddof=1)),
    "STDDEV_POP(a)": lambda a, b: float(a.std()),
    "COVAR_SAMP(a, b)": lambda a, b: float(np.cov(a, b)[0, 1]),
    "CORR(a, b)": lambda a, b: float(np.corrcoef(a, b)[0, 1]),
    "REGR_SLOPE(a, b)": lambda a, b: float(np.cov(a, b)[0, 1] / b.var(ddof=1)),
    "REGR_INTERCEPT(b, a)": lambda a, b: float(
        b.mean() - a.mean() * np.cov(a, b)[0, 1] / a.var(ddof=1)
    ),
    "AVG(a) - AVG(b)": lambda a, b: float(a.mean() - b.mean()),
    "AVG(a) * AVG(b)": lambda a, b: float(a.mean() * b.mean()),
    "STDDEV_SAMP(a) / AVG(a)": lambda a, b: float(a.std(ddof=1) / a.mean()),
    "LN(AVG(a) - AVG(b))": lambda a, b: float(np.log(a.mean() - b.mean())),
    "VAR_SAMP(a) / VAR_SAMP(b)": lambda a, b: float(a.var(ddof=1) / b.var(ddof=1)),
}


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("select", TIGHT)
def test_intervals_of_what_bends_are_hardly_wider_than_what_they_are_of(
    select: str, kind: Kind
) -> None:
    rows = [((37 * n) % 71 + 15, Fraction(((37 * n) % 71) // 8 - 4 - n % 2, 2)) for n in range(600)]
    plan = plan_of(card(), f"COUNT(*) AS n, {select} AS r")
    values, found = shown(plan, with_noise(plan, totals(plan, rows), kind, rows=600, share=100))
    a, b = np.array([(x, float(y)) for x, y in rows]).T
    truth = TIGHT[select](a, b)
    assert LEAST <= np.mean([low <= truth <= high for low, high in found]) <= 0.99
    made = np.array([float(str(value)) for value in values if value is not None])
    middle = np.quantile(made, 0.975) - np.quantile(made, 0.025)
    assert np.median([high - low for low, high in found]) < 1.3 * middle


AWKWARD: Sequence[Callable[[int], tuple[int, Fraction]]] = (
    lambda n: (0, Fraction(-5)),  # all at a bound
    lambda n: (50, Fraction(0)),  # all in the middle, where products are flat
    lambda n: (100 * (n % 2), Fraction(10 * (n % 2) - 5)),  # a correlation of one
    lambda n: (100 * (n % 2), Fraction(5 - 10 * (n % 2))),
    lambda n: (10 + 80 * (n % 2), Fraction(8 * (n // 2 % 2) - 4)),  # none
    lambda n: (100 * (n == 0), Fraction(10 * (n == 0) - 5)),  # one unlike all others
    lambda n: (50 + n % 2, Fraction(n % 3, 2)),  # hardly any spread
    lambda n: ((7 * n) % 61 + 20, Fraction((3 * n) % 11 - 4, 2)),
)


@pytest.mark.parametrize("select", TIGHT)
@settings(max_examples=8)
@given(
    row=st.sampled_from(AWKWARD),
    size=st.sampled_from([1, 2, 3]) | st.integers(4, 3000),
    kind=st.sampled_from(["laplace", "gaussian"]),
    scale=st.floats(0.5, 40),
)
def test_intervals_of_what_bends_hold_in_awkward_rows_too(
    select: str, row: Callable[[int], tuple[int, Fraction]], size: int, kind: Kind, scale: float
) -> None:
    rows = [row(n) for n in range(size)]
    a, b = np.array([(x, float(y)) for x, y in rows]).T
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        truth = TIGHT[select](a, b)
    assume(math.isfinite(truth))
    plan = plan_of(card(), f"COUNT(*) AS n, {select} AS r")
    share = Fraction(size) / Fraction(scale)
    noisy = with_noise(plan, totals(plan, rows), kind, rows=size, share=share)
    slack = 1e-9 * max(1.0, abs(truth))
    found = bars_of(plan, noisy)
    assert np.mean([low - slack <= truth <= high + slack for low, high in found]) >= LEAST


def test_rounded_rows_whose_first_part_counts_nothing_have_no_interval_that_is_too_narrow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rounding of all rows is that of one times how many the first part counts."""
    mean = AGGREGATES["mean"]

    def rounded(asked: AskedAggregate) -> Smooth:
        assert mean.kind.smooth is not None
        return replace(mean.kind.smooth(asked), rounding=(0.5, 0.0))

    wrong = replace(mean, kind=replace(mean.kind, smooth=rounded))
    monkeypatch.setitem(cast(dict[str, Registered], AGGREGATES), "mean", wrong)
    plan = plan_of(card(), "AVG(a) - AVG(b) AS r")
    with pytest.raises(Bug, match="first part counts"):
        bars_of(plan, released(price_at(plan, Fraction(2), Fraction(0)), [0] * 4, 1))


def test_nothing_divided_by_nothing_is_what_it_is_otherwise_and_holds() -> None:
    plan = plan_of(card(), "COALESCE(SUM(a) / COUNT(*), -7) AS r")
    noisy = released(price_at(plan, Fraction(2), Fraction(0)), [0, 0], DRAWS)
    assert np.mean([low <= -7 <= high for low, high in bars_of(plan, noisy)]) >= LEAST


@pytest.mark.parametrize(
    ("select", "low", "high"),
    [
        ("SUM(a) / COUNT(*)", 0, 100),
        ("SUM(b) / COUNT(b)", -5, 5),
        ("SUM(CASE WHEN a > 50 THEN 1 ELSE 0 END) / COUNT(*)", 0, 1),
        ("(COUNT(*) - COUNT(a)) / COUNT(*)", 0, 1),
        ("SUM(a) / COUNT(DISTINCT who)", 0, math.inf),
        ("SUM(a) / SUM(b)", -math.inf, math.inf),
        ("SUM(a) / (COUNT(*) + 1)", 0, 100),
        ("(SUM(a) + 50) / (COUNT(*) + 1)", 0, 100),
        ("COUNT(a) - COUNT(*)", -math.inf, 0),
        ("SUM(b) - COUNT(*)", -math.inf, math.inf),
        ("1 / (0 - COUNT(*))", -math.inf, 0),
    ],
)
def test_the_public_range_of_a_quotient_is_that_of_one_row(
    select: str, low: float, high: float
) -> None:
    plan = plan_of(card(), f"{select} AS r")
    of = FormulaErrors(plan, formula_of(plan), [])
    form = linear_form(formula_of(plan).expr, of.sums)
    assert form is not None
    assert public_range(form, plan) == (low, high)


def test_a_divisor_that_may_be_zero_leaves_a_half_line_or_the_public_range() -> None:
    for select, ends in [
        ("1000 / COUNT(*)", (0.0, math.inf)),
        ("SUM(a) / COUNT(*)", (0.0, 100.0)),
        ("SUM(a) / SUM(b)", (-math.inf, math.inf)),
        ("LN(COUNT(*))", (0.0, None)),
    ]:
        plan = plan_of(card(), f"{select} AS r")
        noisy = [NoisyPart(np.array([2]), Noise("laplace", Fraction(9))) for _ in plan.parts]
        ((low, high),) = bars_of(plan, noisy)
        assert low >= ends[0]
        assert ends[1] is None or high == ends[1]


def test_a_sum_far_from_zero_over_a_count_that_may_be_none_is_a_half_line() -> None:
    plan = plan_of(card(), "SUM(a) / COUNT(DISTINCT who) AS r")
    noise = Noise("laplace", Fraction(5))
    values = [8 if bounded.part.tally.kind == "people" else 400 for bounded in plan.parts]
    noisy = [NoisyPart(np.array([value]), noise) for value in values]
    ((low, high),) = bars_of(plan, noisy)
    assert 10 < low < 50
    assert high == math.inf


# --- every interval holds its own value ----------------------------------------------------------

CONSTANTS = ("2", "0", "500", "0.5")
TWO = ("({} + {})", "({} - {})", "({} * {})", "({} / {})", "COALESCE({}, {})",
       "CASE WHEN {0} > 3 THEN {0} ELSE {1} END", "CASE WHEN {0} > {1} THEN {0} END")  # fmt: skip
ONE = ("ROUND({}, 1)", "LEAST({}, 9)", "SQRT({})", "LN({})", "EXP({})", "ABS({})", "POWER({}, 2)",
       "{} + 500", "NULLIF({}, 0)")  # fmt: skip


def formulas() -> st.SearchStrategy[str]:
    leaves = st.sampled_from([*NUMBERS, *CONSTANTS])

    def more(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        pairs = st.tuples(st.sampled_from(TWO), inner, inner)
        alone = st.tuples(st.sampled_from(ONE), inner)
        return st.one_of(
            pairs.map(lambda made: made[0].format(made[1], made[2])),
            alone.map(lambda made: made[0].format(made[1])),
        )

    return st.recursive(leaves, more, max_leaves=5)


def noises() -> st.SearchStrategy[Noise]:
    scales = st.sampled_from([Fraction(1, 3), Fraction(3), Fraction(40), Fraction(10**5)])
    one = st.builds(Noise, st.sampled_from(["laplace"]), scales)
    both = st.tuples(one, one).map(average_noise)
    wide = scales.map(lambda scale: Noise("gaussian", scale**2))
    return st.one_of(one, both, wide)


@settings(max_examples=200)
@given(
    select=formulas(),
    noise=noises(),
    numbers=st.lists(st.integers(-(10**6), 10**6) | st.integers(-30, 30), min_size=8, max_size=8),
)
def test_every_interval_contains_its_own_value(
    select: str, noise: Noise, numbers: list[int]
) -> None:
    try:
        plan = plan_of(card(), f"COUNT(*) AS n, {select} AS r")
    except Refused:  # a constant alone, or too deep
        return
    values = [numbers[place % 8] + place // 8 for place in range(len(plan.parts))]
    noisy = [NoisyPart(np.array([value]), noise) for value in values]
    (value,), ((low, high),) = shown(plan, noisy)
    assert low <= high
    assert not math.isnan(low + high) or math.isinf(low)
    if value is not None:
        middle, slack = float(str(value)), 1e-6 * max(1.0, *map(abs_of_end, (low, high)))
        assert low - slack <= middle <= high + slack


def abs_of_end(end: float) -> float:
    return abs(end) if math.isfinite(end) else 0.0


def test_a_sum_with_a_constant_lies_about_the_sum_with_it() -> None:
    plan = plan_of(card(), "COUNT(*) + 500 AS r")
    noisy = [NoisyPart(np.array([594]), Noise("laplace", Fraction(2)))]
    values, ((low, high),) = shown(plan, noisy)
    assert values == [1094]
    assert (low, high) == (1088, 1100)
