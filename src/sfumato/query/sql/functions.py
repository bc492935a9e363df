"""Parse SQL functions of one number (roots, logarithms, powers), and totals over answer rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from sfumato.dp.refusal import Refused
from sfumato.query.expression import (
    MAX_POWER,
    Arithmetic,
    Expr,
    FunctionCall,
    FunctionName,
    LiteralValue,
    Total,
    power,
)
from sfumato.query.size_limits import MAX_NODES, count_up_to
from sfumato.query.sql.columns_and_constants import (
    column_of,
    constant_of,
    is_constant,
    only,
    refuse_unsupported,
)

Reader = Callable[[exp.Expr], Expr]
OfNumber = Callable[[exp.Expr, Reader], Expr]
TOTALS: Final = (
    "Write SUM(COUNT(*)) OVER () for a total, or RUNNING_COUNT(*) for a running count. Compute "
    "ranks and differences between rows from the answer; that costs nothing."
)
_CURVES: Final[Mapping[type[exp.Expr], FunctionName]] = {
    exp.Abs: "abs", exp.Sqrt: "sqrt", exp.Ln: "ln", exp.Exp: "exp",
}  # fmt: skip
_OF_ROWS: Final = "Apply it to an aggregate, as in SQRT(AVG(x)), or group rows by bins or CASE."
_LOG: Final = "Write LN(x) or LOG10(x)."
_POWER: Final = "Write POWER(x, 2)."


def _curve(node: exp.Expr, read: Reader) -> Expr:
    only(node, {"this"})
    name = _CURVES[type(node)]
    if name != "abs":
        _check_released(node)
    return FunctionCall(name, read(node.this))


def _check_released(node: exp.Expr) -> None:
    """Refuse a function of released numbers if it is applied to rows."""
    if node.find_ancestor(exp.AggFunc, exp.Where, exp.Group) is not None:
        raise refuse_unsupported(node, "this function takes aggregates, not rows", _OF_ROWS)


def _log(node: exp.Expr, read: Reader) -> Expr:
    """Read LOG10(x) and LOG(b, x); LOG(x) alone differs between databases and is refused."""
    only(node, {"this", "expression"})
    if node.args.get("expression") is None or not is_constant(node.this):
        raise refuse_unsupported(node, "the base of LOG differs between databases", _LOG)
    _check_released(node)
    base = constant_of(node.this)
    if base.kind != "number" or base.number <= 1:
        raise refuse_unsupported(node, "the base of a logarithm must be above 1", _LOG)
    return Arithmetic(
        "/", FunctionCall("ln", read(node.expression)), FunctionCall("ln", LiteralValue(base))
    )


def _power(node: exp.Expr, read: Reader) -> Expr:
    only(node, {"this", "expression"})
    if not is_constant(node.expression) or type(node.this) is exp.Neg:
        raise refuse_unsupported(
            node, "a power needs a constant exponent, and brackets around a negative base", _POWER
        )
    exponent = constant_of(node.expression)
    if exponent.kind != "number" or abs(exponent.number) > MAX_POWER:
        raise refuse_unsupported(
            node, f"an exponent must be from -{MAX_POWER} to {MAX_POWER}", _POWER
        )
    if exponent.number == 0:
        raise refuse_unsupported(node, "anything to the power of zero is 1", "Write 1 or COUNT(x).")
    if exponent.number.denominator != 1:
        _check_released(node)
    of = read(node.this)
    if count_up_to(MAX_NODES, [of]) * abs(exponent.number) >= MAX_NODES:
        raise Refused(
            "question-too-large",
            "The nested powers in the question are too large when they are multiplied out.",
            "Write one power, or nest fewer.",
        )
    return power(of, exponent.number)


def _total(node: exp.Expr, read: Reader) -> Expr:
    """Read a total over the answer's rows: an output OVER (PARTITION BY keys)."""
    only(node, {"this", "partition_by", "over"})
    if type(node.this) is not exp.Column:
        raise refuse_unsupported(node, "this window is not supported", TOTALS)
    by = tuple(column_of(key) for key in node.args.get("partition_by") or ())
    return Total(read(node.this), by)


OF_A_NUMBER: Final[Mapping[type[exp.Expr], OfNumber]] = {
    **dict.fromkeys(_CURVES, _curve),
    exp.Log: _log,
    exp.Pow: _power,
    exp.Window: _total,
}
