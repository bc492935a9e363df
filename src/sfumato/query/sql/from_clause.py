"""Parse FROM: a table of the data set, tables joined to it, or inner SELECTs by person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlglot import exp

from sfumato.dp.refusal import Refused
from sfumato.query.model import Joined, JoinedPersonTable, PersonTable
from sfumato.query.sql.columns_and_constants import (
    column_of,
    found_at,
    nodes_of,
    only,
    refuse_unsupported,
)
from sfumato.query.sql.joined_subqueries import (
    Each,
    Standing,
    standing,
    substitute_joined_subqueries,
)
from sfumato.query.sql.parse import too_large
from sfumato.query.sql.person_subqueries import (
    checked_inner,
    each_person,
    substitute_person_subquery,
)
from sfumato.query.sql.row_subqueries import Source, rows_of, substitute_row_subquery
from sfumato.vault.card.data_card import NAME

MAX_INNER: Final = 8  # deepest nesting of inner SELECTs


@dataclass(frozen=True)
class From:
    """The FROM clause of a SELECT: its tables, its joins and its per-person tables."""

    each_person: PersonTable | None
    table: str
    joins: tuple[Joined, ...] = ()
    # names of tables and persons; no computed key may have one of them
    names: frozenset[str] = frozenset()
    beside: tuple[JoinedPersonTable, ...] = ()
    called: tuple[str, ...] = ()  # aliases of joined per-person tables, and public tables
    lookups: tuple[Joined, ...] = ()
    bare: frozenset[str] = frozenset()  # per-person columns that the text leaves unqualified

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of the tables in FROM."""
        return self.called or (self.table, *(joined.table for joined in self.joins))


@dataclass(frozen=True)
class Named:
    """An inner SELECT that WITH names, and the earlier names of WITH, which that SELECT may use."""

    select: exp.Expr
    before: Mapping[str, Named]


@dataclass(frozen=True)
class Inner:
    """An inner SELECT in FROM, its alias, and the names of WITH that it may use."""

    select: exp.Expr
    names: frozenset[str]
    known: Mapping[str, Named]


def read_from(select: exp.Select, data_set: str) -> From:
    """Read FROM, JOIN and WITH of a SELECT.

    In the SELECT, the names of columns lose their alias, or get their table's name instead.
    """
    with_ = select.args.get("with_")
    named = _with(with_)
    reader = _Reader(data_set)
    nodes = [select.args.get("from_"), *(select.args.get("joins") or [])]
    names = {str(node.this.alias_or_name).casefold() for node in nodes if node is not None}
    made = reader.read(select, named)
    made = replace(made, names=made.names | (names - {""}))
    unused = sorted(set(named) - reader.used)
    if unused:
        raise refuse_unsupported(
            with_,
            f"the query in WITH named {unused[0]!r} is not used",
            "Write FROM and its name, or leave it out.",
        )
    return made


@dataclass
class _Reader:
    """Reader of a FROM clause, which also records which names of WITH were used."""

    data_set: str
    used: set[str] = field(default_factory=set)

    def read(self, select: exp.Select, known: Mapping[str, Named]) -> From:
        people = self._of_people(select, known)
        if not people:
            return self._tables(select)
        first, *others = people
        if others or first is None:
            return self._several(select, people)
        _unaliased(select, dict.fromkeys(first.names, ""))
        each = self._each(first, "")
        substitute_person_subquery(select, each.made)
        return From(each.made.table(), each.table, each.joins, frozenset({each.person} - {""}))

    def _several(self, select: exp.Select, people: Sequence[Inner | None]) -> From:
        """Read per-person tables joined by the person, and public tables joined to them."""
        nodes = [select.args["from_"], *(select.args.get("joins") or [])]
        several: list[Each] = []
        public: list[Standing] = []
        for place, (node, inner) in enumerate(zip(nodes, people, strict=True)):
            name = _alias(node.this) if inner is None else min(inner.names) or f"({place})"
            before = [*(one.name for one in several), *(one.name for one in public)]
            if name in before:
                raise refuse_unsupported(
                    node, "two tables have one name here", "Give each its own."
                )
            if inner is None:
                public.append(_standing(node, name, before, self.data_set))
                continue
            each = self._each(inner, name)
            if several:
                each = replace(each, keeps_all=_keeps_all(node))
                _check_by_person(node, each, several)
            several.append(each)
        made = substitute_joined_subqueries(select, several, public)
        called = [one.name for one in several]
        called += [name for one in public for name in (one.name, one.table)]
        return From(
            made.first,
            several[0].table,
            several[0].joins,
            frozenset(each.person for each in several) - {""},
            made.beside,
            tuple(called),
            made.lookups,
            made.bare,
        )

    def _each(self, inner: Inner, name: str) -> Each:
        """Read an inner SELECT that groups by the person, which becomes a per-person table."""
        of_people = checked_inner(inner.select)
        if self._of_people(of_people, inner.known):
            raise refuse_unsupported(
                of_people,
                "an inner SELECT by person cannot read from another one",
                f"Write FROM {self.data_set}.",
            )
        source = self._tables(of_people)
        return Each(name, each_person(of_people), source.table, source.joins)

    def _of_people(
        self, select: exp.Select, known: Mapping[str, Named], depth: int = 0
    ) -> list[Inner | None]:
        """Return the inner SELECTs by person in FROM; merge inner SELECTs of rows into this SELECT.

        The list is empty if there is no SELECT by person. An entry is None for a plain table. The
        first entry is always a SELECT.
        """
        if depth >= MAX_INNER:
            raise found_at(too_large(f"{MAX_INNER} inner SELECTs"), select)
        if select.args.get("from_") is None:
            raise refuse_unsupported(
                select, "the question names no data set", f"Add FROM {self.data_set}."
            )
        nodes = [select.args["from_"], *(select.args.get("joins") or [])]
        found = [(node, self._inner(node.this, known)) for node in nodes]
        within = [self._people_in(inner, depth) for _, inner in found]
        inners = [inner for _, inner in found]
        if inners[0] is not None and all(
            inner is None or (len(people) == 1 and people[0] is inner)
            for inner, people in zip(inners, within, strict=True)
        ):
            return inners
        if len(nodes) > 1 and any(within):
            raise _not_beside(next(one for people in within for one in people if one is not None))
        substitute_row_subquery(select, [_source(place, *each) for place, each in enumerate(found)])
        return within[0]

    def _people_in(self, inner: Inner | None, depth: int) -> list[Inner | None]:
        """Return the SELECTs by person in an inner SELECT: itself, or those in its own FROM."""
        if inner is None:
            return []
        rows = rows_of(inner.select)
        return [inner] if rows is None else self._of_people(rows, inner.known, depth + 1)

    def _inner(self, table: exp.Expr, known: Mapping[str, Named]) -> Inner | None:
        """Return the inner SELECT behind the table's name, or None for a plain table."""
        if type(table) is exp.Subquery:
            only(table, {"this", "alias"})
            return Inner(table.this, frozenset({_alias(table)}), known)
        if type(table) is not exp.Table or table.name.casefold() not in known:
            return None
        only(table, {"this", "alias"})
        name = table.name.casefold()
        self.used.add(name)
        found = known[name]
        return Inner(found.select.copy(), frozenset({_alias(table)}), found.before)

    def _tables(self, select: exp.Select) -> From:
        table, joins = select.args["from_"].this, select.args.get("joins") or []
        name = _table(table, self.data_set)
        aliases = {_alias(table): name}
        joined = tuple(_joined(node, aliases, self.data_set) for node in joins)
        _unaliased(select, aliases if joined else {**aliases, name.casefold(): ""})
        return From(None, name, joined)


def _not_beside(inner: Inner) -> Refused:
    return refuse_unsupported(
        inner.select,
        "a table with one row for each person comes first, and joins only such tables and public "
        "tables, unchanged",
        "Give the others one row for each person too: JOIN (SELECT person, MAX(x) AS x FROM y "
        "GROUP BY person) z ON z.person = …. Put conditions into WHERE. Or join the tables "
        "inside one inner SELECT, and group by the person.",
    )


def _check_by_person(node: exp.Expr, each: Each, before: Sequence[Each]) -> None:
    """Refuse a join of per-person tables unless it is by a person column that is never NULL."""
    aliases = {one.name: one.name for one in (*before, each)}
    if not each.person:
        raise refuse_unsupported(
            node, "the inner SELECT does not give the person", "Add the person's column to it."
        )
    certain = [one for one in before if not one.keeps_all]
    theirs = {f"{one.name}.{one.person}" for one in certain}
    names = {each.person} & {one.person for one in certain}  # for USING
    mine = f"{each.name}.{each.person}"
    for pair in _columns(node, aliases):
        left, right = (side.casefold() for side in pair)
        is_using = left == right and left in names
        if not is_using and {left, right} not in [{mine, other} for other in theirs]:
            raise refuse_unsupported(
                node,
                "tables with one row for each person must be joined by the person alone",
                "Write ON a.person = b.person, with a table that is not from a LEFT JOIN; put "
                "conditions into WHERE.",
            )


def _standing(node: exp.Expr, name: str, before: Sequence[str], data_set: str) -> Standing:
    """Read the join of a table, not an inner SELECT, to the per-person tables before it."""
    keeps_all, table = _keeps_all(node), _table(node.this, data_set)
    pairs = _columns(node, {one: one for one in (*before, name)})
    return standing(node, name, table, pairs, keeps_all=keeps_all)


def _source(place: int, node: exp.Expr, inner: Inner | None) -> Source:
    """Return a table of FROM with the names by which the SELECT may call it.

    An inner SELECT without an alias gets a name that nobody can write in SQL.
    """
    if inner is None:
        return Source(node, frozenset({str(node.this.alias_or_name).casefold()}), None)
    names = inner.names if any(inner.names) else frozenset({f"({place})"})
    return Source(node, names, inner.select)


def _table(table: exp.Expr, data_set: str) -> str:
    if type(table) is not exp.Table or type(table.this) is not exp.Identifier:
        raise refuse_unsupported(
            table, "FROM takes a table of the data set", f"Write FROM {data_set}."
        )
    only(table, {"this", "alias"})
    if not NAME.fullmatch(table.name):
        raise refuse_unsupported(
            table, "FROM takes a table of the data set", f"Write FROM {data_set}."
        )
    return str(table.name)


def _alias(table: exp.Expr) -> str:
    alias = table.args.get("alias")
    if alias is not None:
        only(alias, {"this"})
    return str(table.alias_or_name).casefold()


def _joined(node: exp.Expr, aliases: dict[str, str], data_set: str) -> Joined:
    """Read one join of a plain table, and record the table's alias."""
    keeps_all = _keeps_all(node)
    name, alias = _table(node.this, data_set), _alias(node.this)
    if alias in aliases:
        raise refuse_unsupported(node, "two tables have one name here", "Give each its own.")
    aliases[alias] = name
    first, *others = _columns(node, aliases)
    return Joined(name, first, keeps_all, tuple(others))


def _keeps_all(node: exp.Expr) -> bool:
    """Return whether a join is a LEFT JOIN; refuse any but JOIN and LEFT JOIN."""
    only(node, {"this", "side", "kind", "on", "using"})
    side, kind = (str(node.args.get(key) or "").upper() for key in ("side", "kind"))
    if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
        raise refuse_unsupported(
            node, f"{side or kind} JOIN is not supported", "Write JOIN or LEFT JOIN."
        )
    return side == "LEFT"


def _columns(node: exp.Expr, aliases: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the pairs of columns that a join compares for equality."""
    on, using = node.args.get("on"), node.args.get("using") or []
    if on is None and using and all(type(name) is exp.Identifier for name in using):
        return [(str(name.name), str(name.name)) for name in using]
    if using or on is None:
        raise _no_equality(node)
    return [_equal(part, aliases) for part in _all_of(on)]


def _all_of(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the operands of nested ANDs, in order."""
    waiting = [condition]
    while waiting:
        part = waiting.pop()
        if type(part) is exp.And:
            only(part, {"this", "expression"})
            waiting += [part.expression, part.this]
        elif type(part) is exp.Paren:
            only(part, {"this"})
            waiting.append(part.this)
        else:
            yield part


def _equal(node: exp.Expr, aliases: Mapping[str, str]) -> tuple[str, str]:
    if type(node) is not exp.EQ or any(
        type(side) is not exp.Column for side in (node.left, node.right)
    ):
        raise _no_equality(node)
    only(node, {"this", "expression"})
    return _qualified(node.left, aliases), _qualified(node.right, aliases)


def _no_equality(node: exp.Expr) -> Refused:
    return refuse_unsupported(
        node,
        "a join compares columns with =",
        "Write ON a.x = b.x, with AND between several; put other conditions into WHERE.",
    )


def _qualified(node: exp.Expr, aliases: Mapping[str, str]) -> str:
    name = column_of(node)
    alias = str(node.args["table"].name).casefold() if node.args.get("table") else ""
    if alias not in aliases:
        raise refuse_unsupported(
            node, "a join needs the table's name before each column", "Write ON a.x = b.x."
        )
    return f"{aliases[alias]}.{name}"


def _unaliased(select: exp.Select, aliases: Mapping[str, str]) -> None:
    """Replace each column's alias by its table's name.

    Remove the alias if there is only one table.
    """
    outer = [select.args.get(key) for key in ("where", "group", "having", "order")]
    for part in (*select.expressions, *(part for part in outer if part is not None)):
        for column in nodes_of(part):
            alias = column.table.casefold() if isinstance(column, exp.Column) else ""
            if not isinstance(column, exp.Column) or alias == "":
                continue
            if alias not in aliases:
                raise refuse_unsupported(
                    column, "this names another table", "Leave the table's name out."
                )
            is_one = len(set(aliases.values()) - {""}) <= 1
            _rename(column, "" if is_one else aliases[alias])


def _rename(column: exp.Column, table: str) -> None:
    only(column, {"this", "table"})
    if table:
        column.this.set("this", f"{table}.{column.name}")
    column.set("table", None)


def _with(node: exp.Expr | None) -> dict[str, Named]:
    """Return the inner SELECTs of WITH by name, each with the earlier ones that it may use."""
    if node is None:
        return {}
    only(node, {"expressions"})
    found: dict[str, Named] = {}
    for named in node.expressions:
        only(named, {"this", "alias"})
        only(named.args["alias"], {"this"})
        name = str(named.alias).casefold()
        if name in found:
            raise refuse_unsupported(
                named, f"the name {name!r} is given twice", "Give each its own."
            )
        found[name] = Named(named.this, dict(found))
    return found
