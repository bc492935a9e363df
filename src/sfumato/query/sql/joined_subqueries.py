"""Join inner SELECTs by person, and resolve the columns that the outer SELECT names.

A column that only one inner SELECT has keeps its own name. A column that several have gets its
table's name in front. The inner SELECTs themselves were read before (person_subqueries.py). A
column that none of them has belongs to a public table joined to them, if there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from sfumato.dp.refusal import Refused
from sfumato.query.model import Joined, JoinedPersonTable, PersonTable
from sfumato.query.sql.aggregates import is_in_aggregate
from sfumato.query.sql.columns_and_constants import bare, only, place_of, refuse_unsupported
from sfumato.query.sql.person_subqueries import Inner, narrowed

# --- A plain table joined to inner SELECTs by person, and the column that is looked up in it
#
# The card says later whether it is public, and what its key is (query/public_lookup_tables.py).


@dataclass(frozen=True)
class Standing:
    """A plain table joined to inner SELECTs by person, and the pair of columns that are compared.

    `column` is a column of the earlier table with that `alias`; `own` is the table's own. `alias`
    is empty for USING, because the column may belong to any table that has it.
    """

    name: str  # its alias
    table: str
    node: exp.Expr
    alias: str
    column: str  # of the earlier table `alias`
    own: str
    keeps_all: bool

    def joined(self, before: str) -> Joined:
        """Return the join; `before` is the outer SELECT's name of the earlier table's column."""
        return Joined(self.table, (before, self.own), self.keeps_all)


def standing(
    node: exp.Expr, name: str, table: str, pairs: Sequence[tuple[str, str]], *, keeps_all: bool
) -> Standing:
    """Read the join of a plain table, which must compare exactly one pair of columns."""
    if len(pairs) != 1:
        raise refuse_unsupported(
            node,
            "a public table must be joined by its key alone here",
            "Write ON a.x = b.key, and put other conditions into WHERE.",
        )
    left, right = pairs[0]
    if node.args.get("using"):
        return Standing(name, table, node, "", left, right, keeps_all)
    sides = [side.partition(".")[::2] for side in (left, right)]
    mine = [column for alias, column in sides if alias == name]
    theirs = [(alias, column) for alias, column in sides if alias != name]
    if len(mine) != 1:
        raise refuse_unsupported(
            node,
            f"it is not clear which column belongs to {name!r}",
            "Write ON a.x = b.key, with the table's name before each column.",
        )
    return Standing(name, table, node, *theirs[0], mine[0], keeps_all)


def used_by(tables: Collection[Standing]) -> frozenset[str]:
    """Return the columns of USING by which public tables are joined, in lower case."""
    return frozenset(one.column.casefold() for one in tables if not one.alias)


_NOT_ROWS = (
    "a table with one row for each person cannot be joined to unaggregated rows",
    "Give them one row for each person too: JOIN (SELECT person, MAX(x) AS x FROM y GROUP BY "
    "person) z ON z.person = …. Or join the tables inside one inner SELECT.",
)
_PARTS = ("where", "group", "having", "order")


@dataclass(frozen=True)
class Each:
    """An inner SELECT by person after it was read: its alias, tables and joins."""

    name: str
    made: Inner
    table: str
    joins: tuple[Joined, ...] = ()
    keeps_all: bool = False

    @property
    def person(self) -> str:
        """Return the inner SELECT's name of the person column, in lower case, or an empty text."""
        return self.made.person.casefold()


@dataclass(frozen=True)
class Beside:
    """Per-person tables joined to each other, and the public tables joined to them."""

    first: PersonTable
    beside: tuple[JoinedPersonTable, ...]
    lookups: tuple[Joined, ...]
    # per-person columns that can be named without a table, except those of USING
    bare: frozenset[str]


def substitute_joined_subqueries(
    select: exp.Select, several: Sequence[Each], public: Sequence[Standing]
) -> Beside:
    """Return the per-person tables, and rewrite the outer SELECT to their column names."""
    tables = [each.made.table() for each in several]
    taken = [
        name for each, table in zip(several, tables, strict=True) for name in _all(each, table)
    ]
    found = [
        _Named(each, table, _names(each, table, taken))
        for each, table in zip(several, tables, strict=True)
    ]
    tables_here = _Tables(found, public)
    lookups = tuple(one.joined(tables_here.before(one)) for one in public)
    given = {item.alias.casefold() for item in select.expressions if type(item) is exp.Alias}
    for key in _PARTS:
        part = select.args.get(key)
        if part is not None:
            tables_here.rename(part, given if key in ("having", "order") else set())
    for item in list(select.expressions):
        tables_here.rename(item, set())
    for one in found:
        one.narrow(select)
    first, *others = (one.table for one in found)
    beside = tuple(
        JoinedPersonTable(table, each.table, each.joins, each.keeps_all)
        for each, table in zip(several[1:], others, strict=True)
    )
    return Beside(first, beside, lookups, frozenset(tables_here.bare) - used_by(public))


def _all(each: Each, table: PersonTable) -> list[str]:
    """Return all names that the per-person table takes, in lower case: columns and the person."""
    people = sorted({each.person, bare(each.made.by)})
    return [*(column.name.casefold() for column in table.columns), *each.made.formulas, *people]


def _names(each: Each, table: PersonTable, taken: Sequence[str]) -> dict[str, str]:
    """Map each column of the per-person table to its name in the outer SELECT."""
    names = [column.name for column in table.columns]
    return {
        name.casefold(): name if taken.count(name.casefold()) == 1 else f"{each.name}.{name}"
        for name in names
    }


@dataclass(frozen=True)
class _Named:
    """A per-person table; `names` maps its lower-case columns to names in the outer SELECT."""

    each: Each
    made: PersonTable
    names: Mapping[str, str]

    @property
    def table(self) -> PersonTable:
        columns = (replace(c, name=self.names[c.name.casefold()]) for c in self.made.columns)
        return replace(self.made, columns=tuple(columns))

    def gives(self, name: str) -> bool:
        return name in self.each.made.names

    def put(self, column: exp.Column, first: Each) -> None:
        """Replace a column by the inner SELECT's expression of that name; or refuse."""
        name = column.name.casefold()
        formula = self.each.made.formulas.get(name)
        if not self.gives(name):
            raise self.not_given(column)
        if formula is not None:
            self._check_certain(
                column, "can give only plain aggregates", "Write the arithmetic in the outer SELECT"
            )
            copy = exp.Paren(this=formula.copy())
            self.rename(copy)
            column.replace(copy)
        elif name in self.names:
            _called(column, self.names[name])
        else:
            self._check_certain(
                column, "cannot name the person", "Use the person's column of a table before it"
            )
            _called(column, first.made.by.rpartition(".")[2])

    def rename(self, part: exp.Expr) -> None:
        """Rename the columns in the table's HAVING or formula as the outer SELECT names them."""
        for column in list(part.find_all(exp.Column)):
            formula = self.each.made.formulas.get(column.name.casefold())
            if formula is None:
                self._call(column)
                continue
            copy = exp.Paren(this=formula.copy())
            for inner in copy.find_all(exp.Column):
                self._call(inner)
            column.replace(copy)

    def _call(self, column: exp.Column) -> None:
        name = self.names.get(column.name.casefold())
        if name is None:
            raise self.not_given(column)
        _called(column, name)

    def narrow(self, select: exp.Select) -> None:
        """Add the per-person table's HAVING to the outer WHERE."""
        if self.each.made.having is None:
            return
        self._check_certain(
            self.each.made.having,
            "cannot have HAVING",
            "Write JOIN, or put the condition into the outer SELECT",
        )
        having = exp.Paren(this=self.each.made.having)
        self.rename(having)
        narrowed(select, having)

    def not_given(self, column: exp.Column) -> Refused:
        given = [name for name in sorted(self.each.made.names) if not name.startswith("(")]
        return refuse_unsupported(
            column,
            f"the inner SELECT gives no column {column.name!r}",
            "It gives: " + ", ".join(given) + ".",
        )

    def _check_certain(self, node: exp.Expr, what: str, instead: str) -> None:
        """Refuse an expression of a LEFT JOIN that would have a value where SQL has NULL.

        SQL has NULL for people without a row in the table (LEFT JOIN).
        """
        if self.each.keeps_all:
            raise refuse_unsupported(node, f"a SELECT after LEFT JOIN {what}", f"{instead}.")


@dataclass
class _Tables:
    """The per-person and public tables, and the column names used without a table's name."""

    people: Sequence[_Named]
    public: Sequence[Standing]
    bare: set[str] = field(default_factory=set)

    def rename(self, part: exp.Expr, given: set[str]) -> None:
        """Rename each column as the inner SELECTs name it, except for aliases of this SELECT."""
        for column in list(part.find_all(exp.Column)):
            if type(column.this) is not exp.Identifier:
                continue  # a star, which is refused when it is read
            only(column, {"this", "table"})
            name = column.name.casefold()
            if not column.table and name in given and not is_in_aggregate(column):
                continue
            self._put(column, name)

    def _put(self, column: exp.Column, name: str) -> None:
        alias = column.table.casefold()
        public = next((one for one in self.public if one.name == alias), None)
        if public is not None:
            _called(column, f"{public.table}.{column.name}")
            return
        owner = self._owner(column, name)
        if owner is None:
            self._check_person(column, name)
            return
        if self.public and not alias:
            self.bare.add(name)
        owner.put(column, self.people[0].each)

    def _check_person(self, column: exp.Column, name: str) -> None:
        """Refuse the name of the person column if no table selects it.

        No public column may have this name here.
        """
        for one in self.people:
            if name == bare(one.each.made.by):
                raise one.not_given(column)

    def _owner(self, column: exp.Column, name: str) -> _Named | None:
        if column.table:
            return self._of_alias(column, column.table.casefold())
        found = [one for one in self.people if one.gives(name)]
        if len(found) > 1 and any(one.each.person != name for one in found):
            raise refuse_unsupported(
                column,
                f"more than one of these tables has a column {column.name!r}",
                "Write the table's name before it.",
            )
        return found[0] if found else None

    def _of_alias(self, node: exp.Expr, alias: str) -> _Named:
        found = [one for one in self.people if one.each.name == alias]
        if not found:
            raise refuse_unsupported(node, "this names another table", "Name one that FROM gives.")
        return found[0]

    def before(self, wanted: Standing) -> str:
        """Return the outer SELECT's name of the column by which a public table is looked up."""
        if wanted.alias:
            for one in self.public:
                if one.name == wanted.alias:
                    return f"{one.table}.{wanted.column}"
        name = wanted.column.casefold()
        owner = self._of_alias(wanted.node, wanted.alias) if wanted.alias else self._using(wanted)
        if name == owner.each.person:
            raise refuse_unsupported(wanted.node, *_NOT_ROWS)
        if name not in owner.names:
            raise refuse_unsupported(
                wanted.node,
                f"a public table cannot be joined by {wanted.column!r}",
                "Join it by a plain aggregate of the inner SELECT: MAX(x) AS x.",
            )
        return owner.names[name]

    def _using(self, wanted: Standing) -> _Named:
        """Return the one per-person table that has the column of USING."""
        found = [one for one in self.people if one.gives(wanted.column.casefold())]
        if len(found) != 1:
            raise refuse_unsupported(
                wanted.node, "it is not clear which table's column this is", "Write ON a.x = b.x."
            )
        return found[0]


def _called(column: exp.Column, name: str) -> None:
    """Rename the column, and keep its position in the SQL text."""
    made, place = exp.to_identifier(name, quoted=True), place_of(column.this)
    if place is not None:
        made.meta.update(line=place[0], col=place[1])
    column.set("this", made)
    column.set("table", None)
