"""SQL text becomes a question by an allow-list of the whole tree; then the text is thrown away.

Every node has a reader that knows all of the node's arguments; an argument or a node that no
reader knows is refused with its place in the text. Nothing is passed on, so nothing gets through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sfumato.core.expression import (
    All,
    AnyOf,
    Expr,
    Literally,
    Not,
    Predicate,
    Ref,
    columns_of,
)
from sfumato.core.question import Aggregate, Order, Output, Question
from sfumato.core.refusal import Refused
from sfumato.plan.sql_aggregates import NAMES, aggregates, check_windows, is_aggregate
from sfumato.plan.sql_expressions import expression, predicate
from sfumato.plan.sql_from import HINTS, read_from
from sfumato.plan.sql_leaves import column_of, constant_of, only, outside
from sfumato.plan.sql_text import MAX_DEPTH, MAX_TEXT, MAX_TOKENS, parsed
from sfumato.plan.words import expr_in_words

__all__ = ["MAX_DEPTH", "MAX_TEXT", "MAX_TOKENS", "read_sql"]


def read_sql(
    text: str, data_set: str, *, max_groups: int | None = None, max_rows: int | None = None
) -> Question:
    """Return the question that the text asks of the data set, or refuse."""
    select = parsed(text)
    only(
        select,
        {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "with_"},
        HINTS,
    )
    source = read_from(select, data_set)
    outputs = _outputs(select, source.tables)
    groups = _groups(select, outputs)
    check_windows(select, groups)
    reader = _After(outputs, groups)
    having = select.args.get("having")
    made_having = None if having is None else reader.having(having)
    order = reader.order(select.args.get("order"))
    where = select.args.get("where")
    return Question(
        data_set=data_set,
        outputs=tuple(reader.outputs),
        where=None if where is None else predicate(where.this),
        group_by=groups,
        max_groups=max_groups,
        max_rows=max_rows,
        source=source.each_person,
        having=made_having,
        order=order,
        limit=_limit(select.args.get("limit")),
        table="" if source.table.casefold() == data_set.casefold() else source.table,
        joins=source.joins,
    )


# --- SELECT and GROUP BY ----------------------------------------------------------------------


def _outputs(select: exp.Select, tables: Sequence[str]) -> list[Output]:
    named = [named for node in select.expressions for named in _named_values(node, tables)]
    short = [(automatic_name(of, tables), of) for name, of in named if not name]
    taken: dict[str, int] = {}
    outputs = []
    for name, of in named:
        called = automatic_name(of, tables)
        if len({other for known, other in short if known == called}) > 1:
            called = automatic_name(of)  # with its table, for another is called the same
        outputs.append(Output(name or _fresh_name(called, taken), of))
    return outputs


def _named_values(item: exp.Expr, tables: Sequence[str]) -> list[tuple[str, Aggregate | Expr]]:
    """Return what an item of SELECT is, each with the name it was given, or none."""
    name, node = (item.alias, item.this) if type(item) is exp.Alias else ("", item)
    if len(tables) > 1 and name.partition(".")[0] in tables and "." in name:
        raise outside(item, "a name may not look like a table's column here", "Take another name.")
    several = _selected(node)
    given = [
        f"{name}_{place}" if name and len(several) > 1 else name
        for place in range(1, len(several) + 1)
    ]
    return list(zip(given, several, strict=True))


def _selected(node: exp.Expr) -> tuple[Aggregate | Expr, ...]:
    if type(node) is exp.Star:
        raise outside(node, "rows never leave", "Ask for COUNT(*), SUM(column), AVG(column).")
    if is_aggregate(node):
        return aggregates(node)
    made = expression(node)
    if not columns_of(made):
        raise outside(node, "a constant is no answer", "Leave it out.")
    return (made,)


def _fresh_name(name: str, taken: dict[str, int]) -> str:
    taken[name] = taken.get(name, 0) + 1
    return name if taken[name] == 1 else f"{name}_{taken[name]}"


def automatic_name(of: Aggregate | Expr, tables: Sequence[str] = ()) -> str:
    """Return the name of a column that was given none."""
    if isinstance(of, Ref):
        return _without_table(of.column, tables)[:100]
    if not isinstance(of, Aggregate):
        return expr_in_words(of)[:100]
    columns = [_without_table(c, tables) for side in of.of for c in sorted(columns_of(side))]
    return NAMES[of.verb].format("_".join(columns))[:100]


def _without_table(name: str, tables: Sequence[str]) -> str:
    table, point, column = name.partition(".")
    return column if point and table in tables else name


def _groups(select: exp.Select, outputs: Sequence[Output]) -> tuple[Expr, ...]:
    group = select.args.get("group")
    if group is None:
        return ()
    only(group, {"expressions"}, {"all": "GROUP BY ALL is not read"})
    return tuple(_group(node, outputs) for node in group.expressions)


def _group(node: exp.Expr, outputs: Sequence[Output]) -> Expr:
    found = _by_place(node, outputs) or _by_name(node, outputs)
    if found is None:
        return expression(node)
    if isinstance(found.of, Aggregate):
        raise outside(node, "this place in SELECT is no column")
    return found.of


def _by_place(node: exp.Expr, outputs: Sequence[Output]) -> Output | None:
    if type(node) is not exp.Literal or node.is_string or not node.name.isdecimal():
        return None
    place = int(node.name[:10])
    if not 1 <= place <= len(outputs):
        raise outside(node, "this place in SELECT is no column")
    return outputs[place - 1]


def _by_name(node: exp.Expr, outputs: Sequence[Output]) -> Output | None:
    if type(node) is not exp.Column:
        return None
    name = column_of(node).casefold()
    return next((o for o in outputs if o.name.casefold() == name), None)


# --- HAVING, ORDER BY, LIMIT ------------------------------------------------------------------


@dataclass
class _After:
    """Reads what works on released values; an aggregate that only stands here becomes an output.

    Each such value is priced and noised like any other (rules.md, 17).
    """

    outputs: list[Output]
    groups: tuple[Expr, ...]

    def having(self, node: exp.Expr) -> Predicate:
        only(node, {"this"})
        inner = node.this.copy()
        for part in list(inner.find_all(exp.Expr)):
            if is_aggregate(part) and not _is_within_aggregate(part):
                name = exp.column(self._named(part), quoted=True)
                if part is inner:
                    raise outside(node, "HAVING takes a condition")
                part.replace(name)
        return self._renamed(predicate(inner))

    def order(self, node: exp.Expr | None) -> tuple[Order, ...]:
        if node is None:
            return ()
        only(node, {"expressions"}, {"siblings": "SIBLINGS is not read"})
        return tuple(self._order(item) for item in node.expressions)

    def _order(self, item: exp.Expr) -> Order:
        only(item, {"this", "desc", "nulls_first"})
        found = _by_place(item.this, self.outputs) or _by_name(item.this, self.outputs)
        name = found.name if found is not None else self._named(item.this)
        return Order(name, bool(item.args.get("desc")))

    def _named(self, node: exp.Expr) -> str:
        """Return the output that the node is, added unseen if it is not there."""
        of: Aggregate | Expr
        if is_aggregate(node):
            several = aggregates(node)
            if len(several) != 1:
                raise outside(node, "one value is needed here")
            of = several[0]
        else:
            of = expression(node)
            if of not in self.groups:
                raise outside(
                    node, "this is no column of the answer", "Name a column of SELECT or GROUP BY."
                )
        for output in self.outputs:
            if output.of == of:
                return output.name
        name = f"({len(self.outputs) + 1}) {automatic_name(of)}"
        self.outputs.append(Output(name, of, is_shown=False))
        return name

    def _renamed(self, made: Predicate) -> Predicate:
        """Return the condition with outputs spelled as they are named."""
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
        if isinstance(of, Ref):
            name = of.column.casefold()
            for output in self.outputs:
                if output.name.casefold() == name:
                    return Ref(output.name)
        if of in self.groups:
            for output in self.outputs:
                if output.of == of:
                    return Ref(output.name)
            name = f"({len(self.outputs) + 1}) {automatic_name(of)}"
            self.outputs.append(Output(name, of, is_shown=False))
            return Ref(name)
        raise Refused(
            "not-in-language",
            "HAVING compares a column of the answer or an aggregate with a constant.",
            "Put conditions on rows into WHERE.",
        )


def _is_within_aggregate(node: exp.Expr) -> bool:
    above = node.parent
    while above is not None:
        if is_aggregate(above):
            return True
        above = above.parent
    return False


def _limit(node: exp.Expr | None) -> int | None:
    if node is None:
        return None
    only(node, {"expression"})
    made = expression(node.expression)
    if isinstance(made, Literally) and made.constant.kind == "number":
        number = constant_of(node.expression).number
        if number.denominator == 1 and 1 <= number <= 10**6:
            return int(number)
    raise outside(node, "LIMIT is a whole number from 1 to 1,000,000")
