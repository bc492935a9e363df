"""Dates in SQL: the period that one lies in, and its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from sfumato.query.expression import FIELDS, UNITS, Expr, Field, Part, Since, Unit
from sfumato.query.sql.columns_and_constants import constant_of, only, refuse_unsupported
from sfumato.query.sql.functions import OfNumber, Reader
from sfumato.query.sql.hints import EXPRESSIONS, hint_for_call, hint_of

_UNITS: Final[Mapping[str, Unit]] = {unit: unit for unit in UNITS}
_FIELDS: Final[Mapping[str, Field]] = {
    "isodow" if field == "weekday" else field: field for field in FIELDS
}
_FIELD_CALLS: Final[Mapping[type[exp.Expr], Field]] = {
    exp.Year: "year", exp.Quarter: "quarter", exp.Month: "month", exp.Day: "day",
    exp.DayOfMonth: "day", exp.DayOfWeekIso: "weekday", exp.Hour: "hour",
}  # fmt: skip


def _trunc(node: exp.Expr, read: Reader) -> Expr:
    only(node, {"this", "unit"})
    unit = _UNITS.get(node.args["unit"].name.casefold()) if node.args.get("unit") else None
    if unit is None:
        raise refuse_unsupported(
            node, "this unit of time is not answered", f"Use {', '.join(_UNITS)}."
        )
    return Since(unit, read(node.this))


def _extract(node: exp.Expr, read: Reader) -> Expr:
    only(node, {"this", "expression"})
    field = _FIELDS.get(str(node.this.name).casefold())
    if field is None:
        raise refuse_unsupported(
            node, "this field of time is not answered", f"Use {', '.join(_FIELDS)}."
        )
    return Part(field, read(node.expression))


def _date_part(node: exp.Expr, read: Reader) -> Expr:
    """Read DATE_PART('month', day)."""
    parts = node.expressions
    if node.name.casefold() not in ("date_part", "datepart") or len(parts) != 2:
        raise refuse_unsupported(node, hint_for_call(node), hint_of(node, EXPRESSIONS))
    only(node, {"this", "expressions"})
    field = _FIELDS.get(constant_of(parts[0]).text.casefold())
    if field is None:
        raise refuse_unsupported(
            node, "this field of time is not answered", f"Use {', '.join(_FIELDS)}."
        )
    return Part(field, read(parts[1]))


def _field(node: exp.Expr, read: Reader) -> Expr:
    only(node, {"this"})
    return Part(_FIELD_CALLS[type(node)], read(node.this))


def _date(node: exp.Expr, read: Reader) -> Expr:
    only(node, {"this"})
    return Since("day", read(node.this))


OF_A_TIME: Final[Mapping[type[exp.Expr], OfNumber]] = {
    exp.TimestampTrunc: _trunc,
    exp.DateTrunc: _trunc,
    exp.Extract: _extract,
    exp.Date: _date,
    exp.TsOrDsToDate: _date,
    exp.Anonymous: _date_part,
    **dict.fromkeys(_FIELD_CALLS, _field),
}
