"""Aggregates of SQL: which function is which verb."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from sqlglot import exp

from sfumato.core.expression import Case, Constant, Expr, Literally, Predicate
from sfumato.core.question import Aggregate, Reduce, Reduction, Verb
from sfumato.plan.sql_expressions import expression, predicate
from sfumato.plan.sql_leaves import constant_of, only, outside

_WHAT_IS: Final = "Ask for COUNT, SUM, AVG of columns, or a column that stands in GROUP BY."
_RUNNING: Final = "Write RUNNING_COUNT(*), or SUM(COUNT(*)) OVER (ORDER BY the period)."
NAMES: Final[Mapping[Verb, str]] = {
    "count": "count",
    "count_values": "count_{}",
    "count_people": "people",
    "count_distinct": "distinct_{}",
    "sum": "sum_{}",
    "mean": "avg_{}",
    "variance": "var_{}",
    "deviation": "stddev_{}",
    "covariance": "covar_{}",
    "correlation": "corr_{}",
    "slope": "slope_{}",
    "intercept": "intercept_{}",
    "quantile": "quantile_{}",
    "minimum": "min_{}",
    "maximum": "max_{}",
    "top": "top_{}",
    "running_count": "running_count",
    "bounds": "bounds_{}",
    "first_above": "first_above_{}",
}


def is_aggregate(node: exp.Expr) -> bool:
    """Say whether the node is a function that adds rows up."""
    if type(node) is exp.Anonymous:
        return node.name.casefold() in _OURS
    return type(node) in _READERS


def aggregates(node: exp.Expr) -> tuple[Aggregate, ...]:
    """Return the aggregate (several for a list of quantiles), or refuse."""
    reader = _READERS.get(type(node))
    if reader is None:
        raise outside(node, "this is not answered in SELECT", _WHAT_IS)
    return reader(node)


def _of_one(verb: Verb) -> Callable[[exp.Expr], tuple[Aggregate, ...]]:
    def read(node: exp.Expr) -> tuple[Aggregate, ...]:
        only(node, {"this"})
        return (Aggregate(verb, (expression(node.this),)),)

    return read


def _of_two(verb: Verb) -> Callable[[exp.Expr], tuple[Aggregate, ...]]:
    def read(node: exp.Expr) -> tuple[Aggregate, ...]:
        only(node, {"this", "expression"})
        return (Aggregate(verb, (expression(node.this), expression(node.expression))),)

    return read


def _count(node: exp.Expr) -> tuple[Aggregate, ...]:
    only(node, {"this", "big_int"})
    inner = node.this
    match inner:
        case exp.Star():
            only(inner, set())
            return (Aggregate("count"),)
        case exp.Distinct():
            only(inner, {"expressions"})
            if len(inner.expressions) != 1:
                raise outside(inner, "DISTINCT takes one column")
            return (Aggregate("count_distinct", (expression(inner.expressions[0]),)),)
        case None:
            return (Aggregate("count"),)
        case _:
            return (Aggregate("count_values", (expression(inner),)),)


def _median(node: exp.Expr) -> tuple[Aggregate, ...]:
    only(node, {"this"})
    return (Aggregate("quantile", (expression(node.this),), at=Fraction(1, 2)),)


def _quantile(node: exp.Expr) -> tuple[Aggregate, ...]:
    only(node, {"this", "expression"})
    points = node.expression
    listed = points.expressions if type(points) is exp.Array else [points]
    of = (expression(node.this),)
    return tuple(Aggregate("quantile", of, at=_share(point)) for point in listed)


def _share(node: exp.Expr) -> Fraction:
    constant = constant_of(node)
    if constant.kind != "number" or not 0 <= constant.number <= 1:
        raise outside(node, "a quantile is a number from 0 to 1", "Write QUANTILE_CONT(x, 0.9).")
    return constant.number


def _top(node: exp.Expr) -> tuple[Aggregate, ...]:
    only(node, {"this", "expression"})
    constant = constant_of(node.expression)
    if constant.kind != "number" or constant.number.denominator != 1 or constant.number < 1:
        raise outside(node, "how many names is a whole number from 1")
    return (Aggregate("top", (expression(node.this),), most=int(constant.number)),)


def _mode(node: exp.Expr) -> tuple[Aggregate, ...]:
    only(node, {"this"})
    return (Aggregate("top", (expression(node.this),), most=1),)


def _anonymous(node: exp.Expr) -> tuple[Aggregate, ...]:
    """Read a function that no other database has."""
    only(node, {"this", "expressions"})
    reader = _OURS.get(node.name.casefold())
    if reader is None:
        raise outside(node, "this is not answered in SELECT", _WHAT_IS)
    return (reader(node),)


def _running_count(node: exp.Expr) -> Aggregate:
    """Read RUNNING_COUNT(*): it runs along the last period of GROUP BY."""
    if len(node.expressions) != 1 or type(node.expressions[0]) is not exp.Star:
        raise outside(node, "RUNNING_COUNT takes a star", "Write RUNNING_COUNT(*).")
    only(node.expressions[0], set())
    return Aggregate("running_count")


def _bounds(node: exp.Expr) -> Aggregate:
    if len(node.expressions) != 1:
        raise outside(node, "BOUNDS takes one column", "Write BOUNDS(x).")
    return Aggregate("bounds", (expression(node.expressions[0]),))


def _first_above(node: exp.Expr) -> Aggregate:
    if len(node.expressions) != 2:
        raise outside(node, "FIRST_ABOVE takes a key and a count", "Write FIRST_ABOVE(key, 100).")
    key, count = node.expressions
    constant = constant_of(count)
    if constant.kind != "number" or constant.number.denominator != 1:
        raise outside(node, "the count is a whole number from 1", "Write FIRST_ABOVE(key, 100).")
    if not 1 <= constant.number <= 10**6:
        raise outside(node, "the count is from 1 to 1,000,000", "Write FIRST_ABOVE(key, 100).")
    return Aggregate("first_above", (expression(key),), most=int(constant.number))


_OURS: Final[Mapping[str, Callable[[exp.Expr], Aggregate]]] = {
    "running_count": _running_count,
    "bounds": _bounds,
    "first_above": _first_above,
}


def _window(node: exp.Expr) -> tuple[Aggregate, ...]:
    """Read SUM(COUNT(*)) OVER (PARTITION BY … ORDER BY period): the one window with an answer."""
    only(node, {"this", "partition_by", "order", "over"})
    summed = node.this
    is_count = type(summed) is exp.Sum and type(summed.this) is exp.Count
    if not is_count:
        raise outside(node, "windows are not answered", _RUNNING)
    only(summed, {"this"})
    if _count(summed.this) != (Aggregate("count"),):
        raise outside(node, "windows are not answered", _RUNNING)
    return (Aggregate("running_count", (_window_order(node),)),)


def _window_order(node: exp.Expr) -> Expr:
    order = node.args.get("order")
    if order is None:
        raise outside(node, "windows are not answered", _RUNNING)
    only(order, {"expressions"})
    if len(order.expressions) != 1:
        raise outside(node, "a running count runs along one period", _RUNNING)
    (ordered,) = order.expressions
    only(ordered, {"this", "nulls_first"}, {"desc": "a running count runs from the first on"})
    return expression(ordered.this)


def check_windows(select: exp.Select, groups: Sequence[Expr]) -> None:
    """Refuse a window that would run across the other columns of GROUP BY: ours do not."""
    for window in select.find_all(exp.Window):
        parts = {expression(part) for part in window.args.get("partition_by") or ()}
        if parts != set(groups) - {_window_order(window)}:
            raise outside(
                window,
                "a running count runs along one column of GROUP BY, for each of the others",
                "Write RUNNING_COUNT(*), or OVER (PARTITION BY the others ORDER BY the period).",
            )


def _filtered(node: exp.Expr) -> tuple[Aggregate, ...]:
    """Read FILTER (WHERE …): what does not fit is null, and no aggregate counts nulls."""
    only(node, {"this", "expression"})
    where = node.expression
    only(where, {"this"})
    condition = predicate(where.this)
    return tuple(_narrowed(node, a, condition) for a in aggregates(node.this))


def _narrowed(node: exp.Expr, aggregate: Aggregate, condition: Predicate) -> Aggregate:
    if aggregate.verb == "count":
        one: Expr = Literally(Constant.of(1))
        return Aggregate("count_values", (Case(((condition, one),), None),))
    if len(aggregate.of) != 1 or aggregate.verb in ("count_distinct", "running_count"):
        raise outside(node, "this aggregate takes no FILTER", "Put the condition into WHERE.")
    of = Case(((condition, aggregate.of[0]),), None)
    return Aggregate(aggregate.verb, (of,), at=aggregate.at, most=aggregate.most)


_READERS: Final[Mapping[type[exp.Expr], Callable[[exp.Expr], tuple[Aggregate, ...]]]] = {
    exp.Count: _count,
    exp.Sum: _of_one("sum"),
    exp.Avg: _of_one("mean"),
    exp.Min: _of_one("minimum"),
    exp.Max: _of_one("maximum"),
    exp.Variance: _of_one("variance"),
    exp.Stddev: _of_one("deviation"),
    exp.StddevSamp: _of_one("deviation"),
    exp.CovarSamp: _of_two("covariance"),
    exp.Corr: _of_two("correlation"),
    exp.RegrSlope: _of_two("slope"),
    exp.RegrIntercept: _of_two("intercept"),
    exp.Median: _median,
    exp.PercentileCont: _quantile,
    exp.ApproxTopK: _top,
    exp.Mode: _mode,
    exp.Filter: _filtered,
    exp.Anonymous: _anonymous,
    exp.Window: _window,
}

_REDUCTIONS: Final[Mapping[Verb, Reduction]] = {
    "count": "count",
    "count_values": "count_values",
    "sum": "sum",
    "minimum": "minimum",
    "maximum": "maximum",
}


def reduction(node: exp.Expr, name: str) -> Reduce:
    """Return the column of a per-person table, or refuse."""
    for aggregate in aggregates(node):
        verb = _REDUCTIONS.get(aggregate.verb)
        if verb is not None:
            return Reduce(name, verb, aggregate.of[0] if aggregate.of else None)
    raise outside(
        node,
        "this is not answered for each person",
        "Use COUNT, SUM, MIN or MAX in the inner SELECT.",
    )
