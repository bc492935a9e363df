"""Steps of building a question that say what it is asked of: tables, and what stands beside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from sfumato.client.conditions import Equal, equal_pairs, joined
from sfumato.client.pandas_hints import QUESTION_HINTS, Hinted
from sfumato.client.person_rows import joined_people, looked_up, reduced
from sfumato.query.model import EachPerson, Joined

if TYPE_CHECKING:
    from sfumato.client.column_expressions import Column
    from sfumato.client.query_builder import Builder


class OfTables(Hinted):
    """What a question is asked of; each step returns a new Builder."""

    _called: ClassVar[str] = "A question"
    _hints: ClassVar[Mapping[str, str]] = QUESTION_HINTS

    def begun(self) -> Builder:
        """Return the question as far as it is built."""
        raise NotImplementedError

    def of_table(self, name: str) -> Builder:
        """Ask another table of the data set: `clinic.of_table("visits").count()`.

        Args:
            name: The name of the table on the card.

        Returns:
            The question, of that table.
        """
        return replace(self.begun(), table=name)

    def join(
        self, table: str, on: str | None = None, *, also: Equal = (), keep_all: bool = False
    ) -> Builder:
        """Join another table: a private one of the same people, or a public one.

        A column that several tables have is named with its table: "visits.cost".

        Args:
            table: The name of the table on the card.
            on: The column by which a public table is looked up; people are joined by themselves.
            also: Columns that are equal besides: the name in both tables, or a pair of the name
                before and the name in `table`; or several of these.
            keep_all: Keep rows without a partner (LEFT JOIN).

        Returns:
            The question, of the joined tables.
        """
        begun = self.begun()
        made = Joined(table, () if on is None else (on,), keep_all, equal_pairs(table, also))
        return replace(begun, joins=(*begun.joins, made))

    def each_person(self, **columns: str | tuple[str, str | Column]) -> Builder:
        """Ask a table with one row a person: `each_person(visits="count", paid=("sum", "cost"))`.

        Conditions before it are about rows, and conditions after it about people.

        Args:
            **columns: A name for the column, and what it holds of each person: "count", or an
                aggregate and a column such as `("sum", "cost")`.

        Returns:
            The question, of one row a person.

        Raises:
            Refused: `not-in-language` if an aggregate is not answered for each person.
        """
        begun = self.begun()
        made = tuple(reduced(name, column) for name, column in columns.items())
        source = EachPerson(made, joined(begun.conditions))
        return replace(begun, conditions=(), source=source)

    def join_people(self, other: OfTables, *, keep_all: bool = False) -> Builder:
        """Join two tables that have one row a person; both are made by `each_person(...)`.

        Args:
            other: The other table with one row a person, of the same data set.
            keep_all: Keep people without a row there (LEFT JOIN); its columns are null for them.

        Returns:
            The question, of the joined tables.

        Raises:
            Refused: `not-in-language` if one of the two is no table with one row a person.
        """
        begun = self.begun()
        made = joined_people(begun, other.begun(), keep_all=keep_all)
        return replace(begun, beside=(*begun.beside, made))

    def look_up(self, table: str, on: str | None = None, *, keep_all: bool = False) -> Builder:
        """Look up a public table by a column of `each_person(...)`.

        Args:
            table: The name of the public table on the card.
            on: The column of people that is the key there.
            keep_all: Keep people for whom there is no such row (LEFT JOIN).

        Returns:
            The question, with the columns of that table.

        Raises:
            Refused: `not-in-language` before `each_person(...)`.
        """
        begun = self.begun()
        made = looked_up(begun, Joined(table, () if on is None else (on,), keep_all))
        return replace(begun, lookups=(*begun.lookups, made))
