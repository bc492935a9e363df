"""Small tables dealt at random, and questions of one, of joined ones, or of people of several.

A question comes with the rows that it is of, put together by a plain reading of its joins.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import duckdb

from sfumato.query.model import Joined, JoinedPersonTable, Query, query_json
from sfumato.vault.card.data_card import Card
from support.query_oracle import (
    Person,
    Public,
    added_up,
    as_posed,
    card,
    disagreement,
    planned,
    prepare,
    some_rows,
    spelt,
)
from support.random_queries import Asking

Rows = Sequence[Person]
MORE = {
    "drug": {"type": "text", "keys": ["x", "y"]},
    "dose": {"type": "integer", "lower": 0, "upper": 12},
    "rate": {"type": "number", "lower": -3, "upper": 5, "step": Decimal("0.5")},
    "given": {"type": "date"},
    "ok": {"type": "boolean"},
}
PLACES = {
    "name": {"type": "text"},
    "region": {"type": "text", "keys": ["n", "s"]},
    "size": {"type": "integer", "lower": -2, "upper": 6},
}
PUBLIC = {"public": True, "key": "name", "columns": PLACES}
CELLS: Mapping[str, Sequence[str]] = {
    "drug": ("x", "x", "y", "X", "xy", "zz", ""),
    "dose": ("0", "1", "3", "7", "12", "40", ""),
    "rate": ("-99", "0", "0.24", "1.5", "4.75", "9", ""),
    "given": ("2026-01-01", "2026-02-15", "1969-12-29", ""),
    "ok": ("true", "f", ""),
    "name": ("a", "b", "c", "x", "xy", "y", "it's"),
    "region": ("n", "s", "w", ""),
    "size": ("-2", "-1", "0", "5", "99", ""),
}
EQUAL = (("town", "drug"), ("age", "dose"), ("pay", "rate"), ("day", "given"), ("sick", "ok"))
LIMITS = {"rows": 10**5, "rows_per_person": 20}


def tables_card(bound: int, rows: int, *, there: int | None = None) -> Card:
    """Return a card of two tables of people, and a public one."""
    more = {"max_rows": there or rows, "limits": LIMITS, "columns": MORE}
    tables = {"more": more, "places": PUBLIC}
    return card("who", max_groups=bound, max_rows=rows, limits=LIMITS, tables=tables)


_EVERY = {table.name: table.columns for table in tables_card(1, 1).every_table}
_NUMBERS = {"t": ("pay", "age", "free", "grade"), "more": ("dose", "rate"), "places": ("size",)}
_TEXTS = {"t": ("zip", "town"), "more": ("drug",), "places": ("name", "region")}
_TIMES = {"t": ("day", "seen"), "more": ("given",), "places": ()}
_LISTED = {"t": ("zip", "grade"), "more": ("drug",), "places": ("region",)}
_TRUTHS = {"t": ("sick",), "more": ("ok",), "places": ()}


def rows_there(rng: random.Random, people: int, most: int) -> list[Person]:
    """Return rows of the other table; some people have none, and some are only there."""
    return [
        _row(rng, "more", f"p{p}")
        for p in rng.sample(range(people + 1), people)
        for _ in range(rng.randint(1, most))
    ]


def some_places(rng: random.Random) -> list[Person]:
    """Return rows of the public table, each under a name of its own."""
    names = rng.sample(CELLS["name"], rng.randint(0, 7))
    return [_row(rng, "places", "", name=name) for name in names]


def _row(rng: random.Random, table: str, who: str, **known: str) -> Person:
    columns = _EVERY[table]
    return spelt(columns, who, {c.name: rng.choice(CELLS[c.name]) for c in columns} | known)


def asking(rng: random.Random, *tables: str) -> Asking:
    """Return who asks of these tables side by side."""
    return Asking(
        rng,
        numbers=[name for table in tables for name in _NUMBERS[table]],
        texts=[name for table in tables for name in _TEXTS[table]],
        times=[name for table in tables for name in _TIMES[table]],
        truths=[name for table in tables for name in _TRUTHS[table]],
        listed=[name for table in tables for name in _LISTED[table]],
    )


# --- a plain reading of joins ---------------------------------------------------------------------


def rows_of(dealt: Mapping[str, Rows], table: str, joins: Sequence[Joined]) -> list[Person]:
    """Return the rows of the join as SQL has them."""
    rows = list(dealt[table or "t"])
    for join in joins:
        rows = [made for row in rows for made in _partners(join, row, dealt[join.table])]
    return rows


def _partners(join: Joined, row: Person, others: Rows) -> Iterator[Person]:
    named = [*([join.on] if join.on else []), *join.also]
    pairs = [(before.partition(".")[2], own.partition(".")[2]) for before, own in named]
    found = [
        other.cells
        for other in others
        if (join.on or other.who == row.who)
        and all(row.cells[b] is not None and row.cells[b] == other.cells[o] for b, o in pairs)
    ]
    if not found and join.keeps_all:
        found = [dict.fromkeys(column.name for column in _EVERY[join.table])]
    for cells in found:
        yield Person(row.who, {**row.cells, **cells})


# --- random joins ---------------------------------------------------------------------------------


def of_both(rng: random.Random) -> tuple[str, Joined]:
    """Return either table, and the other joined to it, held equal by chance in more."""
    pairs = tuple(rng.sample(EQUAL, rng.choice((0, 0, 0, 1, 1, 2))))
    first, other = rng.choice((("t", "more"), ("more", "t")))
    also = tuple(
        (f"t.{here}", f"more.{there}") if other == "more" else (f"more.{there}", f"t.{here}")
        for here, there in pairs
    )
    return first, Joined(other, keeps_all=rng.random() < 0.5, also=also)


def looked_up(rng: random.Random, *before: str) -> Joined:
    """Return the public table, looked up by a text of the tables before."""
    column = rng.choice([f"{table}.{name}" for table in before for name in _TEXTS[table]])
    return Joined("places", (column, "places.name"), rng.random() < 0.5)


@dataclass(frozen=True)
class Posed:
    """A question, with the rows that it is of, and those of further tables of people."""

    question: Query
    rows: list[Person]
    others: tuple[list[Person], ...] = ()
    public: Public = field(default_factory=dict)  # rows that people look up


@dataclass(frozen=True)
class Dealt:
    """Rows of every table of a card, and who asks of them."""

    made: Card
    rows: Mapping[str, Rows]
    rng: random.Random
    is_wide: bool = False  # whether every verb that counts is asked

    def asking(self, *tables: str) -> Asking:
        """Return who asks of these tables side by side."""
        return replace(asking(self.rng, *tables), is_wide=self.is_wide)

    def of_one(self) -> Posed:
        """Return a question of the card's own table."""
        question = self.asking("t").question(self.made.by_person)
        return Posed(question, list(self.rows["t"]))

    def of_joined(self) -> Posed:
        """Return a question of both tables of people, perhaps over one row for each of them."""
        first, join = of_both(self.rng)
        return self._of(first, (join,))

    def of_public(self) -> Posed:
        """Return a question of one table or of both, with the public one beside."""
        if not self.made.by_person or self.rng.random() < 0.7:
            first = "t" if not self.made.by_person else self.rng.choice(("t", "more"))
            return self._of(first, (looked_up(self.rng, first),))
        first, join = of_both(self.rng)
        return self._of(first, (join, looked_up(self.rng, first, join.table)))

    def _of(self, first: str, joins: tuple[Joined, ...]) -> Posed:
        asks = self.asking(first, *(join.table for join in joins))
        question = replace(asks.question(self.made.by_person), table=first, joins=joins)
        return Posed(question, rows_of(self.rows, first, joins))

    def of_people(self) -> Posed:
        """Return a question of two tables of people, or of three, each made of rows of its own."""
        rng = self.rng
        made = [self.some_table() for _ in range(rng.choice((2, 2, 2, 3)))]
        sources = [
            self.asking(table, *(join.table for join in joins)).source("mno"[i])
            for i, (table, joins) in enumerate(made)
        ]
        if rng.random() < 0.5:
            sources = [replace(source, where=None) for source in sources]
        question = self.asking("t").of_people(*sources).of_rows(is_by_person=True)
        others = tuple(
            JoinedPersonTable(source, table, joins, rng.random() < 0.5)
            for source, (table, joins) in zip(sources[1:], made[1:], strict=True)
        )
        if rng.random() < 0.6:  # else hardly anybody is left in all of them
            question = replace(question, where=None)
        (table, joins), *_ = made
        question = replace(
            question, source=sources[0], table=table, joins=joins, joined_person_tables=others
        )
        first, *further = (rows_of(self.rows, table, joins) for table, joins in made)
        return Posed(question, first, tuple(further))

    def some_table(self) -> tuple[str, tuple[Joined, ...]]:
        """Return what a table of people is made of: a table, perhaps with others joined to it."""
        table, other = self.rng.choice((("t", "more"), ("more", "t")))
        joins = (Joined(other, keeps_all=self.rng.random() < 0.5),)
        return table, joins if self.rng.random() < 0.2 else ()


def two_dealt(rng: random.Random, made: Card, people: int, most: int) -> Dealt:
    """Deal rows to so many people, here and there, and to the public table."""
    rows = {
        "t": some_rows(rng, people, most),
        "more": rows_there(rng, people, most),
        "places": some_places(rng),
    }
    return Dealt(made, rows, rng)


def one_dealt(rng: random.Random, made: Card, people: int, most: int) -> Dealt:
    """Deal rows of one table to so many people, and to the public one."""
    return Dealt(made, {"t": some_rows(rng, people, most), "places": some_places(rng)}, rng)


# --- as prepared tables, made by hand ------------------------------------------------------------


def prepared(
    database: duckdb.DuckDBPyConnection, made: Card, rows: Mapping[str, Rows]
) -> tuple[str, ...]:
    """Make the tables; who is in any of them has one number."""
    everybody = [row for several in rows.values() for row in several]
    return tuple(
        prepare(database, replace(made, columns=table.columns, tables=()), rows[table.name],
                everybody)
        for table in made.every_table
    )  # fmt: skip


@dataclass
class Read:
    """How many questions were answered, of how many of them some row counts, how many refused."""

    answered: int = 0
    met: int = 0
    refused: int = 0


def read_many(count: int, deal: Callable[[], Dealt], pose: Callable[[Dealt], Posed]) -> Read:
    """Ask until that many questions were answered; stop at one that is not as plainly read."""
    read = Read()
    while read.answered < count:
        dealt = deal()
        with duckdb.connect(config={"threads": 1}) as database:
            tables = prepared(database, dealt.made, dealt.rows)
            for _ in range(25):
                posed = pose(dealt)
                plan = planned(dealt.made, posed.question)
                said = as_posed(dealt.made, posed.question)
                if plan is None or said is None:
                    read.refused += 1
                    continue
                found = added_up(database, plan, tables)
                wrong = disagreement(
                    plan, found, posed.rows, posed.others, said=said, public=posed.public
                )
                assert not wrong, (wrong, query_json(posed.question), dealt.rows)
                read.answered += 1
                read.met += bool(found)
    return read
