"""The rank path on DuckDB: enforce contribution bounds by two stored ranks per row.

Proof: engines/kernel/ranks.proof.md.

For a column, say column 3, `gr3` is the rank of a row's group among the person's groups. `rr3` is
the rank of the row in that group, and `rr` its rank among all rows of the person. The ranks serve
only a grouping by exactly that column, or no grouping, without a filter (soundness rule 10).

A query within the card's own bounds uses precomputed sums if they exist, which is faster
(stored_parts.py). A query that neither ranks nor sums can answer uses the cold path (cold_path.py)
or plain SQL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sfumato.dp.refusal import Bug
from sfumato.engines.shared.prepared_table import PreparedTable
from sfumato.engines.shared.stored_parts import lower_parts
from sfumato.query.expression import Expr, Ref
from sfumato.query.measure import Key, Measure, Tally
from sfumato.query.printing.expressions import Text, filled, joined, print_expr
from sfumato.query.printing.from_clause import table_name
from sfumato.query.printing.statements import ADDED, Statement, linear


@dataclass(frozen=True)
class Group:
    """The columns by which the rank path groups: a column's codes and stored ranks.

    Without a code, all rows are in one group.
    """

    code: str | None
    group_rank: str | None
    row_rank: str
    texts: str | None  # the dictionary table of private texts
    place: int | None = None  # index of the grouping column


def lower_stored(measure: Measure, known: PreparedTable) -> tuple[Statement, ...] | None:
    """Return SQL statements over precomputed sums and ranks that answer a measure, or None.

    Counts and sums use precomputed sums if these can answer them, else stored ranks. Each histogram
    has its own statement over ranks. If one tally cannot be answered, the result is None.
    """
    if measure.selected_keys is not None:
        return None
    added = tuple(i for i, t in enumerate(measure.tallies) if t.kind in ADDED)
    others = tuple(i for i in range(len(measure.tallies)) if i not in added)
    statements = [lower_histogram(measure, known, i) for i in others]
    if added:
        some = replace(measure, tallies=tuple(measure.tallies[i] for i in added))
        found = _parts(some, known) or lower_ranked(some, known)
        statements.insert(0, None if found is None else replace(found, tallies=added))
    printed = tuple(statement for statement in statements if statement is not None)
    return printed if len(printed) == len(statements) else None


def _parts(measure: Measure, known: PreparedTable) -> Statement | None:
    group = _served(measure, known)
    if known.parts is None or group is None or group.texts is not None:
        return None
    return lower_parts(measure, known.parts, group.place)


def lower_ranked(measure: Measure, known: PreparedTable) -> Statement | None:
    """Return the SQL that counts and sums by stored ranks, or None if ranks can't answer."""
    if any(t.kind not in ADDED or t.clamp is not None for t in measure.tallies):
        return None
    group = _served(measure, known)
    return None if group is None else _statement(measure, group)


def lower_histogram(measure: Measure, known: PreparedTable, place: int) -> Statement | None:
    """Return the SQL of one histogram by stored ranks, or None if ranks can't answer."""
    tally, group = measure.tallies[place], _served(measure, known)
    if tally.kind != "histogram" or group is None or group.texts is not None:
        return None
    both = f"CAST({group.code or 0} AS BIGINT) * {tally.size} + code"  # one grouping key is faster
    body = filled(
        f"SELECT slot // {tally.size} AS cell, slot % {tally.size} AS code, count(*) AS t0 FROM ("
        f"SELECT {both} AS slot FROM ("
        f"SELECT {group.code or '0 AS nothing'}, CAST({{}} AS BIGINT) AS code"
        f" FROM {table_name('duckdb', measure.table)} WHERE {_bounds(measure, group)}) AS r"
        f" WHERE code BETWEEN 0 AND {tally.size - 1}) AS c GROUP BY slot",
        _value(tally.value),
    )
    return Statement(body.sql, body.bound, (place,))


def _served(measure: Measure, known: PreparedTable) -> Group | None:
    """Return the stored ranks that can answer a measure; None if no ranks can.

    No ranks answer a measure with a filter, a join or a per-person table.
    """
    if not measure.by_person or measure.source is not None or measure.where is not None:
        return None
    return None if measure.joins else stored_group(measure, known)


def stored_group(measure: Measure, known: PreparedTable) -> Group | None:
    """Return the stored ranks that fit the measure's GROUP BY: of one column, or of no grouping.

    Return None if no stored ranks fit.
    """
    if not measure.keys:
        return Group(None, None, "rr", None)
    if len(measure.keys) > 1:
        return None
    place = stored_place(measure.keys[0], known)
    if place is None:
        return None
    texts = known.texts(place) if measure.keys[0].size is None else None
    code = f"k{place}" if texts is None else f"c{place}"
    return Group(code, f"gr{place}", f"rr{place}", texts, place)


def stored_place(key: Key, known: PreparedTable) -> int | None:
    """Return the index of the column that a GROUP BY key is, if that column has stored ranks.

    The key must be the column's declared codes or its private texts. Otherwise return None.
    """
    if not isinstance(key.value, Ref):
        return None
    place = int(key.value.column[1:])
    is_there = key.value.column[0] == ("v" if key.size is None else "k")
    if not is_there or place >= len(known.types) or not known.is_ranked(place):
        return None
    return place if known.keyed[place] is (key.size is not None) else None


def _statement(measure: Measure, group: Group) -> Statement:
    code = group.code or "0"
    tallies = [
        filled(f"CAST({{}} AS BIGINT) AS t{i}", _tally(tally, group))
        for i, tally in enumerate(measure.tallies)
    ]
    name = "cell" if group.texts is None else "code"
    grouping = "" if group.code is None else f" GROUP BY {code}"
    body = filled(
        f"SELECT CAST({code} AS BIGINT) AS {name}, {{}} FROM {table_name('duckdb', measure.table)}"
        f" WHERE {_bounds(measure, group)}{grouping}",
        joined(", ", tallies),
    )
    if group.texts is not None:
        columns = "".join(f", a.t{i}" for i in range(len(tallies)))
        body = filled(
            f"SELECT t.value AS g0{columns} FROM ({{}}) AS a"
            f" JOIN {group.texts} AS t ON t.code = a.code",
            body,
        )
    return Statement(body.sql, body.bound, tuple(range(len(measure.tallies))))


def _bounds(measure: Measure, group: Group) -> str:
    bounds = [f"{group.row_rank} <= {measure.max_rows}"]  # null, so not true, without a key
    if group.code is not None and (not measure.is_public or measure.max_groups < measure.cells):
        bounds.append(f"{group.group_rank} <= {measure.max_groups}")
    return " AND ".join(bounds)


def _tally(tally: Tally, group: Group) -> Text:
    match tally.kind:
        case "rows":
            return Text("count(*)")
        case "people":  # each person has exactly one row of rank 1 in a group
            return Text(f"count(*) FILTER ({group.row_rank} = 1)")
        case "values":
            return filled("count({})", _value(tally.value))
        case "sum":
            value = _value(tally.value)
            text = linear(tally, "coalesce(sum({}), 0)", "count({})", "duckdb")
            return filled(text, *[value] * text.count("{}"))
        case _:
            raise Bug("ranks cannot add this up")


def _value(value: Expr | None) -> Text:
    if value is None:
        raise Bug("a tally lacks its value")
    return print_expr(value, "duckdb")
