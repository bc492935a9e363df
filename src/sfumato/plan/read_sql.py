"""SQL text becomes a question by an allow-list of the whole tree; then the text is thrown away.

Every node has a reader that knows all of the node's arguments; an argument or a node that no
reader knows is refused with its place in the text. Nothing is passed on, so nothing gets through.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from sfumato.core.question import (
    Aggregate,
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    IsNull,
    Not,
    Operator,
    Output,
    Predicate,
    Question,
    Verb,
)
from sfumato.core.refusal import Refused
from sfumato.plan.sql_leaves import column_of, constant_of, only, outside

MAX_TEXT: Final = 16 * 1024
MAX_TOKENS: Final = 2000
MAX_DEPTH: Final = 20
MAX_AMONG: Final = 500
logging.getLogger("sqlglot").setLevel(logging.CRITICAL + 1)  # it would print the asker's text

_WHAT_IS: Final = "Ask for COUNT(*), COUNT(column), SUM(column), AVG(column) or a grouped column."
_CONDITIONS: Final = "Use =, <>, <, <=, >, >=, IN, BETWEEN, IS NULL, AND, OR, NOT."
_SELECT_HINTS: Final[Mapping[str, str]] = {
    "with_": "WITH is not answered yet",
    "joins": "joins are not answered yet",
    "distinct": "DISTINCT rows never leave",
    "having": "HAVING is not answered yet",
    "order": "ORDER BY is not answered yet; sort the answer yourself",
    "limit": "LIMIT is not answered yet; cut the answer yourself",
}
_STRAY: Final = (SqlglotError, RecursionError, ValueError, LookupError, AttributeError, TypeError)


def read_sql(
    text: str, data_set: str, *, max_groups: int | None = None, max_rows: int | None = None
) -> Question:
    """Return the question that the text asks of the data set, or refuse."""
    select = _parsed(text)
    only(select, {"expressions", "from_", "where", "group"}, _SELECT_HINTS)
    _check_table(select, data_set)
    outputs = _outputs(select)
    where = select.args.get("where")
    return Question(
        data_set=data_set,
        outputs=outputs,
        where=None if where is None else _predicate(where.this, depth=0),
        group_by=_groups(select, outputs),
        max_groups=max_groups,
        max_rows=max_rows,
    )


# --- before and around the tree ---------------------------------------------------------------


def _parsed(text: str) -> exp.Select:
    _check_size(text)
    try:
        trees: Sequence[exp.Expr | None] = sqlglot.parse(text, dialect="duckdb")
    except _STRAY:
        trees = ()
    if len(trees) != 1 or trees[0] is None:
        raise Refused(
            "bad-sql",
            "This is not one SQL statement that can be read.",
            "Write SELECT aggregates FROM the data set WHERE conditions GROUP BY columns.",
        )
    tree = trees[0]
    if type(tree) is not exp.Select:
        raise outside(tree, "only SELECT is answered")
    return tree


def _check_size(text: str) -> None:
    if len(text.encode("utf-8", "replace")) > MAX_TEXT:
        raise _too_large("16 KB of text")
    if _depth(text) > MAX_DEPTH:
        raise _too_large(f"{MAX_DEPTH} levels of brackets")
    try:
        tokens = len(DuckDB().tokenize(text))
    except _STRAY:
        tokens = 0  # the parser refuses it with its own code
    if tokens > MAX_TOKENS:
        raise _too_large(f"{MAX_TOKENS} words")


def _depth(text: str) -> int:
    deepest = level = 0
    for letter in text:
        level += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, level)
    return deepest


def _too_large(what: str) -> Refused:
    return Refused("question-too-large", f"A question has at most {what}.", "Ask a shorter one.")


def _check_table(select: exp.Select, data_set: str) -> None:
    source = select.args.get("from_")
    if source is None:
        raise outside(select, "the question names no data set", f"Add FROM {data_set}.")
    table = source.this
    if type(table) is not exp.Table:
        raise outside(table, "FROM takes the data set itself", f"Write FROM {data_set}.")
    only(table, {"this", "alias"}, {"joins": "joins are not answered yet"})
    if type(table.this) is not exp.Identifier or table.name.casefold() != data_set.casefold():
        raise outside(table, "FROM names another table", f"Write FROM {data_set}.")
    alias = table.args.get("alias")
    if alias is not None:
        only(alias, {"this"})
    _check_qualifiers(select, {"", data_set.casefold(), table.alias.casefold()})


def _check_qualifiers(select: exp.Select, known: set[str]) -> None:
    for column in select.find_all(exp.Column):
        if column.table.casefold() not in known:
            raise outside(column, "this names another table", "Leave the table's name out.")


# --- what is selected -------------------------------------------------------------------------


def _outputs(select: exp.Select) -> tuple[Output, ...]:
    taken: dict[str, int] = {}
    outputs = []
    for node in select.expressions:
        name, inner = (node.alias, node.this) if type(node) is exp.Alias else ("", node)
        of = _selected(inner)
        outputs.append(Output(name or _fresh_name(of, taken), of))
    return tuple(outputs)


def _fresh_name(of: Aggregate | str, taken: dict[str, int]) -> str:
    name = of if isinstance(of, str) else _NAMES[of.verb].format(of.column)
    taken[name] = taken.get(name, 0) + 1
    return name if taken[name] == 1 else f"{name}_{taken[name]}"


_NAMES: Final[Mapping[Verb, str]] = {
    "count": "count",
    "count_values": "count_{}",
    "count_people": "people",
    "sum": "sum_{}",
    "mean": "avg_{}",
}


def _selected(node: exp.Expr) -> Aggregate | str:
    match node:
        case exp.Column():
            return column_of(node)
        case exp.Count():
            return _count(node)
        case exp.Sum():
            only(node, {"this"})
            return Aggregate("sum", column_of(node.this))
        case exp.Avg():
            only(node, {"this"})
            return Aggregate("mean", column_of(node.this))
        case exp.Star():
            raise outside(node, "rows never leave", "Ask for COUNT(*), SUM(column), AVG(column).")
        case _:
            raise outside(node, "this is not answered in SELECT", _WHAT_IS)


def _count(node: exp.Count) -> Aggregate:
    only(node, {"this", "big_int"})
    inner = node.this
    match inner:
        case exp.Star():
            only(inner, set())
            return Aggregate("count")
        case exp.Distinct():
            only(inner, {"expressions"})
            if len(inner.expressions) != 1:
                raise outside(inner, "DISTINCT takes one column")
            return Aggregate("count_people", column_of(inner.expressions[0]))
        case _:
            return Aggregate("count_values", column_of(inner))


def _groups(select: exp.Select, outputs: Sequence[Output]) -> tuple[str, ...]:
    group = select.args.get("group")
    if group is None:
        return ()
    only(group, {"expressions"}, {"all": "GROUP BY ALL is not read"})
    return tuple(_group(node, outputs) for node in group.expressions)


def _group(node: exp.Expr, outputs: Sequence[Output]) -> str:
    if type(node) is exp.Literal and not node.is_string and node.name.isdecimal():
        place = int(node.name)
        of = outputs[place - 1].of if 1 <= place <= len(outputs) else None
        if isinstance(of, str):
            return of
        raise outside(node, "this place in SELECT is no column")
    name = column_of(node)
    for output in outputs:
        if output.name.casefold() == name.casefold() and isinstance(output.of, str):
            return output.of
    return name


# --- conditions -------------------------------------------------------------------------------


def _predicate(node: exp.Expr, depth: int) -> Predicate:
    if depth > MAX_DEPTH:
        raise _too_large(f"{MAX_DEPTH} levels of conditions")
    match node:
        case exp.And() | exp.Or():
            parts = tuple(_predicate(part, depth + 1) for part in _chain(node, type(node)))
            return All(parts) if type(node) is exp.And else AnyOf(parts)
        case exp.Not():
            only(node, {"this"})
            return Not(_predicate(node.this, depth + 1))
        case exp.Paren():
            only(node, {"this"})
            return _predicate(node.this, depth + 1)
        case exp.Column():
            return Compare(column_of(node), "=", Constant.of(True))
        case _:
            return _simple(node)


def _chain(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """Return the members of a long AND or OR, without going one deeper for each."""
    members: list[exp.Expr] = []
    while type(node) is kind:
        only(node, {"this", "expression"})
        members.append(node.expression)
        node = node.this
    return [node, *reversed(members)]


def _simple(node: exp.Expr) -> Predicate:
    operator = _OPERATORS.get(type(node))
    if operator is not None:
        return _compare(node, operator)
    match node:
        case exp.Between():
            only(node, {"this", "low", "high"})
            name = column_of(node.this)
            low, high = constant_of(node.args["low"]), constant_of(node.args["high"])
            return All((Compare(name, ">=", low), Compare(name, "<=", high)))
        case exp.In():
            return _among(node)
        case exp.Is():
            only(node, {"this", "expression"})
            if type(node.expression) is exp.Null:
                return IsNull(column_of(node.this))
            raise outside(node, "IS takes NULL or NOT NULL")
        case _:
            raise outside(node, "this condition is not answered", _CONDITIONS)


def _compare(node: exp.Expr, operator: Operator) -> Predicate:
    only(node, {"this", "expression"})
    left, right = node.this, node.expression
    if type(left) is not exp.Column and type(right) is exp.Column:
        left, right, operator = right, left, _FLIPPED[operator]
    return Compare(column_of(left), operator, constant_of(right))


def _among(node: exp.In) -> Predicate:
    only(node, {"this", "expressions"}, {"query": "IN takes a list of constants"})
    if len(node.expressions) > MAX_AMONG:
        raise _too_large(f"{MAX_AMONG} constants in a list")
    return Among(column_of(node.this), tuple(constant_of(c) for c in node.expressions))


_OPERATORS: Final[Mapping[type[exp.Expr], Operator]] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_FLIPPED: Final[Mapping[Operator, Operator]] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
