"""Small tables for the engines' tests, and what they hold by a plain reading of the rules.

`clean` and `added_up` are the reference: slow, exact, written apart from the SQL they judge.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from sfumato.core.card import Card, Column, read_card
from sfumato.core.measure import Measure
from sfumato.core.ports import Engine, IntegerArray, Prepared, PrepareOrder
from sfumato.core.question import All, Among, AnyOf, Compare, Constant, IsNull, Not, Predicate
from sfumato.door.unseal import unseal

Value = int | str | bool | None
Row = Mapping[str, Value]
SALT = bytes(range(32))

NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?")


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
) -> tuple[str, Prepared]:
    """Return the prepared table's path, and what the owner learns."""
    target = source.with_name(f"{source.stem}.prepared.duckdb")
    order = PrepareOrder(
        source=str(source),
        target=str(target),
        card=card,
        salt=salt,
        sketches=sketches,
        sketch=str(sketch_of(source)),
    )
    return str(target), engine.prepare(order)


def sketch_of(source: Path) -> Path:
    return source.with_name(f"{source.stem}.people.json")


def answers(engine: Engine, table: str, measure: Measure) -> list[list[int]]:
    """Return the true integers, tally by tally."""
    found: tuple[IntegerArray, ...] = unseal(engine.measure(table, measure))
    return [tally.tolist() for tally in found]


# --- the reference -------------------------------------------------------------------------------


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
        row["p"] = None if person in (*card.nulls, "") else person
    for place, column in enumerate(card.columns):
        value = clean(column, cells[column.name], card.nulls, card.limits.text_length)
        row[f"v{place}"] = value
        keys = [_constant(k, column.step) for k in column.keys or ()]
        if column.keys is not None:
            row[f"k{place}"] = keys.index(value) if value in keys else None
    return row


def _constant(constant: Constant, step: Fraction = Fraction(1)) -> object:
    if constant.kind == "number":
        return constant.number / step
    return constant.text == "true" if constant.kind == "boolean" else constant.text


def holds(predicate: Predicate, row: Row) -> bool | None:
    """Return what the condition says of the row: true, false, or null."""
    match predicate:
        case Compare(column=column, operator=operator, constant=constant):
            value: Any = row[column]  # int, text or truth value: what the constant is too
            wanted: Any = _constant(constant)
            if value is None:
                return None
            order = (value > wanted) - (value < wanted)
            signs = {"=": (0,), "!=": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}
            return order in signs[operator]
        case Among(column=column, constants=constants):
            return None if row[column] is None else row[column] in [_constant(c) for c in constants]
        case IsNull(column=column):
            return row[column] is None
        case Not(predicate=inner):
            truth = holds(inner, row)
            return None if truth is None else not truth
        case All(predicates=parts):
            truths = [holds(p, row) for p in parts]
            return False if False in truths else None if None in truths else True
        case AnyOf(predicates=parts):
            truths = [holds(p, row) for p in parts]
            return True if True in truths else None if None in truths else False


def added_up(measure: Measure, rows: Sequence[Row]) -> list[list[int]]:
    """Return what the measure adds up when nobody has more rows or cells than allowed."""
    kept = [r for r in rows if measure.where is None or holds(measure.where, r) is True]
    kept = [r for r in kept if not (measure.by_person and r["p"] is None)]
    cells = list(itertools.product(*(range(key.size) for key in measure.keys)))
    per_cell = [
        [r for r in kept if tuple(r[key.column] for key in measure.keys) == cell] for cell in cells
    ]
    return [
        [_tally(tally.kind, tally.column, tally.scale, tally.offset, rows_) for rows_ in per_cell]
        for tally in measure.tallies
    ]


def _tally(kind: str, column: str, scale: int, offset: int, rows: Sequence[Row]) -> int:
    if kind == "rows":
        return len(rows)
    if kind == "people":
        return len({row["p"] for row in rows})
    values = [row[column] for row in rows if row[column] is not None]
    return len(values) if kind == "values" else sum(scale * int(v or 0) + offset for v in values)
