"""A proposed card: from the names and types of the columns, never from what stands in them."""

from __future__ import annotations

from collections.abc import Mapping

from sfumato.core.expression import Json
from sfumato.core.ports import Described


def proposed_card(name: str, found: Described) -> Json:
    """Return a card to be filled in; without a budget and bounds from knowledge it is refused."""
    columns = found.columns
    unit = next((column for column, _ in columns if is_identifier(column)), None)
    card: Json = {
        "unit": unit or "row",
        "people": name,
        "version": "1",
        "nulls": ["", "n/a", "NA"],
        "ask": {"who": ["researchers"]},
        "columns": {
            column: _column(column, kind, found.formats.get(column, {})) for column, kind in columns
        },
    }
    if found.encoding != "utf-8":
        card["encoding"] = found.encoding
    return {**card, "max_groups": 1, "max_rows": 1} if unit else card


def _column(column: str, kind: str, formats: Mapping[str, str]) -> Json:
    if is_identifier(column) or is_name(column):
        return {"hidden": True}
    return {"type": kind, **formats}


def is_identifier(column: str) -> bool:
    """Say whether a column of that name seems to tell people apart."""
    word = column.strip().casefold()
    return word in ("id", "pid", "ssn") or word.endswith(("_id", " id", "-id"))


def is_name(column: str) -> bool:
    """Say whether a column of that name seems to name people."""
    word = column.strip().casefold()
    return word in ("name", "email", "e-mail", "phone", "address") or word.endswith("_name")
