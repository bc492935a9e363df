"""What stands in SELECT: keys, aggregates and formulas of aggregates, each under its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sqlglot import exp

from sfumato.query.expression import Expr, Ref, columns_of, renamed, truth_of
from sfumato.query.expression_text import expression_text
from sfumato.query.model import Aggregate, Formula, Output
from sfumato.query.postprocess.formula_rules import is_number
from sfumato.query.sql.aggregates import NAMES, aggregates, is_aggregate
from sfumato.query.sql.columns_and_constants import nodes_of, refuse_unsupported
from sfumato.query.sql.expressions import CONDITIONS, expression, predicate
from sfumato.query.sql.formulas import formula, has_other_spelling, outer_aggregates
from sfumato.query.sql.source_positions import recorded_positions


@dataclass(frozen=True)
class Item:
    """An item of SELECT under its name; None is arithmetic over aggregates, which is read last."""

    name: str
    of: Aggregate | Expr | None
    node: exp.Expr


def read_items(select: exp.Select, tables: Sequence[str]) -> list[Item]:
    """Return what SELECT names, or refuse."""
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
            called = automatic_name(item.of)  # with its table, for another is called the same
        items.append(Item(item.name or _fresh_name(called, taken), item.of, item.node))
    return items


def _items(item: exp.Expr, tables: Sequence[str], aliases: AbstractSet[str]) -> list[Item]:
    """Return what an item of SELECT is, each with the name it was given, or none."""
    name, node = (item.alias, item.this) if type(item) is exp.Alias else ("", item)
    called = name.partition(".")[0].casefold()
    if len(tables) > 1 and "." in name and called in (table.casefold() for table in tables):
        raise refuse_unsupported(
            item, "a name may not look like a table's column here", "Take another name."
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
        raise refuse_unsupported(node, "a constant is no answer", "Leave it out.")
    return (made,)


def value_of(node: exp.Expr) -> Expr:
    """Return what a column of the answer is; a condition is true, false or null."""
    bare = node.unnest()
    if not isinstance(bare, exp.Condition) or type(bare) not in CONDITIONS:
        return expression(node)
    return recorded_positions(truth_of(predicate(bare)), bare)


def _is_of_aliases(node: exp.Expr, aliases: AbstractSet[str]) -> bool:
    """Say whether the node rounds numbers of the answer, which is read of released values only."""
    columns = {c.name.casefold() for c in nodes_of(node) if isinstance(c, exp.Column)}
    return bool(columns) and columns <= aliases and has_other_spelling(node)


# --- formulas ----------------------------------------------------------------------------------


def outputs_of(items: Sequence[Item], groups: Sequence[Expr]) -> list[Output]:
    """Return the outputs in their order, and after them those unseen that formulas are of."""
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
    return Output(item.name, Formula(renamed(of, numbers)))  # names, where no column can stand


@dataclass(frozen=True)
class InAnswer:
    """Names of the answer's aggregates and keys; what is not there is added unseen."""

    outputs: list[Output]
    groups: Sequence[Expr]

    def aggregate(self, of: Aggregate) -> str:
        """Return the name of the aggregate's output."""
        return named_output(self.outputs, of)

    def key(self, of: Expr) -> str | None:
        """Return the name of the key's output; a key may go by the name it was given."""
        if of in self.groups:
            return named_output(self.outputs, of)
        called = of.column.casefold() if isinstance(of, Ref) else ""
        keys = (o.name for o in self.outputs if o.of in self.groups)
        return next((name for name in keys if name.casefold() == called), None)


def numbers_of(outputs: Sequence[Output]) -> dict[str, str]:
    """Return the aggregates that a formula may name, by how they may be written."""
    found = [o.name for o in outputs if isinstance(o.of, Aggregate) and is_number(o)]
    return {name.casefold(): name for name in found}


def is_of_numbers(expr: Expr, outputs: Sequence[Output]) -> bool:
    """Say whether the expression is of the answer's own aggregates alone."""
    names = {output.name.casefold() for output in outputs if is_number(output)}
    columns = {name.casefold() for name in columns_of(expr)}
    return bool(columns) and columns <= names


def named_output(outputs: list[Output], of: Aggregate | Expr | Formula) -> str:
    """Return the name of the output that it is, added unseen if it is not there."""
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
    """Return the name of a column that was given none."""
    if of is None or isinstance(of, Formula):
        return "formula"
    if isinstance(of, Ref):
        return _without_table(of.column, tables)[:100]
    if not isinstance(of, Aggregate):
        return expression_text(of)[:100]
    columns = [_without_table(c, tables) for side in of.of for c in sorted(columns_of(side))]
    return NAMES[of.verb].format("_".join(columns))[:100]


def _without_table(name: str, tables: Sequence[str]) -> str:
    table, point, column = name.partition(".")
    return column if point and table in tables else name
