"""QUANTILE_CONT, MEDIAN, MIN, MAX and APPROX_TOP_K: private choices from a public list.

A quantile is a point of a fixed grid between the bounds, never a record (soundness rule 18). MIN
and MAX are the quantiles 0 and 1. They err outward, because any point beyond all rows has the same
utility as the outermost row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Bug, Refused
from sfumato.query.aggregates.aggregate import (
    AggregateKind,
    AskedAggregate,
    Choice,
    Estimate,
    NoisyPart,
    Part,
    check_number,
    check_sides,
)
from sfumato.query.expression import Arithmetic, Constant, Expr
from sfumato.query.grouping_keys import plan_key
from sfumato.query.measure import Tally
from sfumato.query.typed_expression import ExpressionType, whole
from sfumato.vault.card.card_json import plain_number


@dataclass(frozen=True)
class Grid:
    """The public grid from which a quantile is chosen: `points` points, `stride` steps apart."""

    lower: int
    upper: int
    stride: int

    @property
    def points(self) -> int:
        """Return the number of points in the grid."""
        return (self.upper - self.lower) // self.stride + 1

    def code(self, physical: Expr) -> Expr:
        """Return, as an expression, the index of the grid point to which a value belongs."""
        above = Arithmetic("-", physical, whole(self.lower))
        return above if self.stride == 1 else Arithmetic("/", above, whole(self.stride))

    def value(self, place: int) -> int:
        """Return the grid point in steps: the middle of the values that belong to it."""
        first = self.lower + place * self.stride
        return (first + min(first + self.stride - 1, self.upper)) // 2


def grid_of(side: ExpressionType, most_points: int) -> Grid:
    """Return the finest grid between the operand's bounds with at most `most_points` points.

    It depends on public numbers only.
    """
    steps = side.upper - side.lower + 1
    return Grid(side.lower, side.upper, -(-steps // most_points))


def _check_quantile(asked: AskedAggregate) -> None:
    check_sides(asked, 1)
    check_number(asked, asked.operand)
    if _at(asked).denominator > 10_000:
        raise Refused(
            "not-in-language",
            "The share of a quantile has more than four decimals.",
            "Write 0.9 or 0.9999.",
        )


def _at(asked: AskedAggregate) -> Fraction:
    match asked.aggregate.verb:
        case "minimum":
            return Fraction(0)
        case "maximum":
            return Fraction(1)
        case _:
            if asked.aggregate.at is None:
                raise Refused(
                    "not-in-language",
                    "A quantile needs a share from 0 to 1.",
                    "Write QUANTILE_CONT(x, 0.9).",
                )
            return asked.aggregate.at


def _quantile_parts(asked: AskedAggregate) -> tuple[Part, ...]:
    grid = grid_of(asked.operand, asked.max_points)
    tally = Tally("histogram", grid.code(asked.operand.physical), size=grid.points)
    at = _at(asked)
    says = f"choice of {_named(asked, at)}"
    return (Part(says, tally, 1, choice=Choice("quantile", at=at)),)


def _finish_quantile(asked: AskedAggregate, parts: Sequence[NoisyPart]) -> Estimate:
    grid = grid_of(asked.operand, asked.max_points)
    places = parts[0].values[:, 0].tolist()
    values = [plain_number(grid.value(int(place)) * asked.operand.step) for place in places]
    return without_bars(values)


def bounds_of_choice(asked: AskedAggregate) -> tuple[float, float]:
    """Return the public range of a quantile, minimum or maximum; infinite for other verbs.

    A quantile has no interval, but it is between the bounds of its operand.
    """
    if asked.aggregate.verb not in ("quantile", "minimum", "maximum"):
        return -math.inf, math.inf
    side = asked.operand
    return float(side.lower * side.step), float(side.upper * side.step)


def without_bars(values: Sequence[object]) -> Estimate:
    """Return chosen values without error bars, as released numbers don't determine their std."""
    nothing = [None] * len(values)
    return Estimate(values, nothing, nothing, nothing)


def no_margin(_asked: AskedAggregate, _noises: Sequence[Noise], _size: int | None) -> float | None:
    """Return None: the error of a private choice depends on the rows, so it can't be predicted."""
    return None


def _named(asked: AskedAggregate, at: Fraction) -> str:
    names = {Fraction(0): "least", Fraction(1, 2): "median", Fraction(1): "largest"}
    what = names.get(at, f"{float(at):g} quantile")
    return f"the {what} of {asked.in_words()}"


def _says_quantile(asked: AskedAggregate) -> str:
    return _named(asked, _at(asked))


# --- the most frequent ---------------------------------------------------------------------------


def _check_top(asked: AskedAggregate) -> None:
    check_sides(asked, 1)
    names = _names(asked)
    if len(names) > asked.max_points or (asked.aggregate.most or 1) > len(names):
        raise Refused(
            "not-in-language",
            f"{asked.in_words()!r} has {len(names)} public values, which is too few or too many "
            "for the most frequent ones.",
            "Ask for fewer values, or group by it and order by COUNT(*).",
        )


def _names(asked: AskedAggregate) -> tuple[Constant, ...]:
    key = plan_key(asked.aggregate.operands[0], asked.operand)
    if key.keys is None:
        raise Refused(
            "keys-needed",
            f"The data card declares no keys for {asked.in_words()!r}, so there is no list to "
            "choose from.",
            "Write SELECT x, COUNT(*) … GROUP BY x ORDER BY 2 DESC LIMIT k, with a delta.",
        )
    return key.keys


def _top_parts(asked: AskedAggregate) -> tuple[Part, ...]:
    key = plan_key(asked.aggregate.operands[0], asked.operand)
    tally = Tally("histogram", key.key.value, size=len(_names(asked)))
    names = asked.aggregate.most or 1
    says = f"choice of the {names} most frequent {asked.in_words()}"
    return (Part(says, tally, 1, choice=Choice("top", names=names)),)


def _finish_top(asked: AskedAggregate, parts: Sequence[NoisyPart]) -> Estimate:
    key = plan_key(asked.aggregate.operands[0], asked.operand)
    if key.keys is None:
        raise Bug("a choice without a list")
    shown = [key.shown(constant) for constant in key.keys]
    return without_bars([[shown[int(p)] for p in places] for places in parts[0].values.tolist()])


def _says_top(asked: AskedAggregate) -> str:
    return f"the {asked.aggregate.most or 1} most frequent values of {asked.in_words()}"


QUANTILE = AggregateKind(
    _check_quantile, _quantile_parts, _finish_quantile, no_margin, _says_quantile
)
MINIMUM = MAXIMUM = QUANTILE
TOP = AggregateKind(_check_top, _top_parts, _finish_top, no_margin, _says_top)
