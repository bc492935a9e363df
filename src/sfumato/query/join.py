"""Which tables a question is asked of: joined, they are seen as one table with its own card.

Bounding applies to the rows of the join (soundness rule 12): a person's rows there are all made of
that person's rows and of public ones. So tables meet on the person or by a public table's unique
key, and beside it in what columns they please; what is kept without a partner is the side that was
there before, and nothing else is answered.
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
from sfumato.query.typed_expression import Typed
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card, Limits, Table

# --- How many rows a join may have, by what the card says of each of its tables


MAX_ROWS: Final = 10**10  # that a join may have by the card's limits
MAX_ROWS_PER_PERSON: Final = 10**6


def limits_of(private: Sequence[Table]) -> Limits:
    """Return what a join of these may have: every row of a person beside every other of theirs."""
    if len(private) == 1:
        return private[0].limits
    per_person = prod(table.limits.rows_per_person for table in private)
    rows = min(
        table.limits.rows * (per_person // table.limits.rows_per_person) for table in private
    )
    if rows > MAX_ROWS or per_person > MAX_ROWS_PER_PERSON:
        raise Refused(
            "question-too-large",
            f"By the card's limits these tables make up to {rows:,} rows together, and "
            f"{per_person:,} of one person; {MAX_ROWS:,} and {MAX_ROWS_PER_PERSON:,} are the most.",
            "Ask the owner to declare limits.rows and limits.rows_per_person for each table.",
        )
    return Limits(rows, per_person, max(table.limits.text_length for table in private))


MAX_JOINS: Final = 8
MAX_EQUAL: Final = 8  # pairs of columns besides the person or the key
Pairs = tuple[tuple[int, int], ...]
Named = tuple[str, str, Column]  # the table, the name there, the column as it is called here
_SEVERAL: Final = ""  # the name of a column that more than one table has
_LACKING: Final = "?"  # the name of a person in a table in which they may have no row


@dataclass(frozen=True)
class View:
    """The joined tables as one: its columns and limits on a card, and every way to spell them."""

    card: Card
    names: Mapping[str, str]  # how a column may be spelled, in small letters -> its name here
    people: frozenset[str]  # how the person's column may be spelled
    first: str  # the name of the table that the others are joined to
    table: int
    joins: tuple[Join, ...]
    beside: tuple[View, ...] = ()  # what the question's further tables of people are made of
    lookups: tuple[LookUp, ...] = ()  # the public tables beside its tables of people

    @property
    def places(self) -> tuple[int, ...]:
        """Return where its tables stand on the card."""
        return self.table, *(join.table for join in self.joins)

    @cached_property
    def types(self) -> dict[str, Typed]:
        """Return the columns by name, as far as anybody has asked what they are."""
        return {}

    def name(self, spelling: str) -> str:
        """Return the column's name here; what is unknown stays as it is and is refused later."""
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
                f"{spelling!r} is nothing where {self.first!r} has no partner.",
                "Name the person by the first table's column, or write JOIN instead of LEFT JOIN.",
                column=spelling,
            )
        return found


Viewed = tuple[View, str, tuple[Joined, ...]]
_OF_A_NAME: Final = 2000  # bytes of a view for a way to spell a column
_VIEWS: Final[LruCacheByCard[Viewed]] = LruCacheByCard(16 * 1024 * 1024)


def joined_view(card: Card, question: Query) -> tuple[View, Query]:
    """Return what the question is asked of, and the question with its tables in one spelling."""
    if max(len(question.beside), len(question.lookups)) > MAX_JOINS:
        raise _too_many()
    view, table, joins = _view(card, question.table, question.joins)
    if not (question.beside or question.lookups):
        return view, replace(question, table=table, joins=joins)
    beside = [(one, *_view(card, one.table, one.joins)) for one in question.beside]
    lookups = look_ups(card, question, partial(_place, card, _places(card)))
    view = replace(view, beside=tuple(its for _, its, _, _ in beside), lookups=lookups)
    of_people = [card.every_table[i] for its in (view, *view.beside) for i in its.places]
    check_lengths(lookups, {table.limits.text_length for table in of_people})
    others = tuple(replace(one, table=name, joins=made) for one, _, name, made in beside)
    looked_up = tuple(one.joined for one in lookups)
    return view, replace(question, table=table, joins=joins, beside=others, lookups=looked_up)


def _view(card: Card, name: str, joins: tuple[Joined, ...]) -> Viewed:
    """Return the table with what is joined to it, and the names of both in one spelling."""
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
            f"{first.name!r} is public, and only what people's rows say is answered.",
            f"Begin with a table of people and join {first.name} to it.",
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
        "question-too-large", f"More than {MAX_JOINS} joins.", "Ask in several questions."
    )


def check_table_names(view: View, question: Query) -> None:
    """Refuse a computed key that GROUP BY calls as a column is called: SQL groups by the column."""
    columns = {name.partition(".")[2] or name for name in view.names} | view.people
    if question.source is not None:
        each = [question.source, *(one.each for one in question.beside)]
        names = {column.name.casefold() for source in each for column in source.columns}
        columns = names | {name.rpartition(".")[2] for name in names if question.beside}
        columns |= bare_names(view.lookups)
    twice = sorted(question.called & columns)
    if twice:
        raise Refused(
            "not-in-language",
            f"SELECT gives the name {twice[0]!r} to something computed, and a column has it: SQL "
            "groups by the column.",
            "Take another name.",
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
    """The tables so far, each with its place on the card."""

    card: Card
    tables: list[tuple[int, Table]]
    looked_up: list[int | None] = field(default_factory=list)  # by each join, in the columns before
    also: list[Pairs] = field(default_factory=list)  # by each join: a column before, and its own
    optional: set[str] = field(default_factory=set)  # tables in which a row may have no partner

    def join(self, places: Mapping[str, int], wanted: Joined) -> Joined:
        """Return the join in its one spelling, and see its table from now on."""
        place = _place(self.card, places, wanted.table)
        table = self.card.every_table[place]
        if place in (seen for seen, _ in self.tables):
            raise Refused(
                "not-in-language", f"{table.name!r} stands twice.", "Join each table once."
            )
        if len(wanted.also) > MAX_EQUAL:
            raise Refused(
                "question-too-large",
                f"More than {MAX_EQUAL} further columns are to be equal.",
                "Join by fewer, and put the others into WHERE.",
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
        """Return which column of the new table equals which of those before."""
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
                f"It is not clear which column is of {table.name!r}.",
                f"Write ON {table.name}.{own} = the column of another table, its name before it.",
            )
        mine, theirs = sides if sides[0][0] else reversed(sides)
        return mine[1], theirs[1]

    def _is_person(self, table: Table, mine: str, theirs: str) -> bool:
        return _is(mine, table.unit) and theirs.casefold() in self._people()

    def _check_person(self, table: Table, mine: str, theirs: str, *, found: bool) -> None:
        """Refuse a join of people's tables that does not hold the person equal."""
        if found:
            return
        raise Refused(
            "not-in-language",
            f"{table.name!r} holds people's rows, so it is joined by the person, whatever else is "
            "equal.",
            f"Write ON {table.name}.{table.unit} = {self.tables[0][1].name}."
            f"{self.tables[0][1].unit}, and AND before what else is equal.",
        )

    def _equal(self, table: Table, mine: str, theirs: str) -> tuple[int, int]:
        """Return the place of a column before and that of the table's own that equals it."""
        places = {column.name.casefold(): i for i, column in enumerate(table.columns)}
        if mine.casefold() not in places:
            raise Refused(
                "unknown-column",
                f"{table.name!r} has no column {mine!r} that a join can hold equal.",
                "It has: " + ", ".join(column.name for column in table.columns) + ".",
                column=mine,
            )
        own = places[mine.casefold()]
        return self._before(table, table.columns[own], theirs), own

    def _looked_up(self, table: Table, mine: str, theirs: str) -> int:
        """Return the place of the column that is looked up in a public table."""
        if mine.casefold() != (table.key or "").casefold():
            raise Refused(
                "not-in-language",
                f"{table.name!r} is looked up by its key, {table.key!r}.",
                f"Write ON {table.name}.{table.key} = a column of the tables before it.",
            )
        return self._before(table, _column(table, mine), theirs)

    def _before(self, table: Table, key: Column, theirs: str) -> int:
        """Return the place of a column before, which has to be stored as the key is."""
        view = self.view(())
        column = view.card.column(view.name(theirs))
        if not _are_alike(column, key) or any(
            seen.limits.text_length != table.limits.text_length for _, seen in self.tables
        ):
            raise Refused(
                "type-mismatch",
                f"{column.name!r} and {table.name}.{key.name} differ in type, step or text_length.",
                "The owner declares both alike.",
                column=column.name,
            )
        return view.card.index(column.name)

    def _spelled(self, place: int) -> str:
        """Return the column's one spelling, whatever other tables are joined."""
        table, name, _ = list(_columns([table for _, table in self.tables]))[place]
        return f"{table}.{name}"

    def _people(self) -> frozenset[str]:
        """Return how the person may be spelled: by tables in which everybody here has a row."""
        return frozenset(
            name
            for _, table in self.tables
            if table.unit is not None and table.name not in self.optional
            for name in _spellings(table)
        )

    def _lacking(self) -> frozenset[str]:
        """Return how the person may not be spelled, for it is nothing without a partner."""
        found = [table for _, table in self.tables if table.name in self.optional]
        named = {name for t in found if t.unit is not None for name in _spellings(t)}
        return frozenset(named - self._people())

    def view(self, joined: Sequence[Joined]) -> View:
        """Return the tables so far as one."""
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
        """Return every way to spell a column, in small letters, and which one it is."""
        names: dict[str, str] = {}
        for table, name, column in columns:
            for spelling in (name, column.name):
                key = spelling.casefold()
                known = names.get(key, column.name)
                names[key] = column.name if known == column.name else _SEVERAL
            if self.card.tables:  # else a name may have a point in it
                names[f"{table}.{name}".casefold()] = column.name
        return names

    def _columns_beside(self, mine: Table) -> frozenset[str]:
        """Return the columns of the other tables, in small letters."""
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
    """Return the person's column in small letters, nothing if rows are nobody's."""
    return "" if table.unit is None else table.unit.casefold()


def _spellings(table: Table) -> tuple[str, str]:
    """Return the person's column in small letters, alone and with its table."""
    return unit_of(table), f"{table.name}.{table.unit}".casefold()


def _are_alike(column: Column, key: Column) -> bool:
    """Say whether equal values are stored alike."""
    if column.is_numeric:
        return key.is_numeric and column.step == key.step
    return column.type == key.type


def _is(name: str, other: str | None) -> bool:
    return name.casefold() == (other or "").casefold()


def _split(spelling: str, table: str) -> tuple[bool, str]:
    """Return whether a column is said to be of the table, and the column's own name if it is."""
    of, _, name = spelling.partition(".")
    is_own = bool(name) and of.casefold() == table.casefold()
    return (True, name) if is_own else (False, spelling)


def _column(table: Table, name: str) -> Column:
    return next(c for c in table.columns if c.name.casefold() == name.casefold())


def _columns(tables: Sequence[Table]) -> Iterator[Named]:
    """Yield each column: its table, its name there, and the column under its name in the join."""
    every = [(table.name, column) for table in tables for column in table.columns]
    plain = [column.name.casefold() for _, column in every]
    plain += [unit_of(table) for table in tables if table.unit is not None]
    own = {(table.name, unit_of(table)) for table in tables}
    for table, column in every:
        key = column.name.casefold()
        is_only = plain.count(key) == 1 + ((table, key) in own)  # a person's own column counts once
        name = column.name if is_only else f"{table}.{column.name}"
        yield table, column.name, replace(column, name=name)
