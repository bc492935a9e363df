"""Print the FROM of a measure: prepared tables joined into one, or one row for each person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sfumato.dp.refusal import Bug
from sfumato.query.expression import Expr, Predicate, columns_of
from sfumato.query.measure import (
    Join,
    Measure,
    PhysicalPersonColumn,
    PhysicalPersonJoin,
    PhysicalPersonTable,
)
from sfumato.query.printing.expressions import (
    COLUMN,
    Dialect,
    Text,
    filled,
    joined,
    print_expr,
    print_predicate,
)

_QUOTE: Final[dict[Dialect, str]] = {"duckdb": '"', "postgres": '"', "spark": "`"}


@dataclass(frozen=True)
class Rows:
    """The text after FROM, and the keyed-hash columns that decide which rows of a person count."""

    sql: str
    order: tuple[str, ...] = ("row_key",)


def table_name(dialect: Dialect, table: int) -> str:
    """Return the name of a prepared table; index 0 is the card's own table."""
    quote = _QUOTE[dialect]
    return f"{quote}{stored_name('rows', table)}{quote}"


def stored_name(name: str, table: int) -> str:
    """Return the stored name of a table's item: `name`, or `name_2` for the table with index 2.

    The table with index 0 is the card's own, and its items have no suffix.
    """
    return name if table == 0 else f"{name}_{table}"


def last_table(measure: Measure) -> int:
    """Return the largest index, on the data card, of the tables that the measure reads."""
    every = (
        (measure.table, measure.joins),
        *((one.table, one.joins) for one in measure.joined_person_tables),
    )
    looked_up = (join.table for join in measure.lookups)
    places = (place for table, joins in every for place in (table, *(j.table for j in joins)))
    return max((*places, *looked_up))


def rows_of(measure: Measure, names: tuple[str, ...]) -> Rows:
    """Print the rows that a measure reads: one prepared table, or a SELECT that joins several.

    `names` are the stored names of all tables of the card.
    """
    first = names[measure.table]
    if not measure.joins:
        return Rows(first)
    order = ["row_key"]
    columns = [f"r0.{name}" for name in _identity(measure)]
    joins = ""
    for i, join in enumerate(measure.joins, start=1):
        on = f"r{i}.person = r0.person"
        if join.looked_up is not None:
            on = f"r{i}.v{join.key} = {_place(measure, join.looked_up, 'v')}"
        else:
            order.append(f"row_key{i}")
            columns.append(f"r{i}.row_key AS row_key{i}")
        for before, own in join.also:
            on += f" AND r{i}.v{own} = {_place(measure, before, 'v')}"
        joins += f" {_word(join)} {names[join.table]} AS r{i} ON {on}"
    for name in _columns(measure):
        columns.append(f"{_place(measure, int(name[1:]), name[0])} AS {name}")
    return Rows(f"(SELECT {', '.join(columns)} FROM {first} AS r0{joins}) AS seen", tuple(order))


def _identity(measure: Measure) -> tuple[str, ...]:
    return ("person", "person_key", "row_key") if measure.by_person else ("row_key",)


def _columns(measure: Measure) -> Iterator[str]:
    """Yield the names of the rows' physical columns that the measure uses, in order."""
    source = measure.source
    values = _outer(measure)
    if source is not None:
        values = [source.where, *(column.value for column in source.columns)]
    for name in _named(values):
        if name[0] == "u":
            raise Bug("a measure names a column that is not physical")
        yield name


def _outer(measure: Measure) -> list[Expr | Predicate | None]:
    """Return the expressions and conditions of the measure outside its per-person tables."""
    keys = (key.value for key in measure.keys)
    return [measure.where, *keys, *(tally.value for tally in measure.tallies)]


def _named(values: Sequence[Expr | Predicate | None]) -> Iterator[str]:
    found = {name for value in values if value is not None for name in columns_of(value)}
    for name in sorted(found):
        if not COLUMN.fullmatch(name):
            raise Bug("a measure names a column that is not physical")
        yield name


def _place(measure: Measure, column: int, kind: str) -> str:
    """Print the table and column of a physical column: `r0.v7` for the measure's column `v7`.

    `kind` is the letter before the number.
    """
    return _joined_place(measure.joins, column, kind) or f"r0.{kind}{column}"


def _joined_place(joins: Sequence[Join], column: int, kind: str) -> str:
    """Print the joined table and column behind a physical column number.

    The text is empty if the column belongs to an earlier table.
    """
    for i, join in reversed(list(enumerate(joins, start=1))):
        if column >= join.start:
            return _within(join, i, column, kind)
    return ""


def _within(join: Join, i: int, column: int, kind: str) -> str:
    if column >= join.start + join.width:
        raise Bug("a measure names a column beyond its tables")
    return f"r{i}.{kind}{column - join.start}"


# --- one row for each person ----------------------------------------------------------------------


def people_of(measure: Measure, names: tuple[str, ...], dialect: Dialect) -> Text:
    """Print the common table `people`: one row per person, from one or more per-person tables."""
    if measure.source is None:
        raise Bug("a measure of rows has no table of people")
    rows = rows_of(measure, names)
    if not measure.joined_person_tables and not measure.lookups:
        return _people(measure.source, rows, dialect, _Called())
    texts = [_people(measure.source, rows, dialect, _Called("0"))]
    start = len(measure.source.columns)
    columns = [f"p0.u{place}" for place in range(start)]
    tables = "people0 AS p0"
    for i, one in enumerate(measure.joined_person_tables, start=1):
        its = replace(measure, source=one.source, table=one.table, joins=one.joins)
        texts.append(_people(one.source, rows_of(its, names), dialect, _Called(str(i), start)))
        columns += [f"p{i}.u{start + n}" for n in range(len(one.source.columns))]
        tables += f" {_word(one)} people{i} AS p{i} ON p{i}.person = p0.person"
        start += len(one.source.columns)
    tables += "".join(_looked_up(measure, columns, names))
    columns += _looked_up_columns(measure)
    both = f"people AS (\n  SELECT {', '.join(columns)}\n  FROM {tables}\n),\n"
    return filled("{}" * len(texts) + both, *texts)


def _looked_up(measure: Measure, columns: Sequence[str], names: tuple[str, ...]) -> Iterator[str]:
    """Print the joins of public tables to per-person tables that have these columns.

    A public key is unique, so that the one row of each person stays one row (soundness rule 12).
    """
    for i, join in enumerate(measure.lookups, start=1):
        if join.looked_up is None or join.also:
            raise Bug("a table beside people is looked up by one column")
        of = _joined_place(measure.lookups[: i - 1], join.looked_up, "v") or columns[join.looked_up]
        yield f" {_word(join)} {names[join.table]} AS r{i} ON r{i}.v{join.key} = {of}"


def _looked_up_columns(measure: Measure) -> Iterator[str]:
    """Print the columns of the public tables that the measure uses."""
    for name in _named(_outer(measure)):
        if name[0] != "u":
            place = _joined_place(measure.lookups, int(name[1:]), name[0])
            if not place:
                raise Bug("a measure of people names a column of rows")
            yield f"{place} AS {name}"


def _word(one: Join | PhysicalPersonJoin) -> str:
    return "LEFT JOIN" if one.keeps_all else "JOIN"


@dataclass(frozen=True)
class _Called:
    """How SQL names a per-person table: its suffix, as in `people1`, and its first column's number.

    The number 2 means that the columns are u2, u3, and so on.
    """

    suffix: str = ""
    start: int = 0


def _people(source: PhysicalPersonTable, rows: Rows, dialect: Dialect, called: _Called) -> Text:
    values = tuple(dict.fromkeys(c.value for c in source.columns if c.value is not None))
    columns = [Text(name) for name in ("person", *rows.order)]
    columns += [
        filled(f"{{}} AS x{i}", print_expr(value, dialect)) for i, value in enumerate(values)
    ]
    conditions = [Text("person IS NOT NULL")]
    if source.where is not None:
        conditions.append(print_predicate(source.where, dialect))
    order = ", ".join((*rows.order, *(f"x{i}" for i in range(len(values)))))
    made = "".join(
        f", {_reduced(column, values)} AS u{i}"
        for i, column in enumerate(source.columns, start=called.start)
    )
    mine = f"mine{called.suffix}"
    return filled(
        f"{mine} AS (\n  SELECT *, row_number() OVER (PARTITION BY person ORDER BY {order})"
        f" AS nth\n  FROM (SELECT {{}} FROM {rows.sql} WHERE {{}}) AS r\n),\n"
        f"people{called.suffix} AS (\n  SELECT person{made}\n  FROM {mine}\n"
        f"  WHERE nth <= {source.max_rows}\n  GROUP BY person\n),\n",
        joined(", ", columns),
        joined(" AND ", conditions),
    )


def _reduced(column: PhysicalPersonColumn, values: Sequence[Expr]) -> str:
    """Print the SQL aggregate of a per-person column over its operand.

    The operand is one of a person's values x0, x1, ... in the inner SELECT. A count of rows has no
    operand.
    """
    if column.value is None:
        return "count(*)"
    name = f"x{values.index(column.value)}"
    match column.kind:
        case "values":
            return f"count({name})"
        case "sum":
            return f"CAST(sum({name}) AS BIGINT)"
        case "min" | "max":
            return f"{column.kind}({name})"
        case "rows":
            raise Bug("a count of rows has no value")
