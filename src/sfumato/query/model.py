"""Query model: frozen dataclasses for queries, aggregates and joins, and their JSON form.

SQL text, the Python builder and JSON are all parsed into these values. The SQL text is discarded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Final, Literal

from sfumato.dp.json_values import Json
from sfumato.query.expression import (
    Constant,
    Expr,
    Predicate,
    canonical_json,
)
from sfumato.query.expression_json import (
    constant_json,
    expression_json,
    predicate_json,
)
from sfumato.query.source_positions import Places

Verb = str  # the stored name of an aggregate: a key of aggregates/registry.py
Reduction = Literal["count", "count_values", "sum", "mean", "minimum", "maximum"]
REDUCTIONS: Final[tuple[Reduction, ...]] = (
    "count", "count_values", "sum", "mean", "minimum", "maximum",
)  # fmt: skip


@dataclass(frozen=True)
class Aggregate:
    """An aggregate function (`verb`) over expressions; a count of rows or of people has none.

    `at` is the p of a quantile. `most` depends on the verb: how many distinct values count per
    person, the length of a top list, or the count that `first_above` looks for. `person_sum_bounds`
    clamps each person's sum per group. A running count runs along the period in `operands`. Without
    operands, it runs along the last period of GROUP BY.
    """

    verb: Verb
    operands: tuple[Expr, ...] = ()
    at: Fraction | None = None
    most: int | None = None
    person_sum_bounds: tuple[Constant, Constant] | None = None


@dataclass(frozen=True)
class Formula:
    """Arithmetic on released numbers (post-processing), which refers to outputs by name."""

    expr: Expr


@dataclass(frozen=True)
class Output:
    """One named column of the answer: a GROUP BY key, an aggregate, or a formula of aggregates."""

    name: str
    of: Aggregate | Expr | Formula
    is_shown: bool = True


@dataclass(frozen=True)
class Order:
    """One item of ORDER BY: sort the released rows by an output."""

    by: str
    is_falling: bool = False


@dataclass(frozen=True)
class PersonColumn:
    """A column of a per-person table: one named aggregate of that person's rows."""

    name: str
    verb: Reduction
    of: Expr | None = None


@dataclass(frozen=True)
class PersonTable:
    """A per-person table: one row for each person who has a row for which `where` is true."""

    columns: tuple[PersonColumn, ...]
    where: Predicate | None = None
    by: str = ""  # the column that identifies the person (the card's privacy unit)


@dataclass(frozen=True)
class Joined:
    """A join of one more table: by the person, or of a public table by its key.

    As parsed, `on` holds the columns that the join compares, as the query names them. In
    `Query.lookups`, the second one is the joined table's own. `also` holds further pairs of equal
    columns. In a join by the person, the pair of person columns is in `on` or in `also`.

    `joined_view` rewrites `on` and `also`. After that, `on` is empty for a join by the person. For
    a public table, it holds only the earlier column whose values are looked up. In each pair of
    `also`, the second column is the joined table's own.
    """

    table: str
    on: tuple[str, ...] = ()
    keeps_all: bool = False  # LEFT JOIN: keep rows without a partner
    also: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class JoinedPersonTable:
    """A further per-person table, joined to the first one by the person.

    It is made from its own table and from the tables joined to that table. With `keeps_all` (LEFT
    JOIN), people without a row in it stay, and its columns are NULL for them.
    """

    each: PersonTable
    table: str = ""
    joins: tuple[Joined, ...] = ()
    keeps_all: bool = False


@dataclass(frozen=True)
class Query:
    """A query on one data set, with the clauses of a SELECT and its contribution bounds."""

    data_set: str
    outputs: tuple[Output, ...]
    where: Predicate | None = None
    group_by: tuple[Expr, ...] = ()
    max_groups: int | None = None
    max_rows: int | None = None
    source: PersonTable | None = None
    having: Predicate | None = None  # condition over released outputs, by name
    order: tuple[Order, ...] = ()
    limit: int | None = None
    table: str = ""  # a table of the data set; empty means the table with the data set's name
    joins: tuple[Joined, ...] = ()
    joined_person_tables: tuple[
        JoinedPersonTable, ...
    ] = ()  # further per-person tables; only with `source`
    lookups: tuple[Joined, ...] = ()  # public tables joined to the per-person tables
    grouped_aliases: frozenset[str] = frozenset()  # aliases of computed columns that GROUP BY uses
    unqualified_columns: frozenset[str] = (
        frozenset()
    )  # per-person columns that the text leaves unqualified
    # positions of the parts in the SQL text
    places: Places | None = field(default=None, compare=False, repr=False)

    @cached_property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """Return the distinct aggregates of the query in canonical order, whatever their names."""
        found = {o.of for o in self.outputs if isinstance(o.of, Aggregate)}
        return tuple(found) if len(found) == 1 else tuple(sorted(found, key=aggregate_text))


def aggregate_text(aggregate: Aggregate) -> str:
    """Return the canonical text of an aggregate, which is its key in stored answers."""
    return canonical_json(aggregate_json(aggregate))


# --- as JSON; query_from_json.py reads it back ------------------------------------------------


def aggregate_json(aggregate: Aggregate) -> Json:
    """Return the aggregate as plain JSON, without fields that are None."""
    made: Json = {"verb": aggregate.verb, "of": [expression_json(e) for e in aggregate.operands]}
    if aggregate.at is not None:
        made["at"] = str(aggregate.at)
    if aggregate.most is not None:
        made["most"] = aggregate.most
    if aggregate.person_sum_bounds is not None:
        made["within"] = [constant_json(c) for c in aggregate.person_sum_bounds]
    return made


def query_json(question: Query) -> Json:
    """Return the query as plain JSON."""
    made: Json = {
        "data_set": question.data_set,
        "outputs": [_output_json(output) for output in question.outputs],
        "where": _optional(question.where),
        "group_by": [expression_json(key) for key in question.group_by],
        "max_groups": question.max_groups,
        "max_rows": question.max_rows,
        "source": None if question.source is None else source_json(question.source),
        "having": _optional(question.having),
        "order": [[order.by, order.is_falling] for order in question.order],
        "limit": question.limit,
        "table": question.table,
        "joins": joins_json(question.joins),
    }
    if (
        question.joined_person_tables
    ):  # omitted if empty, so that digests of older queries stay the same
        made["beside"] = [joined_person_table_json(one) for one in question.joined_person_tables]
    if question.lookups:
        made["lookups"] = joins_json(question.lookups)
    return made


def joined_person_table_json(one: JoinedPersonTable) -> Json:
    """Return a further per-person table of the query as plain JSON."""
    return {
        "source": source_json(one.each),
        "table": one.table,
        "joins": joins_json(one.joins),
        "keeps_all": one.keeps_all,
    }


def joins_json(joins: tuple[Joined, ...]) -> list[Json]:
    """Return the joined tables as plain JSON."""
    return [_join_json(joined) for joined in joins]


def _join_json(joined: Joined) -> Json:
    made: Json = {"table": joined.table, "on": list(joined.on), "keeps_all": joined.keeps_all}
    if joined.also:  # omitted if empty, so that digests of older queries stay the same
        made["also"] = [list(pair) for pair in joined.also]
    return made


def source_json(source: PersonTable) -> Json:
    """Return a per-person table (`source`) as plain JSON."""
    columns = [
        {
            "name": column.name,
            "verb": column.verb,
            "of": None if column.of is None else expression_json(column.of),
        }
        for column in source.columns
    ]
    return {"columns": columns, "where": _optional(source.where), "by": source.by}


def _optional(predicate: Predicate | None) -> Json | None:
    return None if predicate is None else predicate_json(predicate)


def _output_json(output: Output) -> Json:
    made: Json = {"name": output.name, "shown": output.is_shown}
    if isinstance(output.of, Aggregate):
        return {**made, **aggregate_json(output.of)}
    if isinstance(output.of, Formula):
        return {**made, "formula": expression_json(output.of.expr)}
    return {**made, "key": expression_json(output.of)}
