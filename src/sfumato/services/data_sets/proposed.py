"""A proposed card: from the names and types of the columns, never from what stands in them."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.core.expression import Json


def proposed_card(name: str, columns: Sequence[tuple[str, str]]) -> Json:
    """Return a card to be filled in; without a budget and bounds from knowledge it is refused."""
    unit = next((column for column, _ in columns if is_identifier(column)), None)
    card: Json = {
        "unit": unit or "row",
        "people": name,
        "version": "1",
        "nulls": ["", "n/a", "NA"],
        "ask": {"who": ["researchers"]},
        "columns": {column: _column(column, kind) for column, kind in columns},
    }
    return {**card, "max_groups": 1, "max_rows": 1} if unit else card


def _column(column: str, kind: str) -> Json:
    return {"hidden": True} if is_identifier(column) or is_name(column) else {"type": kind}


def is_identifier(column: str) -> bool:
    """Say whether a column of that name seems to tell people apart."""
    word = column.strip().casefold()
    return word in ("id", "pid", "ssn") or word.endswith(("_id", " id", "-id"))


def is_name(column: str) -> bool:
    """Say whether a column of that name seems to name people."""
    word = column.strip().casefold()
    return word in ("name", "email", "e-mail", "phone", "address") or word.endswith("_name")
