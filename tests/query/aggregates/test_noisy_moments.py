"""Variance, deviation, covariance, correlation, slope and intercept, held against numpy."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Refused
from sfumato.query.aggregates.aggregate import AskedAggregate, Estimate, Floats, NoisyPart, Part
from sfumato.query.aggregates.noisy_moments import (
    SUM_LIMIT,
    Moment,
    Statistic,
    first_of,
    grid_of,
    interval,
    margin_of,
    product_of,
    second_of,
)
from sfumato.query.aggregates.registry import AGGREGATES, aggregate_of
from sfumato.query.aggregates.result_ranges import Range
from sfumato.query.expression import Arithmetic, Case, Expr, IsNull, LiteralValue, Not, Ref
from sfumato.query.measure import Tally
from sfumato.query.model import Aggregate
from sfumato.query.number_types import LARGEST
from sfumato.query.plan import MAX_TOTAL, Plan, make_plan
from sfumato.query.price import price_for_errors
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card, Limits, read_card
from support.seeded_dice import SeededDice
from support.small_vaults import open_with, write_csv

Kind = Literal["laplace", "gaussian"]
Cell = int | None  # a value in steps, or none
Row = tuple[Cell, ...]  # of the card's columns, in their order
Rows = Sequence[Row]

CARD = """
unit = "who"
people = "p"
version = "1"
budget = { epsilon = 1000, delta = 1e-6 }
nulls = ["n/a", ""]
[columns.age]
type = "integer"
lower = -20
upper = 110
[columns.pay]
type = "number"
lower = 0
upper = 200000
step = 0.01
[columns.sick]
type = "integer"
lower = 0
upper = 1
[columns.odd]
type = "number"
lower = -3.5
upper = 4
step = 0.5
[columns.wide]
type = "integer"
lower = -4000000000
upper = 4000000000
[columns.free]
type = "number"
[columns.zip]
type = "text"
keys = ["a", "b"]
"""
COLUMNS = ("age", "pay", "sick", "odd", "wide")
PLACES = {name: place for place, name in enumerate(COLUMNS)}
ONE = ("VAR_SAMP({})", "STDDEV({})", "VAR_POP({})", "STDDEV_POP({})")
TWO = (
    "COVAR_SAMP({}, {})", "CORR({}, {})", "REGR_SLOPE({}, {})", "REGR_INTERCEPT({}, {})",
    "COVAR_POP({}, {})",
)  # fmt: skip


@lru_cache
def card(rows: int | None = None) -> Card:
    made = read_card("t", tomllib.loads(CARD, parse_float=Decimal))
    return made if rows is None else replace(made, limits=Limits(rows=rows))


def plan(what: str, rows: int | None = None) -> Plan:
    return make_plan(card(rows), read_sql(f"SELECT {what} FROM t", "t"))


def asked(what: str, rows: int | None = None) -> AskedAggregate:
    (made,) = plan(what, rows).asked
    return made


def parts_of(of: AskedAggregate) -> tuple[Part, ...]:
    return aggregate_of(of.aggregate.verb).parts(of)


# --- a plain reading of physical expressions, written apart from the SQL -------------------------


def reckoned(expr: Expr, row: Sequence[Cell], seen: list[int]) -> Cell:
    """Return the expression of a row, and put every number on the way into `seen`."""
    match expr:
        case Ref(column=column):
            made = row[int(column.removeprefix("v"))]
        case LiteralValue(constant=constant):
            made = int(constant.number)
        case Arithmetic(sign=sign, left=left, right=right):
            made = _combined(sign, reckoned(left, row, seen), reckoned(right, row, seen))
        case Case(whens=((Not(predicate=IsNull(of=of)), then),), otherwise=None):
            made = None if reckoned(of, row, seen) is None else reckoned(then, row, seen)
        case _:
            raise AssertionError(expr)
    seen.append(abs(made or 0))
    return made


def _combined(sign: str, left: Cell, right: Cell) -> Cell:
    if left is None or right is None:
        return None
    made = {"+": left + right, "-": left - right, "*": left * right}
    return left // right if sign == "/" else made[sign]


def added(tally: Tally, row: Sequence[Cell], seen: list[int]) -> int:
    """Return what a row adds to the tally."""
    assert tally.value is not None
    value = reckoned(tally.value, row, seen)
    if value is None:
        return 0
    return 1 if tally.kind == "values" else tally.scale * value + tally.offset


def totals(of: AskedAggregate, rows: Rows) -> list[int]:
    return [sum(added(part.tally, row, []) for row in rows) for part in parts_of(of)]


# --- how far a row reaches -----------------------------------------------------------------------


def row_of(**cells: Cell) -> Row:
    return tuple(cells.get(name) for name in COLUMNS)


def values_of(name: str) -> list[Cell]:
    """Return every value of a column in steps, or for a long one the ends and some between."""
    column = card().column(name)
    lower, upper = column.bounds()
    if upper - lower < 1000:
        return [None, *range(lower, upper + 1)]
    middle = (lower + upper) // 2
    around = {middle + n for n in range(-3, 4)} | {lower + n for n in range(300)}
    spread = {int(x) for x in np.linspace(lower, upper, 500)}
    return [None, *sorted(around | spread | {upper - n for n in range(300)})]


@pytest.mark.parametrize("rows", [None, 10**10, 2**55, 2**57])
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("what", ONE)
def test_no_row_adds_more_than_its_bound_and_one_adds_just_that(
    what: str, name: str, rows: int | None
) -> None:
    of = asked(what.format(name), rows)
    seen: list[int] = []
    for part in parts_of(of):
        every = [abs(added(part.tally, row_of(**{name: v}), seen)) for v in values_of(name)]
        assert max(every) == part.per_row
    assert max(seen) <= LARGEST


@pytest.mark.parametrize("rows", [None, 10**10, 2**55, 2**57])
@pytest.mark.parametrize("pair", [("age", "odd"), ("odd", "age"), ("sick", "odd"), ("pay", "wide")])
@pytest.mark.parametrize("what", TWO)
def test_no_pair_adds_more_than_its_bound_and_one_adds_just_that(
    what: str, pair: tuple[str, str], rows: int | None
) -> None:
    of = asked(what.format(*pair), rows)
    y, x = (values_of(name)[:: 1 if len(values_of(name)) < 500 else 40] for name in pair)
    ends = [values_of(name)[-1] for name in pair]
    seen: list[int] = []
    for part in parts_of(of):
        every = [
            abs(added(part.tally, row_of(**{pair[0]: a, pair[1]: b}), seen))
            for a, b in itertools.product([*y, ends[0]], [*x, ends[1]])
        ]
        assert max(every) == part.per_row
    assert max(seen) <= LARGEST


@pytest.mark.parametrize("what", TWO)
def test_a_row_that_lacks_one_of_a_pair_adds_nothing(what: str) -> None:
    of = asked(what.format("age", "odd"))
    for row in (row_of(age=110), row_of(odd=8), row_of()):
        assert totals(of, [row]) == [0] * len(parts_of(of))


@pytest.mark.parametrize("rows", [None, 10**10, 2**57])
def test_all_rows_at_their_bound_can_be_added_up(rows: int | None) -> None:
    of = card(rows)
    for what in [f.format("wide") for f in ONE] + [f.format("wide", "pay") for f in TWO]:
        for bounded in plan(what, rows).parts:
            assert of.limits.rows * bounded.part.per_row < MAX_TOTAL == SUM_LIMIT


def test_a_number_of_two_values_needs_no_sum_of_squares() -> None:
    assert len(parts_of(asked("VAR_SAMP(sick)"))) == 2
    assert len(parts_of(asked("CORR(sick, age)"))) == 5
    assert len(parts_of(asked("CORR(odd, age)"))) == 6


# --- parts are shared ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "parts"),
    [
        ("COUNT(age), AVG(age), VAR_SAMP(age)", 3),
        ("AVG(age), STDDEV(age), VAR_SAMP(age)", 3),
        ("AVG(pay), STDDEV(pay)", 3),
        ("REGR_SLOPE(pay, age), REGR_INTERCEPT(pay, age)", 5),
        ("REGR_SLOPE(pay, age), COVAR_SAMP(pay, age), CORR(pay, age)", 6),
        ("REGR_SLOPE(age, pay), COVAR_SAMP(pay, age), CORR(pay, age)", 6),
        ("CORR(pay, age), CORR(age, pay)", 6),
    ],
)
def test_what_two_aggregates_need_is_added_up_once(what: str, parts: int) -> None:
    made = plan(what)
    assert len(made.parts) == parts
    assert sum(bounded.weight for bounded in made.parts) == 1


# --- without noise -------------------------------------------------------------------------------

NONE = Noise("laplace", Fraction(1, 1000))  # is always zero


def numbers_of(rows: Rows, name: str) -> Floats:
    """Return the column in its own unit; nan where it is not known."""
    step = float(card().column(name).step)
    column = [row[PLACES[name]] for row in rows]
    return np.array([np.nan if v is None else v * step for v in column])


def truth(of: Aggregate, rows: Rows) -> float:
    """Return what numpy makes of the raw rows."""
    names = [side.column for side in of.operands if isinstance(side, Ref)]
    columns = [numbers_of(rows, name) for name in names]
    known = ~np.any(np.isnan(columns), axis=0)
    y, *rest = (column[known] for column in columns)
    less = 0 if of.verb.startswith("population") else 1
    if of.verb.endswith("variance") and not rest:
        return float(y.var(ddof=less))
    if of.verb.endswith("deviation"):
        return float(y.std(ddof=less))
    (x,) = rest
    both = np.cov(y, x)
    match of.verb:
        case "population_covariance":
            return float(np.cov(y, x, ddof=0)[0, 1])
        case "covariance":
            return float(both[0, 1])
        case "correlation":
            return float(np.corrcoef(y, x)[0, 1])
        case "slope":
            return float(both[0, 1] / both[1, 1])
        case _:
            return float(y.mean() - both[0, 1] / both[1, 1] * x.mean())


def finished(
    of: AskedAggregate, noisy: Sequence[NoisyPart]
) -> tuple[Floats, Floats, Floats, Floats]:
    made: Estimate = aggregate_of(of.aggregate.verb).finish(of, noisy)
    columns = (made.values, made.std, made.low, made.high)
    value, std, low, high = (np.array(list(column), dtype=np.float64) for column in columns)
    return value, std, low, high


def some_rows(count: int, seed: int = 1) -> Rows:
    """Return rows with some values missing, in which all columns hang together a little."""
    dice = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        share = dice.random()
        near = [min(max(share + dice.normal() / 5, 0), 1) for _ in COLUMNS]
        bounds = [card().column(name).bounds() for name in COLUMNS]
        cells: list[Cell] = [
            round(lower + s * (upper - lower))
            for s, (lower, upper) in zip(near, bounds, strict=True)
        ]
        made.append(tuple(None if dice.random() < 0.1 else cell for cell in cells))
    return made


EXACT = 1e-9  # of the answer: what floats lose
ROUNDED = 1e-6  # of the answer, for numbers with more steps than are kept


@pytest.mark.parametrize(
    ("what", "within"),
    [
        *((f.format(name), EXACT) for f in ONE for name in ("age", "sick", "odd")),
        *((f.format(name), ROUNDED) for f in ONE for name in ("pay", "wide")),
        *((f.format("age", "odd"), EXACT) for f in TWO),
        *((f.format("sick", "age"), EXACT) for f in TWO),
        *((f.format("pay", "age"), ROUNDED) for f in TWO),
        *((f.format("age", "wide"), ROUNDED) for f in TWO),
        *((f.format("wide", "sick"), ROUNDED) for f in TWO),
    ],
)
def test_without_noise_the_estimate_is_numpys(what: str, within: float) -> None:
    of, rows = asked(what), some_rows(300)
    noisy = [NoisyPart(np.array([total]), NONE) for total in totals(of, rows)]
    value, std, low, high = finished(of, noisy)
    right = truth(of.aggregate, rows)
    assert value[0] == pytest.approx(right, rel=within)
    assert std[0] < 1e-6 * abs(right) + 1e-12
    slack = EXACT * abs(right)
    assert low[0] - slack <= right <= high[0] + slack
    assert high[0] - low[0] < 1e-5 * abs(right)  # what rounding can miss


@pytest.mark.parametrize("rows_limit", [2**50, 2**52])
@pytest.mark.parametrize(
    "what", ["STDDEV(pay)", "VAR_SAMP(age)", "COVAR_SAMP(pay, wide)", "REGR_SLOPE(age, pay)"]
)
def test_what_rounding_to_few_steps_can_miss_is_in_the_interval(what: str, rows_limit: int) -> None:
    of, rows = asked(what, rows_limit), some_rows(60, seed=2)
    noisy = [NoisyPart(np.array([total]), NONE) for total in totals(of, rows)]
    value, _, low, high = finished(of, noisy)
    right = truth(of.aggregate, rows)
    assert low[0] <= right <= high[0]
    assert value[0] == pytest.approx(right, rel=0.02)


@pytest.mark.parametrize("rows", [None, 10**10, 2**50, 2**52, 2**55, 2**57])
@pytest.mark.parametrize("name", COLUMNS)
def test_no_row_is_rounded_by_more_than_is_counted_and_some_by_a_third(
    name: str, rows: int | None
) -> None:
    of = asked(f"VAR_SAMP({name})", rows)
    grid = grid_of(of, of.operand, name)
    first, second = first_of(grid), second_of(of, grid)
    missed: dict[str, list[Fraction]] = {"first": [], "second": []}
    for value in values_of(name)[1:]:
        assert value is not None
        row, exact = row_of(**{name: value}), Fraction(value - of.operand.lower, grid.stride)
        missed["first"].append(added(first.part.tally, row, []) - (2 * exact - grid.top))
        if second is not None:
            thinned = added(second.part.tally, row, []) - second.part.tally.offset
            square = 2 * exact * (grid.top - exact) / second.factor
            missed["second"].append(thinned - square)
    some = 1 / 3 if grid.top > 20 else 0  # of few values none may come near it
    assert some * first.rounding <= max(map(abs, missed["first"])) <= first.rounding
    if second is not None:
        assert some * second.rounding <= max(map(abs, missed["second"])) <= second.rounding


@pytest.mark.parametrize("rows", [None, 2**50, 2**52, 2**55, 2**57])
@pytest.mark.parametrize(
    "pair", [("age", "odd"), ("pay", "age"), ("pay", "wide"), ("sick", "wide")]
)
def test_no_product_is_rounded_by_more_than_is_counted(
    pair: tuple[str, str], rows: int | None
) -> None:
    of = asked("COVAR_SAMP({}, {})".format(*pair), rows)
    one, other = (grid_of(of, side, name) for side, name in zip(of.operands, pair, strict=True))
    product = product_of(of, one, other)
    known = [[value for value in values_of(name) if value is not None] for name in pair]
    for values in itertools.product(*(some[:40] + some[-40:] for some in known)):
        exact = [
            2 * Fraction(value - grid.side.lower, grid.stride) - grid.top
            for value, grid in zip(values, (one, other), strict=True)
        ]
        row = row_of(**dict(zip(pair, values, strict=True)))
        missed = added(product.part.tally, row, []) - math.prod(exact) / product.factor
        assert abs(missed) <= product.rounding


def test_rounding_is_counted_for_as_many_rows_as_there_may_be() -> None:
    """The second number is off by one a row, and its noise tells nothing of how many there are."""
    rows = Noise("laplace", Fraction(100))
    part = parts_of(asked("AVG(age)"))[0]
    statistic = Statistic(lambda parts, _: parts[1], lambda n: (-1e9 * n, 1e9 * n))
    moments, values = [Moment(part), Moment(part, 1, 1.0)], [np.array([50.0]), np.array([0.0])]
    low, high = interval(statistic, moments, values, [rows, NONE])
    least = 50 + margin_of(rows, 2)
    assert -low[0] == high[0] == pytest.approx(least, abs=2)


# --- with noise: coverage, std, and what is public ------------------------------------------------

DRAWS = 2000


@dataclass(frozen=True)
class Shape:
    """Rows of age and odd (or age and pay), each so many times over."""

    says: str
    rows: tuple[Row, ...]
    times: int = 1

    @property
    def count(self) -> int:
        """Return how many rows there are in all."""
        return len(self.rows) * self.times

    def right(self, of: AskedAggregate) -> float:
        """Return the true answer: of the rows many times over, n - 1 and all."""
        names = [side.column for side in of.aggregate.operands if isinstance(side, Ref)]
        known = [r for r in self.rows if all(r[PLACES[n]] is not None for n in names)]
        fewer, all_of_them = len(known), len(known) * self.times
        made = truth(of.aggregate, known)
        small = (fewer - 1) / fewer * all_of_them / (all_of_them - 1)
        if of.aggregate.verb in ("variance", "covariance"):
            return made * small
        return made * small**0.5 if of.aggregate.verb == "deviation" else made


def related(count: int, how: float, seed: int, *, narrow: float = 1.0) -> tuple[Row, ...]:
    """Return rows whose odd hangs together with age by so much."""
    dice = np.random.default_rng(seed)
    x = dice.uniform(-1, 1, count)
    y = how * x + (1 - abs(how)) * dice.uniform(-1, 1, count)
    ages, odds = (45 + narrow * 65 * x).round(), (0.5 + narrow * 7.4 * y).round()
    return tuple(
        row_of(age=int(a), odd=int(o), pay=int(10**7 + narrow * 10**7 * u))
        for a, o, u in zip(ages, odds, y, strict=True)
    )


SHAPES = (
    Shape("many, alike", related(100, 0.8, 1), 200),
    Shape("many, against", related(100, -0.95, 2), 100),
    Shape("many, apart", related(100, 0.0, 3), 100),
    Shape("some", related(60, 0.5, 4), 10),
    Shape("few", related(30, 0.5, 5)),
    Shape("two", (row_of(age=3, odd=-2, pay=5), row_of(age=90, odd=6, pay=10**7))),
    Shape("narrow, off centre", related(100, 0.6, 6, narrow=0.1), 100),
    Shape(
        "at the ends", (row_of(age=-20, odd=-7, pay=0), row_of(age=110, odd=8, pay=2 * 10**7)), 500
    ),
    Shape(
        "nearly constant",
        (row_of(age=110, odd=8, pay=0),) * 49 + (row_of(age=109, odd=7, pay=1),),
        60,
    ),
)


def blurred(of: AskedAggregate, shape: Shape, kind: Kind, epsilon: float) -> list[NoisyPart]:
    """Return each part as many times over as draws, with the noise that its share would buy."""
    parts = parts_of(of)
    made = []
    for seed, (part, total) in enumerate(zip(parts, totals(of, shape.rows), strict=True)):
        scale = Fraction(part.per_row * len(parts)) / Fraction(epsilon)
        noise = Noise(kind, scale if kind == "laplace" else scale**2)
        values = total * shape.times + noise.sample(DRAWS, SeededDice(seed + 10))
        made.append(NoisyPart(values, noise))
    return made


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.says)
@pytest.mark.parametrize(
    "what",
    [*(f.format("age") for f in ONE), *(f.format("odd", "age") for f in TWO), "CORR(age, pay)"],
)
def test_intervals_hold_the_truth_as_often_as_they_say(what: str, shape: Shape, kind: Kind) -> None:
    of = asked(what)
    right = shape.right(of)
    for epsilon in (0.5, 8.0):
        value, std, low, high = finished(of, blurred(of, shape, kind, epsilon))
        slack = EXACT * abs(right)
        covered = np.mean((low - slack <= right) & (right <= high + slack))
        assert covered >= 0.95
        assert np.all((low <= value) & (value <= high))
        assert np.all(np.isfinite([value, std, low, high]))


def test_a_range_holds_whatever_its_numbers_can_make() -> None:
    dice = np.random.default_rng(8)
    ends = np.sort(dice.normal(0.5, 2, (2, 20_000, 2)), axis=2)
    one, other = (Range(pair[:, 0], pair[:, 1]) for pair in ends)
    a, b = (pair[:, 0] + dice.random(20_000) * (pair[:, 1] - pair[:, 0]) for pair in ends)
    made = [
        (one.minus(other), a - b),
        (one.times(other), a * b),
        (one.over(other), a / b),
        (one.squared(), a * a),
        (one.root(), np.sqrt(np.maximum(a, 0))),
        (one.scaled(-3), -3 * a),
        (one.shifted(2), a + 2),
    ]
    for held, number in made:
        assert np.all((held.low <= number + EXACT) & (number - EXACT <= held.high))
    assert one.squared().low[(one.low < 0) & (one.high > 0)].max() == 0


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("parts", [2, 3, 6])
def test_all_moments_are_within_their_margins_at_once(parts: int, kind: Kind) -> None:
    noise = Noise(kind, Fraction(900))
    draws = noise.sample(20_000 * parts, SeededDice(5)).reshape(parts, -1)
    within = np.mean(np.all(np.abs(draws) <= margin_of(noise, parts), axis=0))
    assert 0.987 < within < 0.994  # a fifth of the 5 %; the rest is the Taylor interval's


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("shape", SHAPES[:3], ids=lambda shape: shape.says)
@pytest.mark.parametrize(
    "what", [*(f.format("age") for f in ONE), *(f.format("odd", "age") for f in TWO)]
)
def test_the_std_is_how_far_estimates_are_scattered(what: str, shape: Shape, kind: Kind) -> None:
    of = asked(what)
    value, std, low, high = finished(of, blurred(of, shape, kind, 8.0))
    assert np.median(std) == pytest.approx(value.std(), rel=0.1)
    assert abs(value.mean() - shape.right(of)) < 0.1 * value.std()
    assert 3.5 * value.std() < np.mean(high - low) < 16 * value.std()  # they are on the safe side


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("VAR_SAMP(age)", "nearly constant"),
        ("STDDEV(age)", "nearly constant"),
        ("CORR(odd, age)", "at the ends"),
    ],
)
def test_a_value_cut_at_a_public_end_is_no_surer_than_its_interval(
    what: str, says: str, kind: Kind
) -> None:
    (shape,) = (one for one in SHAPES if one.says == says)
    value, std, low, high = finished(asked(what), blurred(asked(what), shape, kind, 8.0))
    cut = (value == 1) if what.startswith("CORR") else (value == 0)
    assert cut.mean() > 0.2
    assert np.all(std[cut] >= (high - low)[cut] / 4 * (1 - EXACT))


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_a_slope_over_one_and_the_same_x_says_nothing(kind: Kind) -> None:
    rows = tuple(row_of(age=37, odd=n % 16 - 7) for n in range(64))
    shape = Shape("constant", rows, 50)
    mean = float(numbers_of(rows, "odd").mean())
    whole = {"CORR": 1.0, "REGR_SLOPE": 7.5, "REGR_INTERCEPT": 7.5 / 2 + 7.5 * 110}
    for what, most in whole.items():
        of = asked(f"{what}(odd, age)")
        value, std, low, high = finished(of, blurred(of, shape, kind, 1.0))
        right = mean if what == "REGR_INTERCEPT" else 0
        centre = 0.25 if what == "REGR_INTERCEPT" else 0
        told = std < most * (1 - EXACT)
        assert np.mean(told) < 0.05
        assert value[~told] == pytest.approx(right, abs=0.1)
        assert low[~told] == pytest.approx(centre - most)
        assert high[~told] == pytest.approx(centre + most)
        assert np.all(std <= most * (1 + EXACT))


@pytest.mark.parametrize(
    "what", [*(f.format("age") for f in ONE), *(f.format("odd", "age") for f in TWO)]
)
def test_a_cell_without_rows_has_the_whole_public_range(what: str) -> None:
    of = asked(what)
    value, std, low, high = finished(of, blurred(of, Shape("nobody", ()), "laplace", 0.1))
    variance, covariance = 130**2 / 2, 130 * 7.5 / 2
    far = 7.5 / 2 + 7.5 * 110
    least, most = {
        "variance": (0.0, variance),
        "deviation": (0.0, variance**0.5),
        "covariance": (-covariance, covariance),
        "population_variance": (0.0, variance / 2),
        "population_deviation": (0.0, (variance / 2) ** 0.5),
        "population_covariance": (-covariance / 2, covariance / 2),
        "correlation": (-1.0, 1.0),
        "slope": (-7.5, 7.5),
        "intercept": (0.25 - far, 0.25 + far),
    }[of.aggregate.verb]
    assert np.all((least <= low) & (low <= value) & (value <= high) & (high <= most))
    few = np.mean((low == least) & (high == most))
    assert few > 0.95
    assert np.all(std <= (most - least) / 2)


@pytest.mark.parametrize("what", ["VAR_SAMP(age)", "COVAR_SAMP(odd, age)", "CORR(odd, age)"])
def test_one_row_has_no_spread_to_tell(what: str) -> None:
    of = asked(what)
    noisy = [NoisyPart(np.array([x]), NONE) for x in totals(of, [row_of(age=50, odd=3)])]
    value, _, low, high = finished(of, noisy)
    most = {"variance": 130**2 / 2, "covariance": 130 * 7.5 / 2, "correlation": 1.0}
    assert high[0] == most[of.aggregate.verb]
    assert low[0] == (0 if of.aggregate.verb == "variance" else -high[0])
    assert low[0] <= value[0] <= high[0]


def test_a_slope_is_steadied_but_no_more_than_its_noise_asks_for() -> None:
    of, shape = asked("REGR_SLOPE(odd, age)"), Shape("some", related(100, 0.9, 7, narrow=0.5), 3)
    value, std, low, high = finished(of, blurred(of, shape, "laplace", 4.0))
    told = high - low < 15
    raw = []
    parts = blurred(of, shape, "laplace", 4.0)
    n, y, x, both, squares = (part.values.astype(float) for part in parts)
    spread = n * (130**2 - 2 * (130**2 // 4)) - 2 * squares - x**2 / n
    raw = (both - x * y / n) / spread * 0.25 / 0.5
    noise = 2 * parts[4].spread().std()
    assert value[told] == pytest.approx((raw / (1 + (noise / spread) ** 2))[told])
    assert np.mean(told) > 0.5
    assert np.all(std[told] < 7.5)


# --- what an answer will be worth ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    "what", [*(f.format("age") for f in ONE), *(f.format("odd", "age") for f in TWO)]
)
def test_the_margin_is_known_before_and_near_what_comes(what: str, kind: Kind) -> None:
    of = asked(what)
    dice = np.random.default_rng(3)
    x, v = dice.uniform(0, 1, (2, 200))
    y = 0.366 * x + 0.634 * v  # correlated by a half
    rows = [
        row_of(age=round(45 + 65 * a), odd=round(0.5 + 7.4 * b)) for a, b in zip(x, y, strict=True)
    ]
    noisy = blurred(of, Shape("typical", tuple(rows), 100), kind, 2.0)
    noises = [part.spread() for part in noisy]
    verb = aggregate_of(of.aggregate.verb)
    margin = verb.margin(of, noises, 20_000)
    _, _, low, high = finished(of, noisy)
    assert margin is not None
    assert margin == pytest.approx(float(np.mean(high - low)) / 2, rel=0.4)
    more = verb.margin(of, noises, 100_000)
    assert more is not None
    assert more < margin
    assert verb.margin(of, noises, None) is None


def test_an_error_of_a_correlation_has_a_price() -> None:
    made = plan("CORR(pay, age) AS c, VAR_SAMP(age) AS v")
    with pytest.raises(Refused) as refused:
        price_for_errors(made, {"c": Fraction(1, 10)}, Fraction(0), None)
    assert refused.value.code == "error-needs-size"
    few, many = (
        price_for_errors(made, {"c": Fraction(1, 10), "v": Fraction(300)}, Fraction(0), people)
        for people in (10_000, 100_000)
    )
    assert few.epsilon > 8 * many.epsilon


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "code", "names"),
    [
        ("VAR_SAMP(zip)", "type-mismatch", "zip"),
        ("STDDEV(free)", "no-bounds", "free"),
        ("CORR(age, zip)", "type-mismatch", "zip"),
        ("REGR_SLOPE(free, age)", "no-bounds", "free"),
        ("COVAR_SAMP(age, free)", "no-bounds", "free"),
        ("VAR_SAMP(3)", "type-mismatch", "3"),
        ("CORR(age, 3)", "type-mismatch", "3"),
        ("REGR_INTERCEPT(age, LEAST(GREATEST(pay, 7), 7))", "type-mismatch", "pay"),
        ("VAR_SAMP(pay * pay * wide)", "numbers-too-large", ""),
        ("VAR_SAMP(wide * pay * odd)", "numbers-too-large", "wide"),
    ],
)
def test_what_has_no_spread_is_refused_by_name(what: str, code: str, names: str) -> None:
    with pytest.raises(Refused) as refused:
        plan(what)
    assert refused.value.code == code
    assert names in refused.value.cause


def test_a_moment_says_what_it_is() -> None:
    says = [
        aggregate_of(a.aggregate.verb).says(a) for a in plan("CORR(pay, age), STDDEV(age)").asked
    ]
    assert says == [
        "the sample standard deviation (STDDEV_SAMP) of age",
        "the correlation of pay and age",
    ]


def test_every_verb_is_answered() -> None:
    assert [verb for verb in AGGREGATES if aggregate_of(verb) is None] == []


# --- through the door ----------------------------------------------------------------------------


def test_the_door_answers_what_numpy_says_of_the_raw_rows(tmp_path: Path) -> None:
    rows = some_rows(3000, seed=9)
    names = ("who", *COLUMNS, "free", "zip")
    table = []
    for place, row in enumerate(rows):
        pay = row[PLACES["pay"]]
        odd = row[PLACES["odd"]]
        cells = (
            row[0],
            None if pay is None else pay / 100,
            row[2],
            None if odd is None else odd / 2,
            row[4],
        )
        table.append([f"p{place}", *("n/a" if cell is None else cell for cell in (*cells, 1, "a"))])
    source = write_csv(tmp_path / "rows.csv", names, table)
    asking = {
        "VAR_SAMP(age)": 1e-2, "STDDEV(pay)": 1e-2, "STDDEV_SAMP(wide)": 1e-2,
        "VAR_SAMP(sick)": 1e-2, "COVAR_SAMP(pay, age)": 2e-2, "CORR(odd, pay)": 2e-2,
        "REGR_SLOPE(odd, age)": 2e-2, "REGR_INTERCEPT(odd, age)": 2e-2, "CORR(sick, wide)": 2e-2,
    }  # fmt: skip
    with open_with(tmp_path, "t", source, CARD) as vault:
        answer = vault["t"].ask(f"SELECT {', '.join(asking)} FROM t", epsilon=1000)
    for place, (what, within) in enumerate(asking.items()):
        right = truth(asked(what).aggregate, rows)
        value, pair = answer.rows[0][place], answer.interval[0][place]
        assert value == pytest.approx(right, rel=within)
        assert pair is not None
        width = pair[1] - pair[0] + EXACT * abs(right)  # the noise is new in every run
        assert pair[0] - width <= right <= pair[1] + width
