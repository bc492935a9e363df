"""An inner SELECT of rows is no table of its own: its columns and WHERE are put into the outer one.

`WITH s AS (SELECT cost * 2 AS c FROM visits WHERE sick) SELECT AVG(c) FROM s` is read as
`SELECT AVG(cost * 2) FROM visits WHERE sick`; so nothing is asked that could not be asked before.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from sfumato.plan.sql_aggregates import is_aggregate
from sfumato.plan.sql_formulas import outer_aggregates
from sfumato.plan.sql_leaves import column_of, only, outside
from sfumato.plan.sql_text import too_large

MOST_NODES: Final = 5000  # that all columns together may become
_PARTS: Final = ("where", "group", "having", "order")


def is_of_rows(node: exp.Expr) -> bool:
    """Say whether the inner SELECT gives rows as they are: no groups, no aggregates."""
    if type(node) is not exp.Select or node.args.get("group") or node.args.get("distinct"):
        return False
    return not any(outer_aggregates(item) for item in node.expressions)


@dataclass(frozen=True)
class _Given:
    """The columns that an inner SELECT gives: those it names, or with a star all of its tables."""

    columns: dict[str, exp.Expr]
    is_all: bool
    table: str  # how the inner SELECT calls its first table


def put_rows_in(select: exp.Select, inner: exp.Expr, names: AbstractSet[str]) -> None:
    """Make the SELECT one of the inner's own tables; `names` is what it calls the inner one."""
    only(inner, {"expressions", "from_", "joins", "where"})
    joins, inner_joins = select.args.get("joins") or [], inner.args.get("joins") or []
    if joins and inner_joins:
        raise outside(inner, "joins stand inside of an inner SELECT or outside", "Join in one.")
    source = inner.args.get("from_")
    if source is None:
        raise outside(inner, "an inner SELECT names a table", "Add FROM.")
    given = _given(inner, str(source.this.alias_or_name))
    if joins:
        _qualify(inner, given.table)
    _check_aliases(select, given)
    _put_in(select, given, names)
    _narrow(select, inner)
    select.set("from_", source)
    select.set("joins", [*inner_joins, *joins])


def _given(inner: exp.Expr, table: str) -> _Given:
    items = inner.expressions
    if len(items) == 1 and _is_star(items[0]):
        return _Given({}, is_all=True, table=table)
    columns: dict[str, exp.Expr] = {}
    for item in items:
        if _is_star(item):
            raise outside(
                item, "a star stands alone in an inner SELECT", "Name the columns that you need."
            )
        name, node = (item.alias, item.this) if type(item) is exp.Alias else ("", item)
        name = name or (column_of(node) if type(node) is exp.Column else "")
        if not name or name.casefold() in columns:
            raise outside(item, "a column of an inner SELECT needs a name of its own", "Add AS x.")
        columns[name.casefold()] = node
    return _Given(columns, is_all=False, table=table)


def _is_star(item: exp.Expr) -> bool:
    if type(item) is exp.Column and type(item.this) is exp.Star:
        item = item.this
    if type(item) is not exp.Star:
        return False
    only(item, set())
    return True


def _qualify(inner: exp.Expr, table: str) -> None:
    """Put the table's name before the inner's own columns: others will stand beside them."""
    for column in inner.find_all(exp.Column):
        if not column.table and type(column.this) is exp.Identifier:
            column.set("table", exp.to_identifier(table, quoted=True))


def _check_aliases(select: exp.Select, given: _Given) -> None:
    """Refuse a name that stands for one thing inside and another outside: nobody knows which."""
    for item in select.expressions:
        if type(item) is not exp.Alias or item.alias.casefold() not in given.columns:
            continue
        name, of = item.alias.casefold(), item.this
        is_same = type(of) is exp.Column and of.name.casefold() == name
        if not is_same and name in _named_after(select):
            raise outside(item, f"the name {item.alias!r} is given twice", "Take another name.")


def _named_after(select: exp.Select) -> set[str]:
    """Return the columns that GROUP BY, HAVING and ORDER BY name outside of aggregates."""
    parts = [part for key in _PARTS[1:] if (part := select.args.get(key)) is not None]
    columns = [column for part in parts for column in part.find_all(exp.Column)]
    return {c.name.casefold() for c in columns if c.find_ancestor(exp.AggFunc) is None}


def _put_in(select: exp.Select, given: _Given, names: AbstractSet[str]) -> None:
    aliases = {item.alias.casefold() for item in select.expressions if type(item) is exp.Alias}
    has_joins = bool(select.args.get("joins"))
    replaced = []
    for column in _columns(select):
        table, name = column.table.casefold(), column.name.casefold()
        if table and table not in names:
            continue  # of a table that is joined; what is of none is refused later
        made = given.columns.get(name)
        if made is None and not given.is_all and not has_joins and name not in aliases:
            raise outside(
                column,
                f"the inner SELECT gives no column {column.name!r}",
                "It gives: " + ", ".join(given.columns) + ".",
            )
        replaced.append((column, made))
    if sum(_size(made) for _, made in replaced) > MOST_NODES:
        raise too_large(f"{MOST_NODES:,} parts once its inner SELECTs are put in")
    for column, made in replaced:
        _replace(column, made, given.table if has_joins else "")


def _columns(select: exp.Select) -> Iterator[exp.Column]:
    parts = [*select.expressions, *(select.args.get("joins") or [])]
    parts += [part for key in _PARTS if (part := select.args.get(key)) is not None]
    for part in parts:
        yield from list(part.find_all(exp.Column))


def _size(node: exp.Expr | None) -> int:
    return 0 if node is None else sum(1 for _ in node.walk())


def _replace(column: exp.Column, made: exp.Expr | None, table: str) -> None:
    if made is None:
        was_named = bool(column.table)
        is_of_it = table and was_named
        column.set("table", exp.to_identifier(table, quoted=True) if is_of_it else None)
        return
    bare = type(made) is exp.Column
    copy: exp.Expr = made.copy() if bare else exp.Paren(this=made.copy())
    if type(column.parent) is exp.Select:  # an item of SELECT keeps its name
        copy = exp.Alias(this=copy, alias=exp.to_identifier(column.name, quoted=True))
    column.replace(copy)


def _narrow(select: exp.Select, inner: exp.Expr) -> None:
    own, outer = inner.args.get("where"), select.args.get("where")
    if own is None:
        return
    if any(is_aggregate(part) for part in own.walk()):
        raise outside(own, "WHERE is of rows", "Put conditions on aggregates into HAVING.")
    both = own.this.copy()
    if outer is not None:
        both = exp.And(this=exp.Paren(this=both), expression=exp.Paren(this=outer.this))
    select.set("where", exp.Where(this=both))
