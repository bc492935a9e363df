"""Find the card's columns of the table that a regression or a clamping check uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfumato.client.display import CardView
from sfumato.dp.refusal import Refused

if TYPE_CHECKING:
    from sfumato.client.query_builder import Builder


def card_columns(card: CardView, rows: Builder) -> list[dict[str, Any]]:  # Any: JSON
    """Return the card's columns of the question's table; refuse a question with a join."""
    if rows.joins:
        raise Refused(
            "not-in-language",
            "A regression or a clamping check takes one table, and this question joins several.",
            "Leave the join out, or ask for the sums over the join in a question of your own.",
        )
    if rows.table.casefold() in ("", str(card["name"]).casefold()):
        return list(card["columns"])
    for table in card["tables"]:
        if table["name"].casefold() == rows.table.casefold():
            return list(table["columns"])
    raise Refused(
        "unknown-data-set",
        f"{card['name']!r} has no table {rows.table!r}.",
        "It has: " + ", ".join(table["name"] for table in card["tables"]) + ".",
    )
