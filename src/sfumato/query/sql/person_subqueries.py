"""Parse an inner SELECT by person, and substitute its parts into the outer SELECT.

A per-person table has no arithmetic over a person's own aggregates, and no HAVING. Both are moved
into the outer SELECT, which works on one row for each person.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from sfumato.query.aggregates.registry import AGGREGATES
from sfumato.query.expression import Expr
from sfumato.query.model import Aggregate, PersonColumn, PersonTable
from sfumato.query.sql.aggregates import is_aggregate, is_in_aggregate, reduction
from sfumato.query.sql.columns_and_constants import bare, column_of, only, refuse_unsupported
from sfumato.query.sql.expressions import predicate
from sfumato.query.sql.formulas import formula_of_aggregate, outer_aggregates, with_names
from sfumato.query.sql.hints import ARGUMENTS

# most nodes of arithmetic in an inner SELECT, because it may be substituted many times
MAX_NODES: Final = 60


@dataclass
class Inner:
    """An inner SELECT by person while it is read: columns, formulas, HAVING and names so far.

    Its formulas and its HAVING move to the outer SELECT.
    """

    select: exp.Select
    by: str
    columns: list[PersonColumn] = field(default_factory=list)
    formulas: dict[str, exp.Expr] = field(default_factory=dict)
    having: exp.Expr | None = None
    names: set[str] = field(default_factory=set)
    person: str = ""  # the inner SELECT's name for the person; empty if it has none

    def take(self, name: str, node: exp.Expr) -> None:
        """Register a name of the inner SELECT; refuse a name that is given twice."""
        if name.casefold() in self.names:
            raise refuse_unsupported(
                node, f"the name {name!r} is given twice", "Give each its own."
            )
        self.names.add(name.casefold())

    def table(self) -> PersonTable:
        """Return the per-person table; without any aggregate, it counts each person's rows."""
        columns = self.columns or [PersonColumn("(1) count", "count")]
        where = self.select.args.get("where")
        condition = None if where is None else predicate(where.this)
        return PersonTable(tuple(columns), condition, self.by)

    def over_columns(self, node: exp.Expr) -> exp.Expr:
        """Return the node with aggregates as columns of the per-person table, added if missing."""
        if sum(1 for _ in node.walk()) > MAX_NODES:
            raise refuse_unsupported(
                node, "this is too long for an inner SELECT", "Ask for less at once."
            )

        return with_names(node, _OfPerson(self, node))


@dataclass(frozen=True)
class _OfPerson:
    """Names for a person's own aggregates: each one becomes a column of the per-person table."""

    made: Inner
    node: exp.Expr

    def aggregate(self, of: Aggregate) -> str:
        """Return the name of the aggregate's column in the per-person table, added if missing."""
        reduced = reduction(self.node, "", of)
        columns = self.made.columns
        for column in columns:
            if (column.verb, column.of) == (reduced.verb, reduced.of):
                return column.name
        name = f"({len(columns) + 1}) {AGGREGATES[of.verb].column.format('of')}"
        self.made.take(name, self.node)
        columns.append(PersonColumn(name, reduced.verb, reduced.of))
        return name

    def key(self, _of: Expr) -> str | None:
        """Return None: a person has one row, so no total over keys exists."""
        return None


def checked_inner(node: exp.Expr) -> exp.Select:
    """Return a SELECT by person (… FROM … WHERE … GROUP BY … HAVING …); refuse other clauses."""
    if type(node) is not exp.Select:
        raise refuse_unsupported(node, "only SELECT is supported")
    only(node, {"expressions", "from_", "joins", "where", "group", "having", "distinct"})
    return node


def each_person(node: exp.Select) -> Inner:
    """Read a checked SELECT by person, whose columns have their tables' names."""
    made = Inner(node, _person(node))
    for item in node.expressions:
        _column(item, made)
    having = node.args.get("having")
    if having is not None:
        only(having, {"this"})
        made.having = made.over_columns(having.this)
    return made


def _person(select: exp.Select) -> str:
    group, distinct = select.args.get("group"), select.args.get("distinct")
    if distinct is not None and group is None and len(select.expressions) == 1:
        only(distinct, set())
        return column_of(select.expressions[0])
    if distinct is not None:
        raise refuse_unsupported(select, *ARGUMENTS["distinct"])
    if group is not None:
        only(group, {"expressions"})
    if group is not None and len(group.expressions) > 1:
        raise refuse_unsupported(
            select,
            "an inner SELECT has one row for each person, and this groups by more columns",
            "Write GROUP BY the person's column alone, and MIN(x) AS x for other columns of the "
            "person.",
        )
    if group is None or not group.expressions:
        raise refuse_unsupported(
            select,
            "an inner SELECT must group by the person, or give rows without aggregates",
            "Write GROUP BY the person's column, or ask the inner SELECT as its own question.",
        )
    return column_of(group.expressions[0])


def _column(item: exp.Expr, made: Inner) -> None:
    name, node = (item.alias, item.this) if type(item) is exp.Alias else ("", item)
    if type(node) is exp.Column and _is_person(column_of(node), made.by):
        made.person = name or _bare(made.by)
        made.take(made.person, item)
        return
    if not name:
        raise refuse_unsupported(item, "a column of an inner SELECT needs a name", "Add AS n.")
    if name.casefold() == bare(made.by):  # reserved for the person, whatever their alias
        raise refuse_unsupported(
            item, f"the name {name!r} belongs to the person", "Choose another name."
        )
    made.take(name, item)
    node = _one_of_any(node)
    if is_aggregate(node):
        made.columns.append(reduction(node, name, formula_of_aggregate(node)))
    elif outer_aggregates(node):
        made.formulas[name.casefold()] = made.over_columns(node)
    else:
        raise refuse_unsupported(
            node, "this is not supported for each person", "Use COUNT, SUM, AVG, MIN or MAX of it."
        )


def _one_of_any(node: exp.Expr) -> exp.Expr:
    """Rewrite ANY_VALUE(x) as MIN(x), which is one of the values, and the same on every engine."""
    inner = node.this if type(node) is exp.IgnoreNulls else node  # as sqlglot parses DuckDB's
    if type(inner) is not exp.AnyValue:
        return node
    only(node, {"this"})
    only(inner, {"this"})
    return node.replace(exp.Min(this=inner.this))


def _is_person(name: str, by: str) -> bool:
    """Return True if the column `name` is the person column `by`.

    With USING, one of the two names may lack its table.
    """
    name, by = name.casefold(), by.casefold()
    return name == by or by.endswith(f".{name}") or name.endswith(f".{by}")


def _bare(name: str) -> str:
    """Return a column's name without its table's name."""
    return name.rpartition(".")[2]


def substitute_person_subquery(select: exp.Select, made: Inner) -> None:
    """Substitute the inner arithmetic and HAVING into the outer SELECT, in place of their names.

    In HAVING and ORDER BY, an alias of the outer SELECT takes precedence, except inside an
    aggregate.
    """
    given = {item.alias.casefold() for item in select.expressions if type(item) is exp.Alias}
    for key in ("where", "group", "having", "order"):
        part = select.args.get(key)
        if part is not None:
            _replaced(part, made, given if key in ("having", "order") else set())
    for item in list(select.expressions):
        _replaced(item, made, set())
    if made.having is None:
        return
    having = exp.Paren(this=made.having)
    _replaced(having, made, set())
    narrowed(select, having)


def narrowed(select: exp.Select, having: exp.Expr) -> None:
    """Add the inner HAVING to the outer WHERE, as each row of the outer SELECT is a person."""
    where = select.args.get("where")
    both = having if where is None else exp.And(this=exp.Paren(this=where.this), expression=having)
    select.set("where", exp.Where(this=both))


def _replaced(part: exp.Expr, made: Inner, given: set[str]) -> None:
    """Replace inner columns by their formulas, except for outer aliases outside of aggregates."""
    for column in list(part.find_all(exp.Column)):
        name = column.name.casefold()
        if name in given and not is_in_aggregate(column):
            continue
        formula = made.formulas.get(name)
        if formula is not None:
            column.replace(exp.Paren(this=formula.copy()))
        elif name in (made.person.casefold(), _bare(made.by).casefold()):
            _name_person(column, made)


def _name_person(column: exp.Column, made: Inner) -> None:
    """Rename the person to the card's column; refuse a name that the inner SELECT does not give."""
    name = column.name.casefold()
    if name == made.person.casefold():
        column.set("this", exp.to_identifier(_bare(made.by), quoted=True))
    elif name not in made.names:
        raise refuse_unsupported(
            column,
            f"the inner SELECT gives no column {column.name!r}",
            "Add it to the inner SELECT.",
        )
