"""Parse SQL's aggregate functions, such as AVG(x), into aggregates of the query model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from sqlglot import exp

from sfumato.dp.refusal import Refused
from sfumato.query.aggregates.registry import AGGREGATES
from sfumato.query.expression import Case, Constant, Expr, Predicate, one_where
from sfumato.query.model import Aggregate, PersonColumn, Reduction, Verb
from sfumato.query.sql.columns_and_constants import (
    constant_of,
    found_at,
    is_constant,
    nodes_of,
    only,
    refuse_unsupported,
)
from sfumato.query.sql.expressions import expression, predicate
from sfumato.query.sql.functions import TOTALS
from sfumato.query.sql.source_positions import recorded_positions

_WHAT_IS: Final = "Ask for COUNT, SUM, AVG of columns, or a column that is in GROUP BY."
_WITHIN: Final = "Write PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)."
_RUNNING: Final = "Write RUNNING_COUNT(*), or SUM(COUNT(*)) OVER (ORDER BY the period)."


def is_aggregate(node: exp.Expr) -> bool:
    """Check whether the syntax node is an aggregate function."""
    if type(node) is exp.Anonymous:
        return node.name.casefold() in _OURS
    return type(node) in _READERS and not is_total(node)


def is_in_aggregate(column: exp.Expr) -> bool:
    """Check whether the syntax node is inside an aggregate of the SELECT to which it belongs."""
    above = column.parent
    while above is not None and type(above) is not exp.Select:
        if is_aggregate(above):
            return True
        above = above.parent
    return False


def is_total(node: exp.Expr) -> bool:
    """Check whether the node is a total over the answer's rows, such as SUM(COUNT(*)) OVER ()."""
    if type(node) is not exp.Window or node.args.get("order") is not None:
        return False
    return type(node.this) is exp.Sum and is_aggregate(node.this.this)


def aggregates(node: exp.Expr) -> tuple[Aggregate, ...]:
    """Read a syntax node as an aggregate (several for a list of quantiles), or refuse."""
    reader = _READERS.get(type(node))
    if reader is None:
        raise refuse_unsupported(node, "this is not supported in SELECT", _WHAT_IS)
    try:
        made = reader(node)
    except Refused as found:
        refused = found_at(found, node)
    else:
        for one in made:
            recorded_positions(one, node)
        return made
    raise refused


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
                raise refuse_unsupported(inner, "DISTINCT takes one column")
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
    return tuple(Aggregate("quantile", of, at=_share(point)) for point in listed or [points])


def _quantile_of(node: exp.Expr) -> tuple[Aggregate, ...]:
    """Read QUANTILE(x, p) or APPROX_QUANTILE(x, p) as a quantile, a point of a public grid."""
    only(node, {"this", "quantile"})
    at = node.args.get("quantile")
    if at is None:
        raise refuse_unsupported(
            node, "a quantile is a number from 0 to 1", "Write QUANTILE(x, 0.9)."
        )
    return (Aggregate("quantile", (expression(node.this),), at=_share(at)),)


def _within_group(node: exp.Expr) -> tuple[Aggregate, ...]:
    """Read PERCENTILE_CONT(p), PERCENTILE_DISC(p) or MODE() with WITHIN GROUP (ORDER BY x).

    In descending order (DESC), the share p becomes 1 - p.
    """
    only(node, {"this", "expression"})
    called, order = node.this, node.expression
    only(order, {"expressions"})
    if type(called) not in (exp.PercentileCont, exp.PercentileDisc, exp.Mode):
        raise refuse_unsupported(node, "WITHIN GROUP goes with quantiles and MODE only", _WITHIN)
    if len(order.expressions) != 1:
        raise refuse_unsupported(node, "WITHIN GROUP takes one column", _WITHIN)
    (ordered,) = order.expressions
    only(ordered, {"this", "desc", "nulls_first"})
    of, is_falling = (expression(ordered.this),), bool(ordered.args.get("desc"))
    if type(called) is exp.Mode:
        only(called, set())
        return (Aggregate("top", of, most=1),)
    only(called, {"this"})
    points = called.this
    listed = points.expressions if type(points) is exp.Array else [points]
    shares = [1 - _share(point) if is_falling else _share(point) for point in listed or [points]]
    return tuple(Aggregate("quantile", of, at=share) for share in shares)


def _approximately_distinct(node: exp.Expr) -> tuple[Aggregate, ...]:
    only(node, {"this"})
    return (Aggregate("count_distinct", (expression(node.this),)),)


def _count_if(node: exp.Expr) -> tuple[Aggregate, ...]:
    only(node, {"this"})
    return (_narrowed(node, Aggregate("count"), predicate(node.this)),)


def _share(node: exp.Expr) -> Fraction:
    constant = constant_of(node) if is_constant(node) else Constant.of(False)
    if constant.kind != "number" or not 0 <= constant.number <= 1:
        raise refuse_unsupported(
            node, "a quantile is a number from 0 to 1", "Write QUANTILE_CONT(x, 0.9)."
        )
    return constant.number


def _top(node: exp.Expr) -> tuple[Aggregate, ...]:
    only(node, {"this", "expression"})
    constant = constant_of(node.expression)
    if constant.kind != "number" or constant.number.denominator != 1 or constant.number < 1:
        raise refuse_unsupported(node, "the number of values must be a whole number from 1")
    return (Aggregate("top", (expression(node.this),), most=int(constant.number)),)


def _mode(node: exp.Expr) -> tuple[Aggregate, ...]:
    only(node, {"this"})
    return (Aggregate("top", (expression(node.this),), most=1),)


def _anonymous(node: exp.Expr) -> tuple[Aggregate, ...]:
    """Read a function that the SQL parser does not know, such as RUNNING_COUNT(*)."""
    only(node, {"this", "expressions"})
    reader = _OURS.get(node.name.casefold())
    if reader is None:
        raise refuse_unsupported(node, "this is not supported in SELECT", _WHAT_IS)
    return (reader(node),)


def _running_count(node: exp.Expr) -> Aggregate:
    """Read RUNNING_COUNT(*), which runs along the last period of GROUP BY."""
    if len(node.expressions) != 1 or type(node.expressions[0]) is not exp.Star:
        raise refuse_unsupported(node, "RUNNING_COUNT takes a star", "Write RUNNING_COUNT(*).")
    only(node.expressions[0], set())
    return Aggregate("running_count")


def _bounds(node: exp.Expr) -> Aggregate:
    if len(node.expressions) != 1:
        raise refuse_unsupported(node, "BOUNDS takes one column", "Write BOUNDS(x).")
    return Aggregate("bounds", (expression(node.expressions[0]),))


def _first_above(node: exp.Expr) -> Aggregate:
    if len(node.expressions) != 2:
        raise refuse_unsupported(
            node, "FIRST_ABOVE takes a key and a count", "Write FIRST_ABOVE(key, 100)."
        )
    key, count = node.expressions
    constant = constant_of(count)
    if constant.kind != "number" or constant.number.denominator != 1:
        raise refuse_unsupported(
            node, "the count must be a whole number from 1", "Write FIRST_ABOVE(key, 100)."
        )
    if not 1 <= constant.number <= 10**6:
        raise refuse_unsupported(
            node, "the count must be from 1 to 1,000,000", "Write FIRST_ABOVE(key, 100)."
        )
    return Aggregate("first_above", (expression(key),), most=int(constant.number))


def _var(node: exp.Expr) -> Aggregate:
    """Read VAR(x) as VAR_SAMP(x), as SQL Server does; the price says that it is VAR_SAMP."""
    if len(node.expressions) != 1:
        raise refuse_unsupported(node, "VAR takes one column", "Write VAR_SAMP(x).")
    return Aggregate("variance", (expression(node.expressions[0]),))


def _of_any(verb: Verb) -> Callable[[exp.Expr], Aggregate]:
    """Return a reader of an aggregate that accepts any number of operands; planning checks it."""

    def read(node: exp.Expr) -> Aggregate:
        return Aggregate(verb, tuple(expression(of) for of in node.expressions))

    return read


# Functions that the SQL parser does not know.
_OURS: Final[Mapping[str, Callable[[exp.Expr], Aggregate]]] = {
    **{
        one.sql.casefold(): _of_any(verb)
        for verb, one in AGGREGATES.items()
        if one.sql not in exp.FUNCTION_BY_NAME
    },
    "running_count": _running_count,
    "bounds": _bounds,
    "first_above": _first_above,
    "var": _var,
}


def _window(node: exp.Expr) -> tuple[Aggregate, ...]:
    """Read SUM(COUNT(*)) OVER (PARTITION BY … ORDER BY period) as a running count."""
    only(node, {"this", "partition_by", "order", "over"})
    summed = node.this
    is_count = type(summed) is exp.Sum and type(summed.this) is exp.Count
    if not is_count:
        raise refuse_unsupported(node, "this window is not supported", TOTALS)
    only(summed, {"this"})
    if _count(summed.this) != (Aggregate("count"),):
        raise refuse_unsupported(node, "this window is not supported", TOTALS)
    return (Aggregate("running_count", (_window_order(node),)),)


def _window_order(node: exp.Expr) -> Expr:
    order = node.args.get("order")
    if order is None:
        raise refuse_unsupported(node, "this window is not supported", TOTALS)
    only(order, {"expressions"})
    if len(order.expressions) != 1:
        raise refuse_unsupported(node, "a running count needs exactly one period", _RUNNING)
    (ordered,) = order.expressions
    only(ordered, {"this", "nulls_first"})
    return expression(ordered.this)


def check_windows(select: exp.Select, groups: Sequence[Expr]) -> None:
    """Refuse a window that does not run separately for each value of the other GROUP BY columns."""
    for window in nodes_of(select):
        if not isinstance(window, exp.Window) or is_total(window):
            continue
        parts = {expression(part) for part in window.args.get("partition_by") or ()}
        if parts != set(groups) - {_window_order(window)}:
            raise refuse_unsupported(
                window,
                "a running count runs along one column of GROUP BY, and PARTITION BY names all "
                "the others",
                "Write RUNNING_COUNT(*), or OVER (PARTITION BY the others ORDER BY the period).",
            )


def _filtered(node: exp.Expr) -> tuple[Aggregate, ...]:
    """Read FILTER (WHERE …): in other rows the operand becomes NULL, which no aggregate counts."""
    only(node, {"this", "expression"})
    where = node.expression
    only(where, {"this"})
    condition = predicate(where.this)
    return tuple(_narrowed(node, a, condition) for a in aggregates(node.this))


def _narrowed(node: exp.Expr, aggregate: Aggregate, condition: Predicate) -> Aggregate:
    if aggregate.verb == "count":
        return Aggregate("count_values", (one_where(condition),))
    if len(aggregate.operands) != 1 or aggregate.verb == "running_count":
        raise refuse_unsupported(
            node, "this aggregate takes no FILTER", "Put the condition into WHERE."
        )
    of = Case(((condition, aggregate.operands[0]),), None)
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
    exp.VariancePop: _of_one("population_variance"),
    exp.StddevPop: _of_one("population_deviation"),
    exp.CovarSamp: _of_two("covariance"),
    exp.CovarPop: _of_two("population_covariance"),
    exp.Corr: _of_two("correlation"),
    exp.RegrSlope: _of_two("slope"),
    exp.RegrIntercept: _of_two("intercept"),
    exp.Median: _median,
    exp.PercentileCont: _quantile,
    exp.PercentileDisc: _quantile,
    exp.Quantile: _quantile_of,
    exp.ApproxQuantile: _quantile_of,
    exp.WithinGroup: _within_group,
    exp.ApproxDistinct: _approximately_distinct,
    exp.CountIf: _count_if,
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
    "mean": "mean",
    "minimum": "minimum",
    "maximum": "maximum",
}


def reduction(node: exp.Expr, name: str, aggregate: Aggregate) -> PersonColumn:
    """Return an aggregate of an inner SELECT by person as a per-person column, or refuse."""
    verb = _REDUCTIONS.get(aggregate.verb)
    if verb is None or aggregate.most is not None:
        raise refuse_unsupported(
            node,
            "this is not supported for each person",
            "Use COUNT, SUM, AVG, MIN or MAX in the inner SELECT.",
        )
    return recorded_positions(
        PersonColumn(name, verb, aggregate.operands[0] if aggregate.operands else None), node
    )
