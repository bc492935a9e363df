"""Builder steps that choose the tables of a question: joins, per-person tables, lookups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from sfumato.client.conditions import Equal, conjunction, equal_pairs
from sfumato.client.pandas_hints import QUESTION_HINTS, Hinted
from sfumato.client.person_rows import joined_people, looked_up, reduced
from sfumato.query.model import Joined, PersonTable

if TYPE_CHECKING:
    from sfumato.client.column_expressions import Column
    from sfumato.client.query_builder import Builder


class TableSteps(Hinted):
    """The steps that choose a question's tables; each returns a new Builder."""

    _called: ClassVar[str] = "A question"
    _hints: ClassVar[Mapping[str, str]] = QUESTION_HINTS

    def builder(self) -> Builder:
        """Return the question as built so far."""
        raise NotImplementedError

    def of_table(self, name: str) -> Builder:
        """Choose another table of the data set: `clinic.of_table("visits").count()`.

        Args:
            name: The name of the table on the card.

        Returns:
            The question, about that table.
        """
        return replace(self.builder(), table=name)

    def join(
        self, table: str, on: str | None = None, *, also: Equal = (), keep_all: bool = False
    ) -> Builder:
        """Join another table: a private one of the same people, or a public one.

        If several tables have a column, write its table before it: "visits.cost".

        Args:
            table: The name of the table on the card.
            on: The column that holds the public table's key; private tables are joined by person.
            also: More columns that must be equal: a name in both tables, or a pair of the name so
                far and the name in `table`; or several of these.
            keep_all: Keep rows without a match (LEFT JOIN).

        Returns:
            The question, about the joined tables.
        """
        begun = self.builder()
        made = Joined(table, () if on is None else (on,), keep_all, equal_pairs(table, also))
        return replace(begun, joins=(*begun.joins, made))

    def each_person(self, **columns: str | tuple[str, str | Column]) -> Builder:
        """Reduce to one row per person: `each_person(visits="count", paid=("sum", "cost"))`.

        Conditions before this step apply to rows; conditions after it apply to people.

        Args:
            **columns: The name of each column, and its value for a person: "count", or an aggregate
                and a column such as `("sum", "cost")`.

        Returns:
            The question, with one row per person.

        Raises:
            Refused: `not-in-language` if an aggregate is not supported for each person.
        """
        begun = self.builder()
        made = tuple(reduced(name, column) for name, column in columns.items())
        source = PersonTable(made, conjunction(begun.conditions))
        return replace(begun, conditions=(), source=source)

    def join_people(self, other: TableSteps, *, keep_all: bool = False) -> Builder:
        """Join two tables with one row per person; both come from `each_person(...)`.

        Args:
            other: The other table with one row per person, of the same data set.
            keep_all: Keep people without a row in the other table (LEFT JOIN), with nulls.

        Returns:
            The question, about the joined tables.

        Raises:
            Refused: `not-in-language` if one of the two does not have one row per person.
        """
        begun = self.builder()
        made = joined_people(begun, other.builder(), keep_all=keep_all)
        return replace(begun, beside=(*begun.beside, made))

    def look_up(self, table: str, on: str | None = None, *, keep_all: bool = False) -> Builder:
        """Join a public table by a column of `each_person(...)`.

        Args:
            table: The name of the public table on the card.
            on: The column of `each_person(...)` that holds the public table's key.
            keep_all: Keep people without a match (LEFT JOIN).

        Returns:
            The question, with that table's columns added.

        Raises:
            Refused: `not-in-language` if `each_person(...)` does not come first.
        """
        begun = self.builder()
        made = looked_up(begun, Joined(table, () if on is None else (on,), keep_all))
        return replace(begun, lookups=(*begun.lookups, made))
