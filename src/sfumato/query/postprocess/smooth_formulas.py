"""Formulas that are smooth in their noisy parts, as numbers with slopes and curvature.

`AVG(a) - AVG(b)` is of four parts whose noise adds up as it falls; an interval for each mean would
let both be off at once and in the worst way. Where a formula bends smoothly, its second-order
Taylor interval (verbs/taylor.py) is nearly as narrow as that of a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sfumato.dp.refusal import Bug
from sfumato.query.aggregates.aggregate import Floats, NoisyPart, Smooth
from sfumato.query.aggregates.result_ranges import Range, exactly
from sfumato.query.aggregates.taylor_intervals import BOX, Taylor, taylor_interval
from sfumato.query.expression import Arithmetic, Curve, Expr, Literally, Ref, Sign, columns_of
from sfumato.query.postprocess.linear_forms import Linear, divisor_of


@dataclass(frozen=True)
class SmoothFormula:
    """What smooth formulas are made of: sums of parts, and aggregates that are smooth of theirs."""

    sums: Mapping[str, Linear]
    aggregates: Mapping[str, tuple[Smooth, tuple[int, ...]]]

    def is_smooth(self, expr: Expr) -> bool:
        """Say whether the expression bends nowhere, but where it has no value."""
        match expr:
            case Literally():
                return True
            case Ref(column=column):
                return column in self.sums or column in self.aggregates
            case Arithmetic(left=left, right=right):
                return self.is_smooth(left) and self.is_smooth(divisor_of(right))
            case Curve(name=name, of=inner):
                return name != "abs" and self.is_smooth(inner)
            case _:
                return False

    def parts(self, expr: Expr) -> tuple[int, ...]:
        """Return the parts that the expression is of, in order."""
        match expr:
            case Ref(column=column) if column in self.sums:
                return tuple(part for part, _ in self.sums[column].weights)
            case Ref(column=column):
                return self.aggregates[column][1]
            case Arithmetic(left=left, right=right):
                return tuple(sorted({*self.parts(left), *self.parts(divisor_of(right))}))
            case Curve(of=inner):
                return self.parts(inner)
            case _:
                return ()

    def interval(self, expr: Expr, noisy: Sequence[NoisyPart], miss: Fraction) -> Range:
        """Return the expression's interval at that chance to miss; all numbers if unknown."""
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
        """Return how far each part is off by rounding, if each is that large at most."""
        made = {part: np.zeros(value.shape) for part, value in most.items()}
        for name in columns_of(expr):
            if name in self.aggregates:
                smooth, parts = self.aggregates[name]
                for part, by in zip(parts, smooth.rounding, strict=True):
                    made[part] = np.maximum(made[part], by * most[parts[0]])
        return made

    def _made(self, expr: Expr, numbers: Mapping[int, Taylor]) -> Range:
        match expr:
            case Literally(constant=constant):
                return _constant(float(constant.number), numbers)
            case Ref(column=column) if column in self.sums:
                return _sum(self.sums[column], numbers)
            case Ref(column=column):
                smooth, parts = self.aggregates[column]
                return smooth.of([numbers[part] for part in parts])
            case Arithmetic(sign=sign, left=left, right=right):
                one, other = self._made(left, numbers), self._made(divisor_of(right), numbers)
                return _of_two(sign, one, other)
            case Curve(name="sqrt", of=inner):
                return self._made(inner, numbers).root()
            case Curve(name=name, of=inner):
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
        case _:  # what is divided by may be below zero, in formulas
            turned = exactly(np.where(other.low < 0, -1.0, 1.0))
            return one.times(turned).over(other.times(turned))


def _sum(form: Linear, numbers: Mapping[int, Taylor]) -> Range:
    made = _constant(float(form.constant), numbers)
    for part, weight in form.weights:
        made = made.plus(numbers[part].scaled(float(weight)))
    return made
