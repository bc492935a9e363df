"""Substitute inner SELECTs of rows into the outer SELECT; they do not become tables.

`WITH s AS (SELECT cost * 2 AS c FROM visits WHERE sick) SELECT AVG(c) FROM s` is read as `SELECT
AVG(cost * 2) FROM visits WHERE sick`. So inner SELECTs allow no query that is impossible without
them. Several may be joined. Columns that an inner SELECT does not select can't be named outside of
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from sfumato.dp.refusal import Refused
from sfumato.query.sql.aggregates import is_aggregate, is_in_aggregate
from sfumato.query.sql.columns_and_constants import column_of, found_at, only, refuse_unsupported
from sfumato.query.sql.formulas import outer_aggregates
from sfumato.query.sql.parse import too_large

MAX_NODES: Final = 5000  # most nodes of all substituted columns together
_AFTER: Final = ("group", "having", "order")  # clauses that may use aliases of SELECT


def rows_of(node: exp.Expr) -> exp.Select | None:
    """Return the inner SELECT if it gives plain rows, without groups and aggregates; else None."""
    if type(node) is not exp.Select or node.args.get("group") or node.args.get("distinct"):
        return None
    return None if any(outer_aggregates(item) for item in node.expressions) else node


@dataclass(frozen=True)
class Source:
    """A table in FROM or JOIN (`node.this`), with its aliases in the SELECT."""

    node: exp.Expr
    names: frozenset[str]
    inner: exp.Expr | None  # its SELECT of rows; None for a plain table

    @property
    def is_optional(self) -> bool:
        """Check whether the table is joined by LEFT JOIN."""
        return str(self.node.args.get("side") or "").upper() == "LEFT"


@dataclass(frozen=True)
class _Table:
    """A table or inner SELECT in FROM, with its table's name and the columns that it gives.

    `columns` is None if the table or SELECT gives all columns of its table.
    """

    source: Source
    name: str
    columns: dict[str, exp.Expr] | None

    def gives(self, name: str) -> bool:
        return self.columns is not None and name in self.columns

    def hides(self, name: str) -> bool:
        return self.columns is not None and name not in self.columns

    def gives_as_it_is(self, name: str) -> bool:
        """Check whether the inner SELECT gives the column under the column's own name."""
        made = (self.columns or {}).get(name)
        return type(made) is exp.Column and made.name.casefold() == name


def substitute_row_subquery(select: exp.Select, sources: Sequence[Source]) -> None:
    """Substitute every inner SELECT of rows where it is named, so that only tables remain."""
    _check_stars(select, sources)
    if all(source.inner is None for source in sources):
        return
    tables = [_table(source) for source in sources]
    _spread(select, tables)
    if len(tables) > 1:
        _check_apart(sources)
        for table in tables:
            _own_names(table)
        for place, table in enumerate(tables[1:], start=1):
            _using_as_on(table, tables[:place])
    for table in tables:
        _check_aliases(select, table.columns or {})
    _put_in(select, tables)
    for table in reversed(tables):
        _narrow(select, table.source)
    for table in tables:
        _move_in(select, table.source)


def _table(source: Source) -> _Table:
    inner = source.inner
    if inner is None:
        return _Table(source, str(source.node.this.alias_or_name), None)
    only(inner, {"expressions", "from_", "joins", "where"})
    of = inner.args.get("from_")
    if of is None:
        raise refuse_unsupported(inner, "an inner SELECT needs a table", "Add FROM and a table.")
    return _Table(source, str(of.this.alias_or_name), _columns_of(inner))


def _columns_of(inner: exp.Expr) -> dict[str, exp.Expr] | None:
    items = inner.expressions
    if len(items) == 1 and _is_star(items[0]):
        return None
    columns: dict[str, exp.Expr] = {}
    for item in items:
        if _is_star(item):
            raise refuse_unsupported(
                item,
                "a star must be the only item of an inner SELECT",
                "Name the columns that you need.",
            )
        name, node = (item.alias, item.this) if type(item) is exp.Alias else ("", item)
        name = name or (column_of(node) if type(node) is exp.Column else "")
        if not name or name.casefold() in columns:
            raise refuse_unsupported(
                item, "a column of an inner SELECT needs a name of its own", "Add AS x."
            )
        columns[name.casefold()] = node
    return columns


def _is_star(item: exp.Expr) -> bool:
    if type(item) is exp.Column and type(item.this) is exp.Star:
        item = item.this
    if type(item) is not exp.Star:
        return False
    only(item, set())
    return True


def _check_stars(select: exp.Select, sources: Sequence[Source]) -> None:
    """Refuse x.* unless x is the SELECT's only table."""
    for item in select.expressions:
        if type(item) is not exp.Column or type(item.this) is not exp.Star:
            continue
        if len(sources) > 1 or item.table.casefold() not in sources[0].names:
            raise refuse_unsupported(
                item,
                "a star after a table's name needs a SELECT from that table alone",
                "Name the columns that you need.",
            )


def _spread(select: exp.Select, tables: Sequence[_Table]) -> None:
    """Replace a star by the columns that the inner SELECT gives."""
    if not any(_is_star(item) for item in select.expressions):
        return
    known = [table.columns for table in tables if table.columns is not None]
    if not known:
        return
    if len(tables) > 1:
        raise refuse_unsupported(
            select, "a star cannot stand for several tables here", "Name the columns that you need."
        )
    columns = [exp.column(exp.to_identifier(name, quoted=True)) for name in known[0]]
    select.set("expressions", columns)


# --- several tables ----------------------------------------------------------------------------


def _check_apart(sources: Sequence[Source]) -> None:
    """Refuse two tables with one alias, and joins both inside and outside of an inner SELECT."""
    taken: set[str] = set()
    for source in sources:
        if taken & source.names:
            raise refuse_unsupported(
                source.node, "two tables have one name here", "Give each its own."
            )
        taken |= source.names
        if source.inner is not None and source.inner.args.get("joins"):
            raise refuse_unsupported(
                source.inner,
                "joins cannot be both inside and outside of an inner SELECT",
                "Write all joins in one place.",
            )


def _own_names(table: _Table) -> None:
    """Add the table's name to the columns of an inner SELECT, because further tables are joined."""
    if table.source.inner is None:
        return
    for column in table.source.inner.find_all(exp.Column):
        if not column.table and type(column.this) is exp.Identifier:
            column.set("table", exp.to_identifier(table.name, quoted=True))


def _using_as_on(table: _Table, before: Sequence[_Table]) -> None:
    """Rewrite USING (x) as ON, so that each inner SELECT can substitute its own x."""
    using = table.source.node.args.get("using") or []
    if not using or all(t.columns is None for t in (*before, table)):
        return
    first, *others = (_equal(name, table, before) for name in using)
    on: exp.Expr = first
    for other in others:
        on = exp.And(this=on, expression=other)
    table.source.node.set("using", None)
    table.source.node.set("on", on)


def _equal(using: exp.Expr, table: _Table, before: Sequence[_Table]) -> exp.EQ:
    """Return the condition a.x = b.x for one column x of USING (x)."""
    name = str(using.name)
    key = name.casefold()
    sure = [t for t in before if t.gives(key)]
    maybe = [t for t in before if t.columns is None]
    if table.hides(key) or not (sure or maybe):
        raise _not_given(using, name, [*before, table])
    found = sure or maybe
    if len(found) > 1:
        raise refuse_unsupported(
            using, "it is not clear which table's column this is", "Write ON a.x = b.x."
        )
    return exp.EQ(this=_named(name, found[0]), expression=_named(name, table))


def _named(name: str, table: _Table) -> exp.Column:
    return exp.Column(
        this=exp.to_identifier(name, quoted=True),
        table=exp.to_identifier(min(table.source.names), quoted=True),
    )


# --- names -------------------------------------------------------------------------------------


def _check_aliases(select: exp.Select, columns: dict[str, exp.Expr]) -> None:
    """Refuse an alias that means one thing inside and another outside, because it is ambiguous."""
    for item in select.expressions:
        if type(item) is not exp.Alias or item.alias.casefold() not in columns:
            continue
        name, of = item.alias.casefold(), item.this
        is_same = type(of) is exp.Column and of.name.casefold() == name
        if not is_same and name in _named_after(select):
            raise refuse_unsupported(
                item, f"the name {item.alias!r} is given twice", "Take another name."
            )


def _named_after(select: exp.Select) -> set[str]:
    """Return the columns that GROUP BY, HAVING and ORDER BY name outside of aggregates."""
    parts = [part for key in _AFTER if (part := select.args.get(key)) is not None]
    columns = [column for part in parts for column in part.find_all(exp.Column)]
    return {c.name.casefold() for c in columns if not is_in_aggregate(c)}


@dataclass(frozen=True)
class _Named:
    """The aliases of the SELECT itself: `numbers` are those of aggregates, `all` is every alias."""

    numbers: frozenset[str]
    all: frozenset[str]

    @classmethod
    def of(cls, select: exp.Select) -> _Named:
        """Collect the aliases of the SELECT's items."""
        given = [item for item in select.expressions if type(item) is exp.Alias]
        numbers = [item for item in given if outer_aggregates(item.this)]
        return cls(
            frozenset(item.alias.casefold() for item in numbers),
            frozenset(item.alias.casefold() for item in given),
        )

    def covers(self, column: exp.Column, part: str) -> bool:
        """Check whether, in this clause, the column may be an alias of the SELECT."""
        if column.table or is_in_aggregate(column):
            return False
        given = {"expressions": self.numbers, **dict.fromkeys(_AFTER, self.all)}
        return column.name.casefold() in given.get(part, frozenset())


def _columns(select: exp.Select) -> Iterator[tuple[str, exp.Column]]:
    """Yield every column of the SELECT itself, with the clause that it is in."""
    for item in select.expressions:
        yield from (("expressions", c) for c in list(item.find_all(exp.Column)))
    for join in select.args.get("joins") or []:
        on = join.args.get("on")
        yield from (("on", c) for c in ([] if on is None else list(on.find_all(exp.Column))))
    for key in ("where", *_AFTER):
        part = select.args.get(key)
        yield from ((key, c) for c in ([] if part is None else list(part.find_all(exp.Column))))


def _owner(column: exp.Column, tables: Sequence[_Table]) -> _Table | None:
    """Return the table that has the column; None if only the card can tell which one."""
    table, name = column.table.casefold(), column.name.casefold()
    if table:
        owner = next((t for t in tables if table in t.source.names), None)
        if owner is None:
            raise refuse_unsupported(
                column, "this names another table", "Write the name that FROM gives it."
            )
        if owner.hides(name):
            raise _not_given(column, column.name, [owner])
        return owner
    able = [t for t in tables if not t.hides(name)]
    if not able:
        raise _not_given(column, column.name, tables)
    if len(able) == 1:
        return able[0]
    is_told = len(able) == len(tables) and all(
        t.columns is None or t.gives_as_it_is(name) for t in able
    )
    if not is_told:
        raise refuse_unsupported(
            column,
            f"more than one of these tables may have a column {column.name!r}",
            "Write the table's name before it.",
        )
    return None


def _not_given(node: exp.Expr, name: str, tables: Sequence[_Table]) -> Refused:
    given = dict.fromkeys(c for t in tables for c in t.columns or {})
    return refuse_unsupported(
        node, f"the inner SELECT gives no column {name!r}", "It gives: " + ", ".join(given) + "."
    )


# --- substitution ------------------------------------------------------------------------------


def _put_in(select: exp.Select, tables: Sequence[_Table]) -> None:
    named, is_alone = _Named.of(select), len(tables) == 1
    found: list[tuple[exp.Column, _Table]] = []
    for part, column in _columns(select):
        is_given = any(t.gives(column.name.casefold()) for t in tables)
        if named.covers(column, part) and not is_given:
            continue
        owner = _owner(column, tables)
        if owner is not None:
            found.append((column, owner))
    made = [(c, t, (t.columns or {}).get(c.name.casefold())) for c, t in found]
    if sum(_size(node) for _, _, node in made) > MAX_NODES:
        most = too_large(f"{MAX_NODES:,} parts after its inner SELECTs are merged")
        raise found_at(most, select)
    for column, table, node in made:
        if node is None:
            name = None if is_alone else exp.to_identifier(table.name, quoted=True)
            column.set("table", name)
        else:
            _replace(column, node, table.source)


def _size(node: exp.Expr | None) -> int:
    return 0 if node is None else sum(1 for _ in node.walk())


def _replace(column: exp.Column, made: exp.Expr, source: Source) -> None:
    is_bare = type(made) is exp.Column
    if source.is_optional and not is_bare:
        raise refuse_unsupported(
            made,
            "a SELECT after LEFT JOIN can give only plain columns",
            "Compute in the outer SELECT: a row without a match has NULL for all of them.",
        )
    copy: exp.Expr = made.copy() if is_bare else exp.Paren(this=made.copy())
    if type(column.parent) is exp.Select:  # an item of SELECT keeps its name
        copy = exp.Alias(this=copy, alias=exp.to_identifier(column.name, quoted=True))
    column.replace(copy)


def _narrow(select: exp.Select, source: Source) -> None:
    """Add the WHERE of the inner SELECT to the outer WHERE; refuse it after LEFT JOIN."""
    own = None if source.inner is None else source.inner.args.get("where")
    outer = select.args.get("where")
    if own is None:
        return
    if source.is_optional:
        raise refuse_unsupported(
            own,
            "a SELECT after LEFT JOIN cannot have WHERE",
            "Write JOIN, or count matches in the outer SELECT: COUNT(*) FILTER (WHERE …).",
        )
    if any(is_aggregate(part) for part in own.walk()):
        raise refuse_unsupported(
            own, "WHERE takes conditions on rows", "Put conditions on aggregates into HAVING."
        )
    both = own.this.copy()
    if outer is not None:
        both = exp.And(this=exp.Paren(this=both), expression=exp.Paren(this=outer.this))
    select.set("where", exp.Where(this=both))


def _move_in(select: exp.Select, source: Source) -> None:
    """Replace the inner SELECT by the tables from which it selects."""
    if source.inner is None:
        return
    source.node.set("this", source.inner.args["from_"].this)
    joins = source.inner.args.get("joins")
    if joins:  # then it is the only source
        select.set("joins", joins)
