"""Steps of building a question that say what it is asked of: tables, and what stands beside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sfumato.client.each import joined_people, looked_up, reduced
from sfumato.client.narrowing import Equal, equal_pairs, joined
from sfumato.core.question import EachPerson, Joined

if TYPE_CHECKING:
    from sfumato.client.builder import Builder
    from sfumato.client.columns import Column


class OfTables:
    """What a question is asked of; each step returns a new Builder."""

    def begun(self) -> Builder:
        """Return the question as far as it was built."""
        raise NotImplementedError

    def of_table(self, name: str) -> Builder:
        """Ask another table of the data set: `clinic.of_table("visits").count()`."""
        return replace(self.begun(), table=name)

    def join(
        self, table: str, on: str | None = None, *, also: Equal = (), keep_all: bool = False
    ) -> Builder:
        """Put a table beside: of the same people, or a public one looked up by `on`.

        A column that several tables have is named with its table: "visits.cost". What is `also`
        equal is called alike in both, or is a pair: (before, there). With `keep_all`, rows without
        a partner stay (LEFT JOIN).
        """
        begun = self.begun()
        made = Joined(table, () if on is None else (on,), keep_all, equal_pairs(table, also))
        return replace(begun, joins=(*begun.joins, made))

    def each_person(self, **columns: str | tuple[str, str | Column]) -> Builder:
        """Ask a table with one row a person: `each_person(visits="count", paid=("sum", "cost"))`.

        What was narrowed before narrows the rows it is made of.
        """
        begun = self.begun()
        made = tuple(reduced(name, column) for name, column in columns.items())
        source = EachPerson(made, joined(begun.conditions))
        return replace(begun, conditions=(), source=source)

    def join_people(self, other: OfTables, *, keep_all: bool = False) -> Builder:
        """Put another table with one row a person beside this one; both say `each_person(...)`.

        With `keep_all`, people without a row there stay, and have nothing in its columns.
        """
        begun = self.begun()
        made = joined_people(begun, other.begun(), keep_all=keep_all)
        return replace(begun, beside=(*begun.beside, made))

    def look_up(self, table: str, on: str | None = None, *, keep_all: bool = False) -> Builder:
        """Put a public table beside `each_person(...)`: of each, the row whose key `on` is.

        With `keep_all`, people for whom there is no such row stay (LEFT JOIN).
        """
        begun = self.begun()
        made = looked_up(begun, Joined(table, () if on is None else (on,), keep_all))
        return replace(begun, lookups=(*begun.lookups, made))
