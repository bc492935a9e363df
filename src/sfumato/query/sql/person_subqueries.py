"""An inner SELECT by person: its columns, and what the outer SELECT then says of them.

Arithmetic over a person's own aggregates, and HAVING, are not part of a per-person table: they are
put into the outer SELECT, which works on one row for each person.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from sfumato.query.expression import Expr
from sfumato.query.model import Aggregate, EachPerson, Reduce
from sfumato.query.sql.aggregates import NAMES, is_aggregate, is_in_aggregate, reduction
from sfumato.query.sql.columns_and_constants import bare, column_of, only, refuse_unsupported
from sfumato.query.sql.expressions import predicate
from sfumato.query.sql.formulas import formula_of_aggregate, outer_aggregates, with_names
from sfumato.query.sql.hints import ARGUMENTS

MOST_NODES: Final = 60  # of arithmetic in an inner SELECT, which may be put in many times


@dataclass
class Inner:
    """An inner SELECT as it is read: the columns of its table, and what is put into the outer."""

    select: exp.Select
    by: str
    columns: list[Reduce] = field(default_factory=list)
    formulas: dict[str, exp.Expr] = field(default_factory=dict)
    having: exp.Expr | None = None
    names: set[str] = field(default_factory=set)
    person: str = ""  # what the inner SELECT calls the person; nothing if it does not say

    def take(self, name: str, node: exp.Expr) -> None:
        """Take the name, or refuse one that is given twice: nobody knows which is meant."""
        if name.casefold() in self.names:
            raise refuse_unsupported(
                node, f"the name {name!r} is given twice", "Give each its own."
            )
        self.names.add(name.casefold())

    def table(self) -> EachPerson:
        """Return the per-person table; one that says nothing of a person counts their rows."""
        columns = self.columns or [Reduce("(1) count", "count")]
        where = self.select.args.get("where")
        condition = None if where is None else predicate(where.this)
        return EachPerson(tuple(columns), condition, self.by)

    def over_columns(self, node: exp.Expr) -> exp.Expr:
        """Return the node with each aggregate as a column of the table, added if it is missing."""
        if sum(1 for _ in node.walk()) > MOST_NODES:
            raise refuse_unsupported(
                node, "this is too long for an inner SELECT", "Ask for less at once."
            )

        return with_names(node, _OfPerson(self, node))


@dataclass(frozen=True)
class _OfPerson:
    """Names of a person's own aggregates, as columns of the table that is made."""

    made: Inner
    node: exp.Expr

    def aggregate(self, of: Aggregate) -> str:
        """Return the name of the column, added if it is missing."""
        reduced = reduction(self.node, "", of)
        columns = self.made.columns
        for column in columns:
            if (column.verb, column.of) == (reduced.verb, reduced.of):
                return column.name
        name = f"({len(columns) + 1}) {NAMES[of.verb].format('of')}"
        self.made.take(name, self.node)
        columns.append(Reduce(name, reduced.verb, reduced.of))
        return name

    def key(self, _of: Expr) -> str | None:
        """Return none: a person has one row, and nothing to add up over."""
        return None


def checked_inner(node: exp.Expr) -> exp.Select:
    """Return the SELECT by person (… FROM … WHERE … GROUP BY … HAVING …), or refuse other."""
    if type(node) is not exp.Select:
        raise refuse_unsupported(node, "only SELECT is answered")
    only(node, {"expressions", "from_", "joins", "where", "group", "having", "distinct"})
    return node


def each_person(node: exp.Select) -> Inner:
    """Read a SELECT by person that was checked; its columns have the names of their tables."""
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
            "an inner SELECT has one row for each person, and this groups by more",
            "Write GROUP BY the card's unit alone, and MIN(x) AS x for what else is the person's.",
        )
    if group is None or not group.expressions:
        raise refuse_unsupported(
            select,
            "an inner SELECT is of rows, or groups by the person",
            "Write GROUP BY the card's unit, or ask the inner SELECT by itself.",
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
    if name.casefold() == bare(made.by):  # the person goes by it, whatever the inner one calls them
        raise refuse_unsupported(item, f"the name {name!r} is the person's", "Take another name.")
    made.take(name, item)
    node = _one_of_any(node)
    if is_aggregate(node):
        made.columns.append(reduction(node, name, formula_of_aggregate(node)))
    elif outer_aggregates(node):
        made.formulas[name.casefold()] = made.over_columns(node)
    else:
        raise refuse_unsupported(
            node, "this is not answered for each person", "Take COUNT, SUM, AVG, MIN or MAX of it."
        )


def _one_of_any(node: exp.Expr) -> exp.Expr:
    """Return ANY_VALUE(x) as MIN(x): it is one of them, and the same on every engine."""
    inner = node.this if type(node) is exp.IgnoreNulls else node  # as DuckDB's is read
    if type(inner) is not exp.AnyValue:
        return node
    only(node, {"this"})
    only(inner, {"this"})
    return node.replace(exp.Min(this=inner.this))


def _is_person(name: str, by: str) -> bool:
    """Say whether the name is the person's; without its table, it is that of USING."""
    name, by = name.casefold(), by.casefold()
    return name == by or by.endswith(f".{name}") or name.endswith(f".{by}")


def _bare(name: str) -> str:
    """Return a column's name without its table."""
    return name.rpartition(".")[2]


def substitute_person_subquery(select: exp.Select, made: Inner) -> None:
    """Put the inner arithmetic and HAVING into the outer SELECT, in place of their names.

    In HAVING and ORDER BY a name that the outer SELECT gives is that one's, but in an aggregate.
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
    """Let the outer SELECT be of those people only for whom the inner HAVING holds."""
    where = select.args.get("where")
    both = having if where is None else exp.And(this=exp.Paren(this=where.this), expression=having)
    select.set("where", exp.Where(this=both))


def _replaced(part: exp.Expr, made: Inner, given: set[str]) -> None:
    """Put formulas in place of their names, but for given ones that stand in no aggregate."""
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
    """Name the person by the card's column, if the inner SELECT gives it and nothing else so."""
    name = column.name.casefold()
    if name == made.person.casefold():
        column.set("this", exp.to_identifier(_bare(made.by), quoted=True))
    elif name not in made.names:
        raise refuse_unsupported(
            column, f"the inner SELECT gives no column {column.name!r}", "Add it to the inner one."
        )
