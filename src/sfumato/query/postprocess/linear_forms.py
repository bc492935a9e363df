"""Linear forms: formulas that are a weighted sum of noisy numbers, or a quotient of two sums.

`SUM(a) * 1.2 - COUNT(*)` is one sum, and `100 * SUM(a) / COUNT(*)` one quotient. `AVG(a) - AVG(b)`
is neither: it has two units, each with an interval of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sfumato.dp.confidence.ratio_of_sums import MAX_NUMBERS
from sfumato.query.expression import (
    Arithmetic,
    Case,
    Clamp,
    Coalesce,
    Compare,
    Constant,
    Expr,
    Floor,
    FunctionCall,
    LiteralValue,
    Not,
    Ref,
    Total,
)

ZERO: Final = Constant.of(0)


@dataclass(frozen=True)
class Linear:
    """A linear form: a constant plus a weighted sum of partial aggregates, given by index."""

    constant: Fraction
    # (index of the part, weight), in order; no weight is zero
    weights: tuple[tuple[int, Fraction], ...] = ()

    def plus(self, other: Linear) -> Linear:
        """Return the sum of two linear forms."""
        made = dict(self.weights)
        for part, weight in other.weights:
            made[part] = made.get(part, Fraction(0)) + weight
        kept = tuple(sorted((part, weight) for part, weight in made.items() if weight))
        return Linear(self.constant + other.constant, kept)

    def times(self, factor: Fraction) -> Linear:
        """Return the linear form times a constant."""
        if factor == 0:
            return Linear(Fraction(0))
        weights = tuple((part, weight * factor) for part, weight in self.weights)
        return Linear(self.constant * factor, weights)

    @property
    def is_constant(self) -> bool:
        """Check whether the form is a constant, so that it has no noise."""
        return not self.weights


@dataclass(frozen=True)
class Ratio:
    """A quotient of two linear forms, which together use few partial aggregates."""

    top: Linear
    bottom: Linear

    @property
    def parts(self) -> tuple[int, ...]:
        """Return the indexes of the partial aggregates in both forms, in order."""
        return tuple(sorted({part for part, _ in (*self.top.weights, *self.bottom.weights)}))


Form = Linear | Ratio


def linear_form(expr: Expr, sums: Mapping[str, Linear]) -> Form | None:
    """Return the expression as a linear form or a quotient of two; None if it is neither."""
    match expr:
        case Ref(column=column):
            return sums.get(column)
        case LiteralValue(constant=constant):
            return Linear(constant.number)
        case Coalesce(parts=parts):
            form = linear_form(parts[0], sums)
            return form if isinstance(form, Linear) else None  # a sum of parts is never NULL
        case Arithmetic(sign=sign, left=left, right=right):
            if sign == "/":
                right = divisor_of(right)
            pair = linear_form(left, sums), linear_form(right, sums)
            if pair[0] is None or pair[1] is None:
                return None
            return _few(_two(sign, pair[0], pair[1]))
        case _:
            return None


def divisor_of(expr: Expr) -> Expr:
    """Return x if the divisor is NULLIF(x, 0), since division by zero gives NULL anyway."""
    match expr:
        case Case(whens=((Not(Compare(of, "=", constant)), then),), otherwise=None):
            return then if of == then and constant == ZERO else expr
        case _:
            return expr


def _two(sign: str, left: Form, right: Form) -> Form | None:
    match sign:
        case "+":
            return _added(left, right)
        case "-":
            return _added(left, _scaled(right, Fraction(-1)))
        case "*":
            if isinstance(right, Linear) and right.is_constant:
                return _scaled(left, right.constant)
            if isinstance(left, Linear) and left.is_constant:
                return _scaled(right, left.constant)
            return None
        case "/":
            return _divided(left, right)
        case _:
            return None


def _added(left: Form, right: Form) -> Form | None:
    if isinstance(left, Linear) and isinstance(right, Linear):
        return left.plus(right)
    if isinstance(left, Linear):
        left, right = right, left
    if not isinstance(left, Ratio):
        return None
    if isinstance(right, Linear):
        if not right.is_constant:
            return None
        return Ratio(left.top.plus(left.bottom.times(right.constant)), left.bottom)
    return Ratio(left.top.plus(right.top), left.bottom) if left.bottom == right.bottom else None


def _scaled(form: Form, factor: Fraction) -> Form:
    if isinstance(form, Linear):
        return form.times(factor)
    return Ratio(form.top.times(factor), form.bottom)


def _divided(left: Form, right: Form) -> Form | None:
    if isinstance(right, Ratio):
        return None
    if right.is_constant:
        return None if right.constant == 0 else _scaled(left, 1 / right.constant)
    return Ratio(left, right) if isinstance(left, Linear) else None


def _few(form: Form | None) -> Form | None:
    """Return the form, but None for a quotient of more sums than its interval can handle."""
    return None if isinstance(form, Ratio) and len(form.parts) > MAX_NUMBERS else form


# A unit: a sum, a quotient, an aggregate by output name, a total, or a smooth expression of several
# units
Unit = Form | str | Total | Arithmetic | FunctionCall


def units_of(
    expr: Expr,
    sums: Mapping[str, Linear],
    is_smooth: Callable[[Arithmetic | FunctionCall], bool] = lambda _: False,
) -> Iterator[Unit]:
    """Yield the units of a formula: its largest pieces that have an interval of their own."""
    form = linear_form(expr, sums)
    if form is not None:
        if not (isinstance(form, Linear) and form.is_constant):
            yield form
    elif isinstance(expr, Ref):
        yield expr.column
    elif isinstance(expr, Total) or (
        isinstance(expr, Arithmetic | FunctionCall) and is_smooth(expr)
    ):
        yield expr
    else:
        for inner in _values_in(expr):
            yield from units_of(inner, sums, is_smooth)


def _values_in(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands from which the value is computed: all but the conditions of a CASE."""
    match expr:
        case Arithmetic(left=left, right=right):
            return (left, right)
        case Floor(of=of) | Clamp(of=of) | FunctionCall(of=of):
            return (of,)
        case Coalesce(parts=parts):
            return parts
        case Case(whens=whens, otherwise=otherwise):
            return (*(then for _, then in whens), *([] if otherwise is None else [otherwise]))
        case _:
            return ()
