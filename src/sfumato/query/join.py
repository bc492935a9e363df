"""Joins: the tables of a query, seen as one table with a data card of its own.

Contribution bounds apply to the rows of the join (soundness rule 12). Each row of a person in the
join must consist of that person's rows and of public rows. So tables are joined by the person, or
by a public table's unique key; further pairs of columns may be equal in addition. Only the earlier
tables may keep rows without a partner (LEFT JOIN). Other joins are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.query.lru_cache import LruCacheByCard
from sfumato.query.measure import Join
from sfumato.query.model import Joined, Query
from sfumato.query.public_lookup_tables import LookUp, bare_names, check_lengths, look_ups
from sfumato.query.typed_expression import ExpressionType
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card, Limits, Table

# --- Row limits of a join, from the card's limits of each table


MAX_ROWS: Final = 10**10  # most rows of a join, by the card's limits
MAX_ROWS_PER_PERSON: Final = 10**6


def limits_of(private: Sequence[Table]) -> Limits:
    """Return the row limits of a join of these tables with people's rows.

    Each row of a person may match all of the person's rows in the other tables, so the limits of
    rows per person are multiplied.
    """
    if len(private) == 1:
        return private[0].limits
    per_person = prod(table.limits.rows_per_person for table in private)
    rows = min(
        table.limits.rows * (per_person // table.limits.rows_per_person) for table in private
    )
    if rows > MAX_ROWS or per_person > MAX_ROWS_PER_PERSON:
        raise Refused(
            "question-too-large",
            f"By the limits on the data card, the join can have {rows:,} rows, and "
            f"{per_person:,} of one person. At most {MAX_ROWS:,} rows, and "
            f"{MAX_ROWS_PER_PERSON:,} of one person, are allowed.",
            "Ask the owner to declare smaller limits.rows or limits.rows_per_person for these "
            "tables on the card.",
        )
    return Limits(rows, per_person, max(table.limits.text_length for table in private))


MAX_JOINS: Final = 8
MAX_EQUAL: Final = 8  # most pairs of columns besides the person or the key
Pairs = tuple[tuple[int, int], ...]
# table, name of the column in the table, column as named in the join
Named = tuple[str, str, Column]
_SEVERAL: Final = ""  # marks a column name that several tables have
_LACKING: Final = "?"  # marks the person column of a table joined by LEFT JOIN


@dataclass(frozen=True)
class View:
    """A view: joined tables as one table, with its own data card and all names of its columns."""

    card: Card
    names: Mapping[str, str]  # name in lower case -> column name in the view
    people: frozenset[str]  # names of the person column
    first: str  # name of the table to which the others are joined
    table: int
    joins: tuple[Join, ...]
    beside: tuple[View, ...] = ()  # views from which the further per-person tables are made
    lookups: tuple[LookUp, ...] = ()  # public tables joined to the per-person tables

    @property
    def places(self) -> tuple[int, ...]:
        """Return the indexes of the view's tables on the data card."""
        return self.table, *(join.table for join in self.joins)

    @cached_property
    def types(self) -> dict[str, ExpressionType]:
        """Return the view's cache of column types by column name, filled as columns are used."""
        return {}

    def name(self, spelling: str) -> str:
        """Return the column's name in the view.

        An unknown name is returned as it is, and refused later.
        """
        found = self.names.get(spelling.casefold(), spelling)
        if found == _SEVERAL:
            raise Refused(
                "unknown-column",
                f"More than one of these tables has a column {spelling!r}.",
                f"Write the table before it: {self.first}.{spelling}.",
                column=spelling,
            )
        if found == _LACKING:
            raise Refused(
                "not-in-language",
                f"{spelling!r} is NULL in rows of {self.first!r} without a match.",
                "Name the person by the first table's column, or write JOIN instead of LEFT JOIN.",
                column=spelling,
            )
        return found


Viewed = tuple[View, str, tuple[Joined, ...]]
_OF_A_NAME: Final = 2000  # estimated bytes of a view for each name of a column
_VIEWS: Final[LruCacheByCard[Viewed]] = LruCacheByCard(16 * 1024 * 1024)


def joined_view(card: Card, question: Query) -> tuple[View, Query]:
    """Return the view (joined tables) that a query reads, and the query with canonical names."""
    if max(len(question.joined_person_tables), len(question.lookups)) > MAX_JOINS:
        raise _too_many()
    view, table, joins = _view(card, question.table, question.joins)
    if not (question.joined_person_tables or question.lookups):
        return view, replace(question, table=table, joins=joins)
    beside = [(one, *_view(card, one.table, one.joins)) for one in question.joined_person_tables]
    lookups = look_ups(card, question, partial(_place, card, _places(card)))
    view = replace(view, beside=tuple(its for _, its, _, _ in beside), lookups=lookups)
    of_people = [card.every_table[i] for its in (view, *view.beside) for i in its.places]
    check_lengths(lookups, {table.limits.text_length for table in of_people})
    others = tuple(replace(one, table=name, joins=made) for one, _, name, made in beside)
    looked_up = tuple(one.joined for one in lookups)
    return view, replace(
        question, table=table, joins=joins, joined_person_tables=others, lookups=looked_up
    )


def _view(card: Card, name: str, joins: tuple[Joined, ...]) -> Viewed:
    """Return the cached view of a table and its joins, with canonical names of both."""
    return _VIEWS.of(card, (name, joins), lambda: _seen(card, name, joins), _size)


def _size(viewed: Viewed) -> int:
    return _OF_A_NAME * len(viewed[0].names)


def _seen(card: Card, name: str, joins: Sequence[Joined]) -> Viewed:
    tables = _places(card)
    place = _place(card, tables, name or card.name)
    first = card.every_table[place]
    if first.is_public:
        raise Refused(
            "not-in-language",
            f"{first.name!r} is public, and a question must start from a table of people.",
            f"Start with a table of people and join {first.name} to it.",
        )
    if len(joins) > MAX_JOINS:
        raise _too_many()
    seen = _Seen(card, [(place, first)])
    joined = tuple(seen.join(tables, wanted) for wanted in joins)
    return seen.view(joined), "" if place == 0 else first.name, joined


def _places(card: Card) -> dict[str, int]:
    return {table.name.casefold(): i for i, table in enumerate(card.every_table)}


def _too_many() -> Refused:
    return Refused(
        "question-too-large",
        f"The question has more than {MAX_JOINS} joins.",
        "Split it into several questions.",
    )


def check_table_names(view: View, question: Query) -> None:
    """Refuse GROUP BY an alias of an expression that is also a column: SQL groups by the column."""
    columns = {name.partition(".")[2] or name for name in view.names} | view.people
    if question.source is not None:
        each = [question.source, *(one.each for one in question.joined_person_tables)]
        names = {column.name.casefold() for source in each for column in source.columns}
        columns = names | {
            name.rpartition(".")[2] for name in names if question.joined_person_tables
        }
        columns |= bare_names(view.lookups)
    twice = sorted(question.grouped_aliases & columns)
    if twice:
        raise Refused(
            "not-in-language",
            f"SELECT gives the name {twice[0]!r} to a computed value, but a column has this name "
            "too, and SQL groups by the column.",
            "Choose another name.",
        )


def _place(card: Card, tables: Mapping[str, int], name: str) -> int:
    found = tables.get(name.casefold())
    if found is None:
        raise Refused(
            "unknown-data-set",
            f"The data set {card.name!r} has no table {name!r}.",
            "It has: " + ", ".join(table.name for table in card.every_table) + ".",
            table=name,
        )
    return found


@dataclass
class _Seen:
    """A join under construction: the tables joined so far, each with its index on the data card."""

    card: Card
    tables: list[tuple[int, Table]]
    # per join: the earlier column whose values are looked up
    looked_up: list[int | None] = field(default_factory=list)
    # per join: pairs of an earlier column and the table's own column
    also: list[Pairs] = field(default_factory=list)
    optional: set[str] = field(default_factory=set)  # tables joined by LEFT JOIN

    def join(self, places: Mapping[str, int], wanted: Joined) -> Joined:
        """Add a table to the join; return the parsed join with canonical names."""
        place = _place(self.card, places, wanted.table)
        table = self.card.every_table[place]
        if place in (seen for seen, _ in self.tables):
            raise Refused(
                "not-in-language",
                f"The question joins {table.name!r} twice.",
                "Join each table once.",
            )
        if len(wanted.also) > MAX_EQUAL:
            raise Refused(
                "question-too-large",
                f"The join compares more than {MAX_EQUAL} further columns.",
                "Compare fewer columns, and put the other conditions into WHERE.",
            )
        sides = [self._sides(table, pair) for pair in (wanted.on, *wanted.also)]
        if table.is_public:
            keyed = [side for side in sides if _is(side[0], table.key)] or sides[:1]
            column = min(self._looked_up(table, *side) for side in keyed)
            self.looked_up.append(column)
            on: tuple[str, ...] = (self._spelled(column),)
            first = [side for side in keyed if self._looked_up(table, *side) == column]
            rest = [side for side in sides if side not in first]
        else:
            rest = [side for side in sides if not self._is_person(table, *side)]
            self._check_person(table, *sides[0], found=len(rest) < len(sides))
            self.looked_up.append(None)
            on = ()
        also = tuple(sorted({self._equal(table, *side) for side in rest}))
        self.also.append(also)
        named = tuple(
            (self._spelled(before), f"{table.name}.{table.columns[own].name}")
            for before, own in also
        )
        self.tables.append((place, table))
        if wanted.keeps_all:
            self.optional.add(table.name)
        return Joined(table.name, on, wanted.keeps_all, named)

    def _sides(self, table: Table, on: Sequence[str]) -> tuple[str, str]:
        """Return the two columns that a join compares: the new table's, then an earlier table's."""
        own = table.key or table.unit or ""
        if not on:
            return own, own if table.is_public else str(self.tables[0][1].unit)
        if len(on) == 1:
            return own, on[0]
        sides = [_split(side, table.name) for side in on]
        if on[0].casefold() == on[1].casefold():
            return on[0], on[1]
        if sides[0][0] == sides[1][0]:
            raise Refused(
                "not-in-language",
                f"It is not clear which column belongs to {table.name!r}.",
                f"Write ON {table.name}.{own} = OTHER.COLUMN, with the other table's name before "
                "its column.",
            )
        mine, theirs = sides if sides[0][0] else reversed(sides)
        return mine[1], theirs[1]

    def _is_person(self, table: Table, mine: str, theirs: str) -> bool:
        return _is(mine, table.unit) and theirs.casefold() in self._people()

    def _check_person(self, table: Table, mine: str, theirs: str, *, found: bool) -> None:
        """Refuse a join of two tables with people's rows unless it also compares the person."""
        if found:
            return
        raise Refused(
            "not-in-language",
            f"{table.name!r} holds people's rows, so the join must also compare the person.",
            f"Write ON {table.name}.{table.unit} = "
            f"{self.tables[0][1].name}.{self.tables[0][1].unit}, and add further equal columns "
            "with AND.",
        )

    def _equal(self, table: Table, mine: str, theirs: str) -> tuple[int, int]:
        """Return the indexes of the two columns that a join compares: earlier table, new table."""
        places = {column.name.casefold(): i for i, column in enumerate(table.columns)}
        if mine.casefold() not in places:
            raise Refused(
                "unknown-column",
                f"{table.name!r} has no column {mine!r} that a join can compare.",
                "It has: " + ", ".join(column.name for column in table.columns) + ".",
                column=mine,
            )
        own = places[mine.casefold()]
        return self._before(table, table.columns[own], theirs), own

    def _looked_up(self, table: Table, mine: str, theirs: str) -> int:
        """Return the index of the earlier column whose values are looked up in a public table.

        Refuse a join by another column than the public table's key.
        """
        if mine.casefold() != (table.key or "").casefold():
            raise Refused(
                "not-in-language",
                f"{table.name!r} must be joined by its key, {table.key!r}.",
                f"Write ON {table.name}.{table.key} = a column of the tables before it.",
            )
        return self._before(table, _column(table, mine), theirs)

    def _before(self, table: Table, key: Column, theirs: str) -> int:
        """Return the index of an earlier table's column; refuse it unless it is stored like `key`.

        The join compares this column with the column `key` of the new table.
        """
        view = self.view(())
        column = view.card.column(view.name(theirs))
        if not _are_alike(column, key) or any(
            seen.limits.text_length != table.limits.text_length for _, seen in self.tables
        ):
            raise Refused(
                "type-mismatch",
                f"{column.name!r} and {table.name}.{key.name} differ in type, step or text_length.",
                "Ask the owner to declare both columns alike on the data card.",
                column=column.name,
            )
        return view.card.index(column.name)

    def _spelled(self, place: int) -> str:
        """Return the name `table.column` of a column, which does not depend on the other joins."""
        table, name, _ = list(_columns([table for _, table in self.tables]))[place]
        return f"{table}.{name}"

    def _people(self) -> frozenset[str]:
        """Return the names of the person columns that are never NULL in the rows of the join."""
        return frozenset(
            name
            for _, table in self.tables
            if table.unit is not None and table.name not in self.optional
            for name in _spellings(table)
        )

    def _lacking(self) -> frozenset[str]:
        """Return the names of the person columns that are NULL in rows without a match."""
        found = [table for _, table in self.tables if table.name in self.optional]
        named = {name for t in found if t.unit is not None for name in _spellings(t)}
        return frozenset(named - self._people())

    def view(self, joined: Sequence[Joined]) -> View:
        """Return the view of all tables joined so far."""
        columns = list(_columns([table for _, table in self.tables]))
        private = [table for _, table in self.tables if not table.is_public]
        mixed = {unit_of(t) for t in private if unit_of(t) in self._columns_beside(t)}
        card = replace(
            self.card,
            unit=private[0].unit or self.card.unit,
            columns=tuple(column for _, _, column in columns),
            max_rows=min(prod(table.max_rows for table in private), MAX_ROWS_PER_PERSON),
            limits=limits_of(private),
            tables=(),
        )
        joins = tuple(self._physical(joined)) if joined else ()
        place, first = self.tables[0]
        lacking = dict.fromkeys(self._lacking(), _LACKING)
        names = {**lacking, **self._names(columns), **dict.fromkeys(mixed, _SEVERAL)}
        return View(card, names, self._people() - mixed, first.name, place, joins)

    def _names(self, columns: Sequence[Named]) -> dict[str, str]:
        """Map every name of a column, in lower case, to the column's name in the view."""
        names: dict[str, str] = {}
        for table, name, column in columns:
            for spelling in (name, column.name):
                key = spelling.casefold()
                known = names.get(key, column.name)
                names[key] = column.name if known == column.name else _SEVERAL
            if self.card.tables:  # with a single table, a column name may contain a point
                names[f"{table}.{name}".casefold()] = column.name
        return names

    def _columns_beside(self, mine: Table) -> frozenset[str]:
        """Return the column names of all tables but `mine`, in lower case."""
        others = [table for _, table in self.tables if table is not mine]
        return frozenset(c.name.casefold() for table in others for c in table.columns)

    def _physical(self, joins: Sequence[Joined]) -> Iterator[Join]:
        start = len(self.tables[0][1].columns)
        found = zip(self.tables[1:], joins, self.looked_up, self.also, strict=True)
        for (place, table), joined, of, also in found:
            key = 0 if table.key is None else table.columns.index(_column(table, table.key))
            yield Join(place, start, len(table.columns), of, key, joined.keeps_all, also)
            start += len(table.columns)


def unit_of(table: Table) -> str:
    """Return the name of the table's person column in lower case; empty if it has none."""
    return "" if table.unit is None else table.unit.casefold()


def _spellings(table: Table) -> tuple[str, str]:
    """Return both names of the table's person column in lower case: without and with the table."""
    return unit_of(table), f"{table.name}.{table.unit}".casefold()


def _are_alike(column: Column, key: Column) -> bool:
    """Check whether equal values are stored in the same way in both columns."""
    if column.is_numeric:
        return key.is_numeric and column.step == key.step
    return column.type == key.type


def _is(name: str, other: str | None) -> bool:
    return name.casefold() == (other or "").casefold()


def _split(spelling: str, table: str) -> tuple[bool, str]:
    """Split `table.column` into whether the prefix is this table's name, and the column's name."""
    of, _, name = spelling.partition(".")
    is_own = bool(name) and of.casefold() == table.casefold()
    return (True, name) if is_own else (False, spelling)


def _column(table: Table, name: str) -> Column:
    return next(c for c in table.columns if c.name.casefold() == name.casefold())


def _columns(tables: Sequence[Table]) -> Iterator[Named]:
    """Yield each column as a triple: its table, its name there, and the column in the view."""
    every = [(table.name, column) for table in tables for column in table.columns]
    plain = [column.name.casefold() for _, column in every]
    plain += [unit_of(table) for table in tables if table.unit is not None]
    own = {(table.name, unit_of(table)) for table in tables}
    for table, column in every:
        key = column.name.casefold()
        is_only = plain.count(key) == 1 + ((table, key) in own)  # a person's own column counts once
        name = column.name if is_only else f"{table}.{column.name}"
        yield table, column.name, replace(column, name=name)
