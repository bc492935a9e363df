"""An order to prepare, as it travels to the worker: the card's promises, the paths, no salt."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from sfumato.core.card import Limits
from sfumato.core.columns import Column
from sfumato.core.expression import Constant
from sfumato.core.ports import PrepareOrder
from sfumato.core.refusal import Bug
from sfumato.engines.frames import Header


@dataclass(frozen=True)
class Order:
    """What the worker knows of a preparation."""

    source: str
    work: str  # the private folder where everything is made
    inner_table: str | None
    unit: str | None  # the column that says whose a row is; None if the unit is a row
    columns: tuple[Column, ...]
    nulls: tuple[str, ...]
    limits: Limits
    sketches: tuple[tuple[str, str], ...]


def order_header(order: PrepareOrder, source: Path, work: Path) -> Header:
    """Return the message that carries the order."""
    card = order.card
    limits = card.limits
    return {
        "do": "prepare",
        "source": str(source),
        "work": str(work),
        "inner_table": order.inner_table,
        "unit": card.unit if card.by_person else None,
        "columns": [_column_json(column) for column in card.columns],
        "nulls": list(card.nulls),
        "limits": [limits.rows, limits.rows_per_person, limits.text_length],
        "sketches": [[domain, str(Path(path).absolute())] for domain, path in order.sketches],
    }


def _column_json(column: Column) -> Header:
    return {
        "name": column.name,
        "type": column.type,
        "lower": column.lower,
        "upper": column.upper,
        "step": str(column.step),
        "keys": None if column.keys is None else [[key.kind, key.text] for key in column.keys],
    }


def read_order(message: Header) -> Order:
    """Return the order again; the message comes from our own parent."""
    match message:
        case {
            "source": str(source),
            "work": str(work),
            "inner_table": None | str() as inner_table,
            "unit": None | str() as unit,
            "columns": list(columns),
            "nulls": list(nulls),
            "limits": [int(rows), int(rows_per_person), int(text_length)],
            "sketches": list(sketches),
        }:
            return Order(
                source,
                work,
                inner_table,
                unit,
                tuple(_read_column(column) for column in columns),
                tuple(str(null) for null in nulls),
                Limits(rows, rows_per_person, text_length),
                tuple((str(domain), str(path)) for domain, path in sketches),
            )
        case _:
            raise Bug("an order that is none")


def _read_column(shape: object) -> Column:
    match shape:
        case {
            "name": str(name),
            "type": "integer" | "number" | "text" | "boolean" | "date" | "timestamp" as kind,
            "lower": None | int() as lower,
            "upper": None | int() as upper,
            "step": str(step),
            "keys": None | list() as keys,
        }:
            constants = None if keys is None else tuple(Constant(k, t) for k, t in keys)
            return Column(name, kind, lower, upper, Fraction(step), constants)
        case _:
            raise Bug("a column that is none")
