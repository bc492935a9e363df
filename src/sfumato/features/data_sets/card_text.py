"""Convert a data card to JSON text for the store and back, with exact numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused


def card_text(shape: Mapping[str, object]) -> str:
    """Return a data card as JSON text in which decimals and fractions stay exact."""
    return json.dumps(_plain(shape))  # keeps the card's order: columns are found by position


def card_shape(text: str) -> Json:
    """Parse a stored data card's JSON text, with exact numbers."""
    shape = json.loads(text, parse_float=Decimal)
    if not isinstance(shape, dict):
        raise Refused(
            "bad-card",
            "The data card stored in the vault is damaged.",
            "Add the data set again, with its card.",
        )
    return {str(key): _exact(value) for key, value in shape.items()}


_TAG = "exact decimal: "
_RATIO = "exact ratio: "


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, Decimal):
        return _TAG + str(value)
    if isinstance(value, Fraction):
        return _RATIO + str(value)
    if isinstance(value, date | datetime):
        return value.isoformat()
    return value


def _exact(value: object) -> object:
    if isinstance(value, dict):
        return {key: _exact(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_exact(inner) for inner in value]
    if isinstance(value, str) and value.startswith(_TAG):
        return Decimal(value[len(_TAG) :])
    if isinstance(value, str) and value.startswith(_RATIO):
        return Fraction(value[len(_RATIO) :])
    return value
