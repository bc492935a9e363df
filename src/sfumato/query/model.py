"""Query model: frozen dataclasses for queries, aggregates and joins, and their JSON form.

SQL text, the Python builder and JSON are all parsed into these values. The SQL text is discarded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Final, Literal

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.query.expression import (
    Constant,
    Expr,
    Predicate,
    Ref,
    canonical_json,
    malformed,
    plain_text,
)
from sfumato.query.expression_json import (
    constant_json,
    expression_json,
    predicate_json,
    read_constant_json,
    read_expression,
    read_items,
    read_object,
    read_predicate,
)
from sfumato.query.source_positions import Places

Verb = Literal[
    "count", "count_values", "count_people", "count_distinct", "sum", "mean",
    "variance", "deviation", "covariance", "correlation", "slope", "intercept",
    "population_variance", "population_deviation", "population_covariance",
    "quantile", "minimum", "maximum", "top", "running_count", "bounds", "first_above",
]  # fmt: skip
VERBS: Final[tuple[Verb, ...]] = (
    "count", "count_values", "count_people", "count_distinct", "sum", "mean",
    "variance", "deviation", "covariance", "correlation", "slope", "intercept",
    "population_variance", "population_deviation", "population_covariance",
    "quantile", "minimum", "maximum", "top", "running_count", "bounds", "first_above",
)  # fmt: skip
Reduction = Literal["count", "count_values", "sum", "mean", "minimum", "maximum"]
REDUCTIONS: Final[tuple[Reduction, ...]] = (
    "count", "count_values", "sum", "mean", "minimum", "maximum",
)  # fmt: skip


@dataclass(frozen=True)
class Aggregate:
    """An aggregate function (`verb`) over expressions; a count of rows or of people has none.

    `at` is the p of a quantile. `most` depends on the verb: how many distinct values count per
    person, the length of a top list, or the count that `first_above` looks for. `person_sum_bounds`
    clamps each person's sum per cell. A running count runs along the period in `operands`. Without
    operands, it runs along the last period of GROUP BY.
    """

    verb: Verb
    operands: tuple[Expr, ...] = ()
    at: Fraction | None = None
    most: int | None = None
    person_sum_bounds: tuple[Constant, Constant] | None = None


@dataclass(frozen=True)
class Formula:
    """Arithmetic on released numbers (post-processing); it refers to outputs by name."""

    expr: Expr


@dataclass(frozen=True)
class Output:
    """One named column of the answer: a key, an aggregate, or a formula of aggregates."""

    name: str
    of: Aggregate | Expr | Formula
    is_shown: bool = True


@dataclass(frozen=True)
class Order:
    """Sort the released rows by an output."""

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
    """A per-person table: one row for each person who has a row that meets `where`."""

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
        """Return the distinct aggregates in canonical order, whatever their output names."""
        found = {o.of for o in self.outputs if isinstance(o.of, Aggregate)}
        return tuple(found) if len(found) == 1 else tuple(sorted(found, key=aggregate_text))


def aggregate_text(aggregate: Aggregate) -> str:
    """Return the canonical text of an aggregate, which is its key in stored answers."""
    return canonical_json(aggregate_json(aggregate))


# --- as JSON, and back ------------------------------------------------------------------------


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
    """Return the further per-person table as plain JSON."""
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
    """Return the per-person table as plain JSON."""
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


def read_query(shape: object) -> Query:
    """Parse a query from JSON; refuse it if anything is unknown or malformed."""
    body = read_object(
        shape,
        {"data_set", "outputs", "where", "group_by", "max_groups", "max_rows", "source", "having",
         "order", "limit", "table", "joins", "beside", "lookups"},
    )  # fmt: skip
    source = body.get("source")
    return Query(
        data_set=plain_text(body.get("data_set")),
        outputs=tuple(_read_output(o) for o in read_items(body.get("outputs"))),
        where=_read_optional(body.get("where")),
        group_by=tuple(_read_key(key) for key in read_items(body.get("group_by", []))),
        max_groups=_read_bound(body.get("max_groups")),
        max_rows=_read_bound(body.get("max_rows")),
        source=None if source is None else _read_source(source),
        having=_read_optional(body.get("having")),
        order=tuple(_read_order(order) for order in read_items(body.get("order", []))),
        limit=_read_bound(body.get("limit")),
        table=plain_text(body.get("table", "")),
        joins=tuple(_read_join(join) for join in read_items(body.get("joins", []))),
        joined_person_tables=tuple(
            _read_joined_person_table(one) for one in read_items(body.get("beside", []))
        ),
        lookups=tuple(_read_join(join) for join in read_items(body.get("lookups", []))),
    )


def _read_joined_person_table(shape: object) -> JoinedPersonTable:
    body = read_object(shape, {"source", "table", "joins", "keeps_all"})
    keeps_all = body.get("keeps_all", False)
    if not isinstance(keeps_all, bool):
        raise malformed("a further table of people")
    joins = tuple(_read_join(join) for join in read_items(body.get("joins", [])))
    source = _read_source(body.get("source"))
    return JoinedPersonTable(source, plain_text(body.get("table", "")), joins, keeps_all)


def _read_join(shape: object) -> Joined:
    body = read_object(shape, {"table", "on", "keeps_all", "also"})
    on, keeps_all = read_items(body.get("on", [])), body.get("keeps_all", False)
    if len(on) > 2 or not isinstance(keeps_all, bool):
        raise malformed("a join")
    also = tuple(_read_pair(pair) for pair in read_items(body.get("also", [])))
    names = tuple(plain_text(c) for c in on)
    return Joined(plain_text(body.get("table")), names, keeps_all, also)


def _read_pair(shape: object) -> tuple[str, str]:
    pair = read_items(shape)
    if len(pair) != 2:
        raise malformed("two columns that are equal")
    return plain_text(pair[0]), plain_text(pair[1])


def _read_optional(shape: object) -> Predicate | None:
    return None if shape is None else read_predicate(shape)


def _read_key(shape: object) -> Expr:
    return Ref(plain_text(shape)) if isinstance(shape, str) else read_expression(shape)


def _read_output(shape: object) -> Output:
    body = read_object(
        shape, {"name", "shown", "key", "formula", "verb", "of", "at", "most", "within"}
    )
    name, shown = plain_text(body.get("name")), body.get("shown", True)
    if not isinstance(shown, bool):
        raise malformed("an output")
    if "key" in body:
        return Output(name, _read_key(body["key"]), shown)
    if "formula" in body:
        return Output(name, Formula(read_expression(body["formula"])), shown)
    return Output(name, _read_aggregate(body), shown)


def _read_aggregate(body: Mapping[str, object]) -> Aggregate:
    within = body.get("within")
    ends = () if within is None else tuple(read_constant_json(c) for c in read_items(within))
    for verb in VERBS:
        if body.get("verb") == verb and len(ends) in (0, 2):
            return Aggregate(
                verb,
                tuple(_read_key(e) for e in read_items(body.get("of", []))),
                at=_read_share(body.get("at")),
                most=_read_bound(body.get("most")),
                person_sum_bounds=(ends[0], ends[1]) if ends else None,
            )
    raise malformed("an aggregate")


def _read_share(shape: object) -> Fraction | None:
    if shape is None:
        return None
    share = read_constant_json({"kind": "number", "text": shape}).number
    if not 0 <= share <= 1:
        raise malformed("a share from 0 to 1")
    return share


def _read_order(shape: object) -> Order:
    pair = read_items(shape)
    if len(pair) != 2 or not isinstance(pair[1], bool):
        raise malformed("an order")
    return Order(plain_text(pair[0]), pair[1])


def _read_source(shape: object) -> PersonTable:
    body = read_object(shape, {"columns", "where", "by"})
    columns = tuple(_read_reduce(column) for column in read_items(body.get("columns")))
    return PersonTable(columns, _read_optional(body.get("where")), plain_text(body.get("by", "")))


def _read_reduce(shape: object) -> PersonColumn:
    body = read_object(shape, {"name", "verb", "of"})
    of = body.get("of")
    for verb in REDUCTIONS:
        if body.get("verb") == verb:
            return PersonColumn(
                plain_text(body.get("name")), verb, None if of is None else _read_key(of)
            )
    raise malformed("a column of a per-person table")


def _read_bound(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**6:
        raise Refused(
            "not-in-language",
            "max_groups, max_rows, limit and most must be whole numbers from 1 to 1,000,000.",
            "Leave them out to use the card's values.",
        )
    return value
