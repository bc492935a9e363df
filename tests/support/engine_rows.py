"""Small tables for the engines' tests, and what they hold by a plain reading of the rules.

`clean` and `added_up` are the reference: slow, exact, written apart from the SQL they judge.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

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
    IsNull,
    LiteralValue,
    Not,
    Predicate,
    Ref,
    StartsWith,
)
from sfumato.query.measure import (
    Cells,
    Join,
    Measure,
    PhysicalPersonColumn,
    PhysicalPersonTable,
    Tally,
)
from sfumato.query.printing.from_clause import table_name
from sfumato.release.unseal import unseal
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card, read_card
from sfumato.vault.engine_port import Engine, Prepared, PrepareOrder, SourceFile

Value = int | str | bool | date | datetime | None
Row = Mapping[str, Value]
Numbers = dict[tuple[object, ...], tuple[object, ...]]  # cell -> per tally a number, or a list
SALT = bytes(range(32))

NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


def card_of(unit: str, columns: Mapping[str, Mapping[str, Any]], **more: Any) -> Card:  # any card
    shape = {"unit": unit, "budget": {"epsilon": 1}, "columns": columns, **more}
    return read_card("some", shape)


def write_source(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow(header)
        writer.writerows(rows)
    return path


def prepare(
    engine: Engine,
    source: Path,
    card: Card,
    *,
    salt: bytes = SALT,
    sketches: tuple[tuple[str, str], ...] = (),
    others: Sequence[Path] = (),
) -> tuple[str, Prepared]:
    """Return the prepared table's path, and what the owner learns."""
    target = source.with_name(f"{source.stem}.prepared.duckdb")
    order = PrepareOrder(
        sources=(SourceFile(str(source)), *(SourceFile(str(path)) for path in others)),
        target=str(target),
        card=card,
        salt=salt,
        sketches=sketches,
        sketch=str(sketch_of(source)),
        accept_unreadable=tuple(c.name for table in card.every_table for c in table.columns),
    )
    return str(target), engine.prepare(order)


def sketch_of(source: Path) -> Path:
    return source.with_name(f"{source.stem}.people.json")


def answers(engine: Engine, table: str, measure: Measure) -> list[Any]:  # as deep as tallies are
    """Return the true integers, tally by tally; every key is public."""
    cells: Cells = unseal(engine.measure(table, measure))
    assert cells.keys is None
    return [part.tolist() for part in cells.parts]


def numbers(engine: Engine, table: str, measure: Measure) -> Numbers:
    """Return the true numbers of each cell that has a number other than zero."""
    cells: Cells = unseal(engine.measure(table, measure))
    lists = zip(*(part.tolist() for part in cells.parts), strict=True)
    names = public_cells(measure) if cells.keys is None else cells.keys
    return without_empty(dict(zip(names, lists, strict=True)))


def without_empty(found: Numbers) -> Numbers:
    """Return the cells in which something was counted."""
    return {
        cell: several
        for cell, several in found.items()
        if any(any(n) if isinstance(n, list) else n for n in several)
    }


def public_cells(measure: Measure) -> list[tuple[object, ...]]:
    """Return the codes of every cell, in order."""
    return list(itertools.product(*(range(key.size or 0) for key in measure.keys)))


# --- the reference: what a cell means -----------------------------------------------------------


def clean(column: Column, text: str, nulls: Sequence[str] = ("",), length: int = 200) -> Value:
    """Return what a cell means on the card."""
    text = text.strip()
    if text in nulls:
        return None
    match column.type:
        case "integer" | "number":
            return _steps(column, text)
        case "text":
            return text[:length]
        case "boolean":
            low = text.lower()
            yes, no = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
            return True if low in yes else False if low in no else None
        case "date":
            return _iso(text, r"\d{4}-\d{2}-\d{2}")
        case "timestamp":
            return _iso(text, r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?")


def _steps(column: Column, text: str) -> int | None:
    if not NUMBER.fullmatch(text):
        return None
    steps = Fraction(text) / column.step
    if column.lower is not None and column.upper is not None:
        steps = max(Fraction(column.lower), min(steps, Fraction(column.upper)))
    elif not -(2**52) <= steps <= 2**52:
        return None
    return (steps + Fraction(1, 2)).__floor__()


def _iso(text: str, pattern: str) -> str | None:
    if not re.fullmatch(pattern, text):
        return None
    try:
        if len(pattern) < 20:
            return date.fromisoformat(text).isoformat()
        return datetime.fromisoformat(text).isoformat(sep=" ", timespec="microseconds")
    except ValueError:
        return None


def cleaned(card: Card, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Row]:
    """Return the rows as the prepared table should hold them: p, v0, k0, ..."""
    return [_cleaned(card, dict(zip(header, row, strict=True))) for row in rows]


def _cleaned(card: Card, cells: Mapping[str, str]) -> Row:
    row: dict[str, Value] = {}
    if card.by_person:
        person = cells[card.unit].strip()
        row["person"] = None if person in (*card.nulls, "") else person
    for place, column in enumerate(card.columns):
        value = clean(column, cells[column.name], card.nulls, card.limits.text_length)
        keys = [_key(k, column.step) for k in column.keys or ()]
        if column.keys is not None:
            row[f"k{place}"] = keys.index(value) if value in keys else None
        row[f"v{place}"] = _dated(column, value)
    return row


def _key(constant: Constant, step: Fraction) -> object:
    if constant.kind == "number":
        return constant.number / step
    return constant.text == "true" if constant.kind == "boolean" else constant.text


def _dated(column: Column, value: Value) -> Value:
    if isinstance(value, str) and column.type == "date":
        return date.fromisoformat(value)
    if isinstance(value, str) and column.type == "timestamp":
        return datetime.fromisoformat(value)
    return value


def stored_rows(table: str, place: int = 0) -> list[Row]:
    """Return the rows as the preparation wrote them, with their secret keys."""
    with duckdb.connect(table, read_only=True) as connection:
        found = connection.execute(f"SELECT * FROM {table_name('duckdb', place)}")
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def joined_rows(measure: Measure, tables: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the rows of the measure's tables beside each other, as the measure names them."""
    seen: list[Row] = list(tables[measure.table])
    for join in measure.joins:
        seen = [made for row in seen for made in _beside(row, join, tables[join.table])]
    return seen


def _beside(row: Row, join: Join, others: Sequence[Row]) -> list[Row]:
    if join.looked_up is None:
        found = [other for other in others if other["person"] == row["person"]]
    else:
        name = f"v{join.looked_up}"  # of a table of people it is a u
        value = row[name] if name in row else row[f"u{join.looked_up}"]
        found = [other for other in others if _are_equal(value, other[f"v{join.key}"])]
    for before, own in join.also:
        found = [o for o in found if _are_equal(row[f"v{before}"], o[f"v{own}"])]
    if not found and join.keeps_all:
        found = [{f"{kind}{i}": None for i in range(join.width) for kind in "vk"}]
    made: list[Row] = []
    for other in found:
        both = dict(row)
        for name, value in other.items():
            if re.fullmatch("[vk][0-9]+", name):
                both[f"{name[0]}{int(name[1:]) + join.start}"] = value
        if join.looked_up is None:  # rows are ordered by the keys of each table in turn
            both["row_key"] = (int(str(row["row_key"])) << 64) + int(str(other.get("row_key", 0)))
        made.append(both)
    return made


def _are_equal(value: Value, other: Value) -> bool:
    return value is not None and value == other


# --- the reference: expressions and conditions ---------------------------------------------------


def worth(expr: Expr, row: Row) -> Any:  # a number, a text, a truth value, a date or null
    """Return the value of the expression for the row."""
    match expr:
        case Ref(column=column):
            return row[column]
        case LiteralValue(constant=constant):
            return plain(constant)
        case Arithmetic(sign=sign, left=left, right=right):
            return _reckoned(sign, worth(left, row), worth(right, row))
        case Clamp(of=of, lower=lower, upper=upper):
            value = worth(of, row)
            if value is None:
                return None
            value = value if lower is None else max(value, int(lower.number))
            return value if upper is None else min(value, int(upper.number))
        case Coalesce(parts=parts):
            values = (worth(part, row) for part in parts)
            return next((value for value in values if value is not None), None)
        case Case(whens=whens, otherwise=otherwise):
            for condition, then in whens:
                if holds(condition, row) is True:
                    return worth(then, row)
            return None if otherwise is None else worth(otherwise, row)
        case DateTrunc(unit=unit, of=of):
            moment = worth(of, row)
            return None if moment is None else _since(unit, moment)
        case DateField(field=field, of=of):
            moment = worth(of, row)
            return None if moment is None else _field(field, moment)
        case Floor():
            raise AssertionError("no measure has a floor")


def _reckoned(sign: str, left: int | None, right: int | None) -> int | None:
    if left is None or right is None or (sign == "/" and right == 0):
        return None
    return {"+": left + right, "-": left - right, "*": left * right}.get(
        sign, left // right if right else 0
    )


def _day(moment: date) -> date:
    return moment.date() if isinstance(moment, datetime) else moment


def _since(unit: str, moment: date) -> int:
    days = (_day(moment) - date(1970, 1, 1)).days
    match unit:
        case "hour":
            return 24 * days + (moment.hour if isinstance(moment, datetime) else 0)
        case "day":
            return days
        case "week":
            return (_day(moment) - date(1969, 12, 29)).days // 7  # the Monday of that first week
        case "month":
            return (moment.year - 1970) * 12 + moment.month - 1
        case "quarter":
            return (moment.year - 1970) * 4 + (moment.month - 1) // 3
    return moment.year - 1970


def _field(field: str, moment: date) -> int:
    match field:
        case "quarter":
            return (moment.month + 2) // 3
        case "weekday":
            return _day(moment).isoweekday()
        case "hour":
            return moment.hour if isinstance(moment, datetime) else 0
    return int(getattr(moment, field))


def plain(constant: Constant) -> Any:  # of the constant's own type
    """Return the constant as a plain value."""
    match constant.kind:
        case "number":
            return constant.number if constant.number.denominator > 1 else int(constant.number)
        case "boolean":
            return constant.text == "true"
        case "date":
            return date.fromisoformat(constant.text)
        case "timestamp":
            return datetime.fromisoformat(constant.text)
    return constant.text


def holds(predicate: Predicate, row: Row) -> bool | None:
    """Return what the condition says of the row: true, false, or null."""
    match predicate:
        case Compare(of=of, operator=operator, constant=constant):
            value, wanted = worth(of, row), plain(constant)
            if value is None:
                return None
            order = (value > wanted) - (value < wanted)
            signs = {"=": (0,), "!=": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}
            return order in signs[operator]
        case Among(of=of, constants=constants):
            value = worth(of, row)
            return None if value is None else value in [plain(c) for c in constants]
        case StartsWith(of=of, letters=letters):
            value = worth(of, row)
            return None if value is None else value.startswith(letters)
        case IsNull(of=of):
            return worth(of, row) is None
        case Not(predicate=inner):
            truth = holds(inner, row)
            return None if truth is None else not truth
        case All(predicates=parts):
            truths = [holds(p, row) for p in parts]
            return False if False in truths else None if None in truths else True
        case AnyOf(predicates=parts):
            truths = [holds(p, row) for p in parts]
            return True if True in truths else None if None in truths else False


# --- the reference: adding up, everyone's part bounded -------------------------------------------


def added_up(
    measure: Measure,
    rows: Sequence[Row],
    salt: bytes = SALT,
    order: CellOrder | None = None,
    others: Sequence[Sequence[Row]] = (),
) -> Numbers:
    """Return what the measure adds up; where bounds bite, the rows need their secret keys.

    `others` are the rows that the tables of people are made of that stand beside the first.
    """
    bounded = measure.by_person and measure.source is None
    if measure.source is not None:
        rows = _met(measure, measure.source, [rows, *others])
    kept = [r for r in rows if measure.where is None or holds(measure.where, r) is True]
    placed = [(cell, r) for r in kept if (cell := _cell(measure, r)) is not None]
    if not bounded:
        return _tallied(measure, placed, placed, salt)
    placed = [(cell, r) for cell, r in placed if r["person"] is not None]
    chosen = _chosen_cells(measure, placed, salt, order or cell_order)
    some = [(cell, r) for cell, r in placed if cell in chosen[r["person"]]]
    return _tallied(measure, some, _first_rows(measure, some), salt)


def _cell(measure: Measure, row: Row) -> Cell | None:
    values = [worth(key.value, row) for key in measure.keys]
    for key, value in zip(measure.keys, values, strict=True):
        if value is None or (key.size is not None and not 0 <= value < key.size):
            return None
    return tuple(values)


def _shown(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="microseconds")
    return f"{value.isoformat()} 00:00:00.000000" if isinstance(value, date) else value


Cell = tuple[Any, ...]  # numbers, texts, truth values and dates, as the keys are
Placed = Sequence[tuple[Cell, Row]]
CellOrder = Callable[[Measure, bytes, Any, Cell], Any]


def _chosen_cells(
    measure: Measure, placed: Placed, salt: bytes, order: CellOrder
) -> Mapping[Value, Sequence[Cell]]:
    """Return of each person the cells that count."""
    of: dict[Value, set[Cell]] = {}
    for cell, row in placed:
        of.setdefault(row["person"], set()).add(cell)
    keys = {row["person"]: row.get("person_key", 0) for _, row in placed}
    return {
        person: sorted(cells, key=partial(order, measure, salt, keys[person]))[: measure.max_groups]
        for person, cells in of.items()
    }


def cell_order(measure: Measure, salt: bytes, person_key: object, cell: Cell) -> Any:
    """Return what plain SQL and stored ranks sort a person's cells by."""
    named = cell
    if measure.is_public:
        number = 0
        for key, code in zip(measure.keys, cell, strict=True):
            number = number * (key.size or 0) + code
        named = (number,)
    return prf(salt, "cell", person_key, *named), named


def prf(salt: bytes, tag: str, person_key: object, *values: object) -> int:
    """Return the secret place of a cell or value among those of its person."""
    texts = [str(person_key), *map(spelt, values)]
    if len(values) > 1:
        texts[1:] = [f"{len(text)}={text}" for text in texts[1:]]
    text = f"{salt.hex()}:{tag}:" + ":".join(texts)
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[8:], "little")


def spelt(value: object) -> str:
    """Return the value as every engine writes it."""
    if isinstance(value, datetime) and value.microsecond:
        return str(value).rstrip("0")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _first_rows(measure: Measure, placed: Placed) -> Placed:
    """Return of each person's rows in a cell those that count."""
    seen: dict[object, int] = {}
    first = []
    for cell, row in sorted(placed, key=lambda p: int(str(p[1].get("row_key", 0)))):
        place = (cell, row["person"])
        seen[place] = seen.get(place, 0) + 1
        if seen[place] <= measure.max_rows:
            first.append((cell, row))
    return first


def _tallied(measure: Measure, every: Placed, first: Placed, salt: bytes) -> Numbers:
    """Return the tallies: different values of every row, all else of the first rows."""
    lists = [
        _by_cell(every if t.kind == "distinct" else first, _TALLIES[t.kind](measure, t, salt))
        for t in measure.tallies
    ]
    empty = [_TALLIES[t.kind](measure, t, salt)([]) for t in measure.tallies]
    cells = {cell for of in lists for cell in of}
    return without_empty(
        {
            tuple(map(_shown, cell)): tuple(
                of.get(cell, nothing) for of, nothing in zip(lists, empty, strict=True)
            )
            for cell in cells
        }
    )


Adding = Callable[[Sequence[Row]], object]


def _by_cell(placed: Placed, add: Adding) -> Numbers:
    of: dict[Cell, list[Row]] = {}
    for cell, row in placed:
        of.setdefault(cell, []).append(row)
    return {cell: add(rows) for cell, rows in of.items()}  # type: ignore[misc]  # one tally's


def _values(tally: Tally, rows: Sequence[Row]) -> list[Any]:
    assert tally.value is not None
    values = [worth(tally.value, row) for row in rows]
    return [value for value in values if value is not None]


def _people_of(measure: Measure, rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows person by person; each row by itself where a row is all that there is."""
    if not measure.by_person or measure.source is not None:
        return [[row] for row in rows]
    of: dict[object, list[Row]] = {}
    for row in rows:
        of.setdefault(row["person"], []).append(row)
    return list(of.values())


def _rows(_measure: Measure, _tally: Tally, _salt: bytes) -> Adding:
    return len


def _count_people(measure: Measure, _tally: Tally, _salt: bytes) -> Adding:
    return lambda rows: len(_people_of(measure, rows))


def _count_values(_measure: Measure, tally: Tally, _salt: bytes) -> Adding:
    return lambda rows: len(_values(tally, rows))


def _sum(measure: Measure, tally: Tally, _salt: bytes) -> Adding:
    def part(rows: Sequence[Row]) -> int:
        values = _values(tally, rows)
        total: int = sum(tally.scale * value + tally.offset for value in values)
        if tally.clamp is None or not values:  # the sum of nothing is nothing
            return total
        return max(tally.clamp[0], min(total, tally.clamp[1]))

    return lambda rows: sum(map(part, _people_of(measure, rows)))


def _histogram(_measure: Measure, tally: Tally, _salt: bytes) -> Adding:
    def listed(rows: Sequence[Row]) -> list[int]:
        found = Counter(_values(tally, rows))
        return [found[code] for code in range(tally.size)]

    return listed


def _distinct(measure: Measure, tally: Tally, salt: bytes) -> Adding:
    def first(rows: Sequence[Row]) -> set[Any]:
        values = set(_values(tally, rows))
        if not measure.by_person or measure.source is not None:
            return values
        key = rows[0].get("person_key", 0)
        return set(
            sorted(values, key=lambda v: (prf(salt, "value", key, v), v))[: tally.max_distinct]
        )

    return lambda rows: len({v for part in _people_of(measure, rows) for v in first(part)})


_TALLIES: Mapping[str, Callable[[Measure, Tally, bytes], Adding]] = {
    "rows": _rows,
    "people": _count_people,
    "values": _count_values,
    "sum": _sum,
    "histogram": _histogram,
    "distinct": _distinct,
}


# --- the reference: one row for each person ------------------------------------------------------


def rows_beside(measure: Measure, tables: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """Return the rows of which tables are made that stand beside the first; public ones last."""
    of_people = [
        joined_rows(replace(measure, table=one.table, joins=one.joins), tables)
        for one in measure.joined_person_tables
    ]
    return [*of_people, *(list(tables[join.table]) for join in measure.lookups)]


def _met(
    measure: Measure, source: PhysicalPersonTable, tables: Sequence[Sequence[Row]]
) -> list[Row]:
    """Return one row for each person of the first table, with their row of the others."""
    first, *others = tables
    made, start = _people(source, first), len(source.columns)
    for one, rows in zip(measure.joined_person_tables, others, strict=False):
        theirs = _people(one.source, rows, start)
        nothing: Row = {f"u{start + i}": None for i in range(len(one.source.columns))}
        made = {
            person: {**row, **theirs.get(person, nothing)}
            for person, row in made.items()
            if one.keeps_all or person in theirs
        }
        start += len(one.source.columns)
    met = list(made.values())
    for join, rows in zip(
        measure.lookups, others[len(measure.joined_person_tables) :], strict=True
    ):
        met = [both for row in met for both in _beside(row, join, rows)]
    return met


def _people(source: PhysicalPersonTable, rows: Sequence[Row], start: int = 0) -> dict[object, Row]:
    of: dict[object, list[Row]] = {}
    for row in sorted(rows, key=lambda r: int(str(r.get("row_key", 0)))):
        fits = source.where is None or holds(source.where, row) is True
        if fits and row["person"] is not None:
            of.setdefault(row["person"], []).append(row)
    return {who: _person(source, mine[: source.max_rows], start) for who, mine in of.items()}


def _person(source: PhysicalPersonTable, rows: Sequence[Row], start: int) -> Row:
    return {f"u{start + i}": _reduced(column, rows) for i, column in enumerate(source.columns)}


def _reduced(column: PhysicalPersonColumn, rows: Sequence[Row]) -> Value:
    if column.value is None:
        return len(rows)
    values = [v for row in rows if (v := worth(column.value, row)) is not None]
    if column.kind == "values":
        return len(values)
    if not values:
        return None
    made: Value = sum(values) if column.kind == "sum" else _EXTREMES[column.kind](values)
    return made


_EXTREMES: Mapping[str, Callable[[list[Any]], Any]] = {"min": min, "max": max}
