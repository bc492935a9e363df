"""Parse arithmetic over aggregates: each aggregate becomes an output, which a formula names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from sqlglot import exp

from sfumato.dp.refusal import Refused
from sfumato.query.expression import Expr
from sfumato.query.model import Aggregate
from sfumato.query.sql.aggregates import aggregates, is_aggregate, is_total
from sfumato.query.sql.columns_and_constants import found_at, nodes_of, only, refuse_unsupported
from sfumato.query.sql.expressions import expression

_FLOATS: Final = (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT)


class Names(Protocol):
    """Interface that names the outputs of a formula's operands, and adds hidden ones if missing."""

    def aggregate(self, of: Aggregate) -> str:
        """Return the name of the output that holds the aggregate."""

    def key(self, of: Expr) -> str | None:
        """Return the name of the output that holds the key, or None if it is no GROUP BY key."""


def outer_aggregates(node: exp.Expr) -> list[exp.Expr]:
    """Return the aggregates in the syntax node that are not inside another aggregate."""
    if is_total(node):
        return [node.this.this]
    if is_aggregate(node):
        return [node]
    return [found for part in node.iter_expressions() for found in outer_aggregates(part)]


def formula(node: exp.Expr, names: Names) -> Expr:
    """Read arithmetic in which each aggregate is replaced by the name of its output; or refuse."""
    try:
        return expression(plain(with_names(node, names)))
    except Refused as found:  # the refusal is about a copy, which lacks some positions
        refused = found_at(found, node)
    raise refused


def with_names(node: exp.Expr, names: Names) -> exp.Expr:
    """Return a copy of the syntax node in which each aggregate is the column of its output.

    In a total, the aggregate and the keys are replaced, and the window stays.
    """
    copy = exp.Paren(this=node.copy())
    for part in outer_aggregates(copy):
        above = part.parent
        column = exp.column(names.aggregate(formula_of_aggregate(part)), quoted=True)
        if above is not None and above.parent is not None and is_total(above.parent):
            _name_keys(above.parent, names)
            above.replace(column)
        else:
            part.replace(column)
    made: exp.Expr = copy.this
    return made


def _name_keys(window: exp.Expr, names: Names) -> None:
    keys = window.args.get("partition_by") or []
    window.set("partition_by", [_named_key(key, names) for key in keys])


def _named_key(key: exp.Expr, names: Names) -> exp.Column:
    name = names.key(expression(key))
    if name is None:
        raise refuse_unsupported(
            key, "a total is by keys of the answer", "Partition by the columns that you group by."
        )
    return exp.column(name, quoted=True)


def formula_of_aggregate(node: exp.Expr) -> Aggregate:
    """Read the syntax node as exactly one aggregate, or refuse."""
    several: Sequence[Aggregate] = aggregates(node)
    if len(several) != 1:
        raise refuse_unsupported(
            node, "this needs exactly one value", "Name one quantile: QUANTILE_CONT(x, 0.5)."
        )
    return several[0]


# --- casts that don't change released values -----------------------------------------------


def plain(node: exp.Expr) -> exp.Expr:
    """Remove casts of numbers to numbers from the syntax node; refuse other casts.

    The removed casts change no released value.
    """
    for kind, reader in _SAID.items():
        if type(node) is kind:
            return reader(node)
    for part in list(node.iter_expressions()):
        made = plain(part)
        if made is not part:
            part.replace(made)
    return node


def has_other_spelling(node: exp.Expr) -> bool:
    """Check whether the syntax node contains a cast, which `plain` would remove or refuse."""
    return any(type(part) in _SAID for part in nodes_of(node))


def _uncast(node: exp.Expr) -> exp.Expr:
    """Remove a cast to a float, because every quotient in a formula is a float already."""
    only(node, {"this", "to", "safe"})
    if node.args["to"].this not in _FLOATS or type(node.this) is exp.Literal:
        raise refuse_unsupported(
            node, "casts are not supported", "Leave the cast out: 1/2 is 0.5 here."
        )
    return plain(node.this)


_SAID: Final[dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr]]] = {
    exp.Cast: _uncast,
    exp.TryCast: _uncast,
}
