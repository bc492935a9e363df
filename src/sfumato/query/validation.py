"""Validation of a query on a card: the functions in RULES run in order, and each may refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.query.expression import Expr, Predicate, columns_of
from sfumato.query.expression_text import expression_text
from sfumato.query.model import Aggregate, Formula, PersonTable, Query
from sfumato.query.postprocess.formula_rules import check_formula, is_number
from sfumato.query.postprocess.totals import check_totals
from sfumato.query.size_limits import check_parts
from sfumato.vault.card.data_card import Card

Rule = Callable[[Card, Query], None]
MAX_OUTPUTS: Final = 50


def asks_for_an_aggregate(_card: Card, question: Query) -> None:
    """Refuse a query without an aggregate, which would ask for rows; or with too many outputs."""
    if not question.aggregates:
        raise Refused(
            "no-aggregate",
            "The question asks for no aggregate, and rows never leave the vault.",
            "Ask for COUNT, SUM or AVG.",
        )
    if len(question.outputs) > MAX_OUTPUTS:
        raise Refused(
            "question-too-large",
            f"The question has more than {MAX_OUTPUTS} columns.",
            "Split it into several questions.",
        )


def is_not_too_large(_card: Card, question: Query) -> None:
    """Refuse a query that is so large that it would only keep the server busy.

    This check is not one of RULES. It runs on the query as it was asked, before any step that
    visits the whole query.
    """
    bare = sum(c.of is None for each in tables_of_people(question) for c in each.columns)
    check_parts(everything(question), besides=bare)


def everything(question: Query) -> tuple[Expr | Predicate, ...]:
    """Return every expression and condition of the query."""
    formulas = [o.of.expr for o in question.outputs if isinstance(o.of, Formula)]
    having = () if question.having is None else (question.having,)
    return (*of_rows(question), *formulas, *having)


def of_rows(question: Query) -> tuple[Expr | Predicate, ...]:
    """Return every expression and condition on rows: all except formulas and HAVING."""
    inner = [value for source in tables_of_people(question) for value in of_source(source)]
    outer: list[Expr | Predicate | None] = [question.where, *question.group_by]
    for output in question.outputs:
        if isinstance(output.of, Aggregate):
            outer += output.of.operands
        elif not isinstance(output.of, Formula):
            outer.append(output.of)
    return (*inner, *(value for value in outer if value is not None))


def of_source(source: PersonTable) -> tuple[Expr | Predicate, ...]:
    """Return every expression and condition of a per-person table."""
    found = (source.where, *(column.of for column in source.columns))
    return tuple(value for value in found if value is not None)


def tables_of_people(question: Query) -> tuple[PersonTable, ...]:
    """Return the query's per-person tables, in order."""
    first = () if question.source is None else (question.source,)
    return (*first, *(one.each for one in question.joined_person_tables))


def names_are_distinct(_card: Card, question: Query) -> None:
    """Refuse column names that are repeated, empty, too long or unprintable."""
    for names in (
        [output.name.casefold() for output in question.outputs],
        [c.name.casefold() for each in tables_of_people(question) for c in each.columns],
    ):
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None or any(not 0 < len(n) <= 200 or not n.isprintable() for n in names):
            raise Refused(
                "not-in-language",
                "Two columns of the answer share a name, or a name is empty.",
                "Give each column its own name with AS.",
            )


def groups_are_distinct(_card: Card, question: Query) -> None:
    """Refuse a GROUP BY key that is repeated or names no column."""
    if len(set(question.group_by)) < len(question.group_by):
        raise Refused(
            "not-in-language",
            "GROUP BY names the same column or expression twice.",
            "Name each of them once.",
        )
    for key in question.group_by:
        if not columns_of(key):
            raise Refused(
                "not-in-language",
                "An expression in GROUP BY contains no column.",
                "Group by a column of the data card, or by an expression of one.",
            )


def outputs_are_grouped(_card: Card, question: Query) -> None:
    """Refuse a plain output column that is not in GROUP BY."""
    for output in question.outputs:
        if isinstance(output.of, Aggregate | Formula):
            continue
        if output.of not in question.group_by:
            raise Refused(
                "not-in-language",
                f"{expression_text(output.of)!r} is in SELECT but not in GROUP BY.",
                "Group by it, or use an aggregate of it.",
                column=expression_text(output.of),
            )


def what_comes_after_names_outputs(_card: Card, question: Query) -> None:
    """Refuse HAVING or ORDER BY on a value that is no output; both work on released values."""
    names = {output.name for output in question.outputs}
    needed = {order.by for order in question.order}
    needed |= columns_of(question.having) if question.having is not None else set()
    unknown = sorted(needed - names)
    if unknown:
        raise Refused(
            "unknown-column",
            f"The answer has no column {unknown[0]!r}.",
            "It has: " + ", ".join(sorted(names)) + ".",
            column=unknown[0],
        )


def formulas_are_of_aggregates(_card: Card, question: Query) -> None:
    """Refuse a formula over anything but released numbers of the same answer."""
    numbers = (o for o in question.outputs if is_number(o) and isinstance(o.of, Aggregate))
    kinds = {output.name: "number" for output in numbers}
    for output in question.outputs:
        if isinstance(output.of, Formula):
            check_formula(output.of.expr, kinds)


def totals_are_of_counts_and_sums(_card: Card, question: Query) -> None:
    """Refuse a total over the answer's rows unless its noise is known and it covers all rows."""
    check_totals(question)


def a_table_of_people_needs_people(card: Card, question: Query) -> None:
    """Refuse a per-person table if the card does not name the column that identifies the person."""
    if question.source is None:
        if question.joined_person_tables:
            raise Refused(
                "not-in-language",
                "A table with one row for each person is joined to a table of single rows.",
                "Make one row for each person of the first table too: (SELECT person, … GROUP BY "
                "person), or each_person(...).",
            )
        return
    is_of_people(card, question.source)


def is_of_people(card: Card, source: PersonTable) -> None:
    """Refuse a per-person table that is not grouped by the person, or that has no columns."""
    if not card.by_person:
        raise Refused(
            "not-in-language",
            f"The privacy unit of {card.name!r} is a row, so the data set has no table of people.",
            "Ask about the data set itself.",
        )
    if source.by.casefold() not in ("", card.unit.casefold()):
        raise Refused(
            "not-in-language",
            f"The inner SELECT groups by {source.by!r}, which is not the person.",
            f"Write GROUP BY {card.unit}.",
            column=source.by,
        )
    if not source.columns:
        raise Refused(
            "not-in-language", "The inner SELECT has no aggregate.", "Add COUNT(*) AS n to it."
        )


def bounds_are_sensible(card: Card, question: Query) -> None:
    """Refuse contribution bounds if each row is a privacy unit, or if `max_rows` is too large.

    The `max_rows` of the query and of the card must not exceed the card's rows per person.
    """
    asked = question.max_groups is not None or question.max_rows is not None
    if asked and not card.by_person:
        raise Refused(
            "not-in-language",
            f"The privacy unit of {card.name!r} is a row, so there are no contribution bounds to "
            "choose.",
            "Leave out max_groups and max_rows.",
        )
    most = card.limits.rows_per_person
    if (question.max_rows or 1) > most or card.max_rows > most:
        raise Refused(
            "not-in-language",
            f"max_rows is above {most}, the most rows of a person that the data card allows.",
            f"Ask with max_rows of at most {most}.",
        )


RULES: Final[tuple[Rule, ...]] = (
    asks_for_an_aggregate,
    names_are_distinct,
    groups_are_distinct,
    outputs_are_grouped,
    what_comes_after_names_outputs,
    formulas_are_of_aggregates,
    totals_are_of_counts_and_sums,
    a_table_of_people_needs_people,
    bounds_are_sensible,
)


def checked(card: Card, question: Query) -> None:
    """Check the query against each rule in RULES, in order; a broken rule refuses the query."""
    for rule in RULES:
        rule(card, question)
