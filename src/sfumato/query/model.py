"""Frozen questions: the closed language that everything else speaks.

SQL text, the Python builder and JSON all become one of these values, and the text is thrown away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Final, Literal

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.query.expression import Constant, Expr, Predicate, Ref, malformed, plain_text, spelled
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
    """One verb over its expressions; a count of rows or people has none.

    `at` is a quantile's p, `most` is how many different values of a person count, how many names
    a top list has or what the first count above has to reach, `within` clamps each person's sum of
    a cell. A running count is of the period that it runs along; of nothing, it runs along the last
    period of GROUP BY.
    """

    verb: Verb
    of: tuple[Expr, ...] = ()
    at: Fraction | None = None
    most: int | None = None
    within: tuple[Constant, Constant] | None = None


@dataclass(frozen=True)
class Formula:
    """A number made of released numbers, after the door: its columns are outputs, by name."""

    expr: Expr


@dataclass(frozen=True)
class Output:
    """One column of the answer, under its name: a key, an aggregate, or a formula of aggregates."""

    name: str
    of: Aggregate | Expr | Formula
    is_shown: bool = True


@dataclass(frozen=True)
class Order:
    """Sort the released rows by an output."""

    by: str
    is_falling: bool = False


@dataclass(frozen=True)
class Reduce:
    """A column of a per-person table: one aggregate of that person's rows, under its name."""

    name: str
    verb: Reduction
    of: Expr | None = None


@dataclass(frozen=True)
class EachPerson:
    """A table with one row for each person who has a row that fits."""

    columns: tuple[Reduce, ...]
    where: Predicate | None = None
    by: str = ""  # the column that names the person: the unit of the card


@dataclass(frozen=True)
class Joined:
    """A table beside those before it: of the same person, or a public one looked up by its key.

    `on` is the two columns that are equal, as they were named, and `also` further such pairs, the
    person's among either; in a question that was checked `on` is empty for the person, and the one
    column that is looked up for a public table, and in `also` the table's own column comes last.
    Beside tables of people the table's own column comes last in `on` too.
    """

    table: str
    on: tuple[str, ...] = ()
    keeps_all: bool = False  # rows without a partner stay
    also: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class JoinedPeople:
    """A further table with one row for each person, beside the first: the person is equal.

    It is made of a table of its own, and of what is joined to that. With `keeps_all`, people who
    have no row in it stay, and nothing is in its columns.
    """

    each: EachPerson
    table: str = ""
    joins: tuple[Joined, ...] = ()
    keeps_all: bool = False


@dataclass(frozen=True)
class Query:
    """What is asked of one data set."""

    data_set: str
    outputs: tuple[Output, ...]
    where: Predicate | None = None
    group_by: tuple[Expr, ...] = ()
    max_groups: int | None = None
    max_rows: int | None = None
    source: EachPerson | None = None
    having: Predicate | None = None  # over released outputs, by name
    order: tuple[Order, ...] = ()
    limit: int | None = None
    table: str = ""  # which table of the data set; its own if none is named
    joins: tuple[Joined, ...] = ()
    beside: tuple[JoinedPeople, ...] = ()  # tables like the source, and only where there is one
    lookups: tuple[Joined, ...] = ()  # public tables beside the source, by a column of theirs
    called: frozenset[str] = frozenset()  # computed keys that GROUP BY names as SELECT does
    bare: frozenset[str] = frozenset()  # columns of people that no table stands before in the text
    places: Places | None = field(default=None, compare=False, repr=False)  # of its text

    @cached_property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """Return the distinct aggregates in canonical order, whatever they are called."""
        found = {o.of for o in self.outputs if isinstance(o.of, Aggregate)}
        return tuple(found) if len(found) == 1 else tuple(sorted(found, key=aggregate_text))


def aggregate_text(aggregate: Aggregate) -> str:
    """Return the one spelling of an aggregate; what stored answers are filed under."""
    return spelled(aggregate_json(aggregate))


# --- as JSON, and back ------------------------------------------------------------------------


def aggregate_json(aggregate: Aggregate) -> Json:
    """Return the aggregate as plain JSON; what is not said is left out."""
    made: Json = {"verb": aggregate.verb, "of": [expression_json(e) for e in aggregate.of]}
    if aggregate.at is not None:
        made["at"] = str(aggregate.at)
    if aggregate.most is not None:
        made["most"] = aggregate.most
    if aggregate.within is not None:
        made["within"] = [constant_json(c) for c in aggregate.within]
    return made


def query_json(question: Query) -> Json:
    """Return the question as plain JSON."""
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
    if question.beside:  # left out if there is none: older questions keep their digests
        made["beside"] = [beside_json(one) for one in question.beside]
    if question.lookups:
        made["lookups"] = joins_json(question.lookups)
    return made


def beside_json(one: JoinedPeople) -> Json:
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
    if joined.also:  # left out if there is none: older questions keep their digests
        made["also"] = [list(pair) for pair in joined.also]
    return made


def source_json(source: EachPerson) -> Json:
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
    """Return the question that the JSON plainly spells, or refuse; nothing unknown passes."""
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
        beside=tuple(_read_beside(one) for one in read_items(body.get("beside", []))),
        lookups=tuple(_read_join(join) for join in read_items(body.get("lookups", []))),
    )


def _read_beside(shape: object) -> JoinedPeople:
    body = read_object(shape, {"source", "table", "joins", "keeps_all"})
    keeps_all = body.get("keeps_all", False)
    if not isinstance(keeps_all, bool):
        raise malformed("a further table of people")
    joins = tuple(_read_join(join) for join in read_items(body.get("joins", [])))
    source = _read_source(body.get("source"))
    return JoinedPeople(source, plain_text(body.get("table", "")), joins, keeps_all)


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
                within=(ends[0], ends[1]) if ends else None,
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


def _read_source(shape: object) -> EachPerson:
    body = read_object(shape, {"columns", "where", "by"})
    columns = tuple(_read_reduce(column) for column in read_items(body.get("columns")))
    return EachPerson(columns, _read_optional(body.get("where")), plain_text(body.get("by", "")))


def _read_reduce(shape: object) -> Reduce:
    body = read_object(shape, {"name", "verb", "of"})
    of = body.get("of")
    for verb in REDUCTIONS:
        if body.get("verb") == verb:
            return Reduce(plain_text(body.get("name")), verb, None if of is None else _read_key(of))
    raise malformed("a column of a per-person table")


def _read_bound(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**6:
        raise Refused(
            "not-in-language",
            "max_groups, max_rows, limit and most are whole numbers from 1 to 1,000,000.",
            "Leave them out to take the card's.",
        )
    return value
