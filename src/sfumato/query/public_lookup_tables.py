"""Public tables joined to per-person tables, by a column of the per-person table.

A public table's key is unique, which is checked when its rows are stored. So a person's one row
matches one public row or none, and stays one row. Therefore the sensitivity that is claimed for
per-person tables still holds (soundness rule 12; decision 0006).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sfumato.dp.refusal import Refused
from sfumato.query.expression import Ref
from sfumato.query.measure import Join
from sfumato.query.model import Joined, Query
from sfumato.query.typed_expression import ExpressionType, Scope, typed_column
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card, Table

SEVERAL = ""  # marks a name that several public tables have


@dataclass(frozen=True)
class LookUp:
    """A public table joined to per-person tables.

    `joined.on` names the column matched to its key.
    """

    joined: Joined
    table: Table
    place: int  # index of the table on the card
    # names of person columns; a public column with such a name must be written with its table
    people: frozenset[str]

    @property
    def key(self) -> Column:
        """Return the key column of the public table, whose values are unique."""
        return self.table.columns[self.key_place]

    @property
    def key_place(self) -> int:
        """Return the index of the key column in the public table."""
        names = [column.name.casefold() for column in self.table.columns]
        return names.index(str(self.table.key).casefold())

    def called(self, column: Column) -> str:
        """Return the canonical name of a column of the public table: `table.column`."""
        return f"{self.table.name}.{column.name}"


def look_ups(card: Card, question: Query, place_of: Callable[[str], int]) -> tuple[LookUp, ...]:
    """Return the public tables that the query joins to its per-person tables, or refuse."""
    if question.lookups and question.source is None:
        raise Refused(
            "not-in-language",
            "The question looks up a public table, but has no table with one row for each person.",
            "Join the public table to the rows, or make one row for each person first.",
        )
    made: list[LookUp] = []
    people = frozenset(table.unit.casefold() for table in card.every_table if table.unit)
    for wanted in question.lookups:
        place = place_of(wanted.table)
        table = card.every_table[place]
        _check(table, wanted, made)
        joined = Joined(table.name, (_before(table, wanted, question, made),), wanted.keeps_all)
        made.append(LookUp(joined, table, place, people))
    _check_apart(question, made)
    return tuple(made)


def _check(table: Table, wanted: Joined, before: Sequence[LookUp]) -> None:
    if not table.is_public:
        raise Refused(
            "not-in-language",
            f"{table.name!r} holds people's rows, and a table with one row for each person joins "
            "only such tables and public ones.",
            f"Give it one row for each person too: JOIN (SELECT {table.unit}, MAX(x) AS x FROM "
            f"{table.name} GROUP BY {table.unit}) z ON z.{table.unit} = …. Or join the tables "
            "inside one inner SELECT, and group by the person.",
            table=table.name,
        )
    if table.name in (one.table.name for one in before):
        raise Refused(
            "not-in-language", f"The question joins {table.name!r} twice.", "Join each table once."
        )
    own = wanted.on[1] if len(wanted.on) > 1 else str(table.key)
    if own.casefold() != str(table.key).casefold() or wanted.also:
        raise Refused(
            "not-in-language",
            f"{table.name!r} must be joined by its key, {table.key!r}.",
            f"Write ON {table.name}.{table.key} = a column of a table before it.",
            table=table.name,
        )


def _before(table: Table, wanted: Joined, question: Query, before: Sequence[LookUp]) -> str:
    """Return the canonical name of the earlier column that the public table's key must equal."""
    theirs = wanted.on[0] if wanted.on else str(table.key)
    known = spellings(question, before)
    found = known.get(theirs.casefold(), SEVERAL)
    if found == SEVERAL:
        raise not_given(theirs, known)
    return found


def _check_apart(question: Query, lookups: Sequence[LookUp]) -> None:
    """Refuse a column name that could mean both a public table's column and another column."""
    for name in sorted(question.unqualified_columns & bare_names(lookups)):
        raise not_given(name, {name: SEVERAL})
    taken = _of_people(question)
    for name in (one.called(column) for one in lookups for column in one.table.columns):
        if name.casefold() in taken:
            raise Refused(
                "not-in-language",
                f"A table of people and a public table both have a column {name!r}.",
                "Rename the inner table, so that the two columns have different full names.",
                column=name,
            )


def bare_names(lookups: Sequence[LookUp]) -> frozenset[str]:
    """Return the names of the public columns in lower case, without the names of their tables."""
    return frozenset(c.name.casefold() for one in lookups for c in one.table.columns)


def check_lengths(lookups: Sequence[LookUp], of_people: Collection[int]) -> None:
    """Refuse tables with different `text_length`: texts cut at different lengths don't match."""
    for one in lookups:
        if set(of_people) != {one.table.limits.text_length}:
            raise Refused(
                "type-mismatch",
                f"The public table {one.table.name!r} and the tables of people have different "
                "text_length on the data card.",
                "Ask the owner to declare the same text_length for all of them.",
                table=one.table.name,
            )


def _of_people(question: Query) -> dict[str, str]:
    sources = () if question.source is None else (question.source,)
    every = (*sources, *(one.each for one in question.joined_person_tables))
    return {column.name.casefold(): column.name for each in every for column in each.columns}


def spellings(question: Query, lookups: Sequence[LookUp]) -> dict[str, str]:
    """Map every name that the query may use, in lower case, to its canonical name."""
    public: dict[str, str] = {}
    for one in lookups:
        for column in one.table.columns:
            bare, name = column.name.casefold(), one.called(column)
            public[name.casefold()] = name
            if bare not in one.people:
                public[bare] = SEVERAL if bare in public else name
    people = _of_people(question)
    return {**people, **{name: of for name, of in public.items() if name not in people}}


def not_given(name: str, known: Mapping[str, str]) -> Refused:
    """Return the refusal of a name that no table has, or that several tables have."""
    if known.get(name.casefold()) == SEVERAL:
        return Refused(
            "unknown-column",
            f"More than one of these tables has a column {name!r}.",
            "Write the table's name before it.",
            column=name,
        )
    given = dict.fromkeys(filter(None, known.values()))
    return Refused(
        "unknown-column",
        f"The inner SELECT gives no column {name!r}.",
        "It gives: " + ", ".join(given) + ".",
        column=name,
    )


# --- physical form --------------------------------------------------------------------------------


def typed_columns(lookups: Sequence[LookUp], start: int) -> dict[str, ExpressionType]:
    """Return the type of each column of the public tables, by its canonical name.

    The columns are numbered from `start`.
    """
    made: dict[str, ExpressionType] = {}
    for one in lookups:
        for place, column in enumerate(one.table.columns, start=start):
            made[one.called(column)] = typed_column(column, place)
        start += len(one.table.columns)
    return made


def measured(lookups: Sequence[LookUp], scope: Scope, start: int) -> tuple[Join, ...]:
    """Return the joined public tables as joins for the engine, with columns numbered from `start`.

    Refuse a join of two columns that are stored in different ways.
    """
    made: list[Join] = []
    for one in lookups:
        width, key = len(one.table.columns), one.key_place
        of = _place(one, scope.find(one.joined.on[0]))
        made.append(Join(one.place, start, width, of, key, one.joined.keeps_all))
        start += width
    return tuple(made)


def _place(one: LookUp, side: ExpressionType) -> int:
    """Return the number of the column that is looked up; refuse it unless it's stored like the key.

    The key is the public table's unique column.
    """
    key, of = typed_column(one.key, 0), side.physical
    is_alike = side.step == key.step if side.is_number else side.kind == key.kind
    if not isinstance(of, Ref) or side.is_number != key.is_number or not is_alike:
        raise Refused(
            "type-mismatch",
            f"{one.joined.on[0]!r} cannot be compared with {one.called(one.key)}: their type or "
            "step differs, or it is a mean.",
            "Use MIN or MAX of a column that the owner declares like the key.",
            column=one.joined.on[0],
        )
    return int(of.column[1:])
