"""FROM: a table of the data set, tables joined to it, or an inner SELECT by person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from sfumato.core.card import NAME
from sfumato.core.question import EachPerson, Joined, Reduce
from sfumato.plan.sql_aggregates import reduction
from sfumato.plan.sql_expressions import predicate
from sfumato.plan.sql_leaves import column_of, only, outside

HINTS: Final[Mapping[str, str]] = {
    "distinct": "DISTINCT rows never leave",
    "offset": "OFFSET is not answered",
}


@dataclass(frozen=True)
class From:
    """What a SELECT is asked of."""

    each_person: EachPerson | None
    table: str
    joins: tuple[Joined, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the tables that stand together, by name."""
        return self.table, *(joined.table for joined in self.joins)


def read_from(select: exp.Select, data_set: str) -> From:
    """Return what the SELECT is asked of; columns lose their alias, or get their table's name."""
    source = select.args.get("from_")
    if source is None:
        raise outside(select, "the question names no data set", f"Add FROM {data_set}.")
    named = _with(select.args.get("with_"))
    table, joins = source.this, select.args.get("joins") or []
    if type(table) is exp.Subquery:
        if named:
            raise outside(table, "WITH and an inner SELECT do not go together", "Use one of them.")
        only(table, {"this", "alias"})
        return _inner(select, table, table.this, data_set)
    name = _table(table, data_set)
    if named:
        if name.casefold() not in named:
            raise outside(table, "FROM names another table than WITH", "Write FROM its name.")
        return _inner(select, table, named[name.casefold()], data_set)
    aliases = {_alias(table): name}
    joined = tuple(_joined(node, aliases, data_set) for node in joins)
    _unaliased(select, aliases if joined else {**aliases, name.casefold(): ""})
    return From(None, name, joined)


def _inner(select: exp.Select, table: exp.Expr, inner: exp.Expr, data_set: str) -> From:
    if select.args.get("joins"):
        raise outside(table, "an inner SELECT is not joined", "Join inside of it.")
    names = {_alias(table): "", **({table.name.casefold(): ""} if table.name else {})}
    _unaliased(select, names)
    return _each_person(inner, data_set)


def _table(table: exp.Expr, data_set: str) -> str:
    if type(table) is not exp.Table or type(table.this) is not exp.Identifier:
        raise outside(table, "FROM takes a table of the data set", f"Write FROM {data_set}.")
    only(table, {"this", "alias"}, HINTS)
    if not NAME.fullmatch(table.name):
        raise outside(table, "FROM takes a table of the data set", f"Write FROM {data_set}.")
    return str(table.name)


def _alias(table: exp.Expr) -> str:
    alias = table.args.get("alias")
    if alias is not None:
        only(alias, {"this"})
    return str(table.alias_or_name).casefold()


def _joined(node: exp.Expr, aliases: dict[str, str], data_set: str) -> Joined:
    """Read one join; its alias is known from then on."""
    only(
        node,
        {"this", "side", "kind", "on", "using"},
        {"method": "NATURAL, ASOF and POSITIONAL JOIN are not read"},
    )
    side, kind = (str(node.args.get(key) or "").upper() for key in ("side", "kind"))
    if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
        raise outside(node, f"{side or kind} JOIN is not answered", "Write JOIN or LEFT JOIN.")
    name, alias = _table(node.this, data_set), _alias(node.this)
    if alias in aliases:
        raise outside(node, "two tables have one name here", "Give each its own.")
    aliases[alias] = name
    return Joined(name, _columns(node, aliases), side == "LEFT")


def _columns(node: exp.Expr, aliases: Mapping[str, str]) -> tuple[str, str]:
    """Return the two columns that a join holds equal."""
    on, using = node.args.get("on"), node.args.get("using") or []
    if on is None and len(using) == 1 and type(using[0]) is exp.Identifier:
        return str(using[0].name), str(using[0].name)
    if using or type(on) is not exp.EQ:
        raise outside(
            node, "a join needs one equality", "Write ON a.x = b.x; other conditions go into WHERE."
        )
    only(on, {"this", "expression"})
    return _qualified(on.this, aliases), _qualified(on.expression, aliases)


def _qualified(node: exp.Expr, aliases: Mapping[str, str]) -> str:
    name = column_of(node)
    alias = str(node.args["table"].name).casefold() if node.args.get("table") else ""
    if alias not in aliases:
        raise outside(node, "a join names the table of each column", "Write ON a.x = b.x.")
    return f"{aliases[alias]}.{name}"


def _unaliased(select: exp.Select, aliases: Mapping[str, str]) -> None:
    """Put each column's table into its name; nothing where there is one table only."""
    outer = [select.args.get(key) for key in ("where", "group", "having", "order")]
    for part in (*select.expressions, *(part for part in outer if part is not None)):
        for column in list(part.find_all(exp.Column)):
            alias = column.table.casefold()
            if alias == "":
                continue
            if alias not in aliases:
                raise outside(column, "this names another table", "Leave the table's name out.")
            is_one = len(set(aliases.values()) - {""}) <= 1
            _rename(column, "" if is_one else aliases[alias])


def _rename(column: exp.Column, table: str) -> None:
    only(column, {"this", "table"})
    if table:
        column.this.set("this", f"{table}.{column.name}")
    column.set("table", None)


def _with(node: exp.Expr | None) -> dict[str, exp.Expr]:
    """Return the one named inner SELECT."""
    if node is None:
        return {}
    only(node, {"expressions"}, {"recursive": "RECURSIVE is not answered"})
    if len(node.expressions) != 1:
        raise outside(node, "WITH takes one inner SELECT", "Write one, grouped by the person.")
    (named,) = node.expressions
    only(named, {"this", "alias"})
    only(named.args["alias"], {"this"})
    return {str(named.alias).casefold(): named.this}


def _each_person(node: exp.Expr, data_set: str) -> From:
    """Read SELECT person, aggregates FROM tables WHERE … GROUP BY person."""
    if type(node) is not exp.Select:
        raise outside(node, "only SELECT is answered")
    only(node, {"expressions", "from_", "joins", "where", "group"}, HINTS)
    source = read_from(node, data_set)
    if source.each_person is not None:
        raise outside(node, "an inner SELECT has none of its own", f"Write FROM {data_set}.")
    by = _person(node, node.args.get("group"))
    columns = [c for c in (_inner_column(item, by) for item in node.expressions) if c is not None]
    where = node.args.get("where")
    made = EachPerson(tuple(columns), None if where is None else predicate(where.this), by)
    return From(made, source.table, source.joins)


def _person(select: exp.Select, group: exp.Expr | None) -> str:
    if group is not None:
        only(group, {"expressions"}, {"all": "GROUP BY ALL is not read"})
    if group is None or len(group.expressions) != 1:
        raise outside(
            select, "an inner SELECT groups by the person", "Write GROUP BY the card's unit."
        )
    return column_of(group.expressions[0])


def _inner_column(item: exp.Expr, by: str) -> Reduce | None:
    name, node = (item.alias, item.this) if type(item) is exp.Alias else ("", item)
    if type(node) is exp.Column and column_of(node).casefold() == by.casefold():
        return None
    if not name:
        raise outside(item, "a column of an inner SELECT needs a name", "Add AS n.")
    return reduction(node, name)
