"""Builder steps that choose the tables of a question: joins, per-person tables, lookups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from sfumato.client.column_expressions import expr_of
from sfumato.client.conditions import Equal, conjunction, equal_pairs
from sfumato.client.pandas_hints import QUESTION_HINTS, Hinted
from sfumato.dp.refusal import Refused
from sfumato.query.model import (
    REDUCTIONS,
    Joined,
    JoinedPersonTable,
    PersonColumn,
    PersonTable,
    Query,
)

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

        Raises:
            Refused: `not-in-language` if `also` is not columns or pairs of columns.
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
        made = tuple(_reduced(name, column) for name, column in columns.items())
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
        made = _joined_people(begun, other.builder(), keep_all=keep_all)
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
        made = _looked_up(begun, Joined(table, () if on is None else (on,), keep_all))
        return replace(begun, lookups=(*begun.lookups, made))


def _reduced(name: str, column: str | tuple[str, str | Column]) -> PersonColumn:
    """Parse a column of a per-person table: "count", or a pair (aggregate, column).

    Refuse any other form, and aggregates that are not supported for each person.
    """
    if not isinstance(column, str) and not (isinstance(column, tuple) and len(column) == 2):
        raise Refused(
            "not-in-language",
            f"{name!r} does not say what to compute for each person.",
            f'Write {name}="count", or {name}=("sum", "x").',
        )
    verb, of = (column, None) if isinstance(column, str) else column
    for known in REDUCTIONS:
        if known == verb:
            return PersonColumn(name, known, None if of is None else expr_of(of))
    raise Refused(
        "not-in-language",
        f"{verb!r} is not supported for each person.",
        f"Use {', '.join(REDUCTIONS)}.",
    )


def _joined_people(begun: Builder, other: Builder, *, keep_all: bool) -> JoinedPersonTable:
    """Return the join with another table that has one row per person. Refuse any other table."""
    if begun.source is None or other.source is None:
        raise Refused(
            "not-in-language",
            "join_people joins two tables with one row for each person, and one of these is not "
            "such a table.",
            "Write each_person(...) on both tables before join_people(...).",
        )
    if other.data_set != begun.data_set:
        raise Refused(
            "not-in-language",
            f"The second table belongs to the data set {other.data_set!r}, not to "
            f"{begun.data_set!r}.",
            "Join only tables of one data set. of_table(name) gives another table of it.",
        )
    plain = Query(other.data_set, (), source=other.source, table=other.table, joins=other.joins)
    if other.question() != plain:
        raise Refused(
            "not-in-language",
            "The second table must be each_person(...) alone, without further steps.",
            "Write where(...), group_by(...) and aggregates after join_people(...).",
        )
    return JoinedPersonTable(other.source, other.table, other.joins, keep_all)


def _looked_up(begun: Builder, public: Joined) -> Joined:
    """Return the join of a public table by a column of a per-person table, or refuse."""
    if begun.source is None:
        raise Refused(
            "not-in-language",
            "The question looks up a public table, but has no table with one row for each person.",
            "Write each_person(...) first, or join(...) it to the rows.",
        )
    return public
