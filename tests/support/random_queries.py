"""Random questions, and their texts."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from sfumato.query.expression import (
    FIELDS,
    OPERATORS,
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
    Operator,
    Predicate,
    Ref,
    StartsWith,
    Total,
    Unit,
    walk,
)
from sfumato.query.model import (
    REDUCTIONS,
    Aggregate,
    Formula,
    Joined,
    Output,
    PersonColumn,
    PersonTable,
    Query,
    Verb,
)
from support.query_oracle import CELLS

MOMENTS: tuple[Verb, ...] = (
    "variance", "deviation", "covariance", "correlation", "slope", "intercept",
    "population_variance", "population_deviation", "population_covariance",
)  # fmt: skip
PAIRED = ("covariance", "correlation", "slope", "intercept", "population_covariance")
DATES = ("day", "given")  # the others among the times have hours
WHOLE = ("-3", "-2", "0", "1/2", "1", "3", "7", "8", "12")  # most of them values of a column


def _near(name: str, *apart: timedelta) -> list[str]:
    """Return the moments of a column, and those so far before or after them."""
    found = []
    for text in CELLS[name]:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            continue
        found += [moment + one for one in apart] if moment.year > 1 else []
    return [moment.isoformat(sep=" ") for moment in found]


_NONE, _DAY, _SECOND, _LEAST = (
    timedelta(), timedelta(days=1), timedelta(seconds=1), timedelta(microseconds=1),
)  # fmt: skip
MOMENTS_NEAR = _near("seen", _NONE, _NONE, -_SECOND, _SECOND, -_LEAST, _LEAST)
DAYS_NEAR = [text[:10] for text in _near("day", _NONE, _NONE, -_DAY, _DAY)]
# values that columns have, and the ends of what they may have
EDGES: Mapping[str, Sequence[str]] = {
    "pay": ("-3", "0", "1/2", "3/2", "5"), "age": ("0", "1", "3", "7", "12"),
    "free": ("-5", "0", "1/4", "2"), "grade": ("1", "2", "3"), "dose": ("0", "1", "3", "7", "12"),
    "rate": ("-3", "0", "3/2", "5"), "size": ("-2", "-1", "0", "5", "6"),
}  # fmt: skip
HOURS = (" 00:00:00", " 13:00:00", " 13:30:00")


@dataclass
class Asking:
    """Makes random expressions, conditions and questions.

    `is_tame` where plain SQL agrees, `is_wide` where every verb that counts is asked.
    """

    rng: random.Random
    is_tame: bool = False
    is_wide: bool = False
    numbers: Sequence[str] = ("pay", "age", "free", "grade")
    texts: Sequence[str] = ("zip", "town")
    times: Sequence[str] = ("day", "seen")
    truths: Sequence[str] = ("sick",)
    listed: Sequence[str] = ("zip", "grade")  # whose values the card names

    def one(self, *several: Callable[[], Any]) -> Any:
        return self.rng.choice(several)()

    def constant(self) -> Constant:
        some = WHOLE if self.is_tame else (*WHOLE, "-7/5", "3/2", "40")
        return Constant("number", self.rng.choice(some))

    def number(self, depth: int = 2) -> Expr:
        if depth == 0 or self.rng.random() < 0.25:
            return Ref(self.rng.choice(self.numbers))
        deeper = depth - 1
        made: Expr = self.one(
            lambda: LiteralValue(self.constant()),
            lambda: Arithmetic(self.one(lambda: "+", lambda: "-", lambda: "*"),
                               self.number(deeper), self.number(deeper)),
            lambda: self.quotient(deeper),
            lambda: Floor(self.number(deeper)),
            lambda: FunctionCall("abs", self.number(deeper)),
            lambda: self.clamp(deeper),
            lambda: Coalesce(tuple(self.number(deeper) for _ in range(self.rng.randint(1, 3)))),
            lambda: self.case(self.number, deeper),
            lambda: self.part(),
        )  # fmt: skip
        return made

    def quotient(self, depth: int) -> Expr:
        by = Constant("number", self.rng.choice(("2", "1/2", "-4", "8")))
        right = LiteralValue(by) if self.is_tame or self.rng.random() < 0.5 else self.number(depth)
        return Arithmetic("/", self.number(depth), right)

    def clamp(self, depth: int) -> Expr:
        low, high = sorted((self.constant(), self.constant()), key=lambda c: c.number)
        kind = self.rng.randint(0, 2)
        of = self.number(depth)
        if self.is_tame and isinstance(of, Clamp):  # xfail below: three bounds lose one
            return of
        return Clamp(of, None if kind == 1 else low, None if kind == 2 else high)

    def case(self, value: Callable[[int], Expr], depth: int) -> Expr:
        whens = tuple((self.simple(depth), value(depth)) for _ in range(self.rng.randint(1, 2)))
        return Case(whens, None if self.rng.random() < 0.4 else value(depth))

    def part(self) -> Expr:
        if not self.times:
            return self.number(0)
        time_of = Ref(self.rng.choice(self.times))
        fields = [f for f in FIELDS if f != "hour" or time_of.column == "seen"]
        return DateField(self.rng.choice(fields), time_of)

    def period(self) -> Expr:
        time_of = Ref(self.rng.choice(self.times))
        units: list[Unit] = ["year", "quarter", "month", "week", "day"]
        hours: list[Unit] = ["hour"] * 3 if time_of.column == "seen" else []
        return DateTrunc(self.rng.choice(units + hours), time_of)

    def text(self, depth: int = 2) -> Expr:
        if depth == 0 or self.rng.random() < 0.4:
            return Ref(self.rng.choice(self.texts))
        word = LiteralValue(Constant("text", self.rng.choice(("x", "b", "it's", "other"))))
        made: Expr = self.one(
            lambda: Coalesce((self.text(depth - 1), word)),
            lambda: Coalesce((self.text(depth - 1), self.text(depth - 1))),
            lambda: self.case(lambda d: self.one(lambda: word, lambda: self.text(d)), depth - 1),
        )
        return made

    def truth(self, depth: int = 1) -> Expr:
        if depth == 0 or self.rng.random() < 0.6:
            return Ref(self.rng.choice(self.truths))
        no = LiteralValue(Constant.of(self.rng.random() < 0.5))
        return self.case(lambda d: self.one(lambda: no, lambda: self.truth(d)), 0)

    def anything(self, depth: int = 1) -> Expr:
        kinds: list[Callable[[], Expr]] = [lambda: self.number(depth)] * 3
        kinds += [lambda: self.text(depth)] * 2 if self.texts else []
        kinds += [self.truth] if self.truths else []
        kinds += [self.period, lambda: Ref(self.rng.choice(self.times))] if self.times else []
        made: Expr = self.one(*kinds)
        return made

    def simple(self, depth: int) -> Predicate:
        kinds: list[Callable[[], Predicate]] = [
            lambda: Compare(self.number(depth), self.rng.choice(OPERATORS), self.constant()),
            lambda: Among(self.number(depth), (self.constant(), self.constant())),
            lambda: IsNull(self.anything(depth)),
        ]
        kinds += [self._at_an_edge] * 4
        if self.texts:
            word = Constant("text", self.rng.choice(("a", "b", "x", "it's", "zz", "{}", "X", "é")))
            kinds += [
                lambda: Compare(self.text(depth), self.one(lambda: "=", lambda: "!="), word),
                lambda: Among(self.text(depth), (word, Constant("text", "c"))),
                lambda: StartsWith(self.text(depth), self.rng.choice(("x", "i", "xy", "x%", "_"))),
            ]
        if self.truths:
            kinds.append(
                lambda: Compare(self.truth(), self.one(lambda: "=", lambda: "!="),
                                Constant.of(self.rng.random() < 0.5))
            )  # fmt: skip
        if self.times:
            kinds += [self._time_compared] * 2
        made: Predicate = self.one(*kinds)
        return made

    def _at_an_edge(self) -> Predicate:
        """Return a column compared with one of its values: where < and <= are not the same."""
        column = self.rng.choice(self.numbers)
        some = EDGES.get(column.rpartition(".")[2], WHOLE)
        edge = Constant("number", self.rng.choice(some))
        return Compare(Ref(column), self.rng.choice(OPERATORS), edge)

    def _time_compared(self) -> Predicate:
        of = self.period() if self.rng.random() < 0.5 else Ref(self.rng.choice(self.times))
        named = {r.column for r in (of, getattr(of, "of", of)) if isinstance(r, Ref)}
        is_date = named <= set(DATES)
        if self.rng.random() < 0.2:
            return Among(of, (self._moment(is_date=is_date), self._moment(is_date=is_date)))
        return Compare(of, self.rng.choice(OPERATORS), self._moment(is_date=is_date))

    def _moment(self, *, is_date: bool) -> Constant:
        """Return a moment of the data, one just before or after, or one with its day."""
        text = self.rng.choice(DAYS_NEAR)
        if not is_date:
            near = self.rng.choice(MOMENTS_NEAR)
            text = self.one(
                lambda: near,
                lambda: near,
                lambda: near[:10] + self.rng.choice(HOURS),
                lambda: text + self.rng.choice(HOURS),
            )
        return Constant("text", text)

    def condition(self, depth: int = 2) -> Predicate:
        if depth == 0 or self.rng.random() < 0.4:
            return self.simple(1)
        several = tuple(self.condition(depth - 1) for _ in range(2))
        made: Predicate = self.one(lambda: Not(several[0]), lambda: All(several),
                                   lambda: AnyOf(several))  # fmt: skip
        return made

    def aggregate(self, is_by_person: bool) -> Aggregate:
        verbs: tuple[Verb, ...] = ("count", "count_values", "count_distinct", "sum", "mean")
        verb = self.rng.choice((*verbs, "sum", "count_people") if is_by_person else verbs)
        if verb in ("count", "count_people"):
            return Aggregate(verb)
        of = self.bounded_number() if verb in ("sum", "mean") else self.anything(2)
        if self.rng.random() < 0.2:
            of = Case(((self.condition(1), of),), None)  # FILTER (WHERE …)
        if self.is_wide and verb in ("sum", "mean") and self.rng.random() < 0.4:
            return of_another_verb(self.rng, of, self.numbers, self.listed)
        if verb == "count_distinct":
            return Aggregate(verb, (of,), most=None if self.is_tame else 1000)
        if verb == "sum" and not self.is_tame and self.rng.random() < 0.3:
            grid = Constant("number", "-4"), Constant("number", str(self.rng.choice((0, 1, 6))))
            return Aggregate(verb, (of,), person_sum_bounds=grid)
        return Aggregate(verb, (of,))

    def bounded_number(self) -> Expr:
        made = self.number()
        if self.rng.random() < 0.5 or (self.is_tame and isinstance(made, Clamp)):
            return made
        return Clamp(made, Constant("number", "-3"), Constant("number", "5"))

    def question(self, is_by_person: bool) -> Query:
        has_source = is_by_person and self.rng.random() < 0.25
        source = self.source() if has_source else None
        outer = self if source is None else self.of_people(source)
        return replace(outer.of_rows(is_by_person), source=source)

    def of_rows(self, is_by_person: bool) -> Query:
        keys = tuple(dict.fromkeys(self.key() for _ in range(self.rng.choice((0, 1, 1, 2)))))
        several = [self.aggregate(is_by_person) for _ in range(self.rng.randint(1, 3))]
        outputs = [Output(f"g{i}", key) for i, key in enumerate(keys)]
        outputs += [Output(f"n{i}", of) for i, of in enumerate(several)]
        where = None if self.rng.random() < 0.4 else self.condition()
        return Query("t", tuple(outputs), where, keys)

    def key(self) -> Expr:
        if self.rng.random() < 0.15:
            return self.bin()
        if not self.texts:
            made = self.number(1)
        else:
            made = self.anything(2) if self.rng.random() < 0.7 else Ref(self.texts[0])
        return made if any(isinstance(part, Ref) for part in _walk(made)) else self.number(0)

    def bin(self) -> Expr:
        """Return a number in bins, most of which begin below zero or between two steps."""
        by = LiteralValue(
            Constant("number", self.rng.choice(("2", "-2", "3/2" if not self.is_tame else "8")))
        )
        return Floor(Arithmetic("/", self.number(0), by))

    def source(self, called: str = "m") -> PersonTable:
        where = None if self.rng.random() < 0.5 else self.condition(1)
        # a person's own mean is rounded down to parts of a step, which SQL does not
        verbs = [verb for verb in REDUCTIONS if verb != "mean" or not self.is_tame]
        columns = []
        for place in range(self.rng.randint(1, 3)):
            verb = self.rng.choice(verbs)
            of = None if verb == "count" else self.bounded_number()
            columns.append(PersonColumn(f"{called}{place}", verb, of))
        return PersonTable(tuple(columns), where, "who")

    def of_people(self, *sources: PersonTable) -> Asking:
        names = [column.name for source in sources for column in source.columns]
        return replace(self, numbers=names, texts=(), times=(), truths=(), listed=names)


def _walk(expr: Expr) -> list[Any]:
    return list(walk(expr))


def of_another_verb(
    rng: random.Random, of: Expr, numbers: Sequence[str], keys: Sequence[str]
) -> Aggregate:
    """Return an aggregate of the number that is no plain sum, perhaps over another beside it."""
    verb: Verb = rng.choice(("quantile", "minimum", "maximum", "top", "first_above", "bounds",
                             *MOMENTS, *MOMENTS))  # fmt: skip
    if verb in PAIRED:
        return Aggregate(verb, (of, Ref(rng.choice(numbers))))
    if verb in ("top", "first_above"):
        return Aggregate(verb, (Ref(rng.choice(keys)),), most=2)
    share = Fraction(rng.choice(("1/4", "0.3333", "1"))) if verb == "quantile" else None
    return Aggregate(verb, (of,), at=share)


# --- as SQL --------------------------------------------------------------------------------------


def sql_of(expr: Expr, plain: bool) -> str:
    """Print the expression; `plain` is what DuckDB itself must read to mean the same."""
    match expr:
        case Ref(column=column):
            return column
        case LiteralValue(constant=constant):
            return _literal(constant)
        case Arithmetic(sign=sign, left=left, right=right):
            return f"({sql_of(left, plain)} {sign} {sql_of(right, plain)})"
        case Floor(of=of):
            return f"FLOOR({sql_of(of, plain)})"
        case Clamp(of=of, lower=lower, upper=upper):
            inner = text = sql_of(of, plain)
            text = text if lower is None else f"GREATEST({text}, {_literal(lower)})"
            text = text if upper is None else f"LEAST({text}, {_literal(upper)})"
            return f"CASE WHEN {inner} IS NULL THEN NULL ELSE {text} END" if plain else text
        case Coalesce(parts=parts):
            return f"COALESCE({', '.join(sql_of(part, plain) for part in parts)})"
        case Case(whens=whens, otherwise=otherwise):
            pairs = "".join(
                f" WHEN {condition_sql(p, plain)} THEN {sql_of(e, plain)}" for p, e in whens
            )
            rest = "" if otherwise is None else f" ELSE {sql_of(otherwise, plain)}"
            return f"CASE{pairs}{rest} END"
        case DateTrunc(unit=unit, of=of):
            return f"date_trunc('{unit}', {sql_of(of, plain)})"
        case DateField(field=name, of=of):
            spelt = "isodow" if name == "weekday" else name
            return f"extract({spelt} FROM {sql_of(of, plain)})"
        case FunctionCall(name=name, of=of):
            return f"{name.upper()}({sql_of(of, plain)})"
        case Total():
            raise AssertionError("not of rows")


def _literal(constant: Constant) -> str:
    if constant.kind == "number":
        return f"{float(constant.number):g}"
    quoted = "'" + constant.text.replace("'", "''") + "'"
    return constant.text if constant.kind == "boolean" else quoted


def _opaque_sql(of: Expr, constant: Constant, plain: bool) -> str:
    """Print the side of a comparison; DuckDB 2.0 misreads CASE ... THEN 'b' END IN ('b', 'c')."""
    text = sql_of(of, plain)
    is_text = plain and constant.kind == "text" and isinstance(of, Case | Coalesce)
    return f"substr({text}, 1)" if is_text else text


TURNED: Mapping[Operator, Operator] = {"<": ">", ">=": "<="}  # half of them, constant first


def condition_sql(predicate: Predicate, plain: bool) -> str:
    match predicate:
        case Compare(of=of, operator=operator, constant=constant):
            side = _opaque_sql(of, constant, plain)
            if operator in TURNED:
                return f"({_literal(constant)} {TURNED[operator]} {side})"
            return f"({side} {operator} {_literal(constant)})"
        case Among(of=of, constants=constants):
            listed = ", ".join(map(_literal, constants))
            return f"({_opaque_sql(of, constants[0], plain)} IN ({listed}))"
        case StartsWith(of=of, letters="x%" | "_" as letters):
            side = _opaque_sql(of, Constant("text", ""), plain)
            return f"starts_with({side}, '{letters}')"
        case StartsWith(of=of, letters=letters):
            return f"({_opaque_sql(of, Constant('text', ''), plain)} LIKE '{letters}%')"
        case IsNull(of=of):
            return f"({sql_of(of, plain)} IS NULL)"
        case Not(predicate=inner):
            return f"(NOT {condition_sql(inner, plain)})"
        case All(predicates=parts):
            return f"({' AND '.join(condition_sql(p, plain) for p in parts)})"
        case AnyOf(predicates=parts):
            return f"({' OR '.join(condition_sql(p, plain) for p in parts)})"


_WORDS: Mapping[Verb, str] = {
    "count_values": "COUNT({})", "count_distinct": "COUNT(DISTINCT {})", "sum": "SUM({})",
    "mean": "AVG({})", "minimum": "MIN({})", "maximum": "MAX({})", "variance": "VAR_SAMP({})",
    "deviation": "STDDEV({})", "population_variance": "VAR_POP({})", "bounds": "BOUNDS({})",
    "population_deviation": "STDDEV_POP({})", "covariance": "COVAR_SAMP({}, {})",
    "population_covariance": "COVAR_POP({}, {})", "correlation": "CORR({}, {})",
    "slope": "REGR_SLOPE({}, {})", "intercept": "REGR_INTERCEPT({}, {})",
}  # fmt: skip


def aggregate_sql(aggregate: Aggregate, plain: bool, who: str = "who") -> str:
    if aggregate.verb == "count_people":
        return f"COUNT(DISTINCT {who})"
    if aggregate.verb == "count":
        return "COUNT(*)"
    word = _word(aggregate)
    if len(aggregate.operands) == 2:
        return word.format(*(sql_of(of, plain) for of in aggregate.operands))
    (of,) = aggregate.operands
    if isinstance(of, Case) and len(of.whens) == 1 and of.otherwise is None:
        condition, inner = of.whens[0]
        if aggregate.verb != "count_distinct":
            filtered = condition_sql(condition, plain)
            return f"{word.format(sql_of(inner, plain))} FILTER (WHERE {filtered})"
    return word.format(sql_of(of, plain))


def _word(aggregate: Aggregate) -> str:
    match aggregate:
        case Aggregate(verb="quantile", at=Fraction() as at):
            return f"QUANTILE_CONT({{}}, {float(at):g})"
        case Aggregate(verb="top", most=most):
            return f"APPROX_TOP_K({{}}, {most})"
        case Aggregate(verb="first_above", most=most):
            return f"FIRST_ABOVE({{}}, {most})"
    return _WORDS[aggregate.verb]


def text_of(question: Query, plain: bool, rest: str = "") -> str:
    source, who = _from_sql(question, plain)
    outputs = [
        f"{aggregate_sql(o.of, plain, who) if isinstance(o.of, Aggregate) else sql_of(o.of, plain)}"
        f" AS {o.name}"
        for o in question.outputs
        if not isinstance(o.of, Formula)  # none is made: they come after the door
    ]
    where = "" if question.where is None else f" WHERE {condition_sql(question.where, plain)}"
    keys = ", ".join(sql_of(key, plain) for key in question.group_by)
    groups = f" GROUP BY {keys}" if keys else ""
    return f"SELECT {', '.join(outputs)} FROM {source}{where}{groups}{rest}"


def _from_sql(question: Query, plain: bool) -> tuple[str, str]:
    """Return what stands after FROM, and how the person is spelled there."""
    if question.source is None:
        return _tables_sql(question.table, question.joins)
    sources = [(question.source, question.table, question.joins, "")]
    sources += [
        (one.each, one.table, one.joins, "LEFT JOIN" if one.keeps_all else "JOIN")
        for one in question.joined_person_tables
    ]
    text = ""
    for place, (source, table, joins, word) in enumerate(sources):
        on = f" ON p{place}.who = p0.who" if place else ""
        text += f" {word} ({_inner_sql(source, table, joins, plain)}) AS p{place}{on}"
    return text.strip(), "p0.who" if question.joined_person_tables else "who"


def _tables_sql(table: str, joins: Sequence[Joined]) -> tuple[str, str]:
    first = table or "t"
    text = first
    for join in joins:
        pairs = (join.on or (f"{first}.who", f"{join.table}.who"), *join.also)
        on = " AND ".join(f"{one} = {other}" for one, other in pairs)
        text += f" {'LEFT JOIN' if join.keeps_all else 'JOIN'} {join.table} ON {on}"
    return text, f"{first}.who" if joins else "who"


def _inner_sql(source: PersonTable, table: str, joins: Sequence[Joined], plain: bool) -> str:
    tables, who = _tables_sql(table, joins)
    columns = [who]
    for column in source.columns:
        of = Aggregate(column.verb, () if column.of is None else (column.of,))
        columns.append(f"{aggregate_sql(of, plain)} AS {column.name}")
    where = "" if source.where is None else f" WHERE {condition_sql(source.where, plain)}"
    return f"SELECT {', '.join(columns)} FROM {tables}{where} GROUP BY {who}"
