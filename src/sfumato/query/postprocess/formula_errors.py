"""Errors of a formula, from the errors of its units.

A unit is the largest piece of a formula that has an interval of its own, computed from released
values. A unit is a sum of noisy partial aggregates, a quotient of two sums, an aggregate, a total,
or a smooth expression.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from sfumato.dp.confidence.ratio_of_sums import MAX_NOISES, Plausible, Quotient, plausible
from sfumato.dp.confidence.simultaneous import bonferroni
from sfumato.dp.confidence.sum_of_draws import margin_of_sum
from sfumato.dp.confidence.weighted_sum_of_draws import margin_of_weighted_sum
from sfumato.dp.mechanisms.averaged_noise import AveragedNoise
from sfumato.dp.mechanisms.noise import CONFIDENCE, Noise
from sfumato.dp.refusal import Bug
from sfumato.query.aggregates.aggregate import Estimate, Floats, NoisyPart, Smooth
from sfumato.query.aggregates.order_statistics import bounds_of_choice
from sfumato.query.aggregates.registry import aggregate_of
from sfumato.query.aggregates.result_ranges import Range, exactly
from sfumato.query.aggregates.taylor_intervals import BOX, Taylor, taylor_interval
from sfumato.query.expression import (
    Arithmetic,
    Expr,
    FunctionCall,
    LiteralValue,
    Ref,
    Sign,
    Total,
    columns_of,
)
from sfumato.query.model import Aggregate, Formula
from sfumato.query.plan import Plan
from sfumato.query.postprocess.interval_arithmetic import Mask, Units, interval_of_formula
from sfumato.query.postprocess.linear_forms import Linear, Ratio, Unit, divisor_of, units_of
from sfumato.query.postprocess.totals import Rows
from sfumato.query.public_ranges import public_range

# --- Smooth formulas of noisy parts, as Taylor numbers
#
# `AVG(a) - AVG(b)` has four parts with independent noise. An interval for each mean would assume
# that both are off at once, and in the worst direction. For a smooth formula, the second-order
# Taylor interval (taylor_intervals.py) is nearly as narrow as that of a sum.


@dataclass(frozen=True)
class SmoothFormula:
    """Error computation for smooth (differentiable) formulas of one query, by Taylor intervals.

    A smooth formula may name noisy sums, and aggregates that have derivatives.
    """

    sums: Mapping[str, Linear]
    aggregates: Mapping[str, tuple[Smooth, tuple[int, ...]]]

    def is_smooth(self, expr: Expr) -> bool:
        """Check whether the expression is differentiable wherever its value exists."""
        match expr:
            case LiteralValue():
                return True
            case Ref(column=column):
                return column in self.sums or column in self.aggregates
            case Arithmetic(left=left, right=right):
                return self.is_smooth(left) and self.is_smooth(divisor_of(right))
            case FunctionCall(name=name, of=inner):
                return name != "abs" and self.is_smooth(inner)
            case _:
                return False

    def parts(self, expr: Expr) -> tuple[int, ...]:
        """Return the indexes of the partial aggregates that the expression uses, in order."""
        match expr:
            case Ref(column=column) if column in self.sums:
                return tuple(part for part, _ in self.sums[column].weights)
            case Ref(column=column):
                return self.aggregates[column][1]
            case Arithmetic(left=left, right=right):
                return tuple(sorted({*self.parts(left), *self.parts(divisor_of(right))}))
            case FunctionCall(of=inner):
                return self.parts(inner)
            case _:
                return ()

    def interval(self, expr: Expr, noisy: Sequence[NoisyPart], miss: Fraction) -> Range:
        """Return the expression's interval in each group, which misses with probability `miss`.

        In groups where no finite interval can be proved, both ends are infinite.
        """
        parts = self.parts(expr)
        values = [noisy[part].values.astype(np.float64) for part in parts]
        noises = [noisy[part].spread() for part in parts]
        each = miss / (BOX * len(parts))
        most = {
            part: np.maximum(value + noise.within(1 - each), 0.0)
            for part, value, noise in zip(parts, values, noises, strict=True)
        }
        rounding = self._rounding(expr, most)

        def of(numbers: Sequence[Taylor]) -> Range:
            return self._made(expr, dict(zip(parts, numbers, strict=True)))

        return Range(*taylor_interval(of, values, noises, [rounding[p] for p in parts], miss))

    def _rounding(self, expr: Expr, most: Mapping[int, Floats]) -> Mapping[int, Floats]:
        """Return the largest rounding error of each partial aggregate that the expression uses.

        `most` holds the largest plausible value of each partial aggregate.
        """
        made = {part: np.zeros(value.shape) for part, value in most.items()}
        for name in columns_of(expr):
            if name in self.aggregates:
                smooth, parts = self.aggregates[name]
                for part, by in zip(parts, smooth.rounding, strict=True):
                    made[part] = np.maximum(made[part], by * most[parts[0]])
        return made

    def _made(self, expr: Expr, numbers: Mapping[int, Taylor]) -> Range:
        match expr:
            case LiteralValue(constant=constant):
                return _constant(float(constant.number), numbers)
            case Ref(column=column) if column in self.sums:
                return _sum(self.sums[column], numbers)
            case Ref(column=column):
                smooth, parts = self.aggregates[column]
                return smooth.of([numbers[part] for part in parts])
            case Arithmetic(sign=sign, left=left, right=right):
                one, other = self._made(left, numbers), self._made(divisor_of(right), numbers)
                return _of_two(sign, one, other)
            case FunctionCall(name="sqrt", of=inner):
                return self._made(inner, numbers).root()
            case FunctionCall(name=name, of=inner):
                made = self._made(inner, numbers)
                if not isinstance(made, Taylor):
                    raise Bug("a function of a constant")
                return made.logarithm() if name == "ln" else made.exponential()
            case _:
                raise Bug("a formula that is not smooth")


def _constant(number: float, numbers: Mapping[int, Taylor]) -> Range:
    first = next(iter(numbers.values()))
    return first.scaled(0.0).shifted(number)


def _of_two(sign: Sign, one: Range, other: Range) -> Range:
    match sign:
        case "+":
            return one.plus(other)
        case "-":
            return one.minus(other)
        case "*":
            return one.times(other)
        case _:  # a divisor in a formula may also be below zero
            turned = exactly(np.where(other.low < 0, -1.0, 1.0))
            return one.times(turned).over(other.times(turned))


def _sum(form: Linear, numbers: Mapping[int, Taylor]) -> Range:
    made = _constant(float(form.constant), numbers)
    for part, weight in form.weights:
        made = made.plus(numbers[part].scaled(float(weight)))
    return made


@dataclass(frozen=True)
class FormulaErrors:
    """The error of a formula, computed from the errors of its units (its largest pieces)."""

    plan: Plan
    formula: Formula
    noisy: Sequence[NoisyPart]
    rows: Mapping[Total, Rows] = field(default_factory=dict)  # the answer rows that each total sums
    miss: Fraction = 1 - CONFIDENCE
    smooth_units: bool = True  # True if a smooth expression of several units counts as one unit

    @cached_property
    def aggregates(self) -> Mapping[str, Aggregate]:
        """Return the query's aggregates by output name."""
        outputs = self.plan.question.outputs
        return {o.name: o.of for o in outputs if isinstance(o.of, Aggregate)}

    @cached_property
    def sums(self) -> Mapping[str, Linear]:
        """Return the outputs that are one noisy sum times a constant, as linear forms by name."""
        made = {}
        for name, aggregate in self.aggregates.items():
            unit = aggregate_of(aggregate.verb).unit
            if unit is not None:
                (part,) = self.plan.parts_of(aggregate)
                weight = unit(self.plan.asked_of(aggregate))
                made[name] = Linear(Fraction(0), ((part, weight),))
        return made

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Return the formula's units: the distinct pieces that have an interval of their own."""
        return tuple(dict.fromkeys(units_of(self.formula.expr, self.sums, self._is_smooth)))

    @cached_property
    def flat(self) -> FormulaErrors:
        """Return the same formula, but with each smooth expression split into its smaller units.

        The standard deviation is computed from the smaller units.
        """
        return replace(self, smooth_units=False) if self.smooth_units else self

    def _is_smooth(self, expr: Arithmetic | FunctionCall) -> bool:
        """Check whether the expression is smooth and has several units.

        Such an expression then counts as one unit of the formula.
        """
        if not self.smooth_units or not self._smooth.is_smooth(expr):
            return False
        parts = [self.noisy[part].noise for part in self._smooth.parts(expr)]
        if len(parts) > MAX_NOISES or not all(isinstance(noise, Noise) for noise in parts):
            return False
        return len(set(units_of(expr, self.sums))) > 1

    @cached_property
    def _smooth(self) -> SmoothFormula:
        """Return the operands that smooth formulas of this query may use."""
        made = {}
        for name, aggregate in self.aggregates.items():
            smooth = aggregate_of(aggregate.verb).smooth
            if smooth is not None:
                parts = self.plan.parts_of(aggregate)
                made[name] = (smooth(self.plan.asked_of(aggregate)), parts)
                is_rounded = any(made[name][0].rounding)
                if is_rounded and self.plan.parts[parts[0]].part.tally.kind not in (
                    "rows",
                    "values",
                ):
                    raise Bug("where rows are rounded, the first part counts them")
        return SmoothFormula(self.sums, made)

    @cached_property
    def _smooths(self) -> Mapping[Unit, tuple[FormulaErrors, Range]]:
        """Return the formula's smooth units, each as a formula of its own with its Taylor interval.

        One fifth (1/BOX) of a unit's probability of a miss is for the interval that encloses it,
        computed from its own smaller units. The other four fifths are for the Taylor interval.
        """
        miss = self.miss / max(1, len(self.units))
        found: dict[Unit, tuple[FormulaErrors, Range]] = {}
        for unit in self.units:
            if isinstance(unit, Arithmetic | FunctionCall):
                alone = replace(self, formula=Formula(unit), miss=miss / BOX, smooth_units=False)
                line = self._smooth.interval(unit, self.noisy, miss * (BOX - 1) / BOX)
                found[unit] = (alone, line)
        return found

    @cached_property
    def wide(self) -> Units:
        """Return an interval around the released value of each unit of the formula.

        All of them hold jointly at 95 %.
        """
        ranges = {unit: self._range(unit) for unit in self.units}
        return Units(ranges, self._nulls, self.sums, self.cells)

    @cached_property
    def tight(self) -> Units:
        """Return the intervals of `wide`, limited to the public range of each unit."""
        ranges = {unit: self._public(unit, made) for unit, made in self.wide.ranges.items()}
        return Units(ranges, self._nulls, self.sums, self.cells)

    @cached_property
    def _nulls(self) -> Mapping[Unit, Mask]:
        """Return for each unit a mask of the groups in which it may be NULL.

        It may be NULL if noise could explain the whole divisor, which may then be zero.
        """
        nulls: dict[Unit, Mask] = {u: ~made.has_ends for u, made in self._quotients.items()}
        for unit, (alone, _) in self._smooths.items():
            nulls[unit] = interval_of_formula(alone.formula.expr, alone.wide).may_be_null
        return nulls

    @cached_property
    def _quotients(self) -> Mapping[Ratio, Plausible]:
        miss = self.miss / max(1, len(self.units))
        ratios = [unit for unit in self.units if isinstance(unit, Ratio)]
        return {
            unit: plausible(
                self.values(unit.top), self.values(unit.bottom), self.quotient(unit, miss)
            )
            for unit in ratios
        }

    def estimate(self, name: str) -> Estimate:
        """Return the estimate of an aggregate in the formula, with its own 95 % interval.

        The interval is not widened to hold jointly with those of other units.
        """
        return self.separate_estimates[name]

    @cached_property
    def separate_estimates(self) -> Mapping[str, Estimate]:
        """Return the estimates of the aggregates that are units of the formula, by output name."""
        units = units_of(self.formula.expr, self.sums)
        names = [unit for unit in units if isinstance(unit, str)]
        return {name: self._estimate(self.aggregates[name], 1) for name in names}

    def total(self, of: Total) -> Floats:
        """Return the released value of the total in each group."""
        return self.rows[of].added(self.values(self.part_of(of)))

    def part_of(self, of: Total) -> Linear:
        """Return, as a linear form, the count or sum that a total adds up over answer rows."""
        if not isinstance(of.of, Ref):
            raise Bug("a total that nobody checked")
        return self.sums[of.of.column]

    def values(self, form: Linear) -> Floats:
        """Return the value of a linear form in each group."""
        made = np.full(self.cells, float(form.constant))
        for part, weight in form.weights:
            made = made + float(weight) * self.noisy[part].values.astype(np.float64)
        return np.asarray(made)

    def quotient(self, form: Ratio, miss: Fraction) -> Quotient:
        """Return a quotient of two sums, for an interval that misses with probability `miss`.

        It holds the weights and the noise of the partial aggregates in both sums.
        """
        top, bottom = dict(form.top.weights), dict(form.bottom.weights)
        return Quotient(
            tuple(float(top.get(part, 0)) for part in form.parts),
            tuple(float(bottom.get(part, 0)) for part in form.parts),
            tuple(_as_one(self.noise(part)) for part in form.parts),
            miss,
        )

    def noise(self, part: int) -> Noise:
        """Return the noise of a partial aggregate, which is the same in every group."""
        return self.noisy[part].spread()

    @property
    def cells(self) -> int:
        """Return the number of groups in the answer."""
        parts = [part for a in self.aggregates.values() for part in self.plan.parts_of(a)]
        return len(self.noisy[parts[0]].values)

    def _range(self, unit: Unit) -> Range:
        miss = self.miss / len(self.units)
        if isinstance(unit, Linear):
            middle, margin = self.values(unit), self._margin(unit, miss)
            return Range(middle - margin, middle + margin)
        if isinstance(unit, Ratio):
            return Range(*self._quotients[unit].within(-np.inf, np.inf))
        if isinstance(unit, Total):
            totals, margins = self.total(unit), self._margin_of_total(unit, miss)
            return Range(totals - margins, totals + margins)
        if isinstance(unit, Arithmetic | FunctionCall):
            alone, line = self._smooths[unit]
            return line.common(interval_of_formula(unit, alone.wide).range)
        return self._of_aggregate(unit)

    def _public(self, unit: Unit, made: Range) -> Range:
        """Return the interval of a unit, limited to the unit's public range."""
        if isinstance(unit, Ratio):
            return Range(*self._quotients[unit].within(*public_range(unit, self.plan)))
        if isinstance(unit, Arithmetic | FunctionCall):
            alone, line = self._smooths[unit]
            return line.common(interval_of_formula(unit, alone.tight).range)
        form = self.part_of(unit) if isinstance(unit, Total) else unit
        if not isinstance(form, Linear):
            return made
        low, high = public_range(form, self.plan)
        return made.clipped(np.full(self.cells, low), np.full(self.cells, high))

    def _margin(self, form: Linear, miss: Fraction) -> float:
        if len(form.weights) == 1:
            ((part, weight),) = form.weights
            return abs(float(weight)) * self.noise(part).within(1 - miss)
        weights, draws = self._draws(form)
        return margin_of_weighted_sum(weights, draws, 1 - miss)

    def _margin_of_total(self, unit: Total, miss: Fraction) -> Floats:
        ((part, weight),) = self.part_of(unit).weights
        noise = self.noise(part)
        return self.rows[unit].each(
            lambda count: abs(float(weight)) * margin_of_sum(noise, count, 1 - miss)
        )

    def _draws(self, form: Linear) -> tuple[tuple[float, ...], tuple[Noise, ...]]:
        """Return every draw of noise in a linear form, with its weight.

        A partial aggregate that averages several draws (a top-up) contributes each of them.
        """
        weights: list[float] = []
        draws: list[Noise] = []
        for part, weight in form.weights:
            noise = self.noise(part)
            several = noise.draws if isinstance(noise, AveragedNoise) else (noise,)
            shares = noise.weights() if isinstance(noise, AveragedNoise) else (1.0,)
            weights += [float(weight) * share for share in shares]
            draws += several
        return tuple(weights), tuple(draws)

    def _of_aggregate(self, name: str) -> Range:
        aggregate = self.aggregates[name]
        times = (1 - CONFIDENCE) / self.miss * len(self.units)
        made = self._estimate(aggregate, math.ceil(times))
        low, high = bounds_of_choice(self.plan.asked_of(aggregate))
        return Range(formula_units(made.low, low), formula_units(made.high, high))

    def _estimate(self, aggregate: Aggregate, times: int) -> Estimate:
        parts = [self.noisy[place] for place in self.plan.parts_of(aggregate)]
        if times > 1 and not all(isinstance(part.noise, Noise) for part in parts):
            nothing = [None] * len(parts[0].values)
            return Estimate(nothing, nothing, nothing, nothing)
        surer = [
            replace(p, noise=bonferroni(p.noise, times)) if isinstance(p.noise, Noise) else p
            for p in parts
        ]
        return aggregate_of(aggregate.verb).finish(self.plan.asked_of(aggregate), surer)


def _as_one(noise: Noise) -> Noise:
    """Replace averaged noise by a single draw of the same width (averaged_noise.proof.md)."""
    if not isinstance(noise, AveragedNoise):
        return noise
    width = Fraction(noise.width())
    return Noise(noise.kind, width if noise.kind == "laplace" else width**2)


def formula_units(ends: Sequence[object], unknown: float) -> Floats:
    return np.array([unknown if end is None else float(str(end)) for end in ends])
