"""Resolve names: find the columns in scope, and rewrite the query with the card's own names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.query.canonical_conditions import canonical_condition, selection_condition
from sfumato.query.expression import (
    All,
    Among,
    AnyOf,
    Arithmetic,
    Case,
    Clamp,
    Coalesce,
    Compare,
    Constant,
    DateField,
    DateTrunc,
    Expr,
    Floor,
    FunctionCall,
    IsNull,
    LiteralValue,
    Not,
    Predicate,
    Ref,
    StartsWith,
    Total,
    one_where,
)
from sfumato.query.join import View
from sfumato.query.model import Aggregate, Formula, Output, PersonColumn, PersonTable, Query
from sfumato.query.number_types import LARGEST, check_exact, with_zero_origin
from sfumato.query.public_lookup_tables import LookUp, not_given, spellings, typed_columns
from sfumato.query.time_periods import first_of_period, period_of_text
from sfumato.query.typecheck import not_of_rows, typecheck
from sfumato.query.typed_expression import ExpressionType, Scope, column_type, number, whole
from sfumato.vault.card.columns import read_constant
from sfumato.vault.card.data_card import Card

# --- Columns of per-person tables and their types
#
# They are the physical columns `u0`, `u1`, ... If several per-person tables are joined, the numbers
# continue from one table to the next.


# a person's mean is rounded down to one of these parts of a step
FINE: Final = (10_000, 1_000, 100)
MAX_KEYS: Final = 1_000  # most public keys of a per-person text; with more it stays private
_ROOM: Final = 8  # headroom for arithmetic on a person's values before the sum over all people


def reduced_columns(
    source: PersonTable, inner: Scope, most: int, people: int, *, start: int = 0
) -> dict[str, ExpressionType]:
    """Return the types of a per-person table's columns, by name in lower case.

    A person has at most `most` rows, and there are at most `people` people.
    """
    places = inner_places(source.columns, start)
    return {
        column.name.casefold(): _reduced(column, inner, place, most, people)
        for column, place in zip(source.columns, places, strict=True)
    }


def inner_places(columns: Sequence[PersonColumn], start: int = 0) -> list[int]:
    """Return, for each column of a per-person table, the index of its first physical column.

    A mean has two physical columns, sum and count; other columns have one.
    """
    places, place = [], start
    for column in columns:
        places.append(place)
        place += width_of(column)
    return places


def width_of(column: PersonColumn) -> int:
    """Return the number of physical columns of a per-person column: two for a mean, else one."""
    return 2 if column.verb == "mean" else 1


def _reduced(column: PersonColumn, inner: Scope, at: int, most: int, people: int) -> ExpressionType:
    place = Ref(f"u{at}")
    if column.of is None:
        if column.verb != "count":
            raise Refused(
                "not-in-language",
                f"The aggregate {column.verb} of the inner table (one row for each person) "
                "needs a column.",
                f'Name the column, as in ("{column.verb}", "x") or {column.verb}(x).',
            )
        return ExpressionType("integer", place, 1, most, is_bounded=True)
    if column.verb == "count":
        raise Refused(
            "not-in-language",
            "In the inner table (one row for each person), count counts rows and takes no column.",
            "To count the values of a column, write count_values or COUNT(x).",
        )
    side = typecheck(column.of, inner)
    if side.is_number:
        side = with_zero_origin(side)
    if column.verb == "count_values":
        return ExpressionType("integer", place, 0, most, is_bounded=True)
    has_order = side.unit is None and (side.is_number or side.kind in ("date", "timestamp"))
    if column.verb in ("minimum", "maximum") and (has_order or side.kind == "text"):
        keys = side.keys if side.kind == "text" and len(side.keys or ()) <= MAX_KEYS else None
        return replace(side, physical=place, keys=keys, code=_code(place, keys))
    if column.verb not in ("sum", "mean") or not side.is_number:
        raise Refused(
            "type-mismatch",
            f"The inner SELECT cannot take {column.verb} of a {side.kind}.",
            "Count it, or use MIN or MAX of a number, text or date, or SUM of a number.",
        )
    _check_bounded(side)
    lower, upper = min(side.lower, side.lower * most), max(side.upper, side.upper * most)
    made = replace(side, physical=place, lower=lower, upper=upper, keys=None, code=None)
    return check_exact(
        made
        if column.verb == "sum"
        else _mean(side, made, Ref(f"u{at + 1}"), _parts_of_step(side, most, people))
    )


def _code(place: Ref, keys: Sequence[Constant] | None) -> Expr | None:
    """Return, as an expression, the index of a person's text in the list of public keys.

    It is NULL if the text is not in the list.
    """
    if keys is None:
        return None
    return Case(tuple((Compare(place, "=", key), whole(i)) for i, key in enumerate(keys)), None)


def _mean(side: ExpressionType, total: ExpressionType, count: Ref, fine: int) -> ExpressionType:
    """Return the type of a person's mean, rounded down to 1/`fine` of the column's step.

    It is NULL for a person without values.
    """
    wide = replace(total, lower=total.lower * fine, upper=total.upper * fine)
    above = Arithmetic("*", check_exact(wide).physical, whole(fine))
    return replace(
        total,
        physical=Arithmetic("/", above, count),
        lower=side.lower * fine,
        upper=side.upper * fine,
        step=side.step / fine,
    )


def _parts_of_step(side: ExpressionType, most: int, people: int) -> int:
    """Return into how many parts a step can be divided without making a sum inexact.

    Each person's sum and the total over all people both stay exact.
    """
    size = max(abs(side.lower), abs(side.upper), 1) * max(most, people) * _ROOM
    return next((fine for fine in FINE if size * fine <= LARGEST), FINE[-1])


def _check_bounded(side: ExpressionType) -> None:
    if not side.is_bounded:
        raise Refused(
            "no-bounds",
            "A number without declared bounds cannot be summed.",
            "Bound it first: LEAST(GREATEST(x, low), high), or ask the owner to declare bounds.",
        )


# --- scopes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResolvedPersonTable:
    """A per-person table, with the view of joined tables from which it is made."""

    view: View
    source: PersonTable
    most_rows: int  # most rows of a person


def card_scope(view: View) -> Scope:
    """Return the view's columns as a scope: the names and types that an expression may use."""

    def find(name: str) -> ExpressionType:
        column = view.name(name)
        found = view.types.get(column)
        if found is None:
            found = view.types[column] = column_type(view.card, column)
        return found

    def condition(predicate: Predicate) -> Predicate:
        return resolve_expression(predicate, scope)

    scope = Scope(view.card.name, find, condition, _nulls(view.card))
    return scope


def people_scope(
    tables: Sequence[ResolvedPersonTable],
    lookups: Sequence[LookUp] = (),
    names: Mapping[str, str] = MappingProxyType({}),
) -> Scope:
    """Return the columns of per-person tables, and of public tables joined to them, as a scope.

    `names` maps every spelling of a name to its canonical name.
    """
    columns: dict[str, ExpressionType] = {}
    start = 0
    for table in tables:
        source, card = table.source, table.view.card
        inner = card_scope(table.view)
        columns |= reduced_columns(source, inner, table.most_rows, card.limits.rows, start=start)
        start += sum(map(width_of, source.columns))
    columns |= {name.casefold(): of for name, of in typed_columns(lookups, start).items()}

    def find(name: str) -> ExpressionType:
        found = columns.get(names.get(name.casefold(), name).casefold())
        if found is None:
            given = {c.name: c.name for table in tables for c in table.source.columns}
            raise not_given(name, names or given)
        return found

    def condition(predicate: Predicate) -> Predicate:
        return resolve_expression(predicate, scope)

    nulls = frozenset(word for table in tables for word in _nulls(table.view.card))
    scope = Scope("the per-person table", find, condition, nulls)
    return scope


def _nulls(card: Card) -> frozenset[str]:
    """Return the texts that the card reads as NULL."""
    return frozenset(word.strip() for word in card.nulls)


# --- conditions in physical form ---------------------------------------------------------------


def resolve_expression(predicate: Predicate, scope: Scope) -> Predicate:
    """Rewrite the condition over stored columns, with numbers in whole steps; or refuse."""
    match predicate:
        case Compare(of=of, operator=operator, constant=constant):
            side = typecheck(of, scope)
            if side.kind in ("text", "boolean") and operator not in ("=", "!="):
                raise Refused(
                    "type-mismatch",
                    f"A column of type {side.kind} cannot be compared with <, <=, > or >=.",
                    "Compare it with = or IN.",
                )
            return Compare(side.physical, operator, _stored(side, constant))
        case Among(of=of, constants=constants):
            side = typecheck(of, scope)
            return Among(side.physical, tuple(_stored(side, c) for c in constants))
        case StartsWith(of=of, letters=letters):
            side = typecheck(of, scope)
            if side.kind != "text":
                raise Refused(
                    "type-mismatch",
                    "LIKE works only for a column of texts.",
                    "Compare this column with =, < or >.",
                )
            return StartsWith(side.physical, letters)
        case IsNull(of=of):
            return IsNull(typecheck(of, scope).physical)
        case Not(predicate=inner):
            return Not(resolve_expression(inner, scope))
        case All(predicates=parts):
            return All(tuple(resolve_expression(part, scope) for part in parts))
        case AnyOf(predicates=parts):
            return AnyOf(tuple(resolve_expression(part, scope) for part in parts))


def _stored(side: ExpressionType, constant: Constant) -> Constant:
    """Return the constant as the prepared table stores values of the column's type.

    Numbers become steps, and times become periods or dates. A time inside a period becomes the
    period's number plus 1/2, so that comparisons stay correct.
    """
    spelt = _spelled_constant(side, constant)
    if side.unit is not None:
        period = period_of_text(side.unit, spelt.text)
        is_first = first_of_period(side.unit, period)[:10] == spelt.text[:10]
        exact = is_first and spelt.text[10:] in ("", " 00:00:00.000000")
        if side.unit == "hour":
            exact = spelt.text[13:] in ("", ":00:00.000000")
        return number(period if exact else period + Fraction(1, 2))
    if side.is_number:
        return number((spelt.number - side.origin) / side.step)
    if side.kind in ("date", "timestamp"):
        return Constant("date" if side.kind == "date" else "timestamp", spelt.text)
    return spelt


# --- the card's own spelling -------------------------------------------------------------------


def _spelled_constant(side: ExpressionType, constant: Constant) -> Constant:
    """Return the constant in the canonical form of the column's type; refuse another type."""
    if constant.kind == "boolean":
        if side.kind != "boolean":
            raise Refused(
                "type-mismatch",
                f"A {side.kind} is neither true nor false.",
                "Compare it, as in x > 0. To make a number whole, write ROUND(x) or FLOOR(x).",
            )
        value: object = constant.text == "true"
    elif constant.kind == "number":
        value = as_boolean(constant) if side.kind == "boolean" else constant.number
    else:
        value = constant.text
    return read_constant(side.kind, value, "the value compared")


def as_boolean(constant: Constant) -> bool | Fraction:
    """Read the number 1 as true and 0 as false, as databases write booleans; keep other numbers."""
    return bool(constant.number) if constant.number in (0, 1) else constant.number


def in_stored_spelling(expr: Expr, scope: Scope, names: Mapping[str, str]) -> Expr:
    """Return the expression with columns and constants spelled as on the data card."""

    def inner(part: Expr) -> Expr:
        return in_stored_spelling(part, scope, names)

    match expr:
        case Ref(column=column):
            scope.find(column)
            return Ref(names.get(column.casefold(), column))
        case LiteralValue():
            return expr
        case Arithmetic(sign=sign, left=left, right=right):
            return Arithmetic(sign, inner(left), inner(right))
        case Floor(of=of):
            return Floor(inner(of))
        case Clamp(of=of):
            return replace(expr, of=inner(of))
        case Coalesce(parts=parts):
            return Coalesce(tuple(inner(part) for part in parts))
        case Case(whens=whens, otherwise=otherwise):
            pairs = tuple((spelled_predicate(p, scope, names), inner(e)) for p, e in whens)
            return Case(pairs, None if otherwise is None else inner(otherwise))
        case DateTrunc(unit=unit, of=of):
            return DateTrunc(unit, inner(of))
        case DateField(field=field, of=of):
            return DateField(field, inner(of))
        case FunctionCall(name=name, of=of):
            return FunctionCall(name, inner(of))
        case Total():
            raise not_of_rows("A total over the answer's rows")


def spelled_predicate(predicate: Predicate, scope: Scope, names: Mapping[str, str]) -> Predicate:
    """Return a WHERE or WHEN condition in canonical form, with the card's names and constants.

    WHERE and WHEN treat false like NULL, so the canonical form may replace one by the other.
    """
    made = selection_condition(canonical_condition(_spelled(predicate, scope, names)))
    _check_met(made, scope)
    return made


def _check_met(predicate: Predicate, scope: Scope) -> None:
    """Refuse a canonical condition that compares with a text that means NULL.

    No row equals such a text, so the query would be paid for and match nobody. `<>` is accepted,
    because every known text differs from it.
    """
    match predicate:
        case All(predicates=parts) | AnyOf(predicates=parts):
            for part in parts:
                _check_met(part, scope)
        case Compare(of=Ref() as of, operator="=", constant=constant):
            _check_is_some(of, (constant,), scope)
        case Among(of=Ref() as of, constants=constants):
            _check_is_some(of, constants, scope)


def _check_is_some(of: Ref, constants: Sequence[Constant], scope: Scope) -> None:
    side = scope.find(of.column)
    found = [c.text for c in constants if c.kind == "text" and c.text in scope.nulls]
    if found and side.kind == "text":
        raise Refused(
            "not-in-language",
            f"By the data card, {found[0]!r} marks a missing value, and a missing value equals "
            "nothing.",
            "Write IS NULL, or IS NOT NULL.",
        )


def _spelled(predicate: Predicate, scope: Scope, names: Mapping[str, str]) -> Predicate:
    match predicate:
        case Compare(of=of, operator=operator, constant=constant):
            side = typecheck(of, scope)
            return Compare(
                in_stored_spelling(of, scope, names), operator, _spelled_constant(side, constant)
            )
        case Among(of=of, constants=constants):
            side = typecheck(of, scope)
            listed = tuple(_spelled_constant(side, c) for c in constants)
            return Among(in_stored_spelling(of, scope, names), listed)
        case StartsWith(of=of, letters=letters):
            return StartsWith(in_stored_spelling(of, scope, names), letters)
        case IsNull(of=of):
            return IsNull(in_stored_spelling(of, scope, names))
        case Not(predicate=inner):
            return Not(_spelled(inner, scope, names))
        case All(predicates=parts):
            return All(tuple(_spelled(part, scope, names) for part in parts))
        case AnyOf(predicates=parts):
            return AnyOf(tuple(_spelled(part, scope, names) for part in parts))


def resolved_scope(view: View, question: Query) -> Scope:
    """Return the scope of the query itself: the names and types of columns that it may use."""
    if question.source is None:
        return card_scope(view)
    names = spellings(question, view.lookups)
    return people_scope(people_tables(view, question), view.lookups, names)


def people_tables(view: View, question: Query) -> list[ResolvedPersonTable]:
    """Return the query's per-person tables in order, each with the joined tables below it.

    A per-person table is computed from the rows of these joined tables.
    """
    if question.source is None:
        return []
    sources = [question.source, *(one.each for one in question.joined_person_tables)]
    return [
        ResolvedPersonTable(each, source, max_inner_rows(each.card, question))
        for each, source in zip((view, *view.beside), sources, strict=True)
    ]


def max_inner_rows(card: Card, question: Query) -> int:
    """Return the most rows of one person from which a per-person table is computed."""
    return min(question.max_rows or card.limits.rows_per_person, card.limits.rows_per_person)


def in_card_spelling(view: View, question: Query) -> Query:
    """Return the query with columns and constants spelled as on the data card, or refuse."""
    if question.source is not None:
        beside = zip(view.beside, question.joined_person_tables, strict=True)
        question = replace(
            question,
            source=_each(view, question.source),
            joined_person_tables=tuple(
                replace(one, each=_each(its, one.each)) for its, one in beside
            ),
        )
    scope, names = resolved_scope(view, question), _names(view, question)
    return replace(
        question,
        data_set=view.card.name,
        outputs=tuple(_output(view, question, o, scope) for o in question.outputs),
        where=None if question.where is None else spelled_predicate(question.where, scope, names),
        group_by=tuple(in_stored_spelling(key, scope, names) for key in question.group_by),
    )


def _each(view: View, source: PersonTable) -> PersonTable:
    inner, names = card_scope(view), view.names
    counted = [_reduced_rows(view, column) for column in source.columns]
    columns = tuple(
        replace(c, of=None if c.of is None else in_stored_spelling(c.of, inner, names))
        for c in counted
    )
    where = None if source.where is None else spelled_predicate(source.where, inner, names)
    is_person = source.by.casefold() in ("", *view.people)
    return PersonTable(columns, where, view.card.unit if is_person else source.by)


def _reduced_rows(view: View, column: PersonColumn) -> PersonColumn:
    """Rewrite COUNT(person) in an inner SELECT as a count of the person's rows."""
    if column.verb != "count_values" or column.of is None:
        return column
    made = _of_rows(view, Aggregate("count_values", (column.of,)))
    if made.verb == "count":
        return replace(column, verb="count", of=None)
    return replace(column, of=made.operands[0])


def _names(view: View, question: Query) -> Mapping[str, str]:
    """Map every spelling of a column that the query itself may use to its canonical name."""
    if question.source is None:
        return view.names
    return spellings(question, view.lookups)


def _output(view: View, question: Query, output: Output, scope: Scope) -> Output:
    names = _names(view, question)
    if isinstance(output.of, Formula):
        return output  # it names outputs, not columns
    if not isinstance(output.of, Aggregate):
        return replace(output, of=in_stored_spelling(output.of, scope, names))
    is_inner = question.source is not None and any(name in names for name in view.people)
    if not is_inner and _counts_people(view, output.of):
        return replace(output, of=Aggregate("count_people"))
    narrowed = None if is_inner else _people_where(view, output.of)
    if narrowed is not None:
        return replace(output, of=_have_a_row(spelled_predicate(narrowed, scope, names)))
    aggregate = output.of if is_inner else _of_rows(view, output.of)
    of = tuple(in_stored_spelling(side, scope, names) for side in aggregate.operands)
    return replace(output, of=replace(aggregate, operands=of))


def _of_rows(view: View, aggregate: Aggregate) -> Aggregate:
    """Rewrite COUNT(person) as COUNT(*), and a conditional one as a count of the rows that meet it.

    Every row has a person, because rows without one are dropped before any query.
    """
    match aggregate:
        case Aggregate(verb="count_values", operands=(Ref() as of,)) if _is_person(view, of):
            return Aggregate("count")
        case Aggregate(
            verb="count_values", operands=(Case(whens=((when, Ref() as of),), otherwise=None),)
        ) if _is_person(view, of):
            return Aggregate("count_values", (one_where(when),))
        case _:
            return aggregate


def _people_where(view: View, aggregate: Aggregate) -> Predicate | None:
    """Return the condition of COUNT(DISTINCT CASE WHEN condition THEN person END), else None.

    `COUNT(DISTINCT person) FILTER (WHERE condition)` is read as that too.
    """
    match aggregate:
        case Aggregate(
            verb="count_distinct", operands=(Case(whens=((when, then),), otherwise=None),)
        ):
            is_person = _counts_people(view, Aggregate("count_distinct", (then,)))
            return when if is_person else None
        case _:
            return None


def _have_a_row(condition: Predicate) -> Aggregate:
    """Return an aggregate that counts the people with a row for which the condition is true.

    It is a sum of ones, clamped to 1 per person and group.
    """
    return Aggregate(
        "sum", (one_where(condition),), person_sum_bounds=(Constant.of(0), Constant.of(1))
    )


def _counts_people(view: View, aggregate: Aggregate) -> bool:
    """Check whether the aggregate is COUNT(DISTINCT person).

    Which column is the person depends only on the data card.
    """
    is_distinct = aggregate.verb == "count_distinct" and len(aggregate.operands) == 1
    return is_distinct and _is_person(view, aggregate.operands[0])


def _is_person(view: View, of: Expr) -> bool:
    """Check whether the expression is the person column, if the privacy unit is a person."""
    return view.card.by_person and isinstance(of, Ref) and of.column.casefold() in view.people
