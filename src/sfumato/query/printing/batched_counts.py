"""Batched counts: one scan of a table counts its rows for many conditions.

The scan does not filter rows first, which is slower in DuckDB. It serves many concurrent queries,
each with a count of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.query.measure import Measure
from sfumato.query.printing.expressions import Dialect, Text, filled, joined, print_predicate
from sfumato.query.printing.from_clause import last_table, rows_of, table_name


@dataclass(frozen=True)
class CountScan:
    """One query's part of a shared scan: a count of the rows that meet a condition.

    `rows` is the SQL text after FROM. `times` says how many equal columns the count fills: one for
    each tally (count) of the query.
    """

    rows: str
    condition: Text
    times: int


def is_batchable(measure: Measure) -> bool:
    """Check whether the measure only counts rows by a condition, without groups."""
    is_plain = not (measure.keys or measure.by_person or measure.joined_person_tables)
    if not is_plain or measure.source is not None or measure.where is None:
        return False
    return measure.selected_keys is None and all(tally.kind == "rows" for tally in measure.tallies)


def count_scan(
    measure: Measure, dialect: Dialect, names: tuple[str, ...] | None = None
) -> CountScan | None:
    """Return the measure as a count that can share a scan of its table; None if it can't."""
    if dialect != "duckdb" or measure.where is None or not is_batchable(measure):
        return None
    names = names or tuple(table_name(dialect, n) for n in range(last_table(measure) + 1))
    condition = print_predicate(measure.where, dialect)
    return CountScan(rows_of(measure, names).sql, condition, len(measure.tallies))


def counts_of_scan(looks: Sequence[CountScan]) -> Text:
    """Print one SQL statement with the counts of several queries over the same rows, in order."""
    conditions = [look.condition for look in looks for _ in range(look.times)]
    numbers = [
        filled(f"coalesce(CAST(count_if({{}}) AS BIGINT), 0) AS t{place}", condition)
        for place, condition in enumerate(conditions)
    ]
    text = joined(", ", numbers)
    return Text(f"SELECT CAST(0 AS BIGINT) AS cell, {text.sql}\nFROM {looks[0].rows}", text.bound)
