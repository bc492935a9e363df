"""Several inner SELECTs by person, joined by the person: whose column is each name outside?

A column that one of them gives goes by its own name; where more than one gives it, with the name of
its table before it. What stands inside of them was read before (sql_inner.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sfumato.core.question import EachPerson, Joined, JoinedPeople
from sfumato.core.refusal import Refused
from sfumato.plan.sql_aggregates import is_in_aggregate
from sfumato.plan.sql_inner import Inner, narrowed
from sfumato.plan.sql_leaves import bare, only, outside

_PARTS = ("where", "group", "having", "order")


@dataclass(frozen=True)
class Each:
    """An inner SELECT by person that was read, and what the outer SELECT calls it."""

    name: str
    made: Inner
    table: str
    joins: tuple[Joined, ...] = ()
    keeps_all: bool = False

    @property
    def person(self) -> str:
        """Return what it calls the person, in small letters; nothing if it does not say."""
        return self.made.person.casefold()


def put_people_in(
    select: exp.Select, several: Sequence[Each]
) -> tuple[EachPerson, tuple[JoinedPeople, ...]]:
    """Return the tables of people; what the SELECT says of them names their columns from now on."""
    tables = [each.made.table() for each in several]
    taken = [
        name for each, table in zip(several, tables, strict=True) for name in _all(each, table)
    ]
    found = [
        _Named(each, table, _names(each, table, taken))
        for each, table in zip(several, tables, strict=True)
    ]
    given = {item.alias.casefold() for item in select.expressions if type(item) is exp.Alias}
    for key in _PARTS:
        part = select.args.get(key)
        if part is not None:
            _rename(part, found, given if key in ("having", "order") else set())
    for item in list(select.expressions):
        _rename(item, found, set())
    for one in found:
        one.narrow(select)
    first, *others = (one.table for one in found)
    beside = tuple(
        JoinedPeople(table, each.table, each.joins, each.keeps_all)
        for each, table in zip(several[1:], others, strict=True)
    )
    return first, beside


def _all(each: Each, table: EachPerson) -> list[str]:
    """Return every name that the table gives, and how its person is called, in small letters."""
    people = sorted({each.person, bare(each.made.by)})
    return [*(column.name.casefold() for column in table.columns), *each.made.formulas, *people]


def _names(each: Each, table: EachPerson, taken: Sequence[str]) -> dict[str, str]:
    """Return by which name of its own the outer SELECT knows each column of the table."""
    names = [column.name for column in table.columns]
    return {
        name.casefold(): name if taken.count(name.casefold()) == 1 else f"{each.name}.{name}"
        for name in names
    }


@dataclass(frozen=True)
class _Named:
    """A table of people with the outer names of its columns, by their own in small letters."""

    each: Each
    made: EachPerson
    names: Mapping[str, str]

    @property
    def table(self) -> EachPerson:
        columns = (replace(c, name=self.names[c.name.casefold()]) for c in self.made.columns)
        return replace(self.made, columns=tuple(columns))

    def gives(self, name: str) -> bool:
        return name in self.each.made.names

    def put(self, column: exp.Column, first: Each) -> None:
        """Put what the table gives by that name in the place of the column, or refuse."""
        name = column.name.casefold()
        formula = self.each.made.formulas.get(name)
        if not self.gives(name):
            raise self.not_given(column)
        if formula is not None:
            self._check_certain(column, "gives aggregates as they are", "Reckon with them outside")
            copy = exp.Paren(this=formula.copy())
            self.rename(copy)
            column.replace(copy)
        elif name in self.names:
            _called(column, self.names[name])
        else:
            self._check_certain(
                column, "does not name the person", "Name them by a table before it"
            )
            _called(column, first.made.by.rpartition(".")[2])

    def rename(self, part: exp.Expr) -> None:
        """Give the columns within the table's own HAVING or formula their outer names."""
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
        """Put the table's HAVING before the outer WHERE."""
        if self.each.made.having is None:
            return
        self._check_certain(
            self.each.made.having, "has no HAVING", "Write JOIN, or count what fits outside"
        )
        having = exp.Paren(this=self.each.made.having)
        self.rename(having)
        narrowed(select, having)

    def not_given(self, column: exp.Column) -> Refused:
        given = [name for name in sorted(self.each.made.names) if not name.startswith("(")]
        return outside(
            column,
            f"the inner SELECT gives no column {column.name!r}",
            "It gives: " + ", ".join(given) + ".",
        )

    def _check_certain(self, node: exp.Expr, what: str, instead: str) -> None:
        """Refuse what has a value where SQL has none: for people without a row in the table."""
        if self.each.keeps_all:
            raise outside(node, f"a SELECT after LEFT JOIN {what}", f"{instead}.")


def _rename(part: exp.Expr, tables: Sequence[_Named], given: set[str]) -> None:
    """Name each column of the outer SELECT as its table has it, but for what that SELECT gives."""
    for column in list(part.find_all(exp.Column)):
        if type(column.this) is not exp.Identifier:
            continue  # a star, which is refused where it is read
        only(column, {"this", "table"})
        name = column.name.casefold()
        if not column.table and name in given and not is_in_aggregate(column):
            continue
        owner = _owner(column, name, tables)
        if owner is not None:
            owner.put(column, tables[0].each)


def _owner(column: exp.Column, name: str, tables: Sequence[_Named]) -> _Named | None:
    if column.table:
        alias = column.table.casefold()
        found = [one for one in tables if one.each.name == alias]
        if not found:
            raise outside(column, "this names another table", "Name one that FROM gives.")
        return found[0]
    found = [one for one in tables if one.gives(name)]
    if len(found) > 1 and any(one.each.person != name for one in found):
        raise outside(
            column,
            f"more than one of these tables has a column {column.name!r}",
            "Write the table's name before it.",
        )
    return found[0] if found else None


def _called(column: exp.Column, name: str) -> None:
    column.set("this", exp.to_identifier(name, quoted=True))
    column.set("table", None)
