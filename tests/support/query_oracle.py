"""What a question plainly says of some rows, and what a plan's measure adds up of them.

`Reading` is the reference: exact fractions, three-valued logic, one row at a time, written apart
from the SQL that it judges. It also holds every intermediate number to the bounds that the plan
claims for it.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import Any

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato.dp.refusal import Refused
from sfumato.engines.shared.cell_assembly import Assembly, Layout
from sfumato.query import name_resolution as scope
from sfumato.query.aggregates.aggregate import AskedAggregate
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
    Sign,
    StartsWith,
    Unit,
)
from sfumato.query.grouping_keys import plan_key
from sfumato.query.join import View, joined_view
from sfumato.query.measure import Cells, Measure, Tally
from sfumato.query.model import (
    Aggregate,
    Joined,
    JoinedPersonTable,
    PersonColumn,
    PersonTable,
    Query,
    Verb,
)
from sfumato.query.name_resolution import card_scope, resolved_scope
from sfumato.query.number_types import with_zero_origin as in_its_grid
from sfumato.query.plan import PEOPLE, Plan, make_plan
from sfumato.query.printing.expressions import Secret
from sfumato.query.printing.statements import lower
from sfumato.query.typecheck import typecheck
from sfumato.query.typed_expression import ExpressionType, Scope
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card, read_card

CARD = """
unit = "who"
budget = { epsilon = 3, delta = 1e-6 }
[columns.zip]
type = "text"
keys = ["a", "b", "c"]
[columns.town]
type = "text"
[columns.sick]
type = "boolean"
[columns.pay]
type = "number"
lower = -3
upper = 5
step = 0.5
[columns.age]
type = "integer"
lower = 0
upper = 12
[columns.grade]
type = "integer"
lower = 1
upper = 5
keys = [3, 1, 2]
[columns.free]
type = "number"
step = 0.25
[columns.day]
type = "date"
[columns.seen]
type = "timestamp"
"""
CELLS: Mapping[str, Sequence[str]] = {
    "zip": ("a", "b", "c", " a ", "zz", ""),
    "town": ("x", "xy", "y", "it's", "?{}", "X", "x%y", "é", "\U0001f600", ""),
    "sick": ("true", "f", "YES", "0", "perhaps", ""),
    "pay": ("-99", "-3", "-0.25", "0", "0.24", "0.25", "1.5", "1e1", "4.75", "much", ""),
    "age": ("-1", "0", "1", "2.5", "3", "7", "12", "40", "x", ""),
    "grade": ("1", "2", "3", "4", "0", "", "B"),
    "free": ("-7.3", "0", "0.125", "2", "1e60", "-5", "3000000000.25", "x", ""),
    "day": ("2025-12-31", "2026-01-01", "2026-02-15", "1969-12-29", "2026-02-30", "", "0001-01-01",
            "2024-02-29"),
    "seen": ("2026-01-01 00:00:00", "2026-01-01T13:59", "1969-12-28 23:59:59.5",
             "2025-12-29 00:00:00.000001", "noon", ""),
}  # fmt: skip
# by a card, of columns whose keys it names, nor by a question
UNDECLARED = ("zz", "xy", "X", "w", "other")
Value = Fraction | str | bool | datetime | None
Cell = tuple[Value, ...]
LogicalRow = Mapping[str, Value]
Tables = str | tuple[str, ...]  # the prepared one, or all of the card
Ask = Callable[[Measure], Cells]
CHOICES = ("quantile", "minimum", "maximum", "top", "first_above", "bounds")
# whose squares are added up, of the one number or of both
MOMENTS: Mapping[Verb, tuple[int, ...]] = {
    "variance": (0,), "deviation": (0,), "population_variance": (0,), "population_deviation": (0,),
    "covariance": (), "population_covariance": (), "correlation": (0, 1), "slope": (1,),
    "intercept": (1,),
}  # fmt: skip


def card(unit: str = "who", **more: object) -> Card:
    return read_card("t", {**tomllib.loads(CARD, parse_float=Decimal), "unit": unit, **more})


# --- rows: what a cell means, and how a prepared table holds it ----------------------------------


@dataclass(frozen=True)
class Person:
    """One row of somebody: what each cell means."""

    who: str
    cells: LogicalRow
    texts: Mapping[str, str] = field(default_factory=dict)  # as a source spells them


def meaning(column: Column, text: str) -> Value:
    text = text.strip()
    if not text:
        return None
    if column.is_numeric:
        return _number(column, text)
    if column.type == "boolean":
        return {"true": True, "yes": True, "f": False, "0": False}.get(text.lower())
    if column.type == "text":
        return text
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _number(column: Column, text: str) -> Fraction | None:
    if not re.fullmatch(r"-?[0-9.]+(e[0-9]+)?", text):
        return None
    steps = Fraction(text) / column.step
    if column.lower is None or column.upper is None:
        return rounded(Fraction(text), column.step) if abs(steps) <= 2**52 else None
    inside = max(Fraction(column.lower), min(Fraction(column.upper), steps))
    return rounded(inside * column.step, column.step)


def rounded(value: Fraction, step: Fraction) -> Fraction:
    return (value / step + Fraction(1, 2)).__floor__() * step


def some_rows(rng: random.Random, people: int, most: int) -> list[Person]:
    columns = card().columns
    return [
        spelt(columns, f"p{p}", {c.name: rng.choice(CELLS[c.name]) for c in columns})
        for p in range(people)
        for _ in range(rng.randint(1, most))
    ]


def spelt(columns: Sequence[Column], who: str, texts: Mapping[str, str]) -> Person:
    """Return the row that a source spells like that."""
    return Person(who, {c.name: meaning(c, texts[c.name]) for c in columns}, texts)


KINDS = {"text": "VARCHAR", "boolean": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMP"}


def keyed(*words: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:8], "big")


def prepare(
    database: duckdb.DuckDBPyConnection,
    made: Card,
    rows: Sequence[Person],
    beside: Sequence[Person] = (),
) -> str:
    """Make a prepared table by hand; `person` is dense, so it changes when somebody is removed.

    People who are in the other table are numbered with those of this one.
    """
    (count,) = database.execute("SELECT count(*) FROM duckdb_tables()").fetchall()[0]
    name = f'"rows{count}"'
    order = sorted({r.who for r in (*rows, *beside)}, key=lambda who: keyed(who))
    columns = ["person BIGINT", "person_key UBIGINT", "row_key UBIGINT"]
    for i, column in enumerate(made.columns):
        columns.append(f"v{i} {KINDS.get(column.type, 'BIGINT')}")
        columns += [f"k{i} INTEGER"] if column.keys is not None else []
    database.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
    cells = [
        [order.index(r.who), keyed(r.who), keyed(r.who, sorted(r.cells.items())), *_stored(made, r)]
        for r in rows
    ]
    if cells:
        marks = f"({', '.join('?' * len(columns))})"
        flat = [cell for row in cells for cell in row]
        database.execute(f"INSERT INTO {name} VALUES {', '.join([marks] * len(cells))}", flat)
    return name


def _stored(made: Card, row: Person) -> list[object]:
    stored: list[object] = []
    for column in made.columns:
        value = row.cells[column.name]
        stored.append(int(value / column.step) if isinstance(value, Fraction) else value)
        if column.keys is not None:
            keys = [constant_value(key, value) for key in column.keys]
            stored.append(keys.index(value) if value in keys else None)
    return stored


def constant_value(constant: Constant, beside: Value) -> Value:
    if constant.kind == "number":
        return constant.number
    if constant.kind == "boolean":
        return constant.text == "true"
    return datetime.fromisoformat(constant.text) if isinstance(beside, datetime) else constant.text


# --- what the plan's SQL adds up -----------------------------------------------------------------


def added_up(
    database: duckdb.DuckDBPyConnection, plan: Plan, table: Tables
) -> dict[Cell, tuple[Any, ...]]:  # a number per tally, a list for a histogram
    """Return what DuckDB adds up, asked as it stands, over tables made by hand."""
    return found_by(plan, partial(answered, database, table))


def found_by(plan: Plan, ask: Ask) -> dict[Cell, tuple[Any, ...]]:
    """Return the integers of the measure's tallies, by the cell's keys; empty cells left out."""
    cells = measured(plan, ask)
    met = range(len(cells.keys)) if cells.keys is not None else _met(cells.parts)
    found: dict[Cell, tuple[Any, ...]] = {}
    for place in met:
        keys = _read(plan, cells.keys[place] if cells.keys is not None else _codes(plan, place))
        pairs = zip(plan.keys, keys, strict=True)
        cell = tuple(_key_value(key.kind, key.unit, constant) for key, constant in pairs)
        assert cell not in found
        found[cell] = tuple(part[place].tolist() for part in cells.parts)
    return found


def measured(plan: Plan, ask: Ask) -> Cells:
    """Return what the measure adds up; histograms of private keys once those are known."""
    if plan.measure.is_public:
        return ask(plan.measure)
    counted, listed = ask(plan.measure.without_histograms), None
    if plan.has_histograms and counted.keys:
        listed = ask(
            plan.measure.histograms_of(tuple(plan.key_constants(key) for key in counted.keys))
        )
    parts = tuple(_part(plan, tally, counted, listed) for tally in plan.measure.tallies)
    return Cells(parts, counted.keys)


def _part(plan: Plan, tally: Tally, counted: Cells, listed: Cells | None) -> NDArray[np.int64]:
    if tally.kind != "histogram":
        return counted.parts[plan.measure.without_histograms.tallies.index(tally)]
    if listed is None:
        return np.zeros((0, tally.size), dtype=np.int64)
    return listed.parts[plan.measure.histograms_of(()).tallies.index(tally)]


def answered(database: duckdb.DuckDBPyConnection, table: Tables, measure: Measure) -> Cells:
    """Return what DuckDB answers to a measure of tables made by hand."""
    assembly = Assembly(Layout.of(measure))
    names = (table,) if isinstance(table, str) else table
    for statement in lower(measure, "duckdb", names):
        bound = ["salt" if b is Secret.SALT else b for b in statement.parameters]
        assembly.add(statement.tallies, database.execute(statement.sql, bound).fetchnumpy())
    return assembly.cells()


def _met(parts: Sequence[NDArray[np.int64]]) -> list[int]:
    """Return the public cells in which something is not zero."""
    return sorted({place for part in parts for place in np.nonzero(part)[0].tolist()})


def _codes(plan: Plan, place: int) -> list[int]:
    codes = []
    for key in reversed(plan.keys):
        place, code = divmod(place, key.key.size or 1)
        codes.append(code)
    return codes[::-1]


def _read(plan: Plan, cell: Sequence[object]) -> list[Constant]:
    pairs = zip(plan.keys, cell, strict=True)
    return [k.read(v) if k.keys is None else k.keys[int(str(v))] for k, v in pairs]


def _key_value(kind: str, unit: Unit | None, constant: Constant) -> Value:
    is_time = unit is not None or kind in ("date", "timestamp")
    return constant_value(constant, datetime(1, 1, 1) if is_time else None)


def exact_value(plan: Plan, aggregate: Aggregate, numbers: Sequence[Any]) -> Fraction | Cell:
    """Return what the tallies say of an aggregate: a number, sums and counts, or a list."""
    asked = plan.asked_of(aggregate)
    parts = [numbers[plan.tally_of(place)] for place in plan.parts_of(aggregate)]
    if aggregate.verb in CHOICES:
        return tuple(map(Fraction, parts[0]))
    if aggregate.verb in MOMENTS:
        return tuple(map(Fraction, parts))
    if aggregate.verb == "mean":
        lower_and_upper = asked.operand.lower + asked.operand.upper
        return (Fraction(parts[0] + lower_and_upper * parts[1], 2) * asked.operand.step,
                Fraction(parts[1]))  # fmt: skip
    step = asked.operand.step if aggregate.verb == "sum" else Fraction(1)
    return Fraction(parts[0]) * step


# --- the reference -------------------------------------------------------------------------------


@dataclass
class Reading:
    """Reads expressions and conditions of one scope on a row, as the language's pages say."""

    scope: Scope
    known: dict[Expr, ExpressionType] = field(default_factory=dict)

    def type(self, expr: Expr) -> ExpressionType:
        if expr not in self.known:
            self.known[expr] = typecheck(expr, self.scope)
        return self.known[expr]

    def value(self, expr: Expr, row: LogicalRow) -> Value:
        found = self._value(expr, row)
        side = self.type(expr)
        if isinstance(found, Fraction):
            if isinstance(expr, Arithmetic) and expr.sign == "/":
                found = rounded(found, side.step)
            steps = (found - side.origin) / side.step
            assert steps.denominator == 1, (expr, found, side.step)
            assert side.lower <= steps <= side.upper, (expr, found, side)
        return found

    def _value(self, expr: Expr, row: LogicalRow) -> Value:
        match expr:
            case Ref(column=column):
                return row[column]
            case LiteralValue(constant=constant):
                return constant_value(constant, None)
            case Arithmetic(sign=sign, left=left, right=right):
                return _reckoned(sign, self.value(left, row), self.value(right, row))
            case Floor(of=of):
                number = self.value(of, row)
                return None if not isinstance(number, Fraction) else Fraction(number.__floor__())
            case Clamp(of=of, lower=lower, upper=upper):
                return _between(self.value(of, row), lower, upper)
            case Coalesce(parts=parts):
                values = [self.value(part, row) for part in parts]
                return next((v for v in values if v is not None), None)
            case Case(whens=whens, otherwise=otherwise):
                for condition, then in whens:
                    if self.holds(condition, row) is True:
                        return self.value(then, row)
                return None if otherwise is None else self.value(otherwise, row)
            case DateTrunc() | DateField():
                moment = self.value(expr.of, row)
                return _of_time(expr, moment) if isinstance(moment, datetime) else None
            case FunctionCall(name="abs", of=of):
                number = self.value(of, row)
                return abs(number) if isinstance(number, Fraction) else None
            case _:
                raise AssertionError("not of rows")

    def holds(self, predicate: Predicate, row: LogicalRow) -> bool | None:
        match predicate:
            case Not(predicate=inner):
                truth = self.holds(inner, row)
                return None if truth is None else not truth
            case All(predicates=parts):
                truths = [self.holds(p, row) for p in parts]
                return False if False in truths else None if None in truths else True
            case AnyOf(predicates=parts):
                truths = [self.holds(p, row) for p in parts]
                return True if True in truths else None if None in truths else False
            case IsNull(of=of):
                return self.value(of, row) is None
            case _:
                return _simple(predicate, self.value(predicate.of, row))


def _of_time(expr: DateTrunc | DateField, moment: datetime) -> Value:
    if isinstance(expr, DateTrunc):
        return begin(expr.unit, moment)
    return Fraction(_field(expr.field, moment))


def _simple(predicate: Compare | Among | StartsWith, value: Any) -> bool | None:  # of one type each
    if value is None:
        return None
    match predicate:
        case Compare(operator=operator, constant=constant):
            wanted: Any = constant_value(constant, value)
            order = (value > wanted) - (value < wanted)
            signs = {"=": (0,), "!=": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}
            return order in signs[operator]
        case Among(constants=constants):
            return value in [constant_value(c, value) for c in constants]
        case StartsWith(letters=letters):
            return str(value).startswith(letters)


def _between(value: Value, lower: Constant | None, upper: Constant | None) -> Value:
    if isinstance(value, Fraction) and lower is not None:
        value = max(value, lower.number)
    if isinstance(value, Fraction) and upper is not None:
        value = min(value, upper.number)
    return value


def _reckoned(sign: Sign, left: Value, right: Value) -> Fraction | None:
    if not isinstance(left, Fraction) or not isinstance(right, Fraction):
        return None
    if sign == "/":
        return None if right == 0 else left / right
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


def begin(unit: Unit, moment: datetime) -> datetime:
    match unit:
        case "hour":
            return moment.replace(minute=0, second=0, microsecond=0)
        case "day":
            return datetime(moment.year, moment.month, moment.day)
        case "week":
            day = datetime(moment.year, moment.month, moment.day)
            return day - timedelta(days=day.weekday())
        case "month":
            return datetime(moment.year, moment.month, 1)
        case "quarter":
            return datetime(moment.year, (moment.month - 1) // 3 * 3 + 1, 1)
        case "year":
            return datetime(moment.year, 1, 1)


def _field(name: str, moment: datetime) -> int:
    if name == "quarter":
        return (moment.month + 2) // 3
    return moment.isoweekday() if name == "weekday" else int(getattr(moment, name))


def _view(plan: Plan) -> View:
    """Return what the rows are of: one table, even if several were joined to it."""
    alone = replace(plan.question, table="", joins=(), joined_person_tables=(), lookups=())
    beside = tuple(joined_view(card, Query(card.name, ()))[0] for card in plan.beside)
    return replace(joined_view(plan.card, alone)[0], beside=beside, lookups=plan.lookups)


Public = Mapping[str, Sequence[LogicalRow]]  # public rows, by the table's name


def read_plainly(
    plan: Plan,
    rows: Sequence[Person],
    others: Sequence[Sequence[Person]] = (),
    public: Public = MappingProxyType({}),
) -> dict[Cell, list[Person]]:
    """Return the rows (or people, if there is an inner SELECT) of each cell of the question.

    `others` are the rows of further inner SELECTs, which stand beside the first by the person.
    """
    question, view = plan.question, _view(plan)
    reading = Reading(resolved_scope(view, question))
    where = question.where
    if question.source is not None:
        rows = _people(view, question.source, rows)
        for one, its, theirs in zip(
            question.joined_person_tables, view.beside, others, strict=True
        ):
            rows = _meeting(one, rows, _people(its, one.each, theirs))
        for joined, look_up in zip(question.lookups, plan.lookups, strict=True):
            rows = _looked_up(joined, look_up.key.name, rows, public[joined.table])
    cells: dict[Cell, list[Person]] = defaultdict(list)
    for row in rows:
        if where is not None and reading.holds(where, row.cells) is not True:
            continue
        cell = tuple(reading.value(key.of, row.cells) for key in plan.keys)
        if None not in cell and all(map(_is_answered, plan.keys, cell)):
            cells[cell].append(row)
    return cells


def _meeting(
    one: JoinedPersonTable, rows: Sequence[Person], others: Sequence[Person]
) -> list[Person]:
    """Return the people who are in both, or all of the first, with the columns of both."""
    theirs = {other.who: other.cells for other in others}
    nothing = dict.fromkeys(column.name for column in one.each.columns)
    return [
        Person(row.who, {**row.cells, **theirs.get(row.who, nothing)})
        for row in rows
        if one.keeps_all or row.who in theirs
    ]


def _looked_up(
    joined: Joined, key: str, rows: Sequence[Person], public: Sequence[LogicalRow]
) -> list[Person]:
    """Return the people with the public row whose key their value is, or with nothing if kept."""
    of = {row[key]: row for row in public if row[key] is not None}
    nothing: LogicalRow = dict.fromkeys(public[0])
    met = [(row, of.get(row.cells[joined.on[0]])) for row in rows]
    return [
        replace(
            row,
            cells={
                **row.cells,
                **{f"{joined.table}.{name}": value for name, value in (found or nothing).items()},
            },
        )
        for row, found in met
        if found is not None or joined.keeps_all
    ]


def _is_answered(key: Any, value: Value) -> bool:  # a key of a plan, and what a row has for it
    if key.keys is None:
        return True
    keys = [_key_value(key.kind, key.unit, constant) for constant in key.keys]
    if value not in keys:  # only a declared column has values that are no keys
        assert value in UNDECLARED or isinstance(key.of, Ref | FunctionCall), (key.of, value)
    return value in keys


def _people(view: View, source: PersonTable, rows: Sequence[Person]) -> list[Person]:
    reading = Reading(card_scope(view))
    people = []
    for who in sorted({row.who for row in rows}):
        theirs = [row.cells for row in rows if row.who == who]
        where = source.where
        theirs = [row for row in theirs if where is None or reading.holds(where, row) is True]
        made = {c.name: _reduced(reading, c, theirs, view.card) for c in source.columns}
        people += [Person(who, made)] if theirs else []
    return people


def _reduced(
    reading: Reading, column: PersonColumn, rows: Sequence[LogicalRow], card: Card
) -> Value:
    if column.of is None:
        return Fraction(len(rows))
    values: list[Any] = [v for r in rows if (v := reading.value(column.of, r)) is not None]
    if column.verb in ("count", "count_values"):
        return Fraction(len(values))
    side = in_its_grid(reading.type(column.of))  # a person's mean is rounded down to a part of it
    size = 8 * card.limits.rows * max(abs(side.lower), abs(side.upper), 1)
    fine = side.step / next((n for n in (10_000, 1_000) if size * n <= 2**61), 100)
    made: Mapping[str, Callable[[Any], Any]] = {
        "sum": sum,
        "minimum": min,
        "maximum": max,
        "mean": lambda some: math.floor(sum(some) / len(some) / fine) * fine,
    }
    return made[column.verb](values) if values else None


def said_plainly(plan: Plan, aggregate: Aggregate, rows: Sequence[Person]) -> Fraction | Cell:
    """Return the exact value of an aggregate over the rows of a cell."""
    if aggregate.verb == "count":
        return Fraction(len(rows))
    if aggregate.verb == "count_people":
        return Fraction(len({row.who for row in rows}))
    reading = Reading(resolved_scope(_view(plan), plan.question))
    if aggregate.verb in MOMENTS:
        return _moments(plan.asked_of(aggregate), reading, rows)
    (of,) = aggregate.operands
    pairs = [(r.who, v) for r in rows if (v := reading.value(of, r.cells)) is not None]
    values: list[Any] = [v for _, v in pairs]
    if aggregate.verb == "count_values":
        return Fraction(len(values))
    if aggregate.verb == "count_distinct":
        return Fraction(len(set(values)))
    if aggregate.verb == "mean":
        return (Fraction(sum(values)), Fraction(len(values)))
    if aggregate.verb in CHOICES:
        return tuple(map(Fraction, _listed(plan.asked_of(aggregate), values)))
    if aggregate.verb != "sum":
        raise AssertionError(aggregate.verb)
    if aggregate.person_sum_bounds is None:
        return Fraction(sum(values))
    low, high = (c.number for c in aggregate.person_sum_bounds)
    one_by_one = not plan.card.by_person or plan.question.source is not None
    totals: dict[object, Any] = defaultdict(Fraction)
    for place, (who, value) in enumerate(pairs):
        totals[place if one_by_one else who] += value
    return Fraction(sum(max(low, min(high, total)) for total in totals.values()))


# --- the reference: lists that are chosen from, and moments -------------------------------------


def _listed(asked: AskedAggregate, values: Sequence[Any]) -> list[int]:
    """Return how many values count for each point of the public list, from the first on."""
    side = asked.operand
    if asked.aggregate.verb in ("top", "first_above"):
        key = plan_key(asked.aggregate.operands[0], side)
        return [values.count(_key_value(key.kind, key.unit, name)) for name in key.keys or ()]
    steps = [int(value / side.step) for value in values]
    if asked.aggregate.verb == "bounds":  # 0 in the middle, then by their binary digits
        digits = max(1, abs(side.lower).bit_length(), abs(side.upper).bit_length())
        places = [digits + (1 if n > 0 else -1) * abs(n).bit_length() for n in steps]
        return _counted(places, 2 * digits + 1)
    width = side.upper - side.lower
    stride = -(-(width + 1) // asked.max_points)
    return _counted([(n - side.lower) // stride for n in steps], width // stride + 1)


def _counted(places: Sequence[int], size: int) -> list[int]:
    found = Counter(places)
    assert all(0 <= place < size for place in found)
    return [found[place] for place in range(size)]


@dataclass(frozen=True)
class Grid:
    """A bounded number as a whole one from 0 to `top`; rounded where it has too many steps."""

    side: ExpressionType
    room: int  # what a row may add, so that all of them fit

    @property
    def stride(self) -> int:
        return -(-(self.side.upper - self.side.lower) // min(2**30, self.room))

    @property
    def top(self) -> int:
        return (self.side.upper - self.side.lower + self.stride // 2) // self.stride

    def place(self, value: Fraction) -> int:
        steps = value / self.side.step - self.side.lower
        return (int(steps) + self.stride // 2) // self.stride


def _moments(asked: AskedAggregate, reading: Reading, rows: Sequence[Person]) -> Cell:
    """Return the rows where all is known, and their central sums (noisy_moments.proof.md)."""
    of, room = asked.aggregate.operands, (2**62 - 1) // asked.card.limits.rows
    grids = [Grid(side, room) for side in asked.operands]
    read: list[list[Any]] = [[reading.value(one, row.cells) for one in of] for row in rows]
    known = [
        [grid.place(value) for grid, value in zip(grids, values, strict=True)]
        for values in read
        if None not in values
    ]
    found = [len(known)]
    found += [sum(2 * row[i] - grid.top for row in known) for i, grid in enumerate(grids)]
    if len(grids) == 2:
        y, x = (grid.top for grid in grids)
        found.append(sum(_thinned((2 * a - y) * (2 * b - x), y * x, room) for a, b in known))
    for i in MOMENTS[asked.aggregate.verb]:
        top = grids[i].top
        most = top**2 // 4
        middle = _thinned(most, most, room)
        squares = [2 * _thinned(row[i] * (top - row[i]), most, room) - middle for row in known]
        found += [sum(squares)] if most else []
    return tuple(map(Fraction, found))


def _thinned(product: int, most: int, room: int) -> int:
    """Return the product in parts that leave room for every row, rounded to the nearest."""
    divisor = max(1, -(-most // min(2**28, room)))
    return (product + divisor // 2) // divisor


# --- the reference judges ------------------------------------------------------------------------


def disagreement(
    plan: Plan,
    found: Mapping[Cell, tuple[Any, ...]],
    rows: Sequence[Person],
    others: Sequence[Sequence[Person]] = (),
    *,
    said: Plan | None = None,
    public: Public = MappingProxyType({}),
) -> str:
    """Return how the plan's integers differ from the plain reading; empty if they do not.

    What is read is the question of `said`, if the plan is of one that says the same otherwise.
    """
    said = said or plan
    cells = read_plainly(said, rows, others, public)
    found = {_turned(plan, said, cell): numbers for cell, numbers in found.items()}
    if plan.selects_keys and set(found) != set(cells):
        return f"cells {set(found) ^ set(cells)}"
    nothing = tuple([0] * t.size if t.kind == "histogram" else 0 for t in plan.measure.tallies)
    for cell in {*found, *cells}:
        numbers, theirs = found.get(cell, nothing), cells.get(cell, [])
        for output in said.question.outputs:
            if isinstance(output.of, Aggregate):
                ours = exact_value(plan, _aggregate(plan, output.name), numbers)
                plainly = said_plainly(said, output.of, theirs)
                if ours != plainly:
                    return f"{output.of} in {cell}: {ours}, and plainly {plainly}"
        if plan.selects_keys:
            people = numbers[plan.measure.tallies.index(PEOPLE)]
            if people != len({r.who for r in theirs} if plan.card.by_person else theirs):
                return f"people in {cell}: {people}"
    return ""


def _turned(plan: Plan, said: Plan, cell: Cell) -> Cell:
    """Return the cell with its keys in the order in which the question as said has them."""
    if plan is said:
        return cell
    named = {o.name: o.of for o in plan.question.outputs}
    names = {o.of: o.name for o in said.question.outputs}
    ours = [key.of for key in plan.keys]
    return tuple(cell[ours.index(named[names[key.of]])] for key in said.keys)  # type: ignore[arg-type]  # keys are expressions


def _aggregate(plan: Plan, name: str) -> Aggregate:
    (found,) = [o.of for o in plan.question.outputs if o.name == name]
    assert isinstance(found, Aggregate)
    return found


def planned(made: Card, question: Query) -> Plan | None:
    try:
        return make_plan(made, question)
    except Refused:
        return None


def as_posed(made: Card, question: Query) -> Plan | None:
    """Return the plan of the question with its conditions as they were said, none of them turned.

    What is read plainly is this one: that a condition means the same when it is turned is judged.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scope, "canonical_condition", lambda predicate: predicate)
        return planned(made, question)
