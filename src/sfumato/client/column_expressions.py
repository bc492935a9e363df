"""Column expressions: `col("age") // 10`, `(col("pay") > 100) & col("sick")`.

Nothing is computed here. Every operation returns a new expression of the query language.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from sfumato.client.conditions import among, value_of
from sfumato.client.pandas_hints import COLUMN_HINTS, Hinted
from sfumato.dp.refusal import Refused
from sfumato.query.expression import (
    FIELDS,
    UNITS,
    All,
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
    Field,
    Floor,
    FunctionCall,
    IsNull,
    LiteralValue,
    Not,
    Operator,
    Predicate,
    Ref,
    Sign,
    StartsWith,
    Total,
    Unit,
    power,
    rounded,
)


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition on rows or on released values; combine conditions with &, | and ~."""

    predicate: Predicate

    def __and__(self, other: Condition | Column) -> Condition:
        return Condition(All((self.predicate, condition(other))))

    def __or__(self, other: Condition | Column) -> Condition:
        return Condition(AnyOf((self.predicate, condition(other))))

    def __invert__(self) -> Condition:
        return Condition(Not(self.predicate))

    def __bool__(self) -> bool:
        raise _not_python("and, or, not", "&, | and ~ with brackets: (a > 1) & (b < 2)")


@dataclass(frozen=True, eq=False)
class Column(Hinted):
    """An expression over the columns of a row, or of the answer, such as `col("age") // 10`."""

    _called: ClassVar[str] = "A column"
    _hints: ClassVar[Mapping[str, str]] = COLUMN_HINTS

    expr: Expr

    def __add__(self, other: object) -> Column:
        return _reckoned("+", self, other)

    def __radd__(self, other: object) -> Column:
        return _reckoned("+", other, self)

    def __sub__(self, other: object) -> Column:
        return _reckoned("-", self, other)

    def __rsub__(self, other: object) -> Column:
        return _reckoned("-", other, self)

    def __mul__(self, other: object) -> Column:
        return _reckoned("*", self, other)

    def __rmul__(self, other: object) -> Column:
        return _reckoned("*", other, self)

    def __truediv__(self, other: object) -> Column:
        return _reckoned("/", self, other)

    def __rtruediv__(self, other: object) -> Column:
        return _reckoned("/", other, self)

    def __floordiv__(self, other: object) -> Column:
        return _reckoned("/", self, other).floor()

    def __neg__(self) -> Column:
        return _reckoned("-", 0, self)

    def __abs__(self) -> Column:
        return Column(FunctionCall("abs", self.expr))

    def __pow__(self, exponent: object) -> Column:
        constant = Constant.of(exponent)
        if constant.kind != "number":
            raise _not_python("a power of that", 'col("x") ** 2')
        return Column(power(self.expr, constant.number))

    def __lt__(self, other: object) -> Condition:
        return _compared(self, "<", other)

    def __le__(self, other: object) -> Condition:
        return _compared(self, "<=", other)

    def __gt__(self, other: object) -> Condition:
        return _compared(self, ">", other)

    def __ge__(self, other: object) -> Condition:
        return _compared(self, ">=", other)

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]  # builds a condition
        return _compared(self, "=", other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]  # builds a condition
        return _compared(self, "!=", other)

    __hash__ = None  # type: ignore[assignment]  # columns are no dictionary keys

    def __and__(self, other: Condition | Column) -> Condition:
        return Condition(condition(self)) & other

    def __or__(self, other: Condition | Column) -> Condition:
        return Condition(condition(self)) | other

    def __invert__(self) -> Condition:
        return ~Condition(condition(self))

    def __bool__(self) -> bool:
        raise _not_python("and, or, not", "&, | and ~ with brackets: (a > 1) & (b < 2)")

    def floor(self) -> Column:
        """Return the number rounded down to a whole number (FLOOR)."""
        return Column(Floor(self.expr))

    def round(self, digits: int = 0) -> Column:
        """Return the number rounded half up, to `digits` decimals.

        Args:
            digits: How many decimals; -2 rounds to hundreds.

        Returns:
            The rounded expression.
        """
        return Column(rounded(self.expr, digits))

    def sqrt(self) -> Column:
        """Return the square root of a number of the answer; null for a negative number."""
        return Column(FunctionCall("sqrt", self.expr))

    def ln(self) -> Column:
        """Return the natural logarithm of a number of the answer; null for zero and below."""
        return Column(FunctionCall("ln", self.expr))

    def exp(self) -> Column:
        """Return e to the power of a number of the answer."""
        return Column(FunctionCall("exp", self.expr))

    def total(self, *by: str) -> Column:
        """Return the total of a count or sum over the rows of the answer.

        Args:
            *by: Keys of the answer: one total for each combination of their values.

        Returns:
            The expression, for `formula(...)`.
        """
        return Column(Total(self.expr, by))

    def clamp(self, lower: object = None, upper: object = None) -> Column:
        """Return the number clamped to the bounds; null stays null.

        Args:
            lower: The lower bound; none, if left out.
            upper: The upper bound; none, if left out.

        Returns:
            The clamped expression.

        Raises:
            Refused: `not-in-language` if a bound is NaN, infinite, a column or a list.
        """
        ends = (None if end is None else value_of(end) for end in (lower, upper))
        return Column(Clamp(self.expr, *ends))

    def bins(self, width: object, *, start: object = 0) -> Column:
        """Return the lower edge of the number's bin, for a histogram by `group_by`.

        With start 0 it equals SQL's `FLOOR(x / 10) * 10`: the same question, which is paid once.

        Args:
            width: The width of a bin.
            start: An edge of the bins.

        Returns:
            The expression, for `group_by(...)`.

        Raises:
            Refused: `not-in-language` if `width` or `start` is None, NaN, infinite or a list.
        """
        if not isinstance(start, Column) and value_of(start) == Constant.of(0):
            return (self // width) * width
        return ((self - start) // width) * width + start

    def or_else(self, *others: object) -> Column:
        """Return the first value that is not null (COALESCE).

        Args:
            *others: Columns or values, tried in order while the result is null.

        Returns:
            The expression.

        Raises:
            Refused: `not-in-language` for a value that a question cannot contain: None, NaN or a
                list.
        """
        return Column(Coalesce((self.expr, *(expression(other) for other in others))))

    def trunc(self, unit: str) -> Column:
        """Return a date truncated to the beginning of its period.

        Args:
            unit: "year", "quarter", "month", "week", "day" or "hour".

        Returns:
            The expression, for `group_by(...)`.

        Raises:
            Refused: `not-in-language` for another unit.
        """
        return Column(DateTrunc(_unit(unit), self.expr))

    def part(self, field: str) -> Column:
        """Return a field of a date as a number.

        Args:
            field: "year", "quarter", "month", "day", "weekday" (1 is Monday) or "hour".

        Returns:
            The expression.

        Raises:
            Refused: `not-in-language` for another field.
        """
        return Column(DateField(_field(field), self.expr))

    def is_in(self, values: Iterable[object]) -> Condition:
        """Return the condition that the value is one of a list (IN).

        Args:
            values: The list of values.

        Returns:
            The condition, for `where(...)`.

        Raises:
            Refused: `not-in-language` for an empty list, a text in place of a list, or a list with
                None or NaN.
        """
        return Condition(among(self.expr, values))

    def between(self, low: object, high: object) -> Condition:
        """Return the condition that the value is between low and high, both included.

        Args:
            low: The smallest value.
            high: The largest value.

        Returns:
            The condition, for `where(...)`.

        Raises:
            Refused: `not-in-language` if an end is None, NaN, infinite or a list.
        """
        return (self >= low) & (self <= high)

    def starts_with(self, letters: str) -> Condition:
        """Return the condition that a text starts with a prefix.

        Args:
            letters: The prefix.

        Returns:
            The condition, for `where(...)`.
        """
        return Condition(StartsWith(self.expr, letters))

    def is_null(self) -> Condition:
        """Return the condition that the value is null (IS NULL)."""
        return Condition(IsNull(self.expr))


def col(name: str) -> Column:
    """Return a column expression: a column of the card, of `each_person(...)` or of the answer.

    Args:
        name: The name of the column.

    Returns:
        An expression: `col("age") // 10`, `(col("pay") > 100) & col("sick")`.
    """
    return Column(Ref(name))


def case(*whens: tuple[Condition | Column, object], otherwise: object = None) -> Column:
    """Return the value of the first condition that is true: `case((col("x") < 18, "young"))`.

    Args:
        *whens: Pairs of a condition and the value to return if it is true.
        otherwise: The value if no condition is true; null, if left out.

    Returns:
        The expression (CASE WHEN).

    Raises:
        Refused: `not-in-language` if one of them is not a pair.
    """
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in whens):
        raise _not_python("a case of other than pairs", 'case((col("x") < 18, "young"))')
    pairs = tuple((condition(when), expression(value)) for when, value in whens)
    return Column(Case(pairs, None if otherwise is None else expression(otherwise)))


def expression(value: object) -> Expr:
    """Convert a column or a plain value to an expression of the query language."""
    return value.expr if isinstance(value, Column) else LiteralValue(value_of(value))


def expr_of(of: object) -> Expr:
    """Convert a column or a column's name to an expression of the query language, or refuse."""
    if isinstance(of, str):
        return Ref(of)
    if isinstance(of, Column):
        return of.expr
    if isinstance(of, Condition):
        raise _not_python("a condition", "case((condition, 1), otherwise=0), or count(condition)")
    raise _not_python(type(of).__name__, 'the column\'s name, or col("x")')


def condition(value: object) -> Predicate:
    """Convert a condition or a boolean column to a predicate of the query language; or refuse.

    A boolean column alone means that it is true.
    """
    if isinstance(value, Condition):
        return value.predicate
    if isinstance(value, Column):
        return Compare(value.expr, "=", Constant.of(True))
    raise _not_python(f"{type(value).__name__} for a condition", 'col("x") > 5, or where(x=5)')


def _reckoned(sign: Sign, left: object, right: object) -> Column:
    return Column(Arithmetic(sign, expression(left), expression(right)))


def _compared(left: Column, operator: Operator, right: object) -> Condition:
    if isinstance(right, Column):
        difference = Arithmetic("-", left.expr, right.expr)
        return Condition(Compare(difference, operator, Constant.of(0)))
    if right is None:
        raise _not_python("a comparison with None", 'col("x").is_null()')
    return Condition(Compare(left.expr, operator, value_of(right)))


def _unit(name: str) -> Unit:
    for unit in UNITS:
        if unit == name:
            return unit
    raise Refused("not-in-language", f"{name!r} is not a unit of time.", f"Use {', '.join(UNITS)}.")


def _field(name: str) -> Field:
    for field in FIELDS:
        if field == name:
            return field
    raise Refused(
        "not-in-language", f"{name!r} is not a field of a date.", f"Use {', '.join(FIELDS)}."
    )


def _not_python(what: str, instead: str) -> Refused:
    return Refused(
        "not-in-language",
        f"A column is not a value, so Python cannot use {what}.",
        f"Write {instead}.",
    )
