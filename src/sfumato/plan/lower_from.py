"""Where a measure's rows come from: one prepared table, or several joined into one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sfumato.core.expression import Expr, columns_of
from sfumato.core.measure import Join, Measure, Reduced
from sfumato.core.refusal import Bug
from sfumato.plan.print_values import COLUMN, Dialect

_QUOTE: Final[dict[Dialect, str]] = {"duckdb": '"', "postgres": '"', "spark": "`"}


@dataclass(frozen=True)
class Rows:
    """What stands after FROM, and the columns that order the rows of a person by keyed hashes."""

    sql: str
    order: tuple[str, ...] = ("row_key",)


def table_name(dialect: Dialect, table: int) -> str:
    """Return the name of a prepared table; the first is the card's own."""
    quote = _QUOTE[dialect]
    return f"{quote}{stored_name('rows', table)}{quote}"


def stored_name(name: str, table: int) -> str:
    """Return the name that something of a table is stored under."""
    return name if table == 0 else f"{name}_{table}"


def rows_of(measure: Measure, names: tuple[str, ...]) -> Rows:
    """Return the rows that the measure is of; `names` are those of all tables of the card."""
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
        word = "LEFT JOIN" if join.keeps_all else "JOIN"
        joins += f" {word} {names[join.table]} AS r{i} ON {on}"
    for name in _columns(measure):
        columns.append(f"{_place(measure, int(name[1:]), name[0])} AS {name}")
    return Rows(f"(SELECT {', '.join(columns)} FROM {first} AS r0{joins}) AS seen", tuple(order))


def _identity(measure: Measure) -> tuple[str, ...]:
    return ("person", "person_key", "row_key") if measure.by_person else ("row_key",)


def _columns(measure: Measure) -> Iterator[str]:
    """Yield the physical columns that the measure names, in order."""
    source = measure.source
    values = [measure.where, *(key.value for key in measure.keys)]
    values += [tally.value for tally in measure.tallies]
    if source is not None:
        values = [source.where, *(column.value for column in source.columns)]
    found = {name for value in values if value is not None for name in columns_of(value)}
    for name in sorted(found):
        if not COLUMN.fullmatch(name) or name[0] == "u":
            raise Bug("a measure names a column that is not physical")
        yield name


def _place(measure: Measure, column: int, kind: str) -> str:
    """Print which table's column the measure's `v7` is."""
    for i, join in reversed(list(enumerate(measure.joins, start=1))):
        if column >= join.start:
            return _within(join, i, column, kind)
    return f"r0.{kind}{column}"


def _within(join: Join, i: int, column: int, kind: str) -> str:
    if column >= join.start + join.width:
        raise Bug("a measure names a column beyond its tables")
    return f"r{i}.{kind}{column - join.start}"


def reduced(column: Reduced, values: Sequence[Expr]) -> str:
    """Print a column of a per-person table over the values x0, x1, ... of their rows."""
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
