"""Schema twins: synthetic data from the card alone, at epsilon 0; no rows are read.

A person has the same name in every table of people. A column named like the key of a public table
takes its values from that table's keys. Distributions and correlations are not on the card, so
values are uniform and independent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.features.synthetic.column_values import Value, different_values, values_of
from sfumato.features.synthetic.seeded_numbers import Seeded
from sfumato.query.expression import Constant
from sfumato.vault.card.bids import PARTICIPANTS, phenotype_path
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card, Table

PUBLIC_ROWS: Final = 50  # number of rows of a public table whose key has no declared values
# the share of missing values in a column whose card does not declare one
MISSING: Final = Fraction(1, 20)
Line = dict[str, Value]


@dataclass(frozen=True)
class TwinTable:
    """One table of a synthetic twin, with the person column first."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class ExtraRows:
    """Rows that a synthetic twin must also contain so that a query finds some.

    They are of extra people, and of public tables.
    """

    people: Sequence[Mapping[str, Sequence[Line]]] = ()
    public: Mapping[str, Mapping[Value, Line]] | None = None


def schema_tables(
    card: Card, rows: int, seed: str, beside: ExtraRows | None = None
) -> list[TwinTable]:
    """Create every table of the card; the first has about `rows` rows, and the extra rows.

    `beside` has the extra rows, which the twin must also contain.
    """
    beside, card = beside or ExtraRows(), _card_for_twin(card)
    public = public_tables(card, seed, beside)
    pools = pools_of(card, public)
    counts = _people(card, rows, Seeded(seed, "people"))
    return [
        public[table.name]
        if table.is_public
        else _private(card, table, counts, pools, (seed, beside))
        for table in card.every_table
    ]


def columns_without_missing_share(
    card: Card, names: Collection[str] | None = None
) -> tuple[str, ...]:
    """Return the columns of people whose card does not declare a share of missing values.

    Args:
        card: The data card.
        names: The columns that count, as `column` or `table.column`; by default all.
    """
    own, *others = card.every_table
    found = [(column.name, column) for column in own.columns]
    found += [(f"{t.name}.{c.name}", c) for t in others if not t.is_public for c in t.columns]
    return tuple(n for n, c in found if c.missing is None and (names is None or n in names))


def default_missing_share(card: Card) -> Fraction:
    """Return the share of missing values in a twin's columns whose card does not declare one.

    It is public: 5 % if the card is of a BIDS folder, where `n/a` is a value of every column, or if
    the card or one of its columns names a marker of missing values; else 0.
    """
    columns = (column for table in card.every_table for column in table.columns)
    has_markers = any(card.nulls) or any(any(column.nulls) for column in columns)
    return MISSING if card.bids is not None or has_markers else Fraction(0)


def _card_for_twin(card: Card) -> Card:
    """Return the card with what a twin's values follow from, in its tables of people.

    Columns get a share of missing values, and texts without keys get the levels of a BIDS sidecar.
    """
    share, places = default_missing_share(card), enumerate(card.every_table)
    own, *others = (t if t.is_public else _table_for_twin(card, t, p, share) for p, t in places)
    return replace(card, columns=own.columns, tables=tuple(others))


def _table_for_twin(card: Card, table: Table, place: int, share: Fraction) -> Table:
    path = f"{phenotype_path(table.name)}.json" if place else PARTICIPANTS
    said = card.metadata.sidecar(path)
    columns = (
        replace(c, missing=share if c.missing is None else c.missing, keys=_keys_of(c, said))
        for c in table.columns
    )
    return replace(table, columns=tuple(columns))


def _keys_of(column: Column, said: Json) -> tuple[Constant, ...] | None:
    meaning = said.get(column.name)
    levels = meaning.get("Levels") if isinstance(meaning, dict) else None
    if column.keys is not None or column.type != "text" or not isinstance(levels, dict):
        return column.keys
    return tuple(Constant("text", level) for level in levels) or None


def public_tables(card: Card, seed: str, beside: ExtraRows | None = None) -> dict[str, TwinTable]:
    """Create the public tables of the card; their rows are synthetic too."""
    planted = (beside.public if beside is not None else None) or {}
    return {
        table.name: _public(table, Seeded(seed, table.name), planted.get(table.name))
        for table in card.every_table
        if table.is_public
    }


def pools_of(card: Card, public: Mapping[str, TwinTable]) -> dict[str, list[Value]]:
    """Return the keys of each synthetic public table, by the lower-case name of its key column."""
    return {t.key.casefold(): _keys(t, public[t.name]) for t in card.every_table if t.key}


def most_rows(table: Table) -> int:
    """Return the greatest number of rows that a person gets in the twin's table, by the card."""
    return max(1, min(table.max_rows, table.limits.rows_per_person))


def person_name(card: Card, place: int) -> str:
    """Return a synthetic person's name, which says that the person is synthetic."""
    return f"sub-twin{place:05d}" if card.bids is not None else f"twin-{place:05d}"


def _people(card: Card, rows: int, stream: Seeded) -> int:
    """Return the number of synthetic people for which the first table gets about `rows` rows."""
    most = most_rows(card.every_table[0])
    return max(1, 2 * rows // (1 + most))


def _private(
    card: Card,
    table: Table,
    people: int,
    pools: Mapping[str, Sequence[Value]],
    made_with: tuple[str, ExtraRows],
) -> TwinTable:
    seed, beside = made_with
    stream = Seeded(seed, table.name)
    names = _owners(card, table, people, stream)
    drawn = [filled(c, len(names), stream, (table, pools)) for c in table.columns]
    lines = list(zip(*drawn, strict=True)) if drawn else [()] * len(names)
    rows = [(name, *line) if table.unit else line for name, line in zip(names, lines, strict=True)]
    rows += _planted(card, table, people, beside)
    unit = () if table.unit is None else (table.unit,)
    return TwinTable(table.name, (*unit, *_names(table)), tuple(rows))


def _owners(card: Card, table: Table, people: int, stream: Seeded) -> list[str]:
    """Return the name of the synthetic person to whom each row of a table belongs.

    Without a person column, each row belongs to a person of its own.
    """
    if table.unit is None or most_rows(table) == 1:
        return [person_name(card, place) for place in range(1, people + 1)]
    each = 1 + stream.integers(most_rows(table), people)
    return [
        person_name(card, place)
        for place, count in enumerate(each.tolist(), 1)
        for _ in range(count)
    ]


def _planted(card: Card, table: Table, people: int, beside: ExtraRows) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    for place, person in enumerate(beside.people, people + 1):
        name = person_name(card, place)
        for line in person.get(table.name, ()):
            own = tuple(line[column] for column in _names(table))
            rows.append((name, *own) if table.unit else own)
    return rows


def filled(
    column: Column,
    count: int,
    stream: Seeded,
    where: tuple[Table, Mapping[str, Sequence[Value]]],
) -> list[Value]:
    """Draw the values of a column of a synthetic table.

    A column with the name of a public table's key takes the keys of that table.
    """
    table, pools = where
    values = values_of(column, count, stream, table.limits.text_length)
    allowed = None if column.keys is None else set(values_of_keys(column))
    pool = [v for v in pools.get(column.name.casefold(), ()) if allowed is None or v in allowed]
    if not pool:
        return values
    places = stream.integers(len(pool), count).tolist()
    pairs = zip(values, places, strict=True)
    return [None if value is None else pool[place] for value, place in pairs]


def values_of_keys(column: Column) -> list[Value]:
    """Return the keys that the card declares for a column, as values of a row."""
    return different_values(column, len(column.keys or ()))


def _public(table: Table, stream: Seeded, planted: Mapping[Value, Line] | None) -> TwinTable:
    key = next(c for c in table.columns if c.name == table.key)
    keys = list(dict.fromkeys([*(planted or {}), *different_values(key, PUBLIC_ROWS)]))
    drawn = {
        c.name: keys if c is key else values_of(c, len(keys), stream, table.limits.text_length)
        for c in table.columns
    }
    rows = []
    for place, value in enumerate(keys):
        made = {name: values[place] for name, values in drawn.items()}
        line = (planted or {}).get(value, made)
        rows.append(tuple(line[name] for name in _names(table)))
    return TwinTable(table.name, _names(table), tuple(rows))


def _keys(table: Table, made: TwinTable) -> list[Value]:
    place = made.columns.index(str(table.key))
    return [row[place] for row in made.rows if row[place] is not None]


def _names(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns)
