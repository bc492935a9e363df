"""Parse the leaves of SQL (columns and constants), and check every argument that they carry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final

from sqlglot import exp

from sfumato.dp.budget import read_number
from sfumato.dp.refusal import Refused
from sfumato.query.expression import Constant
from sfumato.query.source_positions import Place
from sfumato.query.sql.hints import ARGUMENTS


def nodes_of(tree: exp.Expr) -> list[exp.Expr]:
    """Return every node of the syntax tree, parents before children.

    This is faster than sqlglot's own walk.
    """
    found = [tree]
    for node in found:  # the list grows during the loop
        for value in node.args.values():
            if isinstance(value, list):
                found += [one for one in value if isinstance(one, exp.Expr)]
            elif isinstance(value, exp.Expr):
                found.append(value)
    return found


def column_of(node: exp.Expr) -> str:
    if type(node) is not exp.Column:
        raise refuse_unsupported(
            node, "a plain column is needed here", "Name a column of the card."
        )
    only(node, {"this", "table"})
    if type(node.this) is not exp.Identifier:
        raise refuse_unsupported(
            node, "a plain column is needed here", "Name a column of the card."
        )
    return str(node.this.name)


def bare(name: str) -> str:
    """Return a column's name in lower case, without its table's name."""
    return name.rpartition(".")[2].casefold()


def constant_of(node: exp.Expr) -> Constant:
    reader = _CONSTANTS.get(type(node))
    if type(node) is exp.Null:
        raise refuse_unsupported(node.parent, "nothing is equal to NULL", "Write x IS NULL.")
    if reader is None:
        raise refuse_unsupported(
            node, "a constant is needed here", "Compare a column with a constant."
        )
    return reader(node)


def is_constant(node: exp.Expr) -> bool:
    """Check whether the syntax node is a constant: a number, text, boolean, or cast of one."""
    if type(node) is exp.Neg:
        return type(node.this) is exp.Literal and not node.this.is_string
    if type(node) is exp.Cast:
        return type(node.this) is exp.Literal
    return type(node) in (exp.Literal, exp.Boolean)


def _literal(node: exp.Expr) -> Constant:
    only(node, {"this", "is_string"})
    if node.is_string:
        return Constant.of(str(node.name))
    return Constant.of(_number(node))


def _negative(node: exp.Expr) -> Constant:
    only(node, {"this"})
    if type(node.this) is not exp.Literal or node.this.is_string:
        raise refuse_unsupported(
            node, "a constant is needed here", "Compare a column with a constant."
        )
    return Constant.of(-_number(node.this))


def _boolean(node: exp.Expr) -> Constant:
    only(node, {"this"})
    return Constant.of(bool(node.this))


def _typed(node: exp.Expr) -> Constant:
    """Read DATE '2026-11-21' and TIMESTAMP '…' as a text constant."""
    only(node, {"this", "to"})
    kind = node.args["to"]
    types = exp.DataType.Type
    dates = (types.DATE, types.TIMESTAMP, types.TIMESTAMPNTZ)
    if type(node.this) is not exp.Literal or not node.this.is_string or kind.this not in dates:
        raise refuse_unsupported(
            node, "casts are not supported", "Compare a column with a constant."
        )
    return Constant("text", str(node.this.name))


_CONSTANTS: Final[Mapping[type[exp.Expr], Callable[[exp.Expr], Constant]]] = {
    exp.Literal: _literal,
    exp.Neg: _negative,
    exp.Boolean: _boolean,
    exp.Cast: _typed,
}


_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _number(node: exp.Expr) -> Fraction:
    try:
        number = Decimal(node.name)
    except ArithmeticError:
        number = Decimal("NaN")
    if not number.is_finite():
        raise refuse_unsupported(node, "this is not a plain number")
    try:
        return read_number(number, "a number in the question")
    except Refused:
        raise refuse_unsupported(node, "this number is too long", "Write fewer digits.") from None


def ends_of(node: exp.Expr) -> tuple[Constant, Constant]:
    """Return the two constants of BETWEEN; refuse them if no value can be between them."""
    low, high = constant_of(node.args["low"]), constant_of(node.args["high"])
    if is_after(low, high):
        raise refuse_unsupported(
            node, "no value is between these two", "Write the smaller one first."
        )
    return low, high


def is_after(one: Constant, other: Constant) -> bool:
    """Check whether one constant is a larger number, or a later day, than the other."""
    if one.kind == other.kind == "number":
        return one.number > other.number
    days = [constant.text[:10] for constant in (one, other) if _DAY.match(constant.text)]
    return len(days) == 2 and days[0] > days[1]


def only(
    node: exp.Expr, known: set[str], hints: Mapping[str, tuple[str, str]] | None = None
) -> None:
    """Refuse the syntax node if it carries an argument that is not in `known`.

    Each reader names the arguments that it understands, so nothing in the SQL is ignored.
    """
    for name, value in node.args.items():
        if name not in known and value not in (None, False, []):
            what, instead = (hints or ARGUMENTS).get(name, (f"{_said(name)} is not supported", ""))
            raise refuse_unsupported(
                value if isinstance(value, exp.Expr) else node, what, instead or "Leave it out."
            )


def _said(name: str) -> str:
    return name.strip("_").upper()


def refuse_unsupported(
    node: exp.Expr | None, what: str, next_step: str = "Leave it out."
) -> Refused:
    refused = Refused("not-in-language", f"{what[0].upper()}{what[1:]}.", next_step)
    place = place_of(node)
    return refused if place is None else refuse_at(refused, place)


def refuse_at(refused: Refused, place: Place) -> Refused:
    """Add a position in the SQL text to a refusal.

    A fact `column` that already is a column's name is not replaced by the number.
    """
    line, column = place
    cause = f"{refused.cause.removesuffix('.')} (line {line}, column {column})."
    facts = {"line": line, "column": column, **refused.facts, "place": [line, column]}
    return Refused(refused.code, cause, refused.next_step, **facts)


def found_at(refused: Refused, node: exp.Expr) -> Refused:
    """Add the syntax node's position in the SQL text to a refusal that has none."""
    place = None if "place" in refused.facts else place_of(node)
    return refused if place is None else refuse_at(refused, place)


def place_of(node: exp.Expr | None) -> Place | None:
    """Return the position where the syntax node begins, or else that of the node around it."""
    while node is not None:
        places = [place for part in nodes_of(node) if (place := _own_place(part)) is not None]
        if places:
            return min(places)
        node = node.parent
    return None


def _own_place(part: exp.Expr) -> Place | None:
    meta = part.meta
    line, column = meta.get("line"), meta.get("col")
    start, end = meta.get("start"), meta.get("end")
    if not (isinstance(line, int) and isinstance(column, int)):
        return None
    width = end - start if isinstance(start, int) and isinstance(end, int) else 0
    return line, max(1, column - width)
