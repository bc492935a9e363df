"""Columns scaled to [-1, 1] by the card's bounds, on a public grid, as query expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

from sfumato.client.card_columns import card_columns
from sfumato.client.display import CardView
from sfumato.client.query_builder import Builder
from sfumato.dp.refusal import Refused
from sfumato.query.expression import (
    Arithmetic,
    Case,
    Compare,
    Constant,
    Expr,
    Floor,
    IsNull,
    LiteralValue,
    Not,
    Ref,
)
from sfumato.query.model import Aggregate, Output

FINEST: Final = 2**13  # the most steps between the bounds of a term; a column with more is rounded
MAX_COLUMNS: Final = 7  # the most columns; more would need too many moments for one query


@dataclass(frozen=True)
class Scaled:
    """A column x scaled to z in [-1, 1]: z = (term - start) / reach, and x = middle + half * z.

    The term is the column itself, or -1 and 1 for a boolean. A column with more than 8,192 steps
    between its bounds (FINEST) is rounded to a coarser grid.
    """

    name: str
    middle: Fraction
    half: Fraction
    term: Expr
    start: Fraction
    reach: Fraction
    step: Fraction
    is_boolean: bool = False

    @property
    def centred(self) -> Expr:
        """Return the scaled column z times `reach`, as a query expression."""
        return self.term if self.start == 0 else Arithmetic("-", self.term, literally(self.start))


@dataclass(frozen=True)
class Model:
    """The model to fit: the filtered rows, y, and the explanatory columns."""

    rows: Builder
    y: Scaled
    xs: tuple[Scaled, ...]
    is_odds: bool = False  # logistic: coefficients are of the log odds

    def asking(self, named: Sequence[tuple[str, Expr | None]]) -> Builder:
        """Build the query for named sums over the model's rows, in which no column is NULL.

        A name without an expression (None) becomes a count of these rows.
        """
        outputs = tuple(
            Output(name, Aggregate("count") if of is None else Aggregate("sum", (of,)))
            for name, of in named
        )
        return replace(self.rows, outputs=outputs)


def literally(value: Fraction | int) -> Expr:
    """Wrap a number as a constant expression of the query language."""
    return LiteralValue(Constant.of(value))


def model_of(rows: Builder, card: CardView, y: str, xs: Sequence[str]) -> Model:
    """Build the model over the rows in which no column is null, or refuse."""
    if rows.keys or rows.source or rows.outputs or rows.kept or rows.order or rows.most:
        raise _refused(
            "A regression can be combined only with where(...) and at_most(...), not with "
            "groups, tables of people or aggregates.",
            'Write data.where(...).linear("y", ["x"], epsilon=1). For groups, make one '
            "regression for each group with where(...).",
        )
    if isinstance(xs, str) or not xs or not all(isinstance(name, str) for name in (y, *xs)):
        raise _refused(
            "A regression takes the name of the column y and a list of the other columns' names.",
            'Write ("y", ["x1", "x2"]).',
        )
    names = [name.casefold() for name in (y, *xs)]
    if len(set(names)) < len(names):
        raise _refused("The regression names a column twice.", "Name each column once.")
    if len(xs) > MAX_COLUMNS:
        raise Refused(
            "question-too-large",
            f"A regression takes at most {MAX_COLUMNS} columns besides y.",
            "Leave some columns out.",
        )
    made = [_scaled(card_columns(card, rows), name) for name in (y, *xs)]
    complete = tuple(Not(IsNull(Ref(column.name))) for column in made)
    narrowed = replace(rows, conditions=(*rows.conditions, *complete))
    return Model(narrowed, made[0], tuple(made[1:]))


def _scaled(columns: Sequence[dict[str, Any]], name: str) -> Scaled:
    column = _column(columns, name)
    name, kind = column["name"], column["type"]
    if kind == "boolean":
        yes = (Compare(Ref(name), "=", Constant.of(True)), literally(1))
        half = Fraction(1, 2)
        return Scaled(
            name, half, half, Case((yes,), literally(-1)), Fraction(0), Fraction(1), Fraction(1),
            is_boolean=True,
        )  # fmt: skip
    if kind not in ("integer", "number"):
        raise _mismatch(
            name, f"{name!r} is {kind}, but a regression takes only numbers and booleans."
        )
    if column["lower"] is None or column["upper"] is None:
        raise Refused(
            "no-bounds",
            f"The data card declares no lower and upper bound for {name!r}.",
            "Ask the owner to declare bounds on the card, from knowledge, not from the rows.",
            column=name,
        )
    lower, upper, step = (Constant.of(column[end]).number for end in ("lower", "upper", "step"))
    return _number(name, (lower + upper) / 2, (upper - lower) / 2, step)


def _number(name: str, middle: Fraction, half: Fraction, step: Fraction) -> Scaled:
    if 2 * half <= FINEST * step:
        return Scaled(name, middle, half, Ref(name), middle, half, step)
    reach = Fraction(FINEST, 2)
    about = Arithmetic("-", Ref(name), literally(middle))
    coarse = Arithmetic("+", Arithmetic("/", about, literally(half / reach)), literally(_HALF))
    return Scaled(name, middle, half, Floor(coarse), Fraction(0), reach, Fraction(1))


_HALF: Final = Fraction(1, 2)


def _column(columns: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    for column in columns:
        if column["name"].casefold() == name.casefold():
            return dict(column)
    raise Refused(
        "unknown-column",
        f"There is no column {name!r} that you may ask for.",
        "There is: " + ", ".join(column["name"] for column in columns) + ".",
        column=name,
    )


def _mismatch(name: str, cause: str) -> Refused:
    return Refused(
        "type-mismatch", cause, "Leave this column out, or choose another one.", column=name
    )


def _refused(cause: str, next_step: str) -> Refused:
    return Refused("not-in-language", cause, next_step)
