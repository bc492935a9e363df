"""The JSON of a data card as users see it, without hidden columns."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date, timedelta
from fractions import Fraction

from sfumato.dp.json_values import Json
from sfumato.query.expression import Constant
from sfumato.vault.card.bids_metadata import BidsMetadata
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import ALONE, TWO_PEOPLE, Card, Table


def key_value(key: Constant) -> object:
    """Return a group key of the data card as a JSON value: a boolean, a number or a text."""
    if key.kind == "boolean":
        return key.text == "true"
    if key.kind == "number":
        return plain_number(key.number)
    return key.text


def plain_number(number: Fraction) -> int | float:
    """Convert a whole number to int, and any other to float.

    Use the result for display and JSON, never for budgets.
    """
    return int(number) if number.denominator == 1 else float(number)


def card_json(card: Card) -> Json:
    """Return the data card as JSON for users who may query the data set, without hidden columns."""
    return {
        "name": card.name,
        "unit": card.unit,
        "people": card.people,
        "version": card.version,
        "budget": card.budget.as_json(),
        "caps": {
            "user": None if card.user_cap is None else card.user_cap.as_json(),
            "group": None if card.group_cap is None else card.group_cap.as_json(),
            "raise": TWO_PEOPLE if card.raised_by_two else ALONE,
        },
        "who": list(card.who),
        "max_groups": card.max_groups,
        "max_rows": card.max_rows,
        "size": card.size,
        "delta_per_request": float(card.delta_per_request),
        "columns": [_column_json(column) for column in card.columns],
        "tables": [_table_json(table) for table in card.tables],
        **({} if card.window is None else {"window": card.window}),
        **({} if card.bids is None else {"bids": list(card.bids)}),
        **({"dataset_description": json.loads(card.description)} if card.description else {}),
        **({"bids_files": card.metadata.as_json()} if card.metadata != BidsMetadata() else {}),
        **({} if card.folders is None else {"folders": asdict(card.folders)}),
        **({} if card.airlock is None else {"airlock": card.airlock.as_json()}),
        **({} if card.averages is None else {"secure_average": card.averages.as_json()}),
    }


def _table_json(table: Table) -> Json:
    return {
        "name": table.name,
        "public": table.is_public,
        "unit": table.unit,
        "key": table.key,
        "max_rows": table.max_rows,
        "columns": [_column_json(column) for column in table.columns],
    }


def _bound(column: Column, bound: int | None) -> object:
    if bound is None:
        return None
    if column.is_numeric:
        return plain_number(bound * column.step)
    return (date(1970, 1, 1) + timedelta(days=bound)).isoformat()


def _column_json(column: Column) -> Json:
    return {
        "name": column.name,
        "type": column.type,
        "lower": _bound(column, column.lower),
        "upper": _bound(column, column.upper),
        "step": plain_number(column.step) if column.is_numeric else None,
        "keys": None if column.keys is None else [key_value(k) for k in column.keys],
        **({"missing": float(column.missing)} if column.missing is not None else {}),
    }
