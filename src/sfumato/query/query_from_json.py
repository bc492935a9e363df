"""Parse a query from its JSON form, or refuse what is malformed."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from sfumato.dp.refusal import Refused
from sfumato.query.aggregates.registry import AGGREGATES
from sfumato.query.expression import Expr, Predicate, Ref, malformed, plain_text
from sfumato.query.expression_json import (
    read_constant_json,
    read_expression,
    read_items,
    read_object,
    read_predicate,
)
from sfumato.query.model import (
    REDUCTIONS,
    Aggregate,
    Formula,
    Joined,
    JoinedPersonTable,
    Order,
    Output,
    PersonColumn,
    PersonTable,
    Query,
)


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
    verb = body.get("verb")
    if not isinstance(verb, str) or verb not in AGGREGATES or len(ends) not in (0, 2):
        raise malformed("an aggregate")
    return Aggregate(
        verb,
        tuple(_read_key(e) for e in read_items(body.get("of", []))),
        at=_read_share(body.get("at")),
        most=_read_bound(body.get("most")),
        person_sum_bounds=(ends[0], ends[1]) if ends else None,
    )


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
            "Leave them out to use the data card's values.",
        )
    return value
