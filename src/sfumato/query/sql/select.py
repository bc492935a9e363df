"""Parse SQL text into a query, by an allow-list of the whole syntax tree.

Every node has a reader that knows all of the node's arguments. An argument or a node that no reader
knows is refused with its position in the text. Then the text is discarded: none of it is passed on,
so no SQL of the asker reaches an engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlglot import exp

from sfumato.dp.refusal import Refused
from sfumato.query.aggregates.registry import AGGREGATES
from sfumato.query.expression import (
    All,
    AnyOf,
    Expr,
    LiteralValue,
    Not,
    Predicate,
    Ref,
    columns_of,
    renamed,
    truth_of,
)
from sfumato.query.expression_text import expression_text
from sfumato.query.model import Aggregate, Formula, Order, Output, Query
from sfumato.query.postprocess.formula_rules import is_number
from sfumato.query.sql.aggregates import (
    aggregates,
    check_windows,
    is_aggregate,
    is_in_aggregate,
)
from sfumato.query.sql.columns_and_constants import (
    bare,
    column_of,
    constant_of,
    found_at,
    nodes_of,
    only,
    refuse_at,
    refuse_unsupported,
)
from sfumato.query.sql.expressions import CONDITIONS, expression, predicate
from sfumato.query.sql.formulas import (
    formula,
    formula_of_aggregate,
    has_other_spelling,
    outer_aggregates,
    plain,
    with_names,
)
from sfumato.query.sql.from_clause import read_from
from sfumato.query.sql.parse import (
    MAX_DEPTH,
    MAX_TEXT,
    MAX_TOKENS,
    Parsed,
    beginning,
    check_sub_selects,
    parse,
)
from sfumato.query.sql.source_positions import (
    names_in,
    places_of,
    record_positions,
    recorded_positions,
)

# --- Items of SELECT: keys, aggregates and formulas of aggregates, each with its name


@dataclass(frozen=True)
class Item:
    """A named item of SELECT; `of` is None for arithmetic over aggregates, which is read later."""

    name: str
    of: Aggregate | Expr | None
    node: exp.Expr


def read_items(select: exp.Select, tables: Sequence[str]) -> list[Item]:
    """Read the items of SELECT, each with its alias or an automatic name; or refuse."""
    aliases = {
        node.alias.casefold()
        for node in select.expressions
        if type(node) is exp.Alias and outer_aggregates(node.this)
    }
    found = [item for node in select.expressions for item in _items(node, tables, aliases)]
    short = [(automatic_name(item.of, tables), item.of) for item in found if not item.name]
    taken: dict[str, int] = {}
    items = []
    for item in found:
        called = automatic_name(item.of, tables)
        if len({other for known, other in short if known == called}) > 1:
            called = automatic_name(item.of)  # with its table, as another item has this name
        items.append(Item(item.name or _fresh_name(called, taken), item.of, item.node))
    return items


def _items(item: exp.Expr, tables: Sequence[str], aliases: AbstractSet[str]) -> list[Item]:
    """Read an item of SELECT, with its alias or an empty name."""
    name, node = (item.alias, item.this) if type(item) is exp.Alias else ("", item)
    called = name.partition(".")[0].casefold()
    if len(tables) > 1 and "." in name and called in (table.casefold() for table in tables):
        raise refuse_unsupported(
            item, "an alias must not look like a table's column here", "Choose another name."
        )
    several = _selected(node, aliases)
    given = [
        f"{name}_{place}" if name and len(several) > 1 else name
        for place in range(1, len(several) + 1)
    ]
    return [Item(one, of, node) for one, of in zip(given, several, strict=True)]


def _selected(node: exp.Expr, aliases: AbstractSet[str]) -> tuple[Aggregate | Expr | None, ...]:
    if type(node) is exp.Star:
        raise refuse_unsupported(
            node, "rows never leave", "Ask for COUNT(*), SUM(column), AVG(column)."
        )
    if is_aggregate(node):
        return aggregates(node)
    if outer_aggregates(node):
        return (None,)
    if _is_of_aliases(node, aliases):
        return (None,)
    made = value_of(node)
    if not columns_of(made):
        raise refuse_unsupported(node, "a constant is not an answer", "Leave it out.")
    return (made,)


def value_of(node: exp.Expr) -> Expr:
    """Read a column of the answer; a condition becomes its truth value: true, false or NULL."""
    bare = node.unnest()
    if not isinstance(bare, exp.Condition) or type(bare) not in CONDITIONS:
        return expression(node)
    return recorded_positions(truth_of(predicate(bare)), bare)


def _is_of_aliases(node: exp.Expr, aliases: AbstractSet[str]) -> bool:
    """Check whether the node casts aggregates by their aliases, which only formulas may do."""
    columns = {c.name.casefold() for c in nodes_of(node) if isinstance(c, exp.Column)}
    return bool(columns) and columns <= aliases and has_other_spelling(node)


# --- formulas ----------------------------------------------------------------------------------


def outputs_of(items: Sequence[Item], groups: Sequence[Expr]) -> list[Output]:
    """Return the outputs in order, and after them the hidden outputs that formulas use."""
    known = [Output(item.name, item.of) for item in items if item.of is not None]
    numbers = numbers_of(known)
    shown = [_output(item, known, numbers, groups) for item in items]
    return shown + [output for output in known if not output.is_shown]


def _output(
    item: Item, known: list[Output], numbers: Mapping[str, str], groups: Sequence[Expr]
) -> Output:
    of = item.of
    if of is None:
        expr = formula(item.node, InAnswer(known, groups))
        return Output(item.name, Formula(renamed(expr, numbers)))
    if isinstance(of, Aggregate | Ref) or of in groups or not is_of_numbers(of, known):
        return Output(item.name, of)
    # in a formula, aliases are allowed where no column is possible
    return Output(item.name, Formula(renamed(of, numbers)))


@dataclass(frozen=True)
class InAnswer:
    """Names of the answer's aggregates and keys; a missing one becomes a hidden output."""

    outputs: list[Output]
    groups: Sequence[Expr]

    def aggregate(self, of: Aggregate) -> str:
        """Return the name of the output that holds the aggregate."""
        return named_output(self.outputs, of)

    def key(self, of: Expr) -> str | None:
        """Return the name of the output that holds the key, which may be written as its alias."""
        if of in self.groups:
            return named_output(self.outputs, of)
        called = of.column.casefold() if isinstance(of, Ref) else ""
        keys = (o.name for o in self.outputs if o.of in self.groups)
        return next((name for name in keys if name.casefold() == called), None)


def numbers_of(outputs: Sequence[Output]) -> dict[str, str]:
    """Map the lower-case names of the aggregates that a formula may use to their exact names."""
    found = [o.name for o in outputs if isinstance(o.of, Aggregate) and is_number(o)]
    return {name.casefold(): name for name in found}


def is_of_numbers(expr: Expr, outputs: Sequence[Output]) -> bool:
    """Check whether the expression uses only released numbers of this answer."""
    names = {output.name.casefold() for output in outputs if is_number(output)}
    columns = {name.casefold() for name in columns_of(expr)}
    return bool(columns) and columns <= names


def named_output(outputs: list[Output], of: Aggregate | Expr | Formula) -> str:
    """Return the name of the output with this value; append a hidden output if there is none.

    A hidden output is computed and paid for, but not shown.
    """
    for output in outputs:
        if output.of == of:
            return output.name
    taken = {output.name for output in outputs}
    place = len(outputs) + 1
    while (name := f"({place}) {automatic_name(of)}") in taken:
        place += 1
    outputs.append(Output(name, of, is_shown=False))
    return name


# --- names -------------------------------------------------------------------------------------


def _fresh_name(name: str, taken: dict[str, int]) -> str:
    taken[name] = taken.get(name, 0) + 1
    return name if taken[name] == 1 else f"{name}_{taken[name]}"


def automatic_name(of: Aggregate | Expr | Formula | None, tables: Sequence[str] = ()) -> str:
    """Return the automatic name of an output without an alias, such as `sum_cost`."""
    if of is None or isinstance(of, Formula):
        return "formula"
    if isinstance(of, Ref):
        return _without_table(of.column, tables)[:100]
    if not isinstance(of, Aggregate):
        return expression_text(of)[:100]
    columns = [_without_table(c, tables) for side in of.operands for c in sorted(columns_of(side))]
    return AGGREGATES[of.verb].column.format("_".join(columns))[:100]


def _without_table(name: str, tables: Sequence[str]) -> str:
    table, point, column = name.partition(".")
    return column if point and table in tables else name


__all__ = ["MAX_DEPTH", "MAX_TEXT", "MAX_TOKENS", "read_sql"]


def read_sql(
    text: str, data_set: str, *, max_groups: int | None = None, max_rows: int | None = None
) -> Query:
    """Read the query that the text asks of the data set, or refuse with a position in the text."""
    try:
        question = _read(text, data_set)
    except Refused as found:  # a refusal without a position is about the whole text
        refused = found if "place" in found.facts else refuse_at(found, beginning(text))
    else:
        return replace(question, max_groups=max_groups, max_rows=max_rows)
    raise refused


def _read(text: str, data_set: str) -> Query:
    text_read = parse(text)
    names = names_in(text_read.select)
    with record_positions() as notes:
        question = _question(text_read, data_set)
    return replace(question, places=places_of(notes, names))


def _question(text_read: Parsed, data_set: str) -> Query:
    select = text_read.select
    check_sub_selects(select)
    only(
        select,
        {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "with_"},
    )
    source = read_from(select, data_set)
    items = read_items(select, source.tables)
    groups = _groups(select, items)
    called = _called(select, items)
    _check_called(select, called & source.names)
    check_windows(select, groups)
    reader = _After(outputs_of(items, groups), groups)
    having = select.args.get("having")
    made_having = None if having is None else reader.having(having)
    order = reader.order(select.args.get("order"))
    where = select.args.get("where")
    wanted = None if where is None else predicate(where.this)
    limit = _limit(select.args.get("limit"))
    if text_read.lost is not None:
        raise text_read.lost
    return Query(
        data_set=data_set,
        outputs=tuple(reader.outputs),
        where=wanted,
        group_by=groups,
        grouped_aliases=called,
        source=source.each_person,
        having=made_having,
        order=order,
        limit=limit,
        table="" if source.table.casefold() == data_set.casefold() else source.table,
        joins=source.joins,
        joined_person_tables=source.beside,
        lookups=source.lookups,
        unqualified_columns=source.bare,
    )


# --- SELECT and GROUP BY ----------------------------------------------------------------------


def _groups(select: exp.Select, items: Sequence[Item]) -> tuple[Expr, ...]:
    group = select.args.get("group")
    if group is None:
        return ()
    only(group, {"expressions", "all"})
    if group.args.get("all"):
        return tuple(i.of for i in items if i.of is not None and not isinstance(i.of, Aggregate))
    return tuple(_group(node, items) for node in group.expressions)


def _group(node: exp.Expr, items: Sequence[Item]) -> Expr:
    by_name = _by_name(node, items)
    if by_name is not None:
        _check_name(node, by_name, items)
    found = _by_place(node, items) or by_name
    if found is None:
        return value_of(node)
    if found.of is None or isinstance(found.of, Aggregate):
        raise refuse_unsupported(
            node,
            f"{found.name!r} is made of aggregates here, and GROUP BY takes no aggregates",
            "Group by a column, and give the aggregate another name.",
        )
    return found.of


def _check_name(node: exp.Expr, named: Item, items: Sequence[Item]) -> None:
    """Refuse GROUP BY an alias of an expression if a column of that name is in the expression.

    SQL then groups by the column, and would repeat the same value in many rows. Queries with
    RUNNING_COUNT are accepted, because this function is not standard SQL.
    """
    if named.of is None or isinstance(named.of, Aggregate | Ref):
        return
    is_ours = any(_has_running_count(item) for item in items)
    if not is_ours and named.name.casefold() in map(bare, columns_of(named.of)):
        raise refuse_unsupported(
            node,
            f"the name {named.name!r} is given twice",
            "Choose another name.",
        )


def _called(select: exp.Select, items: Sequence[Item]) -> frozenset[str]:
    """Return the aliases of computed expressions by which the text groups, in lower case.

    If a table has a column of that name, SQL groups by the column instead. So code that knows the
    card must check these aliases.
    """
    group = select.args.get("group")
    if group is None or any(_has_running_count(item) for item in items):
        return frozenset()
    named = [item for node in group.expressions if (item := _by_name(node, items)) is not None]
    return frozenset(i.name.casefold() for i in named if not isinstance(i.of, Ref))


def _check_called(select: exp.Select, taken: frozenset[str]) -> None:
    """Refuse GROUP BY a computed alias that is also the name of a table or of the person."""
    for name in sorted(taken):
        raise refuse_unsupported(
            select.args["group"],
            f"{name!r} is the name of a table or a person here",
            "Choose another name.",
        )


def _has_running_count(item: Item) -> bool:
    """Check whether the item is a running count, or arithmetic over one."""
    if isinstance(item.of, Aggregate):
        return item.of.verb == "running_count"
    named = (node for node in nodes_of(item.node) if type(node) is exp.Anonymous)
    return any(node.name.casefold() == "running_count" for node in named)


Named = TypeVar("Named", Item, Output)


def _by_place(node: exp.Expr, outputs: Sequence[Named]) -> Named | None:
    if type(node) is not exp.Literal or node.is_string or not node.name.isdecimal():
        return None
    place = int(node.name[:10])
    if not 1 <= place <= len(outputs):
        raise refuse_unsupported(node, "this position in SELECT is not a column")
    return outputs[place - 1]


def _by_name(node: exp.Expr, outputs: Sequence[Named]) -> Named | None:
    if type(node) is not exp.Column:
        return None
    name = column_of(node).casefold()
    return next((o for o in outputs if o.name.casefold() == name), None)


# --- HAVING, ORDER BY, LIMIT ------------------------------------------------------------------


@dataclass
class _After:
    """Reader of HAVING and ORDER BY over released values; their aggregates become outputs.

    Each such output is priced and gets noise like any other (soundness rule 17).
    """

    outputs: list[Output]
    groups: tuple[Expr, ...]

    @property
    def names(self) -> InAnswer:
        """Return the names of the answer's aggregates and keys."""
        return InAnswer(self.outputs, self.groups)

    def having(self, node: exp.Expr) -> Predicate:
        only(node, {"this"})
        if is_aggregate(node.this):
            raise refuse_unsupported(node.this, "HAVING takes a condition")
        self._check_keys(node.this)
        try:
            return self._renamed(predicate(plain(with_names(node.this, self.names))))
        except Refused as found:
            refused = found_at(found, node)
        raise refused

    def order(self, node: exp.Expr | None) -> tuple[Order, ...]:
        if node is None:
            return ()
        only(node, {"expressions"})
        return tuple(self._order(item) for item in node.expressions)

    def _order(self, item: exp.Expr) -> Order:
        only(item, {"this", "desc"})
        found = _by_place(item.this, self.outputs) or _by_name(item.this, self.outputs)
        name = found.name if found is not None else self._named(item.this)
        return Order(name, bool(item.args.get("desc")))

    def _named(self, node: exp.Expr) -> str:
        """Return the name of the output with this value; append a hidden output if missing."""
        if is_aggregate(node):
            return self.names.aggregate(formula_of_aggregate(node))
        if outer_aggregates(node):
            return self._formula(formula(node, self.names))
        of = expression(node)
        if of in self.groups:
            return named_output(self.outputs, of)
        if is_of_numbers(of, self.outputs):
            return self._formula(of)
        raise refuse_unsupported(
            node, "this is not a column of the answer", "Name a column of SELECT or GROUP BY."
        )

    def _formula(self, expr: Expr) -> str:
        return named_output(self.outputs, Formula(renamed(expr, numbers_of(self.outputs))))

    def _renamed(self, made: Predicate) -> Predicate:
        """Return the HAVING condition with output names spelled as the outputs spell them."""
        match made:
            case Not(predicate=inner):
                return Not(self._renamed(inner))
            case All(predicates=parts):
                return All(tuple(map(self._renamed, parts)))
            case AnyOf(predicates=parts):
                return AnyOf(tuple(map(self._renamed, parts)))
            case _:
                return replace(made, of=self._output(made.of))

    def _output(self, of: Expr) -> Expr:
        names = {output.name.casefold(): output.name for output in self.outputs}
        if isinstance(of, Ref) and of.column.casefold() in names:
            return Ref(names[of.column.casefold()])
        if of in self.groups:
            return Ref(named_output(self.outputs, of))
        if isinstance(of, Ref) or not is_of_numbers(of, self.outputs):
            raise Refused(
                "not-in-language",
                "HAVING compares a constant with a column of the answer, an aggregate, or "
                "arithmetic on them.",
                "Put conditions on rows into WHERE.",
            )
        return renamed(of, names)

    def _check_keys(self, node: exp.Expr) -> None:
        """Refuse a key's name in HAVING that is also another item's alias: SQL uses the key."""
        keys = {bare(key.column): key for key in self.groups if isinstance(key, Ref)}
        others = {o.name.casefold() for o in self.outputs if o.of != keys.get(o.name.casefold())}
        for column in nodes_of(node):
            name = column.name.casefold() if isinstance(column, exp.Column) else ""
            if name in keys and name in others and not is_in_aggregate(column):
                raise refuse_unsupported(
                    column, f"the name {name!r} is given twice", "Choose another name."
                )


def _limit(node: exp.Expr | None) -> int | None:
    if node is None:
        return None
    only(node, {"expression"})
    made = expression(node.expression)
    if isinstance(made, LiteralValue) and made.constant.kind == "number":
        number = constant_of(node.expression).number
        if number.denominator == 1 and 1 <= number <= 10**6:
            return int(number)
    raise refuse_unsupported(node, "LIMIT must be a whole number from 1 to 1,000,000")
